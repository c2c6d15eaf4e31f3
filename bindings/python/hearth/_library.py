"""The C library, as ctypes sees it: declarations of the functions that this package calls, and their errors.

Calls that may wait release the GIL. A call of the main thread that waits asks ten times a second whether a signal handler wants to run,
so Ctrl-C interrupts it. Only handles of this package do so: PyArrow and other users of the library in this process may
call while they hold the GIL, or from a thread without a state of Python. From the exit of the interpreter on, no call asks.
"""

import atexit
import ctypes
import errno
import itertools
import os
import struct
import threading
from ctypes import POINTER, c_char_p, c_int, c_int16, c_int32, c_int64, c_short, c_size_t, c_uint16, c_void_p
from typing import Any, Callable, Iterator, List, Optional, Tuple

DIRECTORY = os.environ.get("HEARTH_LIBHDFS_DIR") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")

#: The library. Its errors are in `ctypes.get_errno`, which is that of the thread.
lib = ctypes.CDLL(os.path.join(DIRECTORY, "libhdfs.so"), use_errno=True)

#: The same for functions that only look into memory and take no lock. Giving up the GIL would cost more than they do, and
#: most where many threads want it.
_quick = ctypes.PyDLL(os.path.join(DIRECTORY, "libhdfs.so"), use_errno=True)

#: Number of this process, which a child of a fork gets anew.
process = os.getpid()


def _note_fork() -> None:
    global process
    process = os.getpid()


os.register_at_fork(after_in_child=_note_fork)

#: Number of errors without one of their own. Source: hdfs.h.
EINTERNAL = 255

#: Longest read or write of one call of hdfs.h, whose lengths have 32 bits.
CALL_BYTES_MAX = 1 << 30


class FileInfoStructure(ctypes.Structure):
    _fields_ = [
        ("kind", c_int),
        ("name", c_char_p),
        ("modified", ctypes.c_long),
        ("size", c_int64),
        ("replication", c_short),
        ("block_size", c_int64),
        ("owner", c_char_p),
        ("group", c_char_p),
        ("permissions", c_short),
        ("accessed", ctypes.c_long),
    ]


#: `struct hearth_range`: address of the path, offset, length.
_RANGE = struct.Struct("Pqq")

#: `struct hearth_bytes`: address of the bytes, their number, error, address of its text, owner.
_BYTES = struct.Struct("PqiPP")

#: Number of ranges whose bytes are copied before the library frees its own.
FREED_TOGETHER = 16


class StatisticsStructure(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("total", "local", "short_circuit", "zero_copy")]


def _declare(name: str, result: Any, *arguments: Any) -> None:
    function = getattr(lib, name)
    function.restype = result
    function.argtypes = arguments


