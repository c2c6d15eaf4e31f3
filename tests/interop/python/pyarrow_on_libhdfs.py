"""PyArrow's HadoopFileSystem and fsspec's hdfs on a libhdfs.so without a JVM. Ends with the line `all is well`."""

import os

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

assert os.environ["PATH"] == ""

fs = pyarrow.fs.HadoopFileSystem("default")
if fs.get_file_info("/arrow").type != pyarrow.fs.FileType.NotFound:
    fs.delete_dir("/arrow")
fs.create_dir("/arrow/sub", recursive=True)

# Bytes: streams, positions, append, attributes.
content = bytes(range(256)) * 10_000
with fs.open_output_stream("/arrow/bytes") as out:
    out.write(content)
with fs.open_append_stream("/arrow/bytes") as out:
    out.write(b"more")
info = fs.get_file_info("/arrow/bytes")
assert info.size == len(content) + 4 and info.is_file and info.mtime is not None, info
with fs.open_input_file("/arrow/bytes") as file:
    assert file.size() == len(content) + 4
    assert file.read_at(10, 1_000_000) == content[1_000_000:1_000_010]
    file.seek(len(content))
    assert file.read() == b"more"
with fs.open_input_stream("/arrow/bytes") as file:
    assert file.read() == content + b"more"

# Names.
fs.copy_file("/arrow/bytes", "/arrow/sub/copy")
fs.move("/arrow/sub/copy", "/arrow/sub/moved")
found = fs.get_file_info(pyarrow.fs.FileSelector("/arrow", recursive=True))
assert sorted(entry.path for entry in found) == ["/arrow/bytes", "/arrow/sub", "/arrow/sub/moved"], found
try:
    fs.open_input_file("/arrow/missing")
    raise AssertionError("opened a missing file")
except FileNotFoundError as error:
    assert "/arrow/missing" in str(error)

# Tables: Parquet, a partitioned data set, IPC.
table = pa.table({"n": list(range(50_000)), "part": [n % 3 for n in range(50_000)], "text": [f"row {n}" for n in range(50_000)]})
pq.write_table(table, "/arrow/table.parquet", filesystem=fs)
assert pq.read_table("/arrow/table.parquet", filesystem=fs).equals(table)
assert pq.read_table("/arrow/table.parquet", filesystem=fs, columns=["n"], filters=[("n", ">=", 49_990)]).num_rows == 10
ds.write_dataset(table, "/arrow/set", filesystem=fs, format="parquet", partitioning=["part"], partitioning_flavor="hive")
whole = ds.dataset("/arrow/set", filesystem=fs, format="parquet", partitioning="hive")
assert whole.count_rows() == 50_000
assert sorted(whole.to_table(filter=ds.field("part") == 1)["n"].to_pylist()) == list(range(1, 50_000, 3))
with fs.open_output_stream("/arrow/table.arrow") as out, pa.ipc.new_file(out, table.schema) as writer:
    writer.write_table(table)
with fs.open_input_file("/arrow/table.arrow") as file:
    assert pa.ipc.open_file(file).read_all().equals(table)

# fsspec goes the same way.
by_fsspec = fsspec.filesystem("hdfs", host="default", port=0)
assert type(by_fsspec).__module__ == "fsspec.implementations.arrow"
with by_fsspec.open("/arrow/by-fsspec", "wb") as out:
    out.write(b"one\ntwo\n")
assert by_fsspec.cat("/arrow/by-fsspec") == b"one\ntwo\n"
assert by_fsspec.info("/arrow/by-fsspec")["size"] == 8
assert sorted(os.path.basename(path) for path in by_fsspec.ls("/arrow", detail=False)) == [
    "by-fsspec", "bytes", "set", "sub", "table.arrow", "table.parquet",
]

fs.delete_dir("/arrow")
assert fs.get_file_info("/arrow").type == pyarrow.fs.FileType.NotFound
print("all is well")
