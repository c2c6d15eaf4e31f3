"""Fixtures: a file system of the cluster that HADOOP_CONF_DIR names."""

import itertools

import hearth
import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session")
def hdfs():
    return hearth.FileSystem()


@pytest.fixture(scope="session")
def fs(hdfs):
    """The same; the tests of fsspec have another `fs`."""
    return hdfs


@pytest.fixture
def directory(hdfs):
    """A new directory, which is deleted afterwards."""
    path = f"/python/{next(_numbers)}"
    hdfs.make_directory(path)
    yield path
    hdfs.delete(path, recursive=True)
