//! A network inside the process, with faults as data: for tests of all that is built on [`crate::one_sided`].
//!
//! Both ends use the same [`Sim`]; its connections are [`crate::soft`]'s over pipes in memory. On a runtime of one thread
//! the order of events is the program's. A [`Fault`] says what happens at the n-th step of a kind: a read that is held
//! until the test releases it, a connection that ends, a delay, credit that does not come back.

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

/// Bytes that a pipe holds each way: large transfers take several turns.
const PIPE_BYTES: usize = 64 << 10;

/// Connections that wait to be accepted.
const BACKLOG: usize = 64;

/// The network; clones are the same one.
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
    /// Ports given out, to listeners and to those that connect.
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
    /// A network without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault. Steps are counted from here on, for this fault alone.
    pub fn fault(&self, fault: Fault) {
        self.network.faults.add(fault);
    }

    /// Makes registrations fail, in every domain of the network.
    pub fn shortage(&self, shortage: Shortage) {
        self.network.faults.add_shortage(shortage);
    }

    /// Resolves when a step is being held.
    pub async fn held(&self) {
        self.network.faults.held().await;
    }

    /// Lets every step go on that is being held.
    pub fn release(&self) {
        self.network.faults.release();
    }

    /// How many steps of this kind there have been.
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
            let incoming = self.incoming.lock().await.recv().await.expect("the network has the sender");
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
