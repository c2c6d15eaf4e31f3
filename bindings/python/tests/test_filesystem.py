"""`hearth.FileSystem` on a cluster of Hearth on this machine."""

import asyncio
import concurrent.futures
import datetime
import errno
import gc
import io
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time

import hearth
import pytest
from conftest import eventually

BLOCK = 1 << 20


def content(length, seed=1):
    return bytes((seed + index * 7919 % 251) % 256 for index in range(4093)) * (length // 4093 + 1)


def stored(fs, path, length):
    data = content(length)[:length]
    fs.write_file(path, data)
    return data


@pytest.mark.parametrize("length", [0, 1, 511, 513, 65_536, BLOCK, 2 * BLOCK + 70_001])
def test_every_size_is_read_as_it_was_written(fs, directory, length):
    path = f"{directory}/file"
    data = stored(fs, path, length)
    assert fs.read_file(path) == data
    with fs.open(path) as file:
        assert file.size == length
        assert file.read() == data
        assert file.read() == b""
        assert file.pread(length // 2, 100) == data[length // 2 : length // 2 + 100]
        file.seek(-min(length, 5), os.SEEK_END)
        assert file.read(3) == data[max(0, length - 5) :][:3]
    assert fs.info(path).size == length


def test_streams_are_those_of_io(fs, directory):
    path = f"{directory}/text"
    with fs.open(path, "w", encoding="utf-8") as file:
        file.write("eins\nzwei\ndrü\n")
    with fs.open(path, "a", encoding="utf-8") as file:
        file.write("vier")
    with fs.open(path, "r", encoding="utf-8") as file:
        assert list(file) == ["eins\n", "zwei\n", "drü\n", "vier"]
    with fs.open(path) as file:
        assert isinstance(file, io.BufferedReader) and file.readable() and file.seekable() and not file.writable()
        assert file.readline() == b"eins\n" and file.tell() == 5
        buffer = bytearray(4)
        assert file.readinto(buffer) == 4 and buffer == b"zwei"
        with pytest.raises(io.UnsupportedOperation):
            file.write(b"x")
    with fs.open(path, "wb", buffering=0) as file:
        assert file.write(memoryview(b"abcdef")[2:4]) == 2 and file.write(bytearray(b"gh")) == 2
        file.hflush()
        assert fs.read_file(path) == b"cdgh"
        file.hsync()
        with pytest.raises(io.UnsupportedOperation):
            file.read(1)
    assert file.closed
    with pytest.raises(ValueError):
        file.write(b"x")
    with pytest.raises(ValueError):
        fs.open(path, "rw")
    with pytest.raises(ValueError):
        fs.open(path, "r", buffering=0)


def test_errors_are_pythons_own(fs, directory):
    missing = f"{directory}/missing"
    for call in [fs.open, fs.read_file, fs.info, fs.list, fs.delete]:
        with pytest.raises(FileNotFoundError) as raised:
            call(missing)
        assert raised.value.errno == errno.ENOENT and "missing" in str(raised.value)
    fs.write_file(f"{directory}/file", b"x")
    with pytest.raises(FileExistsError):
        fs.open(f"{directory}/file", "xb")
    with pytest.raises(NotADirectoryError):
        fs.make_directory(f"{directory}/file/below")
    with pytest.raises(OSError) as raised:
        fs.delete(directory)
    assert raised.value.errno == errno.ENOTEMPTY
    fs.set_permissions(directory, 0o700)
    other = hearth.FileSystem(fs.uri, user="nobody-special")
    with pytest.raises(PermissionError) as raised:
        other.list(directory)
    assert "nobody-special" in str(raised.value)
    with pytest.raises(ValueError):
        fs.open("/nul\0")
    with pytest.raises(OSError) as raised:
        hearth.FileSystem("s3://bucket")
    assert raised.value.errno == errno.ENOTSUP
    with fs.open(f"{directory}/file", buffering=0) as file:
        with pytest.raises(OSError):
            file.seek(2)
        with pytest.raises(ValueError):
            file.pread(-1, 1)


def test_names_and_attributes(fs, directory):
    a, b = f"{directory}/a", f"{directory}/b"
    data = stored(fs, a, BLOCK + 5)
    before = datetime.datetime.now(datetime.timezone.utc)
    info = fs.info(a)
    assert info.path == a and info.name == "a" and info.is_file and info.block_size == BLOCK and info.replication == 1
    assert abs(info.modified - before) < datetime.timedelta(minutes=5)
    assert fs.exists(a) and not fs.exists(b) and fs.is_file(a) and fs.is_directory(directory) and not fs.is_file(b)
    fs.rename(a, b)
    with pytest.raises(FileNotFoundError):
        fs.rename(a, f"{directory}/c")
    fs.copy(b, a)
    with pytest.raises(FileExistsError):
        fs.rename(a, b)
    assert fs.read_file(a) == data == fs.read_file(b)
    fs.make_directory(f"{directory}/sub/deep")
    fs.copy(a, f"{directory}/sub")
    assert [entry.name for entry in fs.list(directory)] == ["a", "b", "sub"]
    assert [entry.path[len(directory) :] for entry in fs.walk(directory)] == ["/a", "/b", "/sub", "/sub/a", "/sub/deep"]
    assert fs.list(f"{directory}/sub/deep") == []
    assert fs.truncate(b, BLOCK) and fs.info(b).size == BLOCK
    fs.set_permissions(a, 0o640)
    fs.set_owner(a, "eve", "staff")
    fs.set_times(a, modified=1_000_000_000)
    fs.set_replication(a, 1)
    info = fs.info(a)
    assert (info.permissions, info.owner, info.group) == (0o640, "eve", "staff")
    assert info.modified == datetime.datetime.fromtimestamp(1_000_000_000, datetime.timezone.utc)
    assert len(fs.hosts(a)) == 2 and all(hosts for hosts in fs.hosts(a))
    assert fs.capacity() > fs.used() >= 0
    assert fs.exists(f"{fs.uri}{a}")
    assert fs.home.startswith("/user/")


def test_many_files_in_one_call(fs, directory):
    paths = [f"{directory}/{number}" for number in range(200)]
    for number, path in enumerate(paths):
        fs.write_file(path, b"%d" % number * 100)
    assert fs.read_files(paths) == [b"%d" % number * 100 for number in range(200)]
    ranges = [(paths[7], 2, 3), (paths[7], 98, -1), (paths[7], 500, 10)]
    assert fs.read_ranges(ranges) == [b"777", b"77", b""]
    assert fs.read_ranges([]) == fs.read_files([]) == []
    for offset, length in [(1 << 63, 1), (0, 1 << 63), (0, 1.5)]:
        with pytest.raises(ValueError, match="64 bits"):
            fs.read_ranges([(ranges[0][0], offset, length)])
    found = fs.read_files([paths[0], f"{directory}/missing"], return_errors=True)
    assert found[0] == b"0" * 100 and isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.read_files([f"{directory}/missing"])
    with fs.open(paths[7]) as file:
        assert file.read_ranges([(0, 2), (99, 5)]) == [b"77", b"7"]
    assert fs.read_files([]) == []


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_views_show_the_block_memory(fs, directory):
    path = f"{directory}/file"
    length = 64 << 20
    data = content(1 << 20)[: 1 << 20] * 64
    with fs.open(path, "wb", block_size=length) as file:
        file.write(data)
    file = fs.open(path)
    file.pread(0, 1)
    before = resident_kib()
    view = file.view(in_place=True)
    assert view.nbytes == length and view.readonly and view.format == "B"
    assert resident_kib() - before < 1024
    assert view[:100] == data[:100] and view[-100:] == data[-100:] and view[length // 2] == data[length // 2]
    assert file.statistics().shown == length
    # The bytes stay after the file was closed and deleted, as long as something was made of them.
    part = view[10:20]
    file.close()
    fs.delete(path)
    del view, file
    gc.collect()
    assert bytes(part) == data[10:20]
    with pytest.raises((TypeError, ValueError)):
        part[0] = 1


def test_views_end_at_blocks(fs, directory):
    path = f"{directory}/file"
    data = stored(fs, path, 2 * BLOCK + 70_001)
    with fs.open(path) as file:
        views = file.views(verify=True)
        assert [view.nbytes for view in views] == [BLOCK, BLOCK, 70_001]
        assert b"".join(views) == data
        assert bytes(file.view(BLOCK - 2, 100)) == data[BLOCK - 2 : BLOCK]
        assert file.view(file.size).nbytes == 0
        buffer = bytearray(BLOCK)
        assert file.pread_into(5, buffer) == BLOCK and buffer == data[5 : BLOCK + 5]
    assert bytes(fs.view(path, 7, 9)) == data[7:16]


def test_views_are_verified_as_the_caller_says(fs, directory):
    path = f"{directory}/file"
    data = stored(fs, path, BLOCK)
    with fs.open(path) as file:
        for verify in [None, True, False]:
            assert bytes(file.view(10, 1000, in_place=True, verify=verify)) == data[10:1010]
            assert b"".join(file.views(verify=verify)) == data
    assert bytes(fs.view(path, verify=False)) == data


def test_open_file_is_read_although_another_is_at_its_path(fs, directory):
    path = f"{directory}/file"
    data = stored(fs, path, 2 * BLOCK + 70_001)
    with fs.open(path) as file:
        fs.rename(path, f"{directory}/renamed")
        fs.write_file(path, b"another")
        assert file.size == file.raw.size == len(data)
        ranges = [(0, 10), (BLOCK - 2, 4), (len(data) - 3, -1), (len(data), 5)]
        assert file.read_ranges(ranges) == [data[:10], data[BLOCK - 2 : BLOCK + 2], data[-3:], b""]
        assert file.pread(5, 10) == data[5:15] and file.read() == data
        assert file.statistics().total >= len(data)
        with pytest.raises(OSError):
            file.read_ranges([(-1, 5)])
    with fs.open(path) as file:
        assert file.size == 7 and file.read_ranges([(0, -1)]) == [b"another"]
    with pytest.raises(ValueError):
        file.read_ranges([(0, 1)])


def test_asyncio(fs, directory):
    async def work():
        paths = [f"{directory}/{number}" for number in range(20)]
        await asyncio.gather(*(fs.write_file_async(path, path.encode()) for path in paths))
        assert await asyncio.gather(*map(fs.read_file_async, paths)) == [path.encode() for path in paths]
        assert await fs.read_files_async(paths) == [path.encode() for path in paths]
        assert await fs.read_ranges_async([(paths[0], 1, 6)]) == [b"python"]
        assert (await fs.info_async(paths[0])).size == len(paths[0])
        assert len(await fs.list_async(directory)) == 20

    asyncio.run(work())


def test_close_leaves_the_file_to_calls_in_flight(fs, directory):
    name, data = directory + "/closed-in-flight", os.urandom(1 << 20)
    fs.write_file(name, data)
    for _ in range(20):
        file = fs.open(name)
        started = threading.Barrier(5)

        def read():
            started.wait()
            try:
                while True:
                    assert file.raw.pread(0, 1 << 20) == data
            except ValueError:
                return "closed"

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            reading = [pool.submit(read) for _ in range(4)]
            started.wait()
            file.close()
            assert [future.result(60) for future in reading] == ["closed"] * 4
        with pytest.raises(ValueError):
            file.raw.tell()


class Interrupting(set):
    """Where a call is noted: Ctrl-C comes right after that."""

    def add(self, one):
        super().add(one)
        signal.raise_signal(signal.SIGINT)


def test_file_can_be_used_and_closed_after_ctrl_c_at_the_start_of_a_call(fs, directory):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path = f"{directory}/file"
    data = stored(fs, path, 1000)
    with fs.open(path, buffering=0) as file:
        calls = [
            lambda: file.pread(0, 10),
            lambda: file.pread_into(0, bytearray(10)),
            lambda: file.read_ranges([(0, 10)]),
            lambda: file.view(),
            lambda: file.statistics(),
            lambda: file.read(10),
        ]
        for call in calls:
            file._calls = Interrupting()
            with pytest.raises(KeyboardInterrupt):
                call()
            assert not file._calls
        file._calls, file._movers = set(), Interrupting()
        with pytest.raises(KeyboardInterrupt):
            file.read(10)
        assert not file._movers
        file._movers = set()
        assert file.read() == data
    assert not file._closing
    writer = fs.open(f"{directory}/written", "wb", buffering=0)
    writer._calls = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        writer.write(b"lost")
    writer._calls = set(writer._calls)
    assert writer.write(b"kept") == 4
    writer.close()
    assert fs.read_file(f"{directory}/written") == b"kept"


def test_bytes_are_counted_once(fs, directory):
    path = f"{directory}/file"
    data = stored(fs, path, 100_000)
    with fs.open(path, buffering=0) as file:
        assert file.pread(0, 100_000) == data
        before = file.statistics().total
        buffer = bytearray(150_000)
        # The mapped replica ends before the buffer does.
        assert file.pread_into(40_000, buffer) == 60_000 and buffer[:60_000] == data[40_000:]
        assert file.statistics().total == before + 60_000


def test_threads_share_a_file(fs, directory):
    data = stored(fs, f"{directory}/file", BLOCK + 1000)
    wrong = []
    with fs.open(f"{directory}/file") as file:

        def read():
            for number in range(200):
                offset = number * 7919 % BLOCK
                if file.pread(offset, 1000) != data[offset : offset + 1000]:
                    wrong.append(offset)

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def in_child(fs, path, answers):
    answers.put(fs.read_file(path))


def read_inherited(file, fs, path, answers):
    try:
        file.pread(0, 1)
    except OSError as error:
        answers.put(error.errno)
    answers.put(fs.read_file(path))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_read(fs, directory, method):
    path = f"{directory}/file"
    data = stored(fs, path, 1000)
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=in_child, args=(fs, path, answers))
    child.start()
    assert answers.get(timeout=60) == data
    child.join()
    assert child.exitcode == 0 and fs.read_file(path) == data


def test_file_open_at_a_fork_must_be_opened_again(fs, directory):
    path = f"{directory}/file"
    data = stored(fs, path, 1000)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    with fs.open(path) as file:
        file.pread(0, 1)
        child = context.Process(target=read_inherited, args=(file, fs, path, answers))
        child.start()
        assert answers.get(timeout=60) == errno.EBADF
        assert answers.get(timeout=60) == data
        child.join()
        assert file.pread(0, 1000) == data


def read_inherited_views(views, answers):
    answers.put([bytes(view[-9:]) for view in views])
    views.clear()
    gc.collect()


def test_child_reads_a_view_of_its_parent(fs, directory):
    path = f"{directory}/file"
    data = stored(fs, path, BLOCK)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    views = [fs.view(path, in_place=True), fs.view(path, 100)]
    child = context.Process(target=read_inherited_views, args=(views, answers))
    child.start()
    assert answers.get(timeout=60) == [data[-9:]] * 2
    child.join(60)
    assert child.exitcode == 0
    # The child has given up its copies of them only.
    assert bytes(views[0]) == data and bytes(views[1]) == data[100:]


def test_file_of_a_parent_is_no_trap_for_a_child(fs, directory):
    """A thread of the parent may be in a call at the fork, which never ends in the child."""
    path = f"{directory}/file"
    stored(fs, path, 1000)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    call = object()
    with fs.open(path, buffering=0) as file:
        file._begin(call)
        child = context.Process(target=read_inherited, args=(file, fs, path, answers))
        child.start()
        try:
            assert answers.get(timeout=60) == errno.EBADF
            assert len(answers.get(timeout=60)) == 1000
            child.join(60)
            assert child.exitcode == 0
        finally:
            file._end(call)
            child.kill()
        assert len(file.read()) == 1000


def test_pickle(fs, directory):
    stored(fs, f"{directory}/file", 10)
    copied = pickle.loads(pickle.dumps(fs))
    assert copied.read_file(f"{directory}/file") == fs.read_file(f"{directory}/file")


def test_ctrl_c_interrupts_a_call_that_waits():
    # Programs in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(5)
        fs = hearth.FileSystem(f"127.0.0.1:{silent.getsockname()[1]}")
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            fs.exists("/")
        assert time.monotonic() - started < 10


def press_ctrl_c_soon():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()


def flushed(fs, path, data):
    """Returns a file that is open for writing and has its first bytes."""
    file = fs.open(path, "wb", buffering=0)
    assert file.write(data) == len(data)
    file.hflush()
    return file


def is_complete(fs, path):
    """Returns whether no client writes the file: only then it can be opened for append."""
    try:
        fs.open(path, "ab", buffering=0).close()
    except OSError:
        return False
    return True


def test_ctrl_c_interrupts_a_close_that_hangs(fs, directory, datanode):
    path, data = f"{directory}/file", content(200_000)[:200_000]
    file = flushed(fs, path, data[:1000])
    assert file.write(data[1000:]) == len(data) - 1000
    datanode.pause()
    started = time.monotonic()
    press_ctrl_c_soon()
    with pytest.raises(KeyboardInterrupt):
        file.close()
    assert time.monotonic() - started < 20
    assert file.closed
    datanode.resume()
    # The close goes on in the background.
    eventually(lambda: is_complete(fs, path))
    assert fs.read_file(path) == data


@pytest.mark.parametrize("hangs", [True, False])
def test_ctrl_c_that_a_write_has_left_is_raised_by_close(fs, directory, datanode, hangs):
    path, data = f"{directory}/file", content(64 << 20)[: 64 << 20]
    rest = data[1000:]
    file = flushed(fs, path, data[:1000])
    datanode.pause()
    press_ctrl_c_soon()
    count = file.write(rest)
    assert 0 < count < len(rest)
    if not hangs:
        datanode.resume()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        file.close()
    assert not hangs or time.monotonic() - started < 20
    datanode.resume()
    eventually(lambda: is_complete(fs, path))
    assert fs.read_file(path) == data[: 1000 + count]


@pytest.mark.parametrize("buffering", [0, -1])
def test_ctrl_c_during_a_destructor_is_raised_by_the_next_call(fs, directory, datanode, buffering):
    path, data = f"{directory}/file", content(200_000)[:200_000]
    other = flushed(fs, f"{directory}/other", b"kept")
    file = fs.open(path, "wb", buffering=buffering)
    file.write(data)
    file.flush()
    datanode.pause()
    press_ctrl_c_soon()
    # It closes the file, which waits for the DataNode.
    del file
    datanode.resume()
    with pytest.raises(KeyboardInterrupt):
        other.write(b"lost")
    other.close()
    assert fs.read_file(f"{directory}/other") == b"kept"
    eventually(lambda: is_complete(fs, path))
    assert fs.read_file(path) == data


def test_signal_handlers_run_during_a_call(silent, said):
    code = f"import hearth; fs = hearth.FileSystem('127.0.0.1:{silent}'); wait_for_ever(lambda: fs.exists('/'))"
    assert said(code) == ["calling", "asked"]


def test_no_call_asks_python_from_its_exit_on(silent, said):
    # Registered before the package is imported, and so called after its own function.
    code = f"""
import atexit
atexit.register(lambda: wait_for_ever(lambda: fs.exists('/')))
import hearth
fs = hearth.FileSystem('127.0.0.1:{silent}')
"""
    assert said(code) == ["calling"]


def test_objects_are_collected(fs, directory):
    stored(fs, f"{directory}/file", 200_000)

    def work():
        other = hearth.FileSystem()
        with other.open(f"{directory}/file") as file:
            file.view()
            file.read(1000)
        other.list("/")

    for _ in range(100):
        work()
    gc.collect()
    before = resident_kib()
    for _ in range(400):
        work()
    gc.collect()
    assert resident_kib() - before < 4096
