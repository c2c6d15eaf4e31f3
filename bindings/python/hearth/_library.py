"""The C library, as ctypes sees it: declarations of the functions that this package calls, and their errors.

Calls that may wait release the GIL. A call of the main thread that waits asks ten times a second whether a signal handler wants to run,
so Ctrl-C interrupts it. Only handles of this package do so: PyArrow and other users of the library in this process may
call while they hold the GIL, or from a thread without a state of Python. From the exit of the interpreter on, no call asks.
"""

import atexit
import ctypes
import errno
import os
import threading
from ctypes import POINTER, c_char_p, c_int, c_int16, c_int32, c_int64, c_short, c_size_t, c_uint16, c_void_p
from typing import Any, Iterator, List, Optional, Tuple

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


class RangeStructure(ctypes.Structure):
    _fields_ = [("path", c_char_p), ("offset", c_int64), ("length", c_int64)]


class BytesStructure(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("length", c_int64),
        ("error", c_int),
        ("message", c_char_p),
        ("owner", c_void_p),
    ]


_BYTES_SIZE = ctypes.sizeof(BytesStructure)

#: Number of ranges that are freed with one call.
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
    ("hearth_read_many", c_int64, [_HANDLE, POINTER(RangeStructure), c_size_t, POINTER(BytesStructure)]),
    ("hearth_read_ranges", c_int64, [_HANDLE, POINTER(RangeStructure), c_size_t, POINTER(BytesStructure)]),
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

_allocate_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_allocate_bytes.restype, _allocate_bytes.argtypes = ctypes.py_object, [c_void_p, ctypes.c_ssize_t]


def new_bytes(length: int) -> bytes:
    """Returns `bytes` that are not filled yet. A call fills them before anybody else sees them."""
    return _allocate_bytes(None, length)


#: Flags of `hearth_view_open`.
VIEW_IN_PLACE = 1
VIEW_VERIFY = 2
VIEW_UNVERIFIED = 4

#: What a signal handler raised while a call of the main thread waited.
_raised: List[BaseException] = []


def _interrupt_checks() -> Iterator[int]:
    """Yields, each time it is asked, whether a signal handler has raised. The library asks on the main thread only.

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


def error(path: Optional[str] = None) -> BaseException:
    """Returns the error of the call that has just failed on this thread: one of Python's own, by its number."""
    number = ctypes.get_errno()
    if number == errno.EINTR and _raised:
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
    ranges = [(path, offset, length) for path, (_, offset, length) in zip(paths, wanted)]
    return _read(lib.hearth_read_many, handle, ranges, [path.decode() for path in paths])


def read_ranges(file: int, wanted: List[Tuple[int, int]], name: str) -> List[Any]:
    """Reads ranges of an open file in one call. An element is `bytes`, or the error of its range."""
    return _read(lib.hearth_read_ranges, file, [(None, offset, length) for offset, length in wanted], [name] * len(wanted))


def _read(function: Any, handle: int, wanted: List[Tuple[Optional[bytes], int, int]], names: List[str]) -> List[Any]:
    """names: of the files, for errors."""
    count = len(wanted)
    ranges = (RangeStructure * count)(*(RangeStructure(*one) for one in wanted))
    found = (BytesStructure * count)()
    if function(handle, ranges, count, found) < 0:
        raise error()
    results: List[Any] = []
    try:
        # What is copied is freed soon, so that the next ones use the same memory again.
        while len(results) < count:
            first = len(results)
            part = list(zip(found[first : first + FREED_TOGETHER], names[first : first + FREED_TOGETHER]))
            results += [_taken(one, name) for one, name in part]
            lib.hearth_free_bytes(ctypes.byref(found, first * _BYTES_SIZE), len(part))
        return results
    finally:
        # Does nothing for those that are free.
        lib.hearth_free_bytes(found, count)


def _taken(one: BytesStructure, name: str) -> Any:
    """Returns the bytes or the error of a range."""
    if one.error:
        return make_error(one.error, (one.message or b"").decode(errors="replace"), name)
    return ctypes.string_at(one.data, one.length) if one.length else b""
