use std::io;

use hearth_blockstore::StoreError;
use hearth_config::ConfigError;

/// Why a datanode cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Configuration(#[from] ConfigError),
    #[error("{key}: {address}")]
    Address { key: String, address: String, source: io::Error },
    #[error("cannot listen on {address} for {what}")]
    Listen { what: &'static str, address: std::net::SocketAddr, source: io::Error },
    #[error("the storage directories")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Web(String),
    #[error("a task of the store ended early")]
    Interrupted,
}
