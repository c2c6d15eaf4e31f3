//! RDMA: verbs through this machine's card (InfiniBand, RoCE, iWARP), or through SoftiWARP and Soft-RoCE without a
//! card.
//!
//! libibverbs and librdmacm are loaded when [`Rdma::open`] is called. A machine without them, or without a device, gets
//! an error that names the missing part, and uses other transports. One [`Rdma`] is one device: the device of the
//! address that it was opened with.
//!
//! A connection is an rdma_cm connection with its own queue pair, two completion queues and one task (`connection`'s
//! driver) that handles completions and connection manager events. Tasks that wait for an operation first poll the
//! queue themselves for a moment, then sleep.
//!
//! Features that iWARP lacks are not used: no write with immediate, no memory windows. The connecting side sends first,
//! and a READ has one local piece. A connection with a failed operation is closed, never repaired.

mod connection;
mod domain;
mod listener;
mod message;
mod verbs;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::one_sided::{Connection, Domain, Error, Limits, Listener, PRIVATE_BYTES_MAX, Transport};
use domain::RdmaDomain;
use verbs::Device;

const NAME: &str = "rdma";

/// Settings of the RDMA transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// An address of the device to use; `None`: the first of the machine's addresses that belongs to an RDMA device.
    pub address: Option<IpAddr>,
    /// How long to poll the completion queue for an operation before sleeping. A wake-up takes tens of microseconds, so
    /// polling makes small reads much faster, but occupies a processor. If polling repeatedly finds nothing, it is
    /// suspended and retried only occasionally.
    pub busy_poll: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { address: None, busy_poll: Duration::from_micros(300) }
    }
}

/// RDMA through one device.
#[derive(Clone, Debug)]
pub struct Rdma {
    device: Arc<Device>,
    settings: Settings,
}

impl Rdma {
    /// Opens the device. Errors: `Unavailable`, with the reason.
    pub fn open(settings: Settings) -> Result<Self, Error> {
        let device = Device::open(settings.address).map_err(|why| Error::Unavailable { transport: NAME, why })?;
        Ok(Self { device, settings })
    }

    /// Device name, e.g. `mlx5_0` or `siw0`.
    pub fn device(&self) -> &str {
        self.device.name()
    }

    /// Address that identifies the device.
    pub fn address(&self) -> IpAddr {
        self.device.address()
    }

    pub fn is_iwarp(&self) -> bool {
        self.device.is_iwarp()
    }

    /// Returns true for iWARP in the kernel's software, without a card.
    pub fn is_softiwarp(&self) -> bool {
        self.device.is_softiwarp()
    }
}

impl Transport for Rdma {
    fn name(&self) -> &'static str {
        NAME
    }

    fn domain(&self) -> Result<Arc<dyn Domain>, Error> {
        let domain = RdmaDomain::new(&self.device).map_err(|source| Error::Register { bytes: 0, source })?;
        Ok(Arc::new(domain))
    }

    fn listen(&self, address: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, Error>> {
        // Listening on all addresses would include all devices, and this is only one of them.
        let address =
            if address.ip().is_unspecified() { SocketAddr::new(self.address(), address.port()) } else { address };
        Box::pin(async move {
            let listener = listener::RdmaListener::new(&self.device, address, self.settings.busy_poll)
                .map_err(|source| Error::Listen { address, source })?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(
        &'a self,
        domain: &'a Arc<dyn Domain>,
        peer: SocketAddr,
        private: &'a [u8],
        limits: Limits,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, Error>> {
        Box::pin(async move {
            check_private(private)?;
            let domain = own(domain).map_err(|source| Error::Connect { peer, source })?;
            let connecting = connection::connect(&domain, peer, private, limits, self.settings.busy_poll, timeout);
            match tokio::time::timeout(timeout, connecting).await {
                Ok(connection) => Ok(Arc::new(connection?) as Arc<dyn Connection>),
                Err(_) => Err(Error::TimedOut { peer, action: "connecting", after: timeout }),
            }
        })
    }
}

fn check_private(private: &[u8]) -> Result<(), Error> {
    if private.len() > PRIVATE_BYTES_MAX {
        return Err(Error::TooLong { what: "private data", bytes: private.len(), limit: PRIVATE_BYTES_MAX });
    }
    Ok(())
}

/// Downcasts the domain to this transport's own type.
fn own(domain: &Arc<dyn Domain>) -> io::Result<RdmaDomain> {
    let domain = domain.as_any().downcast_ref::<RdmaDomain>();
    domain.cloned().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a domain of another transport"))
}