_HANDLE = c_void_p
for _name, _result, _arguments in [
    ("hdfsNewBuilder", _HANDLE, []),
    ("hdfsBuilderSetForceNewInstance", None, [_HANDLE]),
    ("hdfsBuilderSetNameNode", None, [_HANDLE, c_char_p]),
    ("hdfsBuilderSetUserName", None, [_HANDLE, c_char_p]),
    ("hdfsBuilderConfSetStr", c_int, [_HANDLE, c_char_p, c_char_p]),
    ("hdfsBuilderConnect", _HANDLE, [_HANDLE]),
    ("hdfsDisconnect", c_int, [_HANDLE]),
    ("hdfsOpenFile", _HANDLE, [_HANDLE, c_char_p, c_int, c_int, c_short, c_int32]),
    ("hdfsStreamBuilderAlloc", _HANDLE, [_HANDLE, c_char_p, c_int]),
    ("hdfsStreamBuilderSetReplication", c_int, [_HANDLE, c_int16]),
    ("hdfsStreamBuilderSetDefaultBlockSize", c_int, [_HANDLE, c_int64]),
    ("hdfsStreamBuilderBuild", _HANDLE, [_HANDLE]),
    ("hdfsCloseFile", c_int, [_HANDLE, _HANDLE]),
    ("hdfsRead", c_int32, [_HANDLE, _HANDLE, c_void_p, c_int32]),
    ("hdfsPread", c_int32, [_HANDLE, _HANDLE, c_int64, c_void_p, c_int32]),
    ("hdfsSeek", c_int, [_HANDLE, _HANDLE, c_int64]),
    ("hdfsTell", c_int64, [_HANDLE, _HANDLE]),
    ("hdfsAvailable", c_int, [_HANDLE, _HANDLE]),
    ("hdfsWrite", c_int32, [_HANDLE, _HANDLE, c_void_p, c_int32]),
    ("hdfsHFlush", c_int, [_HANDLE, _HANDLE]),
    ("hdfsHSync", c_int, [_HANDLE, _HANDLE]),
    ("hdfsExists", c_int, [_HANDLE, c_char_p]),
    ("hdfsCopy", c_int, [_HANDLE, c_char_p, _HANDLE, c_char_p]),
    ("hdfsDelete", c_int, [_HANDLE, c_char_p, c_int]),
    ("hdfsRename", c_int, [_HANDLE, c_char_p, c_char_p]),
    ("hdfsCreateDirectory", c_int, [_HANDLE, c_char_p]),
    ("hdfsSetReplication", c_int, [_HANDLE, c_char_p, c_int16]),
    ("hdfsListDirectory", POINTER(FileInfoStructure), [_HANDLE, c_char_p, POINTER(c_int)]),
    ("hdfsGetPathInfo", POINTER(FileInfoStructure), [_HANDLE, c_char_p]),
    ("hdfsFreeFileInfo", None, [POINTER(FileInfoStructure), c_int]),
    ("hdfsGetHosts", POINTER(POINTER(c_char_p)), [_HANDLE, c_char_p, c_int64, c_int64]),
    ("hdfsFreeHosts", None, [POINTER(POINTER(c_char_p))]),
    ("hdfsGetCapacity", c_int64, [_HANDLE]),
    ("hdfsGetUsed", c_int64, [_HANDLE]),
    ("hdfsChown", c_int, [_HANDLE, c_char_p, c_char_p, c_char_p]),
    ("hdfsChmod", c_int, [_HANDLE, c_char_p, c_short]),
    ("hdfsUtime", c_int, [_HANDLE, c_char_p, ctypes.c_long, ctypes.c_long]),
    ("hdfsTruncateFile", c_int, [_HANDLE, c_char_p, c_int64]),
    ("hdfsGetWorkingDirectory", c_void_p, [_HANDLE, c_char_p, c_size_t]),
    ("hdfsFileGetReadStatistics", c_int, [_HANDLE, POINTER(POINTER(StatisticsStructure))]),
    ("hdfsFileFreeReadStatistics", None, [POINTER(StatisticsStructure)]),
    ("hdfsGetLastExceptionStackTrace", c_char_p, []),
    ("hearth_version", c_char_p, []),
    ("hearth_read_many", c_int64, [_HANDLE, c_void_p, c_size_t, c_void_p]),
    ("hearth_read_ranges", c_int64, [_HANDLE, c_void_p, c_size_t, c_void_p]),
    ("hearth_free_bytes", None, [c_void_p, c_size_t]),
    ("hearth_file_length", c_int64, [_HANDLE]),
    ("hearth_view_open", _HANDLE, [_HANDLE, c_int64, c_int64, c_int]),
    ("hearth_view_data", c_void_p, [_HANDLE]),
    ("hearth_view_length", c_int64, [_HANDLE]),
    ("hearth_view_is_in_place", c_int, [_HANDLE]),
    ("hearth_view_close", None, [_HANDLE]),
    ("hearth_pread_async", c_int, [_HANDLE, c_int64, c_void_p, c_size_t, c_void_p, c_void_p]),
    ("hearth_set_interrupt_check", None, [c_void_p]),
    ("hearth_set_interruptible", c_int, [_HANDLE, c_int]),
]:
    _declare(_name, _result, *_arguments)

for _name in ("hearth_file_length", "hearth_view_data", "hearth_view_length", "hdfsGetLastExceptionStackTrace"):
    _function = getattr(_quick, _name)
    _function.restype, _function.argtypes = getattr(lib, _name).restype, getattr(lib, _name).argtypes
    setattr(lib, _name, _function)

#: `hdfsCloseFile` for files that are open for reading, which waits for nothing.
close_reader = _quick.hdfsCloseFile
close_reader.restype, close_reader.argtypes = lib.hdfsCloseFile.restype, lib.hdfsCloseFile.argtypes

#: `hdfsPread`.
read_at = lib.hdfsPread

_copied_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_copied_bytes.restype, _copied_bytes.argtypes = ctypes.py_object, [c_void_p, ctypes.c_ssize_t]


def new_bytes(length: int) -> bytes:
    """Returns `bytes` that are not filled yet. A call fills them before anybody else sees them."""
    return _copied_bytes(None, length)


#: Flags of `hearth_view_open`.
VIEW_IN_PLACE = 1
VIEW_VERIFY = 2
VIEW_UNVERIFIED = 4

#: What a signal handler raised while a call of the main thread waited, and no call has raised since. A write that has taken
#: some of its bytes leaves it to the next call.
_raised: List[BaseException] = []


def _interrupt_checks() -> Iterator[int]:
    """Yields, each time it is asked, whether a signal handler has raised. The library asks on the main thread only.

    An exception that an earlier call has left interrupts the call, too: the user waits for the end since then.

    Python runs signal handlers when it enters a function, which is before a `try` in it. A generator is entered at its
    `yield`, which is inside the `try`.
    """
    answer = 0
    while True:
        try:
            yield answer
            answer = 0
            for _ in range(2):
                pass
            answer = len(_raised)
        except GeneratorExit:
            return
        except BaseException as error:
            _raised[:] = [error]
            answer = 1


