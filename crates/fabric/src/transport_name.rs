//! One-sided transport named in the configuration.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::one_sided::{Error, Transport};
use crate::rdma::{Rdma, Settings};
use crate::soft::TcpTransport;

/// Names of transports: the values of `hearth.one-sided.transport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportName {
    /// RDMA verbs, on machines that have them.
    Rdma,
    /// TCP, served by a task of each process.
    Tcp,
    None,
}

impl TransportName {
    pub const ALL: &'static str = "rdma, tcp or none";

    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "rdma" => Self::Rdma,
            "tcp" => Self::Tcp,
            "none" => Self::None,
            _ => return None,
        })
    }

    /// Opens the transport. `address`: an address of this machine, if a specific card should be used. `busy_poll`: how
    /// long to poll for a completion before sleeping, for transports that poll.
    ///
    /// Errors: `Unavailable`; callers then use other paths.
    pub fn open(self, address: Option<IpAddr>, busy_poll: Duration) -> Result<Option<Arc<dyn Transport>>, Error> {
        match self {
            Self::Rdma => Ok(Some(Arc::new(Rdma::open(Settings { address, busy_poll })?))),
            Self::Tcp => Ok(Some(Arc::new(TcpTransport))),
            Self::None => Ok(None),
        }
    }
}
