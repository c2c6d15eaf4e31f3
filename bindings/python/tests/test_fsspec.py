"""fsspec's abstract tests, and what the implementation has beyond."""

import os

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import (
    AbstractCopyTests, AbstractFixtures, AbstractGetTests, AbstractOpenTests, AbstractPipeTests, AbstractPutTests,
)
from hearth.fsspec import HearthFileSystem


class Fixtures(AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self):
        return HearthFileSystem()

    @pytest.fixture
    def fs_path(self, directory):
        return directory

    @pytest.fixture(scope="class")
    def local_fs(self):
        # As for fsspec's own implementations: directories are made when files are put into them.
        return LocalFileSystem(auto_mkdir=True)


class TestCopy(AbstractCopyTests, Fixtures):
    pass


class TestGet(AbstractGetTests, Fixtures):
    pass


class TestPut(AbstractPutTests, Fixtures):
    pass


class TestOpen(AbstractOpenTests, Fixtures):
    pass


class TestPipe(AbstractPipeTests, Fixtures):
    pass


@pytest.fixture
def spec(directory):
    return HearthFileSystem(), directory


@pytest.mark.parametrize("protocol", ["hdfs", "hearth"])
def test_protocols_are_served_by_entry_point(protocol):
    assert fsspec.get_filesystem_class(protocol) is HearthFileSystem


def test_urls(fs, directory):
    authority = fs.uri[len("hdfs://") :]
    with fsspec.open(f"hearth://{authority}{directory}/a", "wb") as file:
        file.write(b"one")
    assert fs.read_file(f"{directory}/a") == b"one"
    with fsspec.open(f"hdfs://{authority}{directory}/a") as file:
        assert file.read() == b"one"
    with fsspec.open(f"hearth://{directory}/a", "r") as file:
        assert file.read() == "one"
    assert HearthFileSystem._strip_protocol("hdfs://host:8020/a/b/") == "/a/b"
    assert HearthFileSystem._get_kwargs_from_urls("hdfs://ada@host:9000/a") == {"host": "host", "port": 9000, "user": "ada"}


def test_ranges_of_many_files_in_one_request(spec):
    fs, directory = spec
    paths = [f"{directory}/{number}" for number in range(5)]
    for path in paths:
        fs.pipe_file(path, path.encode() * 10)
    assert fs.cat_ranges(paths, 1, 7) == [b"python"] * 5
    assert fs.cat_ranges(paths[:2], [0, -3], [3, None]) == [paths[0].encode()[:3], (paths[1].encode() * 10)[-3:]]
    found = fs.cat_ranges([paths[0], f"{directory}/missing"], 0, 1)
    assert found[0] == b"/" and isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{directory}/missing"], 0, 1, on_error="raise")
    assert fs.cat(paths) == {path: path.encode() * 10 for path in paths}
    assert fs.cat_file(paths[0], start=-4) == (paths[0].encode() * 10)[-4:]


def test_names(spec):
    fs, directory = spec
    fs.makedirs(f"{directory}/a/b")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{directory}/a")
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{directory}/a")
    fs.makedirs(f"{directory}/a", exist_ok=True)
    fs.touch(f"{directory}/a/file")
    assert fs.info(f"{directory}/a/file")["size"] == 0 and fs.isdir(f"{directory}/a") and fs.isfile(f"{directory}/a/file")
    fs.pipe(f"{directory}/a/file", b"12345")
    assert fs.size(f"{directory}/a/file") == 5 and fs.head(f"{directory}/a/file", 2) == b"12"
    assert fs.glob(f"{directory}/*/f*") == [f"{directory}/a/file"]
    assert fs.find(directory) == [f"{directory}/a/file"]
    assert fs.du(directory) == 5
    fs.mv(f"{directory}/a/file", f"{directory}/new/file")
    assert fs.cat(f"{directory}/new/file") == b"12345" and not fs.exists(f"{directory}/a/file")
    fs.rm(f"{directory}/new", recursive=True)
    fs.rmdir(f"{directory}/a/b")
    assert fs.ls(f"{directory}/a", detail=False) == []
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{directory}/a/b")
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{directory}/missing")


def test_local_files(spec, tmp_path):
    fs, directory = spec
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / name).write_bytes(name.encode() * 100_000)
    fs.put(str(tmp_path / "in"), f"{directory}/put", recursive=True)
    fs.get(f"{directory}/put", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out" / "b").read_bytes() == b"b" * 100_000
    assert sorted(os.listdir(tmp_path / "out")) == ["a", "b"]
