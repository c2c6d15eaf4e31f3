use std::io;

use hearth_blockstore::StoreError;
use hearth_config::ConfigError;
use hearth_fabric::local::{ListenError, PathError};

/// Reason why a DataNode cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Configuration(#[from] ConfigError),
    #[error("{key}: {address}")]
    Address { key: String, address: String, source: io::Error },
    #[error("cannot listen on {address} for {what}")]
    Listen { what: &'static str, address: std::net::SocketAddr, source: io::Error },
    #[error("dfs.domain.socket.path: {0}")]
    DomainSocketPath(#[from] PathError),
    #[error("dfs.domain.socket.path")]
    DomainSocket(#[from] ListenError),
    #[error("cannot get random numbers: {0}")]
    Random(String),
    #[error("cannot start the one-sided network")]
    OneSided(#[from] hearth_fabric::one_sided::Error),
    #[error("cannot open the storage directories")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Web(String),
    #[error("a task of the store was interrupted")]
    Interrupted,
}
