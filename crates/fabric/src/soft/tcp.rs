//! One-sided operations over TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::AbortHandle;

use super::{SoftDomain, SoftHello, SoftIncoming, connect};
use crate::one_sided::{Connection, Domain, Error, Incoming, Limits, Listener, Transport};
use crate::stream::Party;
use crate::{ConnectionLimit, ConnectionLimitOptions, tcp};

/// Maximum number of connections that are not accepted yet. Applies to the kernel's queue, to those without a hello,
/// and to those with one.
const BACKLOG: u32 = 128;

/// Time limit for the hello of a new connection.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// Serves one-sided operations by a task of this process, over TCP.
#[derive(Clone, Copy, Default, Debug)]
pub struct TcpTransport;

impl Transport for TcpTransport {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn domain(&self) -> Result<Arc<dyn Domain>, Error> {
        Ok(Arc::new(SoftDomain::default()))
    }

    fn listen(&self, address: SocketAddr) -> BoxFuture<'_, Result<Box<dyn Listener>, Error>> {
        Box::pin(async move {
            let failed = |source| Error::Listen { address, source };
            let listener = tcp::listen(address, BACKLOG).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            let (sender, incoming) = mpsc::channel(BACKLOG as usize);
            let task = tokio::spawn(hear(listener, sender)).abort_handle();
            let listener: Box<dyn Listener> = Box::new(SoftListener { address, incoming: Mutex::new(incoming), task });
            Ok(listener)
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
            let failed = |source| Error::Connect { peer, source };
            let stream = match tokio::time::timeout(timeout, TcpStream::connect(peer)).await {
                Err(_) => return Err(Error::TimedOut { peer, action: "connecting", after: timeout }),
                Ok(stream) => stream.map_err(failed)?,
            };
            stream.set_nodelay(true).map_err(failed)?;
            connect(Box::new(stream), domain, peer, hello, timeout, None).await
        })
    }
}

/// Accepts connections, and forwards those that send a hello in time.
async fn hear(listener: TcpListener, sender: mpsc::Sender<SoftIncoming>) {
    // Half of them are reserved for connections that have sent a hello and wait for the listener.
    let most = 2 * BACKLOG as usize;
    let strangers = ConnectionLimit::new(ConnectionLimitOptions {
        pending_max: BACKLOG as usize,
        ..ConnectionLimitOptions::new(most)
    });
    loop {
        let (mut stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // An error of that one connection, or descriptors have run out; other connections may end soon.
                tracing::debug!(%error, "cannot accept a one-sided connection");
                strangers.shed();
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some((stranger, mut gives_way)) = strangers.admit(Party::from(peer.ip())) else {
            tracing::debug!(%peer, "too many connections wait for the listener");
            continue;
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            let hello = async {
                stream.set_nodelay(true)?;
                SoftHello::receive(&mut stream).await
            };
            let hello = tokio::select! {
                hello = tokio::time::timeout(HELLO_WITHIN, hello) => hello,
                () = gives_way.wait() => return tracing::debug!(%peer, "connection closed: no hello, too many wait"),
            };
            match hello {
                Ok(Ok(hello)) => {
                    stranger.mark_established();
                    let stream = Some(Box::new(stream) as _);
                    // The listener is gone; the connection is dropped with it.
                    let _ = sender.send(SoftIncoming { stream, peer, hello, gate: None }).await;
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "connection closed: invalid hello"),
                Err(_) => tracing::debug!(%peer, "connection closed: no hello in time"),
            }
        });
    }
}

#[derive(Debug)]
struct SoftListener {
    address: SocketAddr,
    incoming: Mutex<mpsc::Receiver<SoftIncoming>>,
    task: AbortHandle,
}

impl Listener for SoftListener {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&self) -> BoxFuture<'_, Result<Box<dyn Incoming>, Error>> {
        Box::pin(async move {
            let incoming = self.incoming.lock().await.recv().await;
            let gone = || io::Error::other("the runtime is stopping");
            let incoming = incoming.ok_or_else(|| Error::Listen { address: self.address, source: gone() })?;
            Ok(Box::new(incoming) as Box<dyn Incoming>)
        })
    }
}

impl Drop for SoftListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
