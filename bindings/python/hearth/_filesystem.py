"""`FileSystem`: the operations of HDFS under Python's names."""

import asyncio
import ctypes
import datetime
import errno
import io
import os
import posixpath
import weakref
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from ._file import File, RawFile
from ._library import FileInfoStructure, as_path, error, lib, read_many

Path = Union[str, bytes, "os.PathLike[str]"]

#: Flags of fcntl.h by mode.
_FLAGS = {
    "rb": os.O_RDONLY,
    "wb": os.O_WRONLY,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "ab": os.O_WRONLY | os.O_APPEND,
}


class FileInfo(NamedTuple):
    """Status of a file or directory."""

    #: Absolute path.
    path: str
    is_directory: bool
    #: Bytes; 0 for a directory.
    size: int
    modified: datetime.datetime
    accessed: datetime.datetime
    owner: str
    group: str
    #: Bits such as 0o644.
    permissions: int
    #: Number of replicas; 0 for a directory.
    replication: int
    #: Bytes; 0 for a directory.
    block_size: int

    @property
    def is_file(self) -> bool:
        return not self.is_directory

    @property
    def name(self) -> str:
        """Last part of the path."""
        return posixpath.basename(self.path)


def _time(seconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def _seconds(time: Union[None, float, datetime.datetime]) -> int:
    if time is None:
        return -1
    return int(time.timestamp() if isinstance(time, datetime.datetime) else time)


class FileSystem:
    """An HDFS file system.

    url: `hdfs://host:port`, `hdfs://nameservice`, `host:port`, or "default" for `fs.defaultFS` of the configuration.
    user: on whose behalf calls are made; by default HADOOP_USER_NAME, or the user of this process.
    settings: keys of Hadoop's configuration, on top of the files in HADOOP_CONF_DIR.

    Nothing is sent by making it: an unreachable NameNode is an error of the first call. One object may be used by many
    threads, and by the children of a fork, which get connections of their own. Files that were open at the fork must be
    opened again. It can be pickled.

    Paths are absolute, relative to the user's home directory, or URIs of this file system. Errors are Python's own
    (`FileNotFoundError`, `PermissionError`, ...) with the server's message; others are `OSError`.

    >>> fs = FileSystem("hdfs://localhost:8020")
    >>> fs.write_file("/notes.txt", b"in memory")
    >>> fs.read_file("/notes.txt")
    b'in memory'
    """

    def __init__(self, url: str = "default", *, user: Optional[str] = None, settings: Optional[Dict[str, Any]] = None) -> None:
        self._arguments = (url, user, dict(settings or {}))
        builder = lib.hdfsNewBuilder()
        lib.hdfsBuilderSetNameNode(builder, url.encode())
        if user is not None:
            lib.hdfsBuilderSetUserName(builder, user.encode())
        for key, value in self._arguments[2].items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            lib.hdfsBuilderConfSetStr(builder, key.encode(), text.encode())
        self._handle = lib.hdfsBuilderConnect(builder)
        if not self._handle:
            raise error()
        weakref.finalize(self, lib.hdfsDisconnect, self._handle).atexit = False
        lib.hearth_set_interruptible(self._handle, 1)
        buffer = ctypes.create_string_buffer(4096)
        if not lib.hdfsGetWorkingDirectory(self._handle, buffer, len(buffer)):
            raise error()
        uri = buffer.value.decode()
        end = uri.index("/", len("hdfs://"))
        #: `hdfs://` and the address.
        self.uri: str = uri[:end]
        #: Directory at which relative paths start.
        self.home: str = uri[end:]

    def __reduce__(self) -> Any:
        return _connect, self._arguments

    def __repr__(self) -> str:
        return f"FileSystem({self.uri!r})"

    def _check(self, result: int, path: Path) -> int:
        if result < 0:
            raise error(_text(path))
        return result

    # ---- Files ----

    def open(
        self,
        path: Path,
        mode: str = "rb",
        *,
        buffering: int = -1,
        replication: int = 0,
        block_size: int = 0,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
    ) -> Any:
        """Opens a file.

        mode: "rb", "wb" (create or replace), "xb" (create), or "ab" (append), and the same with "t" or nothing for text.
        buffering: bytes of Python's buffer; 0 returns a `RawFile`. replication, block_size (bytes): of a new file; 0
        means as configured. Returns a `File` for reading, with `pread` and `view`; an `io.BufferedWriter` for writing.
        Missing parent directories are created.

        Errors: `FileNotFoundError`; `FileExistsError` for "x"; `PermissionError`; `ValueError` for other modes.
        """
        kind = mode.replace("t", "").replace("b", "") + "b"
        if kind not in _FLAGS or ("t" in mode and "b" in mode):
            raise ValueError(f"invalid mode: {mode!r}")
        if kind == "rb":
            handle = lib.hdfsOpenFile(self._handle, as_path(path), _FLAGS[kind], 0, 0, 0)
        else:
            builder = lib.hdfsStreamBuilderAlloc(self._handle, as_path(path), _FLAGS[kind])
            if not builder:
                raise error(_text(path))
            lib.hdfsStreamBuilderSetReplication(builder, replication)
            lib.hdfsStreamBuilderSetDefaultBlockSize(builder, block_size)
            handle = lib.hdfsStreamBuilderBuild(builder)
        if not handle:
            raise error(_text(path))
        raw = RawFile(self, handle, _text(path), kind)
        is_text = "b" not in mode
        if buffering == 0:
            if is_text:
                raise ValueError("can't have unbuffered text I/O")
            return raw
        size = buffering if buffering > 1 else 1 << 16
        file: Any = File(raw, size) if kind == "rb" else io.BufferedWriter(raw, size)
        return io.TextIOWrapper(file, encoding, errors, newline) if is_text else file

    def read_file(self, path: Path) -> bytes:
        """Returns the content of a file."""
        with self.open(path, buffering=0) as file:
            return file.pread(0, file.size)

    def write_file(self, path: Path, data: Any) -> None:
        """Creates or replaces a file."""
        with self.open(path, "wb", buffering=0) as file:
            file.write(data)

    def read_files(self, paths: Iterable[Path], *, return_errors: bool = False) -> List[Any]:
        """Returns the contents of many files, which are opened and read together: for thousands of small files.

        return_errors: an element may be the error of its file. Otherwise the first error is raised.
        """
        return self.read_ranges([(path, 0, -1) for path in paths], return_errors=return_errors)

    def read_ranges(self, ranges: Iterable[Tuple[Path, int, int]], *, return_errors: bool = False) -> List[Any]:
        """Returns the bytes of each `(path, offset, length)`, all requested together. Length -1: to the end of the file.

        A range beyond the end of its file is cut there. return_errors: as for `read_files`.
        """
        found = read_many(self._handle, list(ranges))
        if not return_errors:
            for one in found:
                if isinstance(one, BaseException):
                    raise one
        return found

    def view(
        self,
        path: Path,
        offset: int = 0,
        length: int = -1,
        *,
        in_place: bool = False,
        verify: Optional[bool] = None,
    ) -> memoryview:
        """Shows bytes of a file without a copy, if they are in memory of this machine. They are verified, unless
        `verify` is False: see `RawFile.view`.
        """
        with self.open(path, buffering=0) as file:
            return file.view(offset, length, in_place=in_place, verify=verify)

    # ---- Names ----

    def exists(self, path: Path) -> bool:
        """Returns whether there is a file or directory."""
        if lib.hdfsExists(self._handle, as_path(path)) == 0:
            return True
        raised = error(_text(path))
        if isinstance(raised, FileNotFoundError):
            return False
        raise raised

    def is_file(self, path: Path) -> bool:
        """Returns whether there is a file."""
        try:
            return self.info(path).is_file
        except FileNotFoundError:
            return False

    def is_directory(self, path: Path) -> bool:
        """Returns whether there is a directory."""
        try:
            return self.info(path).is_directory
        except FileNotFoundError:
            return False

    def info(self, path: Path) -> FileInfo:
        """Returns the status of a file or directory."""
        found = lib.hdfsGetPathInfo(self._handle, as_path(path))
        if not found:
            raise error(_text(path))
        try:
            return self._info(found[0])
        finally:
            lib.hdfsFreeFileInfo(found, 1)

    def list(self, path: Path) -> List[FileInfo]:
        """Returns the entries of a directory, by name; for a file, itself."""
        count = ctypes.c_int(-1)
        found = lib.hdfsListDirectory(self._handle, as_path(path), ctypes.byref(count))
        if count.value < 0:
            raise error(_text(path))
        try:
            return [self._info(found[index]) for index in range(count.value)]
        finally:
            lib.hdfsFreeFileInfo(found, count)

    def walk(self, path: Path) -> Iterator[FileInfo]:
        """Yields everything below a directory, parents first."""
        for entry in self.list(path):
            yield entry
            if entry.is_directory:
                yield from self.walk(entry.path)

    def _info(self, found: FileInfoStructure) -> FileInfo:
        uri = found.name.decode(errors="replace")
        return FileInfo(
            path=uri[len(self.uri) :] or "/",
            is_directory=found.kind == ord("D"),
            size=found.size,
            modified=_time(found.modified),
            accessed=_time(found.accessed),
            owner=found.owner.decode(errors="replace"),
            group=found.group.decode(errors="replace"),
            permissions=found.permissions & 0xFFFF,
            replication=found.replication,
            block_size=found.block_size,
        )

    def make_directory(self, path: Path) -> None:
        """Creates a directory and its missing parents. It may exist already."""
        self._check(lib.hdfsCreateDirectory(self._handle, as_path(path)), path)

    def delete(self, path: Path, *, recursive: bool = False) -> None:
        """Deletes a file or an empty directory; with recursive, a directory with everything in it.

        Errors: `FileNotFoundError`; `OSError` (ENOTEMPTY) for a directory with entries.
        """
        if lib.hdfsDelete(self._handle, as_path(path), int(recursive)) == 0:
            return
        raised = error(_text(path))
        # The NameNode says only that it deleted nothing.
        if isinstance(raised, OSError) and raised.errno == errno.EIO and not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), _text(path))
        raise raised

    def rename(self, source: Path, target: Path) -> None:
        """Renames a file or directory. If the target is a directory, the source moves into it.

        Errors: `FileNotFoundError` if the source, or the target's parent, is missing; `FileExistsError`.
        """
        if lib.hdfsRename(self._handle, as_path(source), as_path(target)) == 0:
            return
        raised = error(_text(source))
        # The NameNode says only that it refused.
        if isinstance(raised, OSError) and raised.errno == errno.EIO:
            if not self.exists(source):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), _text(source))
            if self.exists(target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), _text(target))
            raise FileNotFoundError(errno.ENOENT, "the target's parent directory does not exist", _text(target))
        raise raised

    def copy(self, source: Path, target: Path, to: Optional["FileSystem"] = None) -> None:
        """Copies a file or a directory tree, to another file system if `to` is given. Bytes pass through this process."""
        to = to or self
        self._check(lib.hdfsCopy(self._handle, as_path(source), to._handle, as_path(target)), source)

    def truncate(self, path: Path, length: int) -> bool:
        """Cuts a file. Returns False if its last block is still being cut, and the file cannot be written yet."""
        return bool(self._check(lib.hdfsTruncateFile(self._handle, as_path(path), length), path))

    def set_replication(self, path: Path, replication: int) -> None:
        """Sets the number of replicas of a file."""
        self._check(lib.hdfsSetReplication(self._handle, as_path(path), replication), path)

    def set_permissions(self, path: Path, permissions: int) -> None:
        """Sets the permissions, such as 0o640."""
        self._check(lib.hdfsChmod(self._handle, as_path(path), permissions), path)

    def set_owner(self, path: Path, owner: Optional[str] = None, group: Optional[str] = None) -> None:
        """Sets owner and group; None leaves one as it is."""
        encoded = [None if name is None else name.encode() for name in (owner, group)]
        self._check(lib.hdfsChown(self._handle, as_path(path), *encoded), path)

    def set_times(
        self,
        path: Path,
        modified: Union[None, float, datetime.datetime] = None,
        accessed: Union[None, float, datetime.datetime] = None,
    ) -> None:
        """Sets times, in seconds since 1970 or as datetime; None leaves one as it is. Parts of a second are dropped."""
        self._check(lib.hdfsUtime(self._handle, as_path(path), _seconds(modified), _seconds(accessed)), path)

    def hosts(self, path: Path, offset: int = 0, length: int = (1 << 63) - 1) -> List[List[str]]:
        """Returns, for each block in the range, the hosts with a replica."""
        found = lib.hdfsGetHosts(self._handle, as_path(path), offset, length)
        if not found:
            raise error(_text(path))
        blocks: List[List[str]] = []
        while found[len(blocks)]:
            block = found[len(blocks)]
            hosts: List[str] = []
            while block[len(hosts)]:
                hosts.append(block[len(hosts)].decode())
            blocks.append(hosts)
        lib.hdfsFreeHosts(found)
        return blocks

    def capacity(self) -> int:
        """Returns the bytes that the DataNodes can store."""
        return self._check(lib.hdfsGetCapacity(self._handle), "/")

    def used(self) -> int:
        """Returns the bytes of all replicas."""
        return self._check(lib.hdfsGetUsed(self._handle), "/")

    # ---- For asyncio ----

    async def read_file_async(self, path: Path) -> bytes:
        """Like `read_file`, without blocking the event loop."""
        return await _in_thread(self.read_file, path)

    async def write_file_async(self, path: Path, data: Any) -> None:
        """Like `write_file`, without blocking the event loop."""
        await _in_thread(self.write_file, path, data)

    async def read_files_async(self, paths: Iterable[Path], *, return_errors: bool = False) -> List[Any]:
        """Like `read_files`, without blocking the event loop."""
        return await _in_thread(lambda: self.read_files(paths, return_errors=return_errors))

    async def read_ranges_async(self, ranges: Sequence[Tuple[Path, int, int]], *, return_errors: bool = False) -> List[Any]:
        """Like `read_ranges`, without blocking the event loop."""
        return await _in_thread(lambda: self.read_ranges(ranges, return_errors=return_errors))

    async def info_async(self, path: Path) -> FileInfo:
        """Like `info`, without blocking the event loop."""
        return await _in_thread(self.info, path)

    async def list_async(self, path: Path) -> List[FileInfo]:
        """Like `list`, without blocking the event loop."""
        return await _in_thread(self.list, path)


async def _in_thread(function: Any, *arguments: Any) -> Any:
    """Runs a call in a thread of the event loop's pool. Calls release the GIL."""
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def _text(path: Path) -> str:
    text = os.fspath(path)
    return text.decode() if isinstance(text, bytes) else text


def _connect(url: str, user: Optional[str], settings: Dict[str, Any]) -> FileSystem:
    return FileSystem(url, user=user, settings=settings)
