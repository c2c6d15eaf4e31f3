use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::PeerAddress;

/// Errors of a connection. Each names the peer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("connecting to {peer} timed out after {after:?}")]
    ConnectTimedOut { peer: PeerAddress, after: Duration },
    #[error("cannot connect to {peer}")]
    Connect { peer: PeerAddress, source: io::Error },
    #[error("cannot connect to the socket {}", path.display())]
    NoSocket { path: PathBuf, source: io::Error },
    /// Not one byte arrived for `after`.
    #[error("nothing received from {peer} for {after:?}")]
    ReadTimedOut { peer: PeerAddress, after: Duration },
    /// The peer accepted not one byte for `after`.
    #[error("{peer} accepted no byte for {after:?}")]
    WriteTimedOut { peer: PeerAddress, after: Duration },
    /// The peer closed although more bytes were expected.
    #[error("{peer} closed the connection")]
    Closed { peer: PeerAddress },
    #[error("connection to {peer} failed")]
    Socket { peer: PeerAddress, source: io::Error },
    /// The file that is being sent could not be read, or is shorter than the requested range. The peer is not at fault.
    #[error("cannot read the file to send to {peer}")]
    File { peer: PeerAddress, source: io::Error },
    /// A message brought more descriptors than its receiver accepts, or not the expected number.
    #[error("{peer} sent {received} descriptors instead of {wanted}")]
    Descriptors { peer: PeerAddress, received: usize, wanted: usize },
    /// More bytes were requested at once than the receive buffer may ever hold.
    #[error("{peer} announced {wanted} bytes, more than the limit of {limit}")]
    TooLong { peer: PeerAddress, wanted: usize, limit: usize },
    /// Long messages of all peers use all the memory for them, and this peer was too slow, or its message cannot wait.
    #[error("no memory for {wanted} bytes from {peer}: long messages of all peers use all memory reserved for them")]
    NoMemory { peer: PeerAddress, wanted: usize },
}

impl Error {
    /// Returns true if the peer disconnected or stopped answering. This is ordinary at the end of many reads, and not
    /// worth a warning.
    pub fn is_disconnect(&self) -> bool {
        self.is_closed() || matches!(self, Self::ReadTimedOut { .. } | Self::WriteTimedOut { .. })
    }

    /// Returns true if the peer was silent for the whole timeout.
    pub fn is_time_out(&self) -> bool {
        matches!(self, Self::ConnectTimedOut { .. } | Self::ReadTimedOut { .. } | Self::WriteTimedOut { .. })
    }

    /// Returns true if the peer closed the connection.
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

    /// Converts to an I/O error, for callers whose interface is `std::io`.
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
