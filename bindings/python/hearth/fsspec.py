"""The file system for fsspec: `hdfs://` and `hearth://` URLs of pandas, Dask, DuckDB, Polars, xarray and others.

fsspec takes it by the package's entry points. If another package claims `hdfs`, or fsspec has resolved the protocol
already, call `hearth.fsspec.register()`.
"""

import asyncio
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.utils import infer_storage_options

from ._filesystem import FileInfo, FileSystem

#: Calls that run at the same time. They wait most of the time, and release the GIL.
_THREADS = 32


def register() -> None:
    """Makes this the implementation of `hdfs` and `hearth`, before all others."""
    for protocol in HearthFileSystem.protocol:
        fsspec.register_implementation(protocol, HearthFileSystem, clobber=True)


@functools.lru_cache(maxsize=None)
def _pool(process: int) -> ThreadPoolExecutor:
    """Returns the threads of this process; a child of a fork needs its own."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix=f"hearth-{process}")


async def _run(function: Any, *arguments: Any, **options: Any) -> Any:
    call = functools.partial(function, *arguments, **options)
    return await asyncio.get_running_loop().run_in_executor(_pool(os.getpid()), call)


def _entry(info: FileInfo) -> Dict[str, Any]:
    return {
        "name": info.path,
        "size": info.size,
        "type": "directory" if info.is_directory else "file",
        "mtime": info.modified,
        "atime": info.accessed,
        "owner": info.owner,
        "group": info.group,
        "mode": info.permissions,
        "replication": info.replication,
        "block_size": info.block_size,
    }


class HearthFileSystem(AsyncFileSystem):
    """HDFS by the client of this package.

    host, port, user: of the NameNode; without a host, the configuration in HADOOP_CONF_DIR says it. url: both in one.
    settings: keys of Hadoop's configuration. replication, block_size (bytes): of new files.
    """

    protocol = ("hdfs", "hearth")
    root_marker = "/"
    cachable = True

    def __init__(
        self,
        host: Optional[str] = None,
        port: Optional[int] = None,
        user: Optional[str] = None,
        *,
        url: Optional[str] = None,
        settings: Optional[Dict[str, Any]] = None,
        replication: int = 0,
        block_size: int = 0,
        asynchronous: bool = False,
        loop: Any = None,
        **others: Any,
    ) -> None:
        super().__init__(asynchronous=asynchronous, loop=loop, **others)
        if url is None:
            url = "default" if host in (None, "", "default") else f"{host}:{port}" if port else str(host)
        self.fs = FileSystem(url, user=user, settings=settings)
        self._options = {"replication": replication, "block_size": block_size}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = os.fspath(path)
        for protocol in cls.protocol:
            if text.startswith(f"{protocol}://"):
                text = "/" + text[len(protocol) + 3 :].partition("/")[2]
        if not text.startswith("/"):
            text = "/" + text
        return text.rstrip("/") or "/"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> Dict[str, Any]:
        found = infer_storage_options(path)
        named = {"host": found.get("host"), "port": found.get("port"), "user": found.get("username")}
        return {name: value for name, value in named.items() if value}

    @property
    def fsid(self) -> str:
        return self.fs.uri

    async def _info(self, path: str, **_: Any) -> Dict[str, Any]:
        return _entry(await _run(self.fs.info, self._strip_protocol(path)))

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> List[Any]:
        entries = [_entry(info) for info in await _run(self.fs.list, self._strip_protocol(path))]
        return entries if detail else sorted(entry["name"] for entry in entries)

    async def _exists(self, path: str, **_: Any) -> bool:
        return await _run(self.fs.exists, self._strip_protocol(path))

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if await _run(self.fs.exists, path):
            raise FileExistsError(17, os.strerror(17), path)
        parent = self._parent(path)
        if not create_parents and not await _run(self.fs.exists, parent):
            raise FileNotFoundError(2, os.strerror(2), parent)
        await _run(self.fs.make_directory, path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        if not exist_ok and await _run(self.fs.exists, path):
            raise FileExistsError(17, os.strerror(17), path)
        await _run(self.fs.make_directory, path)

    async def _rmdir(self, path: str) -> None:
        path = self._strip_protocol(path)
        if not (await _run(self.fs.info, path)).is_directory:
            raise NotADirectoryError(20, os.strerror(20), path)
        await _run(self.fs.delete, path)

    # The synchronous form that fsspec does not mirror.
    def rmdir(self, path: str) -> None:
        fsspec.asyn.sync(self.loop, self._rmdir, path)

    async def _rm_file(self, path: str, **_: Any) -> None:
        await _run(self.fs.delete, self._strip_protocol(path))

    async def _rm(self, path: Any, recursive: bool = False, batch_size: Any = None, maxdepth: Any = None, **_: Any) -> None:
        if maxdepth is not None:
            return await super()._rm(path, recursive=recursive, batch_size=batch_size, maxdepth=maxdepth)
        paths = [path] if isinstance(path, (str, os.PathLike)) else path
        for one in paths:
            one = self._strip_protocol(one)
            found = await self._expand_path(one) if any(sign in one for sign in "*?[") else [one]
            await asyncio.gather(*(_run(self.fs.delete, each, recursive=recursive) for each in found))
        return None

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if (await _run(self.fs.info, source)).is_directory:
            await _run(self.fs.make_directory, target)
        else:
            await _run(self._copy_file, source, target)

    def _copy_file(self, source: str, target: str) -> None:
        if self.fs.is_directory(target):
            raise IsADirectoryError(21, os.strerror(21), target)
        self.fs.copy(source, target)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: Any = None, **options: Any) -> None:
        """Renames, if there is one source and the target can take its name. Otherwise copies and deletes, as fsspec does."""
        if isinstance(path1, str) and not any(sign in path1 for sign in "*?[") and maxdepth is None:
            source, target = self._strip_protocol(path1), self._strip_protocol(path2)
            if source == target:
                return
            is_directory = self.fs.info(source).is_directory
            if (recursive or not is_directory) and not path2.endswith("/") and not self.fs.is_directory(target):
                if self.fs.exists(target):
                    self.fs.delete(target)
                self.fs.make_directory(self._parent(target))
                return self.fs.rename(source, target)
        return super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)

    async def _cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any) -> bytes:
        path = self._strip_protocol(path)
        if (start or 0) < 0 or (end is not None and end < 0):
            size = (await _run(self.fs.info, path)).size
            start = size + start if start is not None and start < 0 else start
            end = size + end if end is not None and end < 0 else end
        return (await _run(self.fs.read_ranges, [_range(path, start, end)]))[0]

    async def _cat_ranges(
        self,
        paths: Any,
        starts: Any,
        ends: Any,
        max_gap: Any = None,
        batch_size: Any = None,
        on_error: str = "return",
        **_: Any,
    ) -> List[Any]:
        """All ranges in one request, which the client splits by DataNode."""
        if max_gap is not None:
            raise NotImplementedError
        count = len(paths)
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * count
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * count
        if len(starts) != count or len(ends) != count:
            raise ValueError("paths, starts and ends differ in length")
        if any((start or 0) < 0 or (end or 0) < 0 for start, end in zip(starts, ends)):
            return await asyncio.gather(
                *(self._cat_file(path, start, end) for path, start, end in zip(paths, starts, ends)),
                return_exceptions=on_error == "return",
            )
        ranges = [_range(self._strip_protocol(path), start, end) for path, start, end in zip(paths, starts, ends)]
        return await _run(self.fs.read_ranges, ranges, return_errors=on_error == "return")

    async def _cat(self, path: Any, recursive: bool = False, on_error: str = "raise", batch_size: Any = None, **options: Any) -> Any:
        """All files in one request."""
        paths = await self._expand_path(path, recursive=recursive)
        if not paths:
            raise FileNotFoundError(2, os.strerror(2), path)
        found = await _run(self.fs.read_files, paths, return_errors=True)
        if on_error == "raise":
            for one in found:
                if isinstance(one, BaseException):
                    raise one
        is_one = isinstance(path, (str, os.PathLike)) and len(paths) == 1 and paths[0] == self._strip_protocol(path)
        if is_one:
            if isinstance(found[0], BaseException) and on_error == "omit":
                return {}
            return found[0]
        return {
            name: one
            for name, one in zip(paths, found)
            if on_error != "omit" or not isinstance(one, BaseException)
        }

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        kind = "xb" if mode == "create" else "wb"
        await _run(self._write, self._strip_protocol(path), kind, value)

    def _write(self, path: str, mode: str, value: Any) -> None:
        with self.fs.open(path, mode, buffering=0, **self._options) as file:
            file.write(value)

    async def _put_file(self, lpath: str, rpath: str, callback: Any = fsspec.callbacks.DEFAULT_CALLBACK, mode: str = "overwrite", **_: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if os.path.isdir(lpath):
            await _run(self.fs.make_directory, rpath)
            return
        callback.set_size(os.path.getsize(lpath))
        await _run(self._put, lpath, rpath, "xb" if mode == "create" else "wb", callback)

    def _put(self, lpath: str, rpath: str, mode: str, callback: Any) -> None:
        with open(lpath, "rb") as source, self.fs.open(rpath, mode, buffering=0, **self._options) as target:
            while True:
                part = source.read(4 << 20)
                if not part:
                    break
                target.write(part)
                callback.relative_update(len(part))

    async def _get_file(self, rpath: str, lpath: str, callback: Any = fsspec.callbacks.DEFAULT_CALLBACK, **_: Any) -> None:
        rpath = self._strip_protocol(rpath)
        info = await _run(self.fs.info, rpath)
        if info.is_directory:
            os.makedirs(lpath, exist_ok=True)
            return
        if os.path.dirname(lpath):
            os.makedirs(os.path.dirname(lpath), exist_ok=True)
        callback.set_size(info.size)
        await _run(self._get, rpath, lpath, callback)

    def _get(self, rpath: str, lpath: str, callback: Any) -> None:
        with self.fs.open(rpath, buffering=0) as source, open(lpath, "wb") as target:
            while True:
                part = source.read(4 << 20)
                if not part:
                    break
                target.write(part)
                callback.relative_update(len(part))

    def open(self, path: str, mode: str = "rb", block_size: Any = None, cache_options: Any = None, compression: Any = None, **options: Any) -> Any:
        # fsspec writes into its own buffer and calls `_open`; files of this package buffer themselves.
        return super().open(path, mode, block_size=block_size, cache_options=cache_options, compression=compression, **options)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, cache_options: Any = None, **_: Any) -> Any:
        if not autocommit:
            raise NotImplementedError("transactions")
        path = self._strip_protocol(path)
        if mode == "rb":
            return self.fs.open(path, mode)
        return self.fs.open(path, mode, **self._options)

    def created(self, path: str) -> Any:
        """HDFS keeps no time of creation."""
        raise NotImplementedError

    def modified(self, path: str) -> Any:
        return self.fs.info(self._strip_protocol(path)).modified

    def ukey(self, path: str) -> str:
        info = self.fs.info(self._strip_protocol(path))
        return fsspec.utils.tokenize(info.path, info.size, info.modified)


def _range(path: str, start: Optional[int], end: Optional[int]) -> Any:
    start = start or 0
    return (path, start, -1 if end is None else max(0, end - start))