_checks = _interrupt_checks()
next(_checks)
_check = ctypes.CFUNCTYPE(c_int)(_checks.__next__)
lib.hearth_set_interrupt_check(ctypes.cast(_check, c_void_p))
# The function is freed when the interpreter ends. Destructors of other libraries may make calls after that.
atexit.register(lib.hearth_set_interrupt_check, None)


def error(path: Optional[str] = None, *, is_dropped: bool = False) -> BaseException:
    """Returns the error of the call that has just failed on this thread: one of Python's own, by its number.

    is_dropped: Python drops the error, because a destructor made the call. What a signal handler raised is then left to
    the next call.
    """
    number = ctypes.get_errno()
    if number == errno.EINTR and _raised and not is_dropped:
        return _raised.pop()
    trace = lib.hdfsGetLastExceptionStackTrace()
    text = trace.decode(errors="replace").splitlines()[0] if trace else ""
    return make_error(number, text, path)


def raise_interrupt() -> None:
    """Raises what a signal handler raised during a call that has since returned without an error."""
    if _raised and threading.current_thread() is threading.main_thread():
        raise _raised.pop()


def make_error(number: int, text: str, path: Optional[str]) -> OSError:
    """Returns the error with this number. `text`: class and message as Java has them."""
    message = text.split(": ", 1)[-1] or os.strerror(number)
    if number == EINTERNAL:
        number = errno.ENOTEMPTY if "PathIsNotEmptyDirectoryException" in text else errno.EIO
    return OSError(number, message, path) if path is not None else OSError(number, message)


def preload_libjvm() -> None:
    """Loads the empty `libjvm.so` beside the library, unless the process has one: PyArrow asks for this name."""
    stub = os.path.join(DIRECTORY, "libjvm.so")
    if not os.path.exists(stub):
        stub = os.path.join(DIRECTORY, "server", "libjvm.so")
    if os.path.exists(stub):
        ctypes.CDLL(stub)


def as_path(path: Any) -> bytes:
    """Returns the path as the library takes it: UTF-8, without NUL."""
    text = os.fspath(path)
    if isinstance(text, bytes):
        text = text.decode()
    if "\0" in text:
        raise ValueError("embedded null character in the path")
    return text.encode()


def read_many(handle: int, wanted: List[Tuple[Any, int, int]]) -> List[Any]:
    """Reads ranges of files in one call. An element is `bytes`, or the error of its range."""
    paths = [as_path(path) for path, _, _ in wanted]
    text = ctypes.create_string_buffer(b"\0".join(paths))
    places = itertools.accumulate((len(path) + 1 for path in paths), initial=ctypes.addressof(text))
    ranges = [(place, offset, length) for place, (_, offset, length) in zip(places, wanted)]
    return _read(lib.hearth_read_many, handle, ranges, lambda index: paths[index].decode())


def read_ranges(file: int, wanted: List[Tuple[int, int]], name: str) -> List[Any]:
    """Reads ranges of an open file in one call. An element is `bytes`, or the error of its range."""
    return _read(lib.hearth_read_ranges, file, [(0, offset, length) for offset, length in wanted], lambda _: name)


def _read(function: Any, handle: int, wanted: List[Tuple[int, int, int]], name: Callable[[int], str]) -> List[Any]:
    """wanted: fields of `_RANGE`. name: returns the name of a range's file, for errors."""
    count = len(wanted)
    if count == 0:
        return []
    try:
        ranges = b"".join(itertools.starmap(_RANGE.pack, wanted))
    except struct.error as wrong:
        raise ValueError(f"an offset or a length is no number of 64 bits: {wrong}") from None
    found = ctypes.create_string_buffer(_BYTES.size * count)
    if function(handle, ranges, count, found) < 0:
        raise error()
    records = memoryview(found).cast("B")
    results: List[Any] = []
    try:
        for first in range(0, count, FREED_TOGETHER):
            end = min(first + FREED_TOGETHER, count)
            start = first * _BYTES.size
            for address, length, number, message, _ in _BYTES.iter_unpack(records[start : end * _BYTES.size]):
                if number:
                    text = ctypes.string_at(message).decode(errors="replace") if message else ""
                    results.append(make_error(number, text, name(len(results))))
                else:
                    results.append(_copied_bytes(address, length))
            # The next ones are copied to the same memory.
            lib.hearth_free_bytes(ctypes.byref(found, start), end - first)
        return results
    finally:
        # Does nothing for those that are free.
        lib.hearth_free_bytes(found, count)
