use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::PeerAddress;

/// What went wrong on a connection. Each names the peer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{peer} took no connection within {after:?}")]
    ConnectTimedOut { peer: PeerAddress, after: Duration },
    #[error("no connection to {peer}")]
    Connect { peer: PeerAddress, source: io::Error },
    #[error("no connection to the socket {}", path.display())]
    NoSocket { path: PathBuf, source: io::Error },
    /// Not one byte arrived for `after`.
    #[error("nothing from {peer} for {after:?}")]
    ReadTimedOut { peer: PeerAddress, after: Duration },
    /// The peer took not one byte for `after`.
    #[error("{peer} took no byte for {after:?}")]
    WriteTimedOut { peer: PeerAddress, after: Duration },
    /// The peer closed where more bytes were due.
    #[error("{peer} closed the connection")]
    Closed { peer: PeerAddress },
    #[error("connection to {peer}")]
    Socket { peer: PeerAddress, source: io::Error },
    /// The file that is being sent could not be read, or is shorter than the range asked for. The peer is not at fault.
    #[error("reading the file that goes to {peer}")]
    File { peer: PeerAddress, source: io::Error },
    /// A message brought more descriptors than its receiver takes, or one that should bring some brought others.
    #[error("{peer} sent {received} descriptors where {wanted} are wanted")]
    Descriptors { peer: PeerAddress, received: usize, wanted: usize },
    /// More bytes were asked for at once than the receive buffer may ever hold.
    #[error("{peer} announced {wanted} bytes where {limit} are the limit")]
    TooLong { peer: PeerAddress, wanted: usize, limit: usize },
    /// Long messages of all peers take all the memory for them, and this peer was too slow, or its message cannot wait.
    #[error("no memory for {wanted} bytes of {peer}: the long messages of all peers take all that there is for them")]
    NoMemory { peer: PeerAddress, wanted: usize },
}

impl Error {
    /// The peer went away or stopped answering: ordinary at the end of many reads, not worth a warning.
    pub fn is_disconnect(&self) -> bool {
        self.is_closed() || matches!(self, Self::ReadTimedOut { .. } | Self::WriteTimedOut { .. })
    }

    /// The peer was silent for as long as is borne.
    pub fn is_time_out(&self) -> bool {
        matches!(self, Self::ConnectTimedOut { .. } | Self::ReadTimedOut { .. } | Self::WriteTimedOut { .. })
    }

    /// The peer ended the connection.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Closed { .. } => true,
            Self::Socket { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
            ),
            _ => false,
        }
    }

    /// For callers whose interface is `std::io`.
    pub fn into_io(self) -> io::Error {
        let kind = match &self {
            Self::ConnectTimedOut { .. } | Self::ReadTimedOut { .. } | Self::WriteTimedOut { .. } => {
                io::ErrorKind::TimedOut
            }
            Self::Closed { .. } => io::ErrorKind::UnexpectedEof,
            Self::Connect { source, .. }
            | Self::NoSocket { source, .. }
            | Self::Socket { source, .. }
            | Self::File { source, .. } => source.kind(),
            Self::TooLong { .. } | Self::Descriptors { .. } => io::ErrorKind::InvalidData,
            Self::NoMemory { .. } => io::ErrorKind::OutOfMemory,
        };
        io::Error::new(kind, self)
    }
}
