//! Addresses at which this DataNode is reached.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Addresses and ports in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    pub transfer: SocketAddr,
    pub ipc: SocketAddr,
    pub http: SocketAddr,
}

/// Addresses of this DataNode, and the number of its start.
pub struct Endpoints {
    /// Number that differs after each start.
    pub incarnation: u64,
    addresses: OnceLock<Addresses>,
    domain_socket: Option<PathBuf>,
}

impl Endpoints {
    pub fn new(incarnation: u64, domain_socket: Option<PathBuf>) -> Self {
        Self { incarnation, addresses: OnceLock::new(), domain_socket }
    }

    /// Records the addresses, once, before any task that reads them runs.
    pub fn set_addresses(&self, addresses: Addresses) {
        let set = self.addresses.set(addresses);
        assert!(set.is_ok(), "the ports are opened once");
    }

    /// Returns the addresses and ports in use.
    pub fn addresses(&self) -> Addresses {
        *self.addresses.get().expect("set by start, before any task runs")
    }

    /// Returns the path of the domain socket for clients on this machine, if there is one.
    pub fn domain_socket(&self) -> Option<&Path> {
        self.domain_socket.as_deref()
    }
}
