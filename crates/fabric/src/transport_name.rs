//! The one-sided transport that a configuration names.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::one_sided::{Error, Transport};
use crate::rdma::{Rdma, Settings};
use crate::soft::TcpTransport;

/// Names of transports: the values of `hearth.one-sided.transport`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportName {
    /// Verbs, where the machine has them.
    Rdma,
    /// Served by a task of each process, over TCP.
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

    /// `address`: of this machine, when it matters which card is used. `busy_poll`: how long one who waits polls before he
    /// sleeps, where the transport polls at all.
    ///
    /// Errors: `Unavailable`, for which there are other paths.
    pub fn open(self, address: Option<IpAddr>, busy_poll: Duration) -> Result<Option<Arc<dyn Transport>>, Error> {
        match self {
            Self::Rdma => Ok(Some(Arc::new(Rdma::open(Settings { address, busy_poll })?))),
            Self::Tcp => Ok(Some(Arc::new(TcpTransport))),
            Self::None => Ok(None),
        }
    }
}
