//! Handshake: each end sends one hello with its limits and private data; before that nothing is served.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Gate, Stream, start};
use crate::one_sided::{Connection, Domain, Error, Incoming, Limits, PRIVATE_BYTES_MAX};

const MAGIC: [u8; 8] = *b"HEARTH1S";

/// Size of a hello in bytes: magic, accepted, limits (1 + 2 + 2), length of the private data, room for that.
const HELLO_BYTES: usize = 8 + 1 + 5 + 1 + PRIVATE_BYTES_MAX;

/// First message of an end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SoftHello {
    /// False: the answer is a rejection, with `private` as the reason.
    pub(crate) accepted: bool,
    pub(crate) limits: Limits,
    pub(crate) private: Bytes,
}

impl SoftHello {
    /// Errors: `TooLong`.
    pub(crate) fn new(accepted: bool, limits: Limits, private: &[u8]) -> Result<Self, Error> {
        if private.len() > PRIVATE_BYTES_MAX {
            let what = "private data";
            return Err(Error::TooLong { what, bytes: private.len(), limit: PRIVATE_BYTES_MAX });
        }
        Ok(Self { accepted, limits, private: Bytes::copy_from_slice(private) })
    }

    fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = self.accepted.into();
        bytes[9] = self.limits.reads_in_flight;
        bytes[10..12].copy_from_slice(&self.limits.operations.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.limits.messages.to_le_bytes());
        bytes[14] = self.private.len() as u8;
        bytes[15..15 + self.private.len()].copy_from_slice(&self.private);
        bytes
    }

    fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let private = bytes[15..].get(..usize::from(bytes[14]))?;
        let limits = Limits {
            reads_in_flight: bytes[9],
            operations: u16::from_le_bytes([bytes[10], bytes[11]]),
            messages: u16::from_le_bytes([bytes[12], bytes[13]]),
        };
        let usable = limits.reads_in_flight > 0 && limits.operations > 0 && limits.messages > 0;
        (bytes[..8] == MAGIC && bytes[8] < 2 && usable).then(|| Self {
            accepted: bytes[8] == 1,
            limits,
            private: Bytes::copy_from_slice(private),
        })
    }

    async fn send(&self, stream: &mut dyn Stream) -> io::Result<()> {
        stream.write_all(&self.encode()).await?;
        stream.flush().await
    }

    /// Receives a hello. Errors: `InvalidData` for anything else.
    pub(crate) async fn receive(stream: &mut dyn Stream) -> io::Result<Self> {
        let mut bytes = [0; HELLO_BYTES];
        stream.read_exact(&mut bytes).await?;
        Self::decode(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the peer sent no valid hello"))
    }

    fn agreed(&self, other: &Self) -> Limits {
        Limits {
            reads_in_flight: self.limits.reads_in_flight.min(other.limits.reads_in_flight),
            operations: self.limits.operations.min(other.limits.operations),
            messages: self.limits.messages.min(other.limits.messages),
        }
    }
}

/// Requests a connection from the remote end of `stream`.
///
/// Errors: `Connect`, `Rejected`, `TimedOut`.
pub(crate) async fn connect(
    mut stream: Box<dyn Stream>,
    domain: &Arc<dyn Domain>,
    peer: SocketAddr,
    hello: SoftHello,
    timeout: Duration,
    gate: Option<Arc<dyn Gate>>,
) -> Result<Arc<dyn Connection>, Error> {
    let exchange = async {
        hello.send(&mut *stream).await?;
        SoftHello::receive(&mut *stream).await
    };
    let answer = match tokio::time::timeout(timeout, exchange).await {
        Err(_) => return Err(Error::TimedOut { peer, action: "connecting", after: timeout }),
        Ok(Err(source)) => return Err(Error::Connect { peer, source }),
        Ok(Ok(answer)) => answer,
    };
    if !answer.accepted {
        return Err(Error::Rejected { peer, private: answer.private });
    }
    let limits = hello.agreed(&answer);
    Ok(start(stream, peer, answer.private, limits, domain, gate))
}

/// A peer that has sent its hello and waits for the answer.
pub(crate) struct SoftIncoming {
    pub(crate) stream: Option<Box<dyn Stream>>,
    pub(crate) peer: SocketAddr,
    pub(crate) hello: SoftHello,
    pub(crate) gate: Option<Arc<dyn Gate>>,
}

impl std::fmt::Debug for SoftIncoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftIncoming").field("peer", &self.peer).field("hello", &self.hello).finish_non_exhaustive()
    }
}

impl SoftIncoming {
    async fn answer(&mut self, answer: &SoftHello, timeout: Duration) -> Result<Box<dyn Stream>, Error> {
        let peer = self.peer;
        let mut stream = self.stream.take().expect("answered once");
        match tokio::time::timeout(timeout, answer.send(&mut *stream)).await {
            Err(_) => Err(Error::TimedOut { peer, action: "accepting", after: timeout }),
            Ok(Err(source)) => Err(Error::Connect { peer, source }),
            Ok(Ok(())) => Ok(stream),
        }
    }
}

/// Time limit for sending an answer of 71 bytes on a new connection.
const REJECT_WITHIN: Duration = Duration::from_secs(1);

impl Incoming for SoftIncoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn private(&self) -> &[u8] {
        &self.hello.private
    }

    fn accept<'a>(
        mut self: Box<Self>,
        domain: &'a Arc<dyn Domain>,
        private: &'a [u8],
        limits: Limits,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Arc<dyn Connection>, Error>> {
        Box::pin(async move {
            let answer = SoftHello::new(true, limits, private)?;
            let stream = self.answer(&answer, timeout).await?;
            let limits = answer.agreed(&self.hello);
            let private = std::mem::take(&mut self.hello.private);
            Ok(start(stream, self.peer, private, limits, domain, self.gate.take()))
        })
    }

    fn reject<'a>(mut self: Box<Self>, private: &'a [u8]) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let answer = SoftHello::new(false, Limits::default(), private)?;
            self.answer(&answer, REJECT_WITHIN).await.map(drop)
        })
    }
}

impl Drop for SoftIncoming {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let answer = SoftHello { accepted: false, limits: Limits::default(), private: Bytes::new() };
        runtime.spawn(async move { tokio::time::timeout(REJECT_WITHIN, answer.send(&mut *stream)).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_round_trips_and_garbage_is_refused() {
        let limits = Limits { reads_in_flight: 3, operations: 1000, messages: 7 };
        let hello = SoftHello::new(true, limits, &[9; PRIVATE_BYTES_MAX]).unwrap();
        assert_eq!(SoftHello::decode(&hello.encode()), Some(hello.clone()));
        assert!(matches!(
            SoftHello::new(true, limits, &[9; PRIVATE_BYTES_MAX + 1]),
            Err(Error::TooLong { bytes: 57, .. })
        ));
        for (at, byte) in [(0, b'h'), (8, 2), (9, 0), (14, 57), (14, 255)] {
            let mut bytes = hello.encode();
            bytes[at] = byte;
            assert_eq!(SoftHello::decode(&bytes), None, "byte {at}");
        }
    }
}
