use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::connect::take_over;
use super::pacing::Pacing;
use super::{Connection, SocketOptions};

/// Accepts connections on one address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    options: SocketOptions,
    pacing: Option<Pacing>,
}

impl Listener {
    /// Binds `address` (port 0: any free port, see [`Listener::address`]). `backlog`: maximum number of waiting
    /// connections.
    pub fn bind(address: SocketAddr, options: SocketOptions, backlog: u32) -> io::Result<Self> {
        let socket = listening_socket(address)?;
        options.apply(&socket)?;
        let pacing = Pacing::take_out(&socket);
        socket.bind(address)?;
        let listener = socket.listen(backlog)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, options, pacing })
    }

    /// Returns the address in use, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts the next connection. An error concerns that one connection, or a lack of file descriptors; the caller
    /// should wait a moment and continue.
    pub async fn accept(&self) -> io::Result<Connection> {
        let (stream, peer) = self.listener.accept().await?;
        take_over(stream, peer, self.options, self.pacing.as_ref())
    }
}

/// Listens on `address`. The connections have the kernel's default options. `backlog`: maximum number of waiting
/// connections.
pub fn listen(address: SocketAddr, backlog: u32) -> io::Result<TcpListener> {
    let socket = listening_socket(address)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

/// Returns a socket that is to be bound to `address`.
fn listening_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restart must not wait until the previous process's connections leave TIME_WAIT.
    socket.set_reuseaddr(true)?;
    Ok(socket)
}
