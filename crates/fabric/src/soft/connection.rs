//! The callers' view of a connection, and the task behind it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::domain::{SoftDomain, SoftRegion};
use super::queues::{Read, SoftShared, Write};
use super::{Gate, Stream, incoming, outgoing};
use crate::one_sided::{Connection, Domain, Error, Limits, MESSAGE_BYTES_MAX, Transfer};

/// Starts a connection on a stream whose ends have agreed on `limits`.
pub(crate) fn start(
    stream: impl Stream + 'static,
    peer: SocketAddr,
    private: Bytes,
    limits: Limits,
    domain: &Arc<dyn Domain>,
    gate: Option<Arc<dyn Gate>>,
) -> Arc<dyn Connection> {
    let table = domain.as_any().downcast_ref::<SoftDomain>().expect("a domain of this transport").table().clone();
    let shared = Arc::new(SoftShared::new(peer, private, limits, table, gate));
    let ending = Ending { shared: shared.clone(), why: "the runtime of the connection has ended".to_owned() };
    tokio::spawn(run(ending, stream));
    Arc::new(SoftConnection { handle: Arc::new(Handle { shared }) })
}

/// Ends the connection when its task ends for any reason, also if its runtime ends first.
struct Ending {
    shared: Arc<SoftShared>,
    why: String,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.set_over(std::mem::take(&mut self.why));
    }
}

async fn run(mut ending: Ending, stream: impl Stream) {
    let shared = ending.shared.clone();
    ending.why = {
        let (read, write) = tokio::io::split(stream);
        // In this order: bytes that have arrived take precedence over this side's request to end.
        tokio::select! {
            biased;
            why = incoming::run(&shared, read) => why,
            why = outgoing::run(&shared, write) => why,
            () = shared.ending.notified() => String::new(),
        }
    };
}

/// Ends the connection when the last reference is dropped and no operation is running.
#[derive(Debug)]
struct Handle {
    shared: Arc<SoftShared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end("all references were dropped");
    }
}

#[derive(Debug)]
struct SoftConnection {
    handle: Arc<Handle>,
}

impl SoftConnection {
    fn shared(&self) -> &Arc<SoftShared> {
        &self.handle.shared
    }

    fn check(&self, transfer: &Transfer) {
        let range = transfer.local.range();
        let end = transfer.offset.checked_add(transfer.remote.length);
        assert!(end.is_some_and(|end| end <= range.end - range.start), "a transfer exceeds its local region");
        let region = transfer.local.as_any().downcast_ref::<SoftRegion>();
        assert!(region.is_some_and(|region| region.is_of(&self.shared().table)), "a region of another domain");
    }

    /// Waits for an operation in a separate task, so that the timeout applies even if the caller stops waiting.
    fn wait(
        &self,
        done: oneshot::Receiver<()>,
        action: &'static str,
        after: Duration,
    ) -> BoxFuture<'static, Result<(), Error>> {
        let handle = self.handle.clone();
        let task = tokio::spawn(async move {
            let shared = &handle.shared;
            match tokio::time::timeout(after, done).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(_)) => {
                    shared.wait_over().await;
                    Err(shared.closed())
                }
                Err(_) => {
                    shared.end(&format!("{action} took longer than {after:?}"));
                    shared.wait_over().await;
                    Err(Error::TimedOut { peer: shared.peer, action, after })
                }
            }
        });
        let peer = self.shared().peer;
        let stopped = move |_| Error::Closed { peer, why: "the runtime has stopped".to_owned() };
        Box::pin(async move { task.await.unwrap_or_else(|error| Err(stopped(error))) })
    }
}

impl Connection for SoftConnection {
    fn peer(&self) -> SocketAddr {
        self.shared().peer
    }

    fn private(&self) -> &[u8] {
        &self.shared().private
    }

    fn limits(&self) -> Limits {
        self.shared().limits
    }

    fn read(&self, transfers: Vec<Transfer>, timeout: Duration) -> BoxFuture<'static, Result<(), Error>> {
        for transfer in &transfers {
            self.check(transfer);
            assert!(transfer.local.memory().is_writable(), "a read into memory that is mapped read-only");
        }
        let (done, result) = oneshot::channel();
        let mut reads: VecDeque<Read> = transfers
            .into_iter()
            .filter(|transfer| transfer.remote.length > 0)
            .map(|transfer| Read { transfer, arrived: 0, done: None })
            .collect();
        let Some(last) = reads.back_mut() else { return Box::pin(async { Ok(()) }) };
        last.done = Some(done);
        let mut state = self.shared().lock();
        if self.shared().is_over() {
            drop(state);
            let closed = self.shared().closed();
            return Box::pin(async { Err(closed) });
        }
        state.reads.append(&mut reads);
        drop(state);
        self.shared().work.notify_one();
        self.wait(result, "reading", timeout)
    }

    fn write(
        &self,
        transfers: Vec<Transfer>,
        message: Option<Bytes>,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<(), Error>> {
        for transfer in &transfers {
            self.check(transfer);
        }
        let bytes = message.as_ref().map_or(1, Bytes::len);
        if !(1..=MESSAGE_BYTES_MAX).contains(&bytes) {
            let error = Error::TooLong { what: "a message", bytes, limit: MESSAGE_BYTES_MAX };
            return Box::pin(async { Err(error) });
        }
        let transfers: VecDeque<Transfer> =
            transfers.into_iter().filter(|transfer| transfer.remote.length > 0).collect();
        if transfers.is_empty() && message.is_none() {
            return Box::pin(async { Ok(()) });
        }
        let (done, result) = oneshot::channel();
        let mut state = self.shared().lock();
        if self.shared().is_over() {
            drop(state);
            let closed = self.shared().closed();
            return Box::pin(async { Err(closed) });
        }
        state.writes.push_back(Write { transfers, message, done });
        drop(state);
        self.shared().work.notify_one();
        self.wait(result, "writing", timeout)
    }

    fn receive(&self, timeout: Duration) -> BoxFuture<'_, Result<Bytes, Error>> {
        let shared = self.shared();
        Box::pin(async move {
            let message = async {
                loop {
                    {
                        let mut state = shared.lock();
                        if let Some(message) = state.received.pop_front() {
                            state.credit_to_return += 1;
                            drop(state);
                            shared.work.notify_one();
                            return Ok(message);
                        }
                    }
                    if shared.is_over() {
                        return Err(shared.closed());
                    }
                    shared.arrived.notified().await;
                }
            };
            match tokio::time::timeout(timeout, message).await {
                Ok(result) => result,
                Err(_) => Err(Error::NoMessage { peer: shared.peer, after: timeout }),
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.shared().end("closed by this side");
        Box::pin(self.shared().wait_over())
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shared().wait_over())
    }
}
