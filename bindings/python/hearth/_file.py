"""Open files: raw streams, and the buffered file that `FileSystem.open` returns."""

import ctypes
import errno
import io
import os
import threading
import weakref
from typing import Any, Iterable, List, NamedTuple, Optional, Set, Tuple

from . import _library
from ._library import (
    CALL_BYTES_MAX, VIEW_IN_PLACE, VIEW_UNVERIFIED, VIEW_VERIFY, StatisticsStructure, close_reader, error, lib,
    new_bytes, raise_interrupt, read_at, read_ranges,
)


class ReadStatistics(NamedTuple):
    """Bytes that a file has returned."""

    total: int
    #: From the memory of a DataNode on this machine.
    local: int
    #: Of those, the ones that views showed without a copy.
    shown: int


def _address(buffer: memoryview) -> Any:
    """Returns the address of a writable buffer, as an object that keeps it."""
    return (ctypes.c_char * buffer.nbytes).from_buffer(buffer)


class RawFile(io.RawIOBase):
    """A file without a buffer of Python's. `pread` and `view` may be called by many threads at once."""

    #: A destructor closes the file, and drops what that raises. `io.IOBase.__del__` sets it.
    _finalizing = False

    def __init__(self, file_system: Any, handle: int, name: str, mode: str) -> None:
        self._file_system = file_system  # keeps its handle
        self.name = name
        self.mode = mode
        self._process = _library.process
        # No lock guards these, because a signal handler may run in the middle of a call: they change by operations that
        # are atomic in Python.
        # The handle of the open file, or nothing.
        self._open = [handle]
        # The calls in flight. Each has an object of its own: if a signal handler raises in the middle of `_begin`, `_end`
        # takes out what was put in, and never another call.
        self._calls: Set[object] = set()
        # The threads whose calls use the position.
        self._movers: Set[int] = set()
        # Handles of the closed file that calls in flight still use: none, or one.
        self._closing: List[int] = []
        # The position was used: before that, it is 0 in a file that is read.
        self._moved = False
        self._size = lib.hearth_file_length(handle) if mode == "rb" else None

    def _begin(self, call: object) -> int:
        """Returns the handle, which stays open until `_end`. That must follow even if this raises."""
        if self._process != _library.process:
            raise OSError(errno.EBADF, "the file was opened before the fork of this process: open it again", self.name)
        # First, so that `close` either sees this call or is seen by it.
        self._calls.add(call)
        try:
            return self._open[0]
        except IndexError:
            raise ValueError("I/O operation on closed file") from None

    def _end(self, call: object) -> None:
        try:
            self._calls.discard(call)
        finally:
            if self._closing:
                self._close_after_last_call()

    def _close_after_last_call(self) -> None:
        """Closes the file if another thread, or a signal handler, has closed it during the last of its calls."""
        if not self._calls and not self._close_handle():
            self._raise_interrupt()

    def _raise_interrupt(self) -> None:
        """Raises what a signal handler raised during an earlier call. A destructor leaves it to the next call."""
        if not self._finalizing:
            raise_interrupt()

    def _error(self) -> BaseException:
        """Returns the error of the call that has just failed."""
        return error(self.name, is_dropped=self._finalizing)

    def _dealloc_warn(self, source: Any) -> None:
        """Called by the destructor of `io.BufferedWriter`, before it flushes and closes this file."""
        self._finalizing = True

    def _close_handle(self) -> bool:
        """Closes the handle in `_closing`, unless another thread does. Returns False after an error."""
        try:
            handle = self._closing.pop()
        except IndexError:
            return True
        close_file = close_reader if self.mode == "rb" else lib.hdfsCloseFile
        return close_file(None, handle) == 0

    def _call(self, function: Any, *arguments: Any) -> int:
        call = object()
        try:
            result = function(None, self._begin(call), *arguments)
            if result < 0:
                raise self._error()
            return result
        finally:
            self._end(call)

    def _move(self, function: Any, *arguments: Any) -> int:
        """Like `_call`, for calls that use the position."""
        thread = threading.get_ident()
        if thread in self._movers:
            raise RuntimeError(f"reentrant call inside {self!r}")
        try:
            self._movers.add(thread)
            self._moved = True
            return self._call(function, *arguments)
        finally:
            self._movers.discard(thread)

    def readable(self) -> bool:
        return self.mode == "rb"

    def writable(self) -> bool:
        return self.mode != "rb"

    def seekable(self) -> bool:
        return self.mode == "rb"

    @property
    def size(self) -> int:
        """Length of the file in bytes, when it was opened."""
        if self._size is None:
            raise io.UnsupportedOperation("size")
        return self._size

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer, fewer bytes only at the end of the file. Returns their number."""
        if not self.readable():
            raise io.UnsupportedOperation("read")
        with memoryview(buffer).cast("B") as view:
            total = 0
            while total < view.nbytes:
                part = view[total : total + CALL_BYTES_MAX]
                count = self._move(lib.hdfsRead, _address(part), part.nbytes)
                total += count
                if count < part.nbytes:
                    break
            return total

    def readall(self) -> bytes:
        return self.read(max(0, self.size - self.tell()))

    def read(self, size: Optional[int] = -1) -> bytes:
        if size is None or size < 0:
            return self.readall()
        if not self.readable():
            raise io.UnsupportedOperation("read")
        size = min(size, max(0, self.size - self.tell()))
        if size <= CALL_BYTES_MAX:
            found = new_bytes(size)
            count = self._move(lib.hdfsRead, found, size)
            return found if count == size else found[:count]
        whole = bytearray(size)
        del whole[self.readinto(whole) :]
        return bytes(whole)

    def pread(self, offset: int, length: int) -> bytes:
        """Returns `length` bytes from `offset` on, fewer at the end of the file. The position stays as it is."""
        if offset < 0 or length < 0:
            raise ValueError("negative offset or length")
        left = self.size - offset
        if length > left:
            length = max(0, left)
        if length <= CALL_BYTES_MAX:
            found = new_bytes(length)
            # `_call`, `_begin` and `_end` in place: a read of some kilobytes takes as long as a few calls of Python.
            call = object()
            try:
                if self._process != _library.process:
                    self._begin(call)
                self._calls.add(call)
                try:
                    handle = self._open[0]
                except IndexError:
                    raise ValueError("I/O operation on closed file") from None
                count = read_at(None, handle, offset, found, length)
                if count < 0:
                    raise error(self.name)
            finally:
                try:
                    self._calls.discard(call)
                finally:
                    if self._closing:
                        self._close_after_last_call()
            return found if count == length else found[:count]
        whole = bytearray(length)
        del whole[self.pread_into(offset, whole) :]
        return bytes(whole)

    def pread_into(self, offset: int, buffer: Any) -> int:
        """Like `pread`, into a writable buffer, such as a NumPy array. Returns the number of bytes."""
        if offset < 0:
            raise ValueError("negative offset")
        with memoryview(buffer).cast("B") as view:
            total = 0
            while total < view.nbytes:
                part = view[total : total + CALL_BYTES_MAX]
                count = self._call(lib.hdfsPread, offset + total, _address(part), part.nbytes)
                total += count
                if count < part.nbytes:
                    break
            return total

    def read_ranges(self, ranges: Iterable[Tuple[int, int]]) -> List[bytes]:
        """Returns the bytes of each `(offset, length)`, all requested at once. Length -1: to the end of the file.

        They are those of the file that was opened, also if it has been renamed or replaced since.
        """
        call = object()
        try:
            found = read_ranges(self._begin(call), list(ranges), self.name)
        finally:
            self._end(call)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return found

    def view(
        self, offset: int = 0, length: int = -1, *, in_place: bool = False, verify: Optional[bool] = None
    ) -> memoryview:
        """Shows bytes of the file: in the DataNode's own memory if it is on this machine, else in a copy.

        Returns a read-only `memoryview` of at most `length` bytes from `offset` on (-1: all), up to the end of a block;
        see `views` for all blocks. NumPy, PyArrow and others take it without a copy. The bytes do not change while it
        is in use, also if the file is closed or deleted.

        in_place: raise `OSError` (ENOTSUP) instead of copying. verify: None, the default, accepts bytes that the
        DataNode says it has verified, and compares others with their checksums here. True compares them here in any
        case. False shows them as they are. Copies are always verified. A replica that does not match is reported to the
        NameNode, and another one is used; `OSError` (EIO) if there is none.

        In a child of a fork, a view of the parent can still be read.
        """
        if offset < 0:
            raise ValueError("negative offset")
        checks = 0 if verify is None else VIEW_VERIFY if verify else VIEW_UNVERIFIED
        flags = (VIEW_IN_PLACE if in_place else 0) | checks
        call = object()
        try:
            handle = lib.hearth_view_open(self._begin(call), offset, -1 if length < 0 else length, flags)
            if not handle:
                raise error(self.name)
        finally:
            self._end(call)
        size = lib.hearth_view_length(handle)
        if size == 0:
            lib.hearth_view_close(handle)
            return memoryview(b"")
        shown = (ctypes.c_ubyte * size).from_address(lib.hearth_view_data(handle))
        # The memoryview and everything made of it hold `shown`; the memory is given back after the last of them.
        weakref.finalize(shown, lib.hearth_view_close, handle).atexit = False
        return memoryview(shown).cast("B").toreadonly()

    def views(self, **options: Optional[bool]) -> List[memoryview]:
        """Returns a view of each block of the file, in order. Options as for `view`."""
        found, offset = [], 0
        while offset < self.size:
            view = self.view(offset, **options)
            if not view.nbytes:
                break
            found.append(view)
            offset += view.nbytes
        return found

    def statistics(self) -> ReadStatistics:
        """Returns the number of bytes that were read so far, by any method."""
        place = ctypes.POINTER(StatisticsStructure)()
        call = object()
        try:
            if lib.hdfsFileGetReadStatistics(self._begin(call), ctypes.byref(place)) != 0:
                raise error(self.name)
        finally:
            self._end(call)
        found = place[0]
        statistics = ReadStatistics(found.total, found.local, found.zero_copy)
        lib.hdfsFileFreeReadStatistics(place)
        return statistics

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if not self.seekable():
            raise io.UnsupportedOperation("seek")
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell() if whence == os.SEEK_CUR else 0, os.SEEK_END: self.size}
        if whence not in base:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        position = base[whence] + offset
        if position < 0:
            raise ValueError(f"negative seek position {position}")
        self._move(lib.hdfsSeek, position)
        return position

    def tell(self) -> int:
        if not self._moved and self.mode == "rb" and self._open:
            return 0
        return self._move(lib.hdfsTell)

    def write(self, data: Any) -> int:
        """Appends all of `data`. Returns its number of bytes, or a smaller one if a signal handler has raised."""
        if not self.writable():
            raise io.UnsupportedOperation("write")
        self._raise_interrupt()
        with memoryview(data) as given, given.cast("B") as view:
            total = 0
            while total < view.nbytes:
                part = view[total : total + CALL_BYTES_MAX]
                pointer = _constant(part) if part.readonly else _address(part)
                count = self._move(lib.hdfsWrite, pointer, part.nbytes)
                total += count
                if count < part.nbytes:
                    # A signal handler has raised. Those bytes are taken, so its exception is left to the next call.
                    break
            return total

    def hflush(self) -> None:
        """Waits until every byte is in the memory of each DataNode. Readers that open the file see them."""
        self._call(lib.hdfsHFlush)

    def hsync(self) -> None:
        """Like `hflush`, and waits until the bytes are on the disks."""
        self._call(lib.hdfsHSync)

    def close(self) -> None:
        """Closes the file. A file that was written is complete then.

        If a signal handler raises while this waits, as for Ctrl-C, that exception is raised, and the file is closed in the
        background. So is one that an earlier `write` has left, which is not repeated. A destructor cannot raise, and leaves
        the exception to the next call.
        """
        if self.closed:
            return
        try:
            super().close()
        finally:
            try:
                handle = self._open.pop()
            except IndexError:
                # Another thread closes it.
                pass
            else:
                self._closing.append(handle)
                # Otherwise the last call in flight closes it. In a child of a fork the calls are those of the parent's
                # threads, and the library leaves the parent's file alone.
                is_ours = self._process == _library.process
                if not (self._calls and is_ours) and not self._close_handle() and is_ours:
                    raise self._error()
                if self.mode != "rb":
                    # A write that has taken some of its bytes may have been the last call.
                    self._raise_interrupt()

    def __repr__(self) -> str:
        return f"<hearth.RawFile name={self.name!r} mode={self.mode!r}>"


def _constant(view: memoryview) -> Any:
    """Returns a pointer to a read-only buffer, without a copy for `bytes`."""
    owner = view.obj
    if isinstance(owner, bytes) and len(owner) == view.nbytes:
        return owner
    return bytes(view)


class File(io.BufferedReader):
    """A file that is open for reading. Small reads and lines come from a buffer; `pread` and `view` pass it by."""

    raw: RawFile

    @property
    def size(self) -> int:
        """Length of the file in bytes, when it was opened."""
        return self.raw.size

    def pread(self, offset: int, length: int) -> bytes:
        """See `RawFile.pread`."""
        return self.raw.pread(offset, length)

    def pread_into(self, offset: int, buffer: Any) -> int:
        """See `RawFile.pread_into`."""
        return self.raw.pread_into(offset, buffer)

    def read_ranges(self, ranges: Iterable[Tuple[int, int]]) -> List[bytes]:
        """See `RawFile.read_ranges`."""
        return self.raw.read_ranges(ranges)

    def view(
        self, offset: int = 0, length: int = -1, *, in_place: bool = False, verify: Optional[bool] = None
    ) -> memoryview:
        """See `RawFile.view`."""
        return self.raw.view(offset, length, in_place=in_place, verify=verify)

    def views(self, **options: Optional[bool]) -> List[memoryview]:
        """See `RawFile.views`."""
        return self.raw.views(**options)

    def statistics(self) -> ReadStatistics:
        """See `RawFile.statistics`."""
        return self.raw.statistics()
