"""Measures one client of HDFS in a Python process: clients.py CLIENT. Requests and answers are lines of JSON, as of
tests/interop/java/Driver.java.

A client is imported by the first request that needs it, so that its import can be measured. Seconds are those of a
monotonic clock. What is read is compared with hearth_testkit::Content if a request says "check".
"""

import json
import math
import os
import queue
import random
import sys
import threading
import time

PYARROW_ROW_GROUP = 1 << 17


def content(seed, offset, length):
    """Returns bytes of hearth_testkit::Content, as an array."""
    import numpy

    first = offset // 8
    end = (offset + length + 7) // 8
    z = numpy.arange(first + 1, end + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(seed)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    z ^= z >> numpy.uint64(31)
    return z.view(numpy.uint8)[offset - 8 * first :][:length]


def verify(found, seed, offset, length):
    """Raises ValueError if the bytes are others than those of the content."""
    if bytes(found) != content(seed, offset, length).tobytes():
        raise ValueError("%d bytes at %d of content %d differ" % (length, offset, seed))


def fill(read_into, array):
    """Fills the array, and returns it. read_into: fills the start of a buffer and returns the number of bytes."""
    view = memoryview(array)
    done = 0
    while done < len(view):
        count = read_into(view[done:])
        if not count:
            raise EOFError("the file ends at %d" % done)
        done += count
    return array


def memory(name):
    """Returns bytes of this process: "Rss", or "Anonymous", which excludes what is mapped of files and shared memory."""
    with open("/proc/self/smaps_rollup") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) << 10
    raise ValueError("no " + name)


class Hearth:
    """The package `hearth`."""

    def __init__(self):
        import hearth

        self.fs = hearth.FileSystem()

    def whole(self, path, array):
        with self.fs.open(path, buffering=0) as file:
            return fill(file.readinto, array)

    def reader(self, path):
        return self.fs.open(path, buffering=0).pread

    def head(self, path, length):
        with self.fs.open(path) as file:
            return file.read(length)

    def many(self, paths):
        return self.fs.read_files(paths)

    def view(self, path):
        return self.fs.view(path, in_place=True)

    def viewer(self, path):
        return lambda file=self.fs.open(path, buffering=0): file.view(in_place=True)

    def columns(self, path, columns):
        import pyarrow
        import pyarrow.parquet

        return pyarrow.parquet.ParquetFile(pyarrow.BufferReader(self.fs.view(path))).read(columns=columns)

    def is_local(self, path):
        """Returns whether a file is read from the memory of a DataNode on this machine."""
        with self.fs.open(path, buffering=0) as file:
            file.pread(0, file.size)
            read = file.statistics()
            return read.total == read.local == file.size


class PyArrow:
    """PyArrow's HadoopFileSystem, on the libhdfs that the environment names."""

    def __init__(self):
        from pyarrow.fs import HadoopFileSystem

        self.fs = HadoopFileSystem("default")

    def whole(self, path, array):
        with self.fs.open_input_file(path) as file:
            return fill(file.readinto, array)

    def reader(self, path):
        file = self.fs.open_input_file(path)
        return lambda offset, length: file.read_at(length, offset)

    def head(self, path, length):
        with self.fs.open_input_file(path) as file:
            return file.read(length)

    def columns(self, path, columns):
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path, columns=columns, filesystem=self.fs)


class DropIn(PyArrow):
    """The same on the library of the package `hearth`, without Java."""

    def __init__(self):
        import hearth  # noqa: F401

        super().__init__()


class HdfsNative:
    """hdfs-native, which is installed in the directory HDFS_NATIVE."""

    def __init__(self):
        sys.path.append(os.environ["HDFS_NATIVE"])
        import hdfs_native

        self.client = hdfs_native.Client(config_dir=os.environ["HADOOP_CONF_DIR"])

    def whole(self, path, array):
        import numpy

        # It has no read into a buffer. An array over what it returns needs no further copy.
        with self.client.read(path) as file:
            return numpy.frombuffer(file.read(len(array)), dtype=numpy.uint8)

    def reader(self, path):
        return self.client.read(path).read_range

    def head(self, path, length):
        with self.client.read(path) as file:
            return file.read(length)

    def columns(self, path, columns):
        import pyarrow.parquet
        from hdfs_native.fsspec import HdfsFileSystem

        host, port = os.environ["NAMENODE"].split(":")
        fs = HdfsFileSystem(host, int(port))
        return pyarrow.parquet.read_table(path, columns=columns, filesystem=fs)


class WebHdfs:
    """fsspec's WebHDFS, for which NAMENODE_HTTP names the NameNode."""

    def __init__(self):
        import fsspec

        host, port = os.environ["NAMENODE_HTTP"].split(":")
        self.fs = fsspec.filesystem("webhdfs", host=host, port=int(port), user=os.environ["HADOOP_USER_NAME"])

    def whole(self, path, array):
        import numpy

        return numpy.frombuffer(self.fs.cat_file(path), dtype=numpy.uint8)

    def reader(self, path):
        return lambda offset, length: self.fs.cat_file(path, offset, offset + length)

    def head(self, path, length):
        return self.fs.cat_file(path, 0, length)

    def columns(self, path, columns):
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path, columns=columns, filesystem=self.fs)


class LocalFile:
    """PyArrow on a file of this machine: what a scan costs without HDFS."""

    def columns(self, path, columns):
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path, columns=columns)


CLIENTS = {
    "local": LocalFile,
    "hearth": Hearth,
    "drop-in": DropIn,
    "jvm": PyArrow,
    "hdfs-native": HdfsNative,
    "webhdfs": WebHdfs,
}


