"""HDFS for Python, without a JVM.

`FileSystem` has the operations of HDFS. Importing this package also lets PyArrow's `HadoopFileSystem` run without Java,
and `hearth.fsspec` serves `hdfs://` and `hearth://` URLs of pandas, Dask, DuckDB, Polars and others.
"""

import os as _os
from typing import Any, Optional

from . import _library
from ._file import File, RawFile, ReadStatistics
from ._filesystem import FileInfo, FileSystem

__all__ = ["File", "FileInfo", "FileSystem", "RawFile", "ReadStatistics", "arrow", "library_directory"]

__version__: str = _library.lib.hearth_version().decode()

#: Directory of libhdfs.so, for programs that look for it.
library_directory: str = _library.DIRECTORY


#: Where PyArrow looks for libjvm.so in JAVA_HOME. Source: Arrow, cpp/src/arrow/io/hdfs_internal.cc.
_LIBJVM_PLACES = ("", "lib/server", "jre/lib/amd64/server", "lib/amd64/server")


def _serve_pyarrow() -> None:
    """Lets PyArrow find the library.

    It first looks for libjvm.so in JAVA_HOME and some fixed places. With an empty JAVA_HOME, which scripts treat like
    none, it looks for the plain name, which is that of a library in this process. A real Java is left as it is: PyArrow
    only loads its library. A JAVA_HOME without the library would make PyArrow fail, so it is emptied.
    """
    _os.environ.setdefault("ARROW_LIBHDFS_DIR", library_directory)
    home = _os.environ.get("JAVA_HOME", "")
    if not any(_os.path.exists(_os.path.join(home, place, "libjvm.so")) for place in _LIBJVM_PLACES):
        _os.environ["JAVA_HOME"] = ""
    _library.preload_libjvm()


_serve_pyarrow()


def arrow(url: str = "default", *, user: Optional[str] = None, by: str = "libhdfs") -> Any:
    """Returns a `pyarrow.fs.FileSystem`.

    by: "libhdfs" for PyArrow's own `HadoopFileSystem` on this package's library. "fsspec" for a `PyFileSystem` over
    `hearth.fsspec`, whose paths may have settings of their own.
    """
    import pyarrow.fs

    if by == "libhdfs":
        host, port = url, 0
        if url != "default":
            authority = url.split("://", 1)[-1].split("/", 1)[0]
            name, _, number = authority.partition(":")
            host, port = f"hdfs://{name}", int(number or 0)
        return pyarrow.fs.HadoopFileSystem(host, port, user=user)
    if by == "fsspec":
        from .fsspec import HearthFileSystem

        return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(HearthFileSystem(url=url, user=user)))
    raise ValueError(f"by={by!r}: wanted libhdfs or fsspec")
