//! Communication within one machine: Unix sockets, descriptors passed over them, and memory shared by two processes.
//!
//! A DataNode listens on a well-known path where no other user can have placed a socket ([`check_path`]). The protocol
//! on the connections is up to the caller. Besides bytes they carry descriptors (`SCM_RIGHTS`), attached to a byte of a
//! message.

mod copy;
mod descriptors;
mod file_mapping;
mod listener;
mod local_addresses;
mod mapped_range;
mod non_temporal;
mod path;
mod shared_words;

use std::path::Path;

use tokio::net::UnixStream;

use crate::stream::{Connection, Error};

pub use copy::copy;
pub use descriptors::DESCRIPTORS_MAX;
pub use file_mapping::FileMapping;
pub use listener::{ListenError, Listener};
pub use local_addresses::LocalAddresses;
pub use mapped_range::MappedRange;
pub use non_temporal::{copy_non_temporal, prefetch_cache_lines};
pub use path::{PathError, SOCKET_PATH_BYTES_MAX, check_path};
pub use shared_words::SharedWords;

/// Connects to the socket at `path`. The kernel answers at once: a listener with a full queue is an error, not a wait.
///
/// Errors: `NoSocket`.
pub async fn connect(path: &Path) -> Result<Connection, Error> {
    let failed = |source| Error::NoSocket { path: path.to_owned(), source };
    let stream = UnixStream::connect(path).await.map_err(failed)?;
    Connection::from_unix(stream).map_err(failed)
}

/// Creates two connections that are connected to each other.
pub fn pair() -> std::io::Result<(Connection, Connection)> {
    let (one, other) = UnixStream::pair()?;
    Ok((Connection::from_unix(one)?, Connection::from_unix(other)?))
}
