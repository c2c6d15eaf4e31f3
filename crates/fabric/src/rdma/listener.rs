//! Listener for RDMA connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::connection::{self, Events};
use super::verbs::{Device, Event, EventChannel, EventKind, Id};
use crate::one_sided::{Connection, Domain, Error, Incoming, Limits, Listener, PRIVATE_BYTES_MAX};

/// Maximum number of peers that wait to be accepted.
const BACKLOG: u16 = 128;

pub struct RdmaListener {
    events: Events,
    address: SocketAddr,
    busy_poll: Duration,
    _id: Id,
}

impl RdmaListener {
    pub fn new(device: &Arc<Device>, address: SocketAddr, busy_poll: Duration) -> io::Result<Self> {
        let events = Events::new(EventChannel::of(device)?)?;
        let mut ports_left = connection::PORTS_MAX;
        let id = loop {
            let id = Id::new(events.channel())?;
            id.bind(address)?;
            ports_left -= 1;
            match id.listen(BACKLOG) {
                Ok(()) => break id,
                Err(error) if address.port() == 0 && ports_left > 0 && connection::is_port_in_use(&error) => {}
                Err(error) => return Err(error),
            }
        };
        let address = id.local().unwrap_or(address);
        Ok(Self { events, address, busy_poll, _id: id })
    }
}

impl fmt::Debug for RdmaListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RdmaListener({})", self.address)
    }
}

impl Listener for RdmaListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> BoxFuture<'_, Result<Box<dyn Incoming>, Error>> {
        Box::pin(async move {
            let failed = |source| Error::Listen { address: self.address, source };
            loop {
                let mut event = self.events.next().await.map_err(failed)?;
                match event.kind {
                    EventKind::ConnectRequest => {
                        let id = event.request.take().expect("a connection request has an id");
                        // The peer has already disconnected.
                        let Some(peer) = id.peer() else { continue };
                        event.private.truncate(PRIVATE_BYTES_MAX);
                        let incoming = RdmaIncoming { id: Some(id), event, peer, busy_poll: self.busy_poll };
                        return Ok(Box::new(incoming) as Box<dyn Incoming>);
                    }
                    EventKind::DeviceRemoved => return Err(failed(io::Error::other("the device is gone"))),
                    _ => {}
                }
            }
        })
    }
}

#[derive(Debug)]
struct RdmaIncoming {
    /// `None` once it is answered.
    id: Option<Id>,
    event: Event,
    peer: SocketAddr,
    busy_poll: Duration,
}

impl Incoming for RdmaIncoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn private(&self) -> &[u8] {
        &self.event.private
    }

    fn accept<'a>(
        mut self: Box<Self>,
        domain: &'a Arc<dyn Domain>,
        private: &'a [u8],
        limits: Limits,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, Error>> {
        Box::pin(async move {
            let peer = self.peer;
            super::check_private(private)?;
            let domain = super::own(domain).map_err(|source| Error::Connect { peer, source })?;
            let id = self.id.take().expect("the request is answered only once");
            let accepting = connection::accept(&domain, id, &self.event, peer, private, limits, self.busy_poll);
            match tokio::time::timeout(timeout, accepting).await {
                Ok(connection) => Ok(Arc::new(connection?) as Arc<dyn Connection>),
                Err(_) => Err(Error::TimedOut { peer, action: "accepting", after: timeout }),
            }
        })
    }

    fn reject<'a>(mut self: Box<Self>, private: &'a [u8]) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            super::check_private(private)?;
            let id = self.id.take().expect("the request is answered only once");
            id.reject(private).map_err(|source| Error::Connect { peer: self.peer, source })
        })
    }
}

impl Drop for RdmaIncoming {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // An error means that the peer has disconnected.
            let _ = id.reject(&[]);
        }
    }
}
