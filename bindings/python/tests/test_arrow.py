"""PyArrow on this package: by the drop-in library, by fsspec, and on block memory."""

import os
import subprocess
import sys

import hearth
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture
def table():
    return pa.table({"n": list(range(10_000)), "text": [f"row {number}" for number in range(10_000)]})


@pytest.mark.parametrize("by", ["libhdfs", "fsspec"])
@pytest.mark.parametrize("url", ["default", None])
def test_parquet(fs, directory, table, by, url):
    arrow = hearth.arrow(url or fs.uri, by=by)
    pq.write_table(table, f"{directory}/table.parquet", filesystem=arrow)
    assert pq.read_table(f"{directory}/table.parquet", filesystem=arrow).equals(table)
    assert arrow.get_file_info(f"{directory}/table.parquet").is_file


def test_calls_of_pyarrow_do_not_ask_python(silent, said):
    """They may hold the GIL, or come from a thread without a state of Python."""
    code = f"""
import hearth, pyarrow.fs
fs = pyarrow.fs.HadoopFileSystem('hdfs://127.0.0.1', {silent})
wait_for_ever(lambda: fs.get_file_info('/'))
"""
    assert said(code) == ["calling"]


@pytest.mark.parametrize("home", ["", "/nowhere", "relative"])
def test_java_home_without_a_jvm(fs, directory, home):
    fs.write_file(f"{directory}/file", b"bytes")
    code = f"""
import hearth
print(hearth.arrow({fs.uri!r}).get_file_info({directory + "/file"!r}).size)
"""
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAVA_HOME": home},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert child.stdout == "5\n"


def test_other_ways_are_refused():
    with pytest.raises(ValueError):
        hearth.arrow(by="magic")


def test_ipc_without_a_copy(fs, directory, table):
    with fs.open(f"{directory}/table.arrow", "wb", block_size=16 << 20) as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    view = fs.view(f"{directory}/table.arrow", in_place=True)
    buffer = pa.py_buffer(view)
    allocated = pa.total_allocated_bytes()
    found = pa.ipc.open_file(buffer).read_all()
    assert pa.total_allocated_bytes() - allocated < 100_000
    addresses = [part.address for part in found["n"].chunk(0).buffers() if part]
    assert all(buffer.address <= address < buffer.address + buffer.size for address in addresses)
    assert found.equals(table)


def test_numpy_without_a_copy(fs, directory):
    numpy = pytest.importorskip("numpy")
    numbers = numpy.arange(100_000, dtype="<i8")
    fs.write_file(f"{directory}/numbers", numbers)
    shown = numpy.frombuffer(fs.view(f"{directory}/numbers", in_place=True), dtype="<i8")
    assert not shown.flags.owndata and not shown.flags.writeable and (shown == numbers).all()
    with fs.open(f"{directory}/numbers") as file:
        into = numpy.empty_like(numbers)
        assert file.pread_into(0, into) == numbers.nbytes
    assert (into == numbers).all()
