//! One machine: Unix sockets, descriptors passed over them, and memory that two processes share.
//!
//! A DataNode listens on a path that others can find and nobody else can have put there ([`check_path`]). What is said on the
//! connections is up to the caller; beyond bytes they carry descriptors (`SCM_RIGHTS`), attached to a byte of a message.

mod descriptors;
mod here;
mod listener;
mod map;
mod path;
mod shared_words;
mod stream_copy;
mod window;

use std::path::Path;

use tokio::net::UnixStream;

use crate::stream::{Connection, Error};

pub use descriptors::DESCRIPTORS_MAX;
pub use here::Here;
pub use listener::{ListenError, Listener};
pub use map::Map;
pub use path::{PathError, SOCKET_PATH_BYTES_MAX, check_path};
pub use shared_words::SharedWords;
pub use stream_copy::{copy_past_cache, fetch_ahead};
pub use window::Window;

/// Connects to the socket at `path`. The kernel answers at once: a listener whose queue is full is an error, not a wait.
///
/// Errors: `NoSocket`.
pub async fn connect(path: &Path) -> Result<Connection, Error> {
    let failed = |source| Error::NoSocket { path: path.to_owned(), source };
    let stream = UnixStream::connect(path).await.map_err(failed)?;
    Connection::from_unix(stream).map_err(failed)
}

/// Two ends that are connected with each other.
pub fn pair() -> std::io::Result<(Connection, Connection)> {
    let (one, other) = UnixStream::pair()?;
    Ok((Connection::from_unix(one)?, Connection::from_unix(other)?))
}