class Driver:
    """Operations. Sizes and lengths are bytes."""

    def __init__(self, name):
        self.name = name
        self.made = None

    @property
    def client(self):
        if self.made is None:
            self.made = CLIENTS[self.name]()
        return self.made

    # path: the client is imported and makes its connections, and the first byte is read
    def first(self, r):
        began = time.perf_counter()
        read = self.client.head(r["path"], 1)
        took = time.perf_counter() - began
        if len(read) != 1:
            raise EOFError(r["path"])
        return {"seconds": took, "memory": memory("Rss")}

    # path, length, rounds, seed; check
    def whole(self, r):
        import numpy

        source = numpy.ones(r["length"], dtype=numpy.uint8)
        target = numpy.zeros(r["length"], dtype=numpy.uint8)
        target[:] = source
        copies, reads = [], []
        for _ in range(r["rounds"]):
            began = time.perf_counter()
            numpy.copyto(target, source)
            copied = time.perf_counter()
            found = self.client.whole(r["path"], target)
            copies.append(copied - began)
            reads.append(time.perf_counter() - copied)
            if len(found) != r["length"]:
                raise EOFError("the file ends at %d" % len(found))
        if r["check"]:
            verify(found, r["seed"], 0, r["length"])
            if hasattr(self.client, "is_local") and not self.client.is_local(r["path"]):
                raise ValueError("it does not read from the DataNode's memory")
        return {"copies": copies, "reads": reads}

    # path, length, rounds: views of the whole file, which is one block; how much the process grows by one, before and
    # after all of its bytes were read
    def view(self, r):
        import numpy

        def array_of(view):
            if view.nbytes != r["length"]:
                raise EOFError("%d bytes are in view" % view.nbytes)
            return numpy.frombuffer(view, dtype=numpy.uint64)

        seconds = {}
        for name, make in [("path", lambda: self.client.view(r["path"])), ("file", self.client.viewer(r["path"]))]:
            seconds[name] = []
            for _ in range(r["rounds"]):
                began = time.perf_counter()
                view = make()
                seconds[name].append(time.perf_counter() - began)
                array_of(view)
                del view
        resident, anonymous = memory("Rss"), memory("Anonymous")
        view = self.client.view(r["path"])
        shown = memory("Rss") - resident
        array_of(view).sum()
        return {**seconds, "shown": shown, "copied": memory("Anonymous") - anonymous}

    # path, size, length, count, seed; check: with the content of that seed
    def random(self, r):
        length, count = r["length"], r["count"]
        read = self.client.reader(r["path"])
        chosen = random.Random(r["run"])
        offsets = [chosen.randrange(r["size"] - length + 1) for _ in range(count)]
        if r["check"]:
            for offset in offsets[:64]:
                verify(read(offset, length), r["seed"], offset, length)
        clock, took = time.perf_counter_ns, []
        for offset in offsets:
            began = clock()
            read(offset, length)
            took.append(clock() - began)
        took.sort()
        rank = lambda part: took[max(0, math.ceil(count * part) - 1)] / 1e3  # noqa: E731
        return {"p50": rank(0.5), "p99": rank(0.99)}

    # dir, count, threads, length; check: the content of each file's own number. A thread takes one name after another,
    # opens the file, reads its beginning and closes it
    def small(self, r):
        client, names, length, problems = self.client, queue.Queue(), r["length"], []
        for index in range(r["count"]):
            names.put(index)

        def work():
            try:
                while True:
                    try:
                        index = names.get_nowait()
                    except queue.Empty:
                        return
                    read = client.head("%s/file-%d" % (r["dir"], index), length)
                    if len(read) != length:
                        raise EOFError("file %d has %d bytes" % (index, len(read)))
                    if r["check"]:
                        verify(read, index, 0, length)
            except Exception as problem:
                problems.append(problem)

        threads = [threading.Thread(target=work) for _ in range(r["threads"])]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        if problems:
            raise problems[0]
        return {"seconds": took, "memory": memory("Rss")}

    # dir, count, batch, length; check: the same files, many with each call, on one thread
    def batches(self, r):
        length, took = r["length"], 0
        for first in range(0, r["count"], r["batch"]):
            indices = range(first, min(first + r["batch"], r["count"]))
            paths = ["%s/file-%d" % (r["dir"], index) for index in indices]
            began = time.perf_counter()
            found = self.client.many(paths)
            took += time.perf_counter() - began
            for index, read in zip(indices, found):
                if len(read) != length:
                    raise EOFError("file %d has %d bytes" % (index, len(read)))
                if r["check"]:
                    verify(read, index, 0, length)
        return {"seconds": took}

    # path, columns, rounds: the seconds of each, and the sum of all values
    def scan(self, r):
        import pyarrow.compute

        seconds, total = [], 0
        for _ in range(r["rounds"]):
            began = time.perf_counter()
            table = self.client.columns(r["path"], r["columns"])
            total = sum(pyarrow.compute.sum(table[name]).as_py() for name in r["columns"])
            seconds.append(time.perf_counter() - began)
        return {"seconds": seconds, "sum": total}

    # local, columns, size: writes a Parquet file of integers to the local path, whose data have about that size.
    # Returns the sum of the columns named in "scanned"
    def generate(self, r):
        import numpy
        import pyarrow
        import pyarrow.parquet

        numbers = numpy.random.default_rng(1)
        rows = r["size"] // 8 // len(r["columns"])
        # Small enough that a sum is exact, and large enough that they need most of their eight bytes.
        columns = {name: numbers.integers(0, 1 << 40, rows) for name in r["columns"]}
        pyarrow.parquet.write_table(
            pyarrow.table(columns), r["local"], row_group_size=PYARROW_ROW_GROUP, use_dictionary=False, compression="none"
        )
        return {"sum": sum(int(columns[name].sum()) for name in r["scanned"])}


def main():
    driver = Driver(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": getattr(driver, request["op"])(request)}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


main()
