use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

use super::connect::take_over;
use super::pacing::Pacing;
use super::{Connection, SocketOptions};

/// Takes connections on one address.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    options: SocketOptions,
    pacing: Option<Pacing>,
}

impl Listener {
    /// Binds `address` (port 0: any free one, see [`Listener::address`]) and lets `backlog` connections wait.
    pub fn bind(address: SocketAddr, options: SocketOptions, backlog: u32) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restart must not wait for the last process's connections to leave TIME_WAIT.
        socket.set_reuseaddr(true)?;
        options.apply(&socket)?;
        let pacing = Pacing::take_out(&socket);
        socket.bind(address)?;
        let listener = socket.listen(backlog)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, options, pacing })
    }

    /// The address in use, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection. An error concerns that one connection, or descriptors running out: the caller waits a
    /// moment and goes on.
    pub async fn accept(&self) -> io::Result<Connection> {
        let (stream, peer) = self.listener.accept().await?;
        take_over(stream, peer, self.options, self.pacing.as_ref())
    }
}
