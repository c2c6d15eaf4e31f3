use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};

use super::pacing::Pacing;
use super::{Connection, Error};

/// Options of sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketOptions {
    /// `TCP_NODELAY`: small messages leave at once.
    pub nodelay: bool,
    /// Bytes of `SO_SNDBUF`; `None` leaves it to the system, which adapts it.
    pub send_buffer_bytes: Option<u32>,
    /// Bytes of `SO_RCVBUF`; `None` leaves it to the system, which adapts it.
    pub receive_buffer_bytes: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { nodelay: true, send_buffer_bytes: None, receive_buffer_bytes: None }
    }
}

impl SocketOptions {
    /// Applies the options. Buffer sizes must be set before connecting or listening, because the handshake fixes the
    /// window scale.
    pub(super) fn apply(&self, socket: &TcpSocket) -> io::Result<()> {
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        Ok(())
    }
}

/// Connects to `peer` within `timeout`, from the local address `from` if given.
///
/// Errors: `ConnectTimedOut`, `Connect`.
pub async fn connect(
    peer: SocketAddr,
    from: Option<IpAddr>,
    options: SocketOptions,
    timeout: Duration,
) -> Result<Connection, Error> {
    let failed = |source| Error::Connect { peer: peer.into(), source };
    let socket = if peer.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(failed)?;
    options.apply(&socket).map_err(failed)?;
    let pacing = Pacing::take_out(&socket);
    if let Some(ip) = from {
        socket.bind(SocketAddr::new(ip, 0)).map_err(failed)?;
    }
    match tokio::time::timeout(timeout, socket.connect(peer)).await {
        Err(_) => Err(Error::ConnectTimedOut { peer: peer.into(), after: timeout }),
        Ok(Err(source)) => Err(failed(source)),
        Ok(Ok(stream)) => take_over(stream, peer, options, pacing.as_ref()).map_err(failed),
    }
}

/// Converts a connected socket. `pacing`: the pacing that was removed from the socket, or from the listening socket
/// that accepted it.
pub(super) fn take_over(
    stream: TcpStream,
    peer: SocketAddr,
    options: SocketOptions,
    pacing: Option<&Pacing>,
) -> io::Result<Connection> {
    stream.set_nodelay(options.nodelay)?;
    if let Some(pacing) = pacing {
        pacing.put_back(&stream, stream.local_addr()?, peer);
    }
    Connection::from_tcp(stream)
}
