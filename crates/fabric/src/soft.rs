//! One-sided operations without a card: a task of this process serves the peer's reads and writes of registered memory,
//! over any ordered stream of bytes.
//!
//! The whole one-sided plane can run on it, on machines without verbs and in tests: over TCP ([`TcpTransport`]), or in
//! process with faults ([`crate::sim`]). As a path for data it is worth less than packets, which have sendfile.
//!
//! A connection is one task that reads frames, serves them, and writes frames: when it has ended, nothing of the peer's
//! can reach memory through it. Answers to the peer's reads are queued, never waited for, by the half that reads frames;
//! so two ends that read from each other cannot block each other. What a peer can make this side keep is bounded: by
//! the reads in flight, and by the credit for messages.

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

/// An ordered stream of bytes, both ways.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// What the peer wants, when this side is about to do it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A connection is about to be asked for.
    Connect,
    /// The key of a read was found good; none of its bytes has been copied yet.
    Read,
    /// The key of a write was found good; none of its bytes has been copied yet.
    Write,
    /// A message has arrived; it has not been handed out yet.
    Message,
    /// Credit for messages is about to be given back to the peer.
    Credit,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Go,
    /// The connection ends here.
    End,
    /// For credit: it is not given back.
    Withhold,
}

/// Asked at every step of a connection, and at registrations; how tests hold, delay and break what happens.
pub(crate) trait Gate: Send + Sync + Debug {
    fn pass(&self, step: Step) -> BoxFuture<'_, Verdict>;

    /// Whether memory is registered that could be.
    fn registers(&self, access: Access) -> bool;
}
