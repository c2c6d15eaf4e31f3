//! One-sided operations without a card: a task of this process serves the peer's reads and writes of registered memory,
//! over any ordered byte stream.
//!
//! All one-sided features can run on it, on machines without verbs and in tests: over TCP ([`TcpTransport`]), or within
//! a process with faults ([`crate::sim`]). As a data path it is slower than packets, which can use sendfile.
//!
//! A connection is one task that reads frames, serves them, and writes frames. Once it has ended, the peer cannot
//! access memory through it. The reading half queues answers to the peer's reads and never waits for them, so two ends
//! that read from each other cannot deadlock. The amount that a peer can make this side store is bounded by the reads
//! in flight and by the credit for messages.

mod connection;
mod domain;
mod frame;
mod handshake;
mod incoming;
mod outgoing;
mod queues;
mod tcp;
#[cfg(test)]
mod tests;

pub(crate) use connection::start;
pub(crate) use domain::SoftDomain;
pub(crate) use handshake::{SoftHello, SoftIncoming, connect};
pub use tcp::TcpTransport;

use std::fmt::Debug;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::one_sided::Access;

/// An ordered bidirectional byte stream.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A step of a connection, reported just before this side performs it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A connection is about to be requested.
    Connect,
    /// The key of a read was validated; none of its bytes has been copied yet.
    Read,
    /// The key of a write was validated; none of its bytes has been copied yet.
    Write,
    /// A message has arrived; `receive` has not returned it yet.
    Message,
    /// Credit for messages is about to be returned to the peer.
    Credit,
}

/// Decision about a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Go,
    /// The connection ends here.
    End,
    /// For credit: it is not returned.
    Withhold,
}

/// Called at every step of a connection, and at registrations. Tests use it to hold, delay and break steps.
pub(crate) trait Gate: Send + Sync + Debug {
    fn pass(&self, step: Step) -> BoxFuture<'_, Verdict>;

    /// Returns false to make a valid registration fail.
    fn registers(&self, access: Access) -> bool;
}
