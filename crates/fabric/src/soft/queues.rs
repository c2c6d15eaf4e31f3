//! Work queues of a connection, shared by the callers, the reading half and the writing half.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hearth_types::RemoteSlice;
use tokio::sync::{Notify, oneshot, watch};

use super::Gate;
use super::domain::KeyTable;
use crate::one_sided::{Error, Limits, Transfer};

/// A posted read. Dropping it notifies the waiting caller that the connection has ended.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) transfer: Transfer,
    /// Number of its bytes that have arrived.
    pub(super) arrived: u64,
    /// Set on the last of the reads that were posted together.
    pub(super) done: Option<oneshot::Sender<()>>,
}

/// Writes posted together, and the message that follows them.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) transfers: VecDeque<Transfer>,
    pub(super) message: Option<Bytes>,
    pub(super) done: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct QueueState {
    /// Posted reads that were not requested yet; then those that were requested, oldest first.
    pub(super) reads: VecDeque<Read>,
    pub(super) reading: VecDeque<Read>,
    pub(super) writes: VecDeque<Write>,
    /// Reads that the peer has requested. At most `limits.reads_in_flight`.
    pub(super) to_serve: VecDeque<RemoteSlice>,
    /// Number of messages that may be sent.
    pub(super) credit: u64,
    /// Messages that were taken and not yet reported to the peer.
    pub(super) credit_to_return: u64,
    /// Together with `credit_to_return`, at most `limits.messages`.
    pub(super) received: VecDeque<Bytes>,
    /// Reason for the end of the connection.
    pub(super) why: Option<String>,
}

/// State shared by all parts of a connection.
#[derive(Debug)]
pub(super) struct SoftShared {
    pub(super) peer: SocketAddr,
    pub(super) private: Bytes,
    pub(super) limits: Limits,
    pub(super) table: Arc<KeyTable>,
    pub(super) gate: Option<Arc<dyn Gate>>,
    state: Mutex<QueueState>,
    /// There may be something to write.
    pub(super) work: Notify,
    /// A message may have arrived, or the connection is over.
    pub(super) arrived: Notify,
    /// The connection should end.
    pub(super) ending: Notify,
    over: watch::Sender<bool>,
}

impl SoftShared {
    pub(super) fn new(
        peer: SocketAddr,
        private: Bytes,
        limits: Limits,
        table: Arc<KeyTable>,
        gate: Option<Arc<dyn Gate>>,
    ) -> Self {
        let state = QueueState { credit: u64::from(limits.messages), ..QueueState::default() };
        Self {
            peer,
            private,
            limits,
            table,
            gate,
            state: Mutex::new(state),
            work: Notify::new(),
            arrived: Notify::new(),
            ending: Notify::new(),
            over: watch::Sender::new(false),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the connection to end. The first reason is kept.
    pub(super) fn end(&self, why: &str) {
        self.lock().why.get_or_insert_with(|| why.to_owned());
        self.ending.notify_one();
    }

    /// Called when the connection's task has ended and no longer accesses memory. Flushes the posted operations.
    pub(super) fn set_over(&self, why: String) {
        let flushed = {
            let mut state = self.lock();
            state.why.get_or_insert(why);
            state.to_serve.clear();
            let reads = std::mem::take(&mut state.reads);
            let reading = std::mem::take(&mut state.reading);
            // Under the lock: an operation posted after this sees the end, and does not wait in a queue that no task
            // serves.
            self.over.send_replace(true);
            (reads, reading, std::mem::take(&mut state.writes))
        };
        // Drop the regions outside the lock, because that may deregister them.
        drop(flushed);
        self.arrived.notify_one();
    }

    /// Returns true if the connection is over. While the caller holds the lock, an operation posted after `false` will
    /// be flushed if the connection ends.
    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    pub(super) async fn wait_over(&self) {
        // The sender lives in self.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    pub(super) fn closed(&self) -> Error {
        let why = self.lock().why.clone().unwrap_or_else(|| "closed".to_owned());
        Error::Closed { peer: self.peer, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft::SoftDomain;

    #[test]
    fn flushed_queue_implies_connection_is_over() {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        // Repeated, because the race window is some tens of nanoseconds.
        for _ in 0..1000 {
            let table = SoftDomain::default().table().clone();
            let shared = SoftShared::new(peer, Bytes::new(), Limits::default(), table, None);
            std::thread::scope(|scope| {
                scope.spawn(|| shared.set_over("it ends".to_owned()));
                loop {
                    let state = shared.lock();
                    if state.why.is_some() {
                        assert!(shared.is_over());
                        return;
                    }
                    drop(state);
                    std::thread::yield_now();
                }
            });
        }
    }
}
