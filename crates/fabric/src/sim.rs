//! A network within the process, with faults as data: for tests of code built on [`crate::one_sided`].
//!
//! Both ends use the same [`Sim`]; its connections are those of [`crate::soft`] over pipes in memory. On a
//! single-threaded runtime the program determines the order of events. A [`Fault`] defines what happens at the n-th
//! step of a kind: a read that is held until the test releases it, a connection that ends, a delay, credit that is not
//! returned.

mod faults;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::one_sided::{Connection, Domain, Error, Incoming, Limits, Listener, Transport};
pub use crate::soft::Step;
use crate::soft::{Gate, SoftDomain, SoftHello, SoftIncoming, Verdict, connect};
use faults::Faults;
pub use faults::{Fault, FaultAction, Shortage};

/// Capacity of a pipe in each direction: large transfers are interleaved.
const PIPE_BYTES: usize = 64 << 10;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: usize = 64;

/// The network; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Sim {
    network: Arc<Network>,
}

#[derive(Debug, Default)]
struct Network {
    listeners: Mutex<Listeners>,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Listeners {
    by_address: HashMap<SocketAddr, mpsc::Sender<SoftIncoming>>,
    /// Ports assigned to listeners and to connecting ends.
    ports: u16,
}

impl Network {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listeners {
    fn port(&mut self) -> u16 {
        self.ports = self.ports % 30_000 + 1;
        20_000 + self.ports
    }
}

impl Sim {
    /// Creates a network without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault. Its steps are counted from here on, for this fault alone.
    pub fn fault(&self, fault: Fault) {
        self.network.faults.add(fault);
    }

    /// Makes registrations fail in every domain of the network.
    pub fn shortage(&self, shortage: Shortage) {
        self.network.faults.add_shortage(shortage);
    }

    /// Resolves while a step is held.
    pub async fn held(&self) {
        self.network.faults.held().await;
    }

    /// Releases every step that is held.
    pub fn release(&self) {
        self.network.faults.release();
    }

    /// Returns the number of steps of this kind so far.
    pub fn steps(&self, step: Step) -> u64 {
        self.network.faults.steps(step)
    }
}

impl Transport for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn domain(&self) -> Result<Arc<dyn Domain>, Error> {
        Ok(Arc::new(SoftDomain::with_gate(self.network.faults.clone())))
    }

    fn listen(&self, mut address: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, Error>> {
        Box::pin(async move {
            let mut listeners = self.network.listeners();
            while address.port() == 0 || listeners.by_address.contains_key(&address) {
                if address.port() != 0 {
                    return Err(Error::Listen { address, source: io::ErrorKind::AddrInUse.into() });
                }
                let port = listeners.port();
                let free = SocketAddr::new(address.ip(), port);
                if !listeners.by_address.contains_key(&free) {
                    address = free;
                }
            }
            let (sender, incoming) = mpsc::channel(BACKLOG);
            listeners.by_address.insert(address, sender);
            let incoming = tokio::sync::Mutex::new(incoming);
            Ok(Box::new(SimListener { network: self.network.clone(), address, incoming }) as Box<dyn Listener>)
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
            let hello = SoftHello::new(true, limits, private)?;
            let refused = || Error::Connect { peer, source: io::ErrorKind::ConnectionRefused.into() };
            let gate: Arc<dyn Gate> = self.network.faults.clone();
            if gate.pass(Step::Connect).await == Verdict::End {
                return Err(refused());
            }
            let (listener, port) = {
                let mut listeners = self.network.listeners();
                (listeners.by_address.get(&peer).cloned(), listeners.port())
            };
            let listener = listener.ok_or_else(refused)?;
            let (near, mut far) = tokio::io::duplex(PIPE_BYTES);
            let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
            let exchange = async {
                let heard = async {
                    let hello = SoftHello::receive(&mut far).await;
                    let hello = hello.map_err(|source| Error::Connect { peer, source })?;
                    let gate = Some(gate.clone());
                    let incoming = SoftIncoming { stream: Some(Box::new(far)), peer: from, hello, gate };
                    listener.send(incoming).await.map_err(|_| refused())
                };
                let asked = connect(Box::new(near), domain, peer, hello, timeout, Some(gate.clone()));
                let (heard, connected) = tokio::join!(heard, asked);
                heard.and(connected)
            };
            match tokio::time::timeout(timeout, exchange).await {
                Ok(result) => result,
                Err(_) => Err(Error::TimedOut { peer, action: "connecting", after: timeout }),
            }
        })
    }
}

#[derive(Debug)]
struct SimListener {
    network: Arc<Network>,
    address: SocketAddr,
    incoming: tokio::sync::Mutex<mpsc::Receiver<SoftIncoming>>,
}

impl Listener for SimListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> BoxFuture<'_, Result<Box<dyn Incoming>, Error>> {
        Box::pin(async move {
            let incoming = self.incoming.lock().await.recv().await.expect("the network holds the sender");
            Ok(Box::new(incoming) as Box<dyn Incoming>)
        })
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.network.listeners().by_address.remove(&self.address);
    }
}

#[cfg(test)]
mod tests;
