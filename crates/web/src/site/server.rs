//! The port of a site, from the bound address to the end of the server.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Site;
use crate::Error;
use crate::bounded::{BoundedListener, ConnectionLimit};
use crate::connections;

/// Maximum number of open connections. At the limit an idle one is closed in favour of the next.
const CONNECTIONS_MAX: usize = 256;
/// Maximum number of them per address. Beyond it, idle connections of the same address are closed. Half of the total,
/// so that one client cannot take all places.
const CONNECTIONS_OF_ADDRESS_MAX: usize = CONNECTIONS_MAX / 2;

/// Number of connections that the kernel queues until they are accepted. In a burst beyond it, clients wait a second
/// before they retry.
const BACKLOG: u32 = 1024;

impl Site {
    /// Serves on `address` (port 0: any free one) until the returned server is dropped.
    ///
    /// Errors: `Listen` when the address cannot be bound.
    pub async fn serve(self, address: &str) -> Result<WebServer, Error> {
        Ok(self.bind(address).await?.serve())
    }

    /// Binds `address`. Clients can connect from then on; their requests are answered once the site is served.
    ///
    /// Errors: the same as those of [`Site::serve`].
    pub async fn bind(self, address: &str) -> Result<BoundSite, Error> {
        let failed = |source| Error::Listen { address: address.to_string(), source };
        let listener = listen(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(BoundSite { site: self, listener, address })
    }
}

/// Listens on the first of the addresses of `address` that can be bound.
async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut failed = io::Error::other("the name has no address");
    for address in tokio::net::lookup_host(address).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait until the last process's connections leave TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A site that is bound to its address and does not serve requests yet.
pub struct BoundSite {
    site: Site,
    listener: TcpListener,
    address: SocketAddr,
}

impl BoundSite {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the returned server is dropped.
    pub fn serve(self) -> WebServer {
        let Self { site, listener, address } = self;
        let places = ConnectionLimit::new(CONNECTIONS_MAX, CONNECTIONS_OF_ADDRESS_MAX);
        let listener = BoundedListener { listener, places, idle_timeout: site.idle_timeout };
        let patience = site.timeouts;
        let (stop, stopped) = watch::channel(());
        let task = tokio::spawn(connections::serve(listener, site.router(), patience, stopped));
        WebServer { address, _stop: stop, task }
    }
}

/// A running web server. Dropping it closes the port.
pub struct WebServer {
    address: SocketAddr,
    /// Dropping the sender ends connections without a request in progress.
    _stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl WebServer {
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
