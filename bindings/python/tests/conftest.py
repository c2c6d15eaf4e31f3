"""Fixtures: a file system of the cluster that HADOOP_CONF_DIR names, with one DataNode."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time

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


@pytest.fixture
def silent():
    """Port of a server that accepts connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(5)
        yield server.getsockname()[1]


class Datanode:
    """The process of a DataNode, which tests stop for a while."""

    def __init__(self, process):
        self._process = process
        # A test whose call cannot be interrupted fails instead of hanging.
        self._rescue = threading.Timer(30, self.resume)

    def _state(self):
        with open(f"/proc/{self._process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]

    def pause(self):
        self._rescue.start()
        os.kill(self._process, signal.SIGSTOP)
        eventually(lambda: self._state() == "T")

    def resume(self):
        self._rescue.cancel()
        os.kill(self._process, signal.SIGCONT)


def eventually(condition):
    """Waits for another process."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition is not met"
        time.sleep(0.01)


@pytest.fixture
def datanode():
    """The DataNode. The environment names its process, which runs again after the test."""
    found = Datanode(int(os.environ["HEARTH_TEST_DATANODE"]))
    yield found
    found.resume()


#: Python code that says "asked" if a signal handler runs during a call that waits for ever, and then ends the process.
#: The signal comes when the call surely waits: before, a busy machine would run the handler between calls.
SIGNALS = """
import faulthandler, os, signal
def wait_for_ever(call):
    os.write(1, b"calling\\n")
    signal.signal(signal.SIGALRM, lambda *_: os.write(1, b"asked\\n"))
    faulthandler.dump_traceback_later(5, exit=True)
    signal.setitimer(signal.ITIMER_REAL, 2)
    call()
"""


@pytest.fixture
def said():
    """Runs code after `SIGNALS` in a process of its own, and returns what it says."""

    def run(code):
        child = subprocess.run([sys.executable, "-c", SIGNALS + code], stdout=subprocess.PIPE, text=True, timeout=60)
        return child.stdout.split()

    return run
