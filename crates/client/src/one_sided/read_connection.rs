//! A connection to one datanode, for one-sided reads and for requests that locate replicas. A task receives the answers
//! and passes each to its request.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearth_fabric::one_sided::{Connection, Error, Region};
use hearth_types::{ExtendedBlock, Token};
use hearth_wire::rdma_control::{ControlMessage, Locate, Located};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Time-out of one wait for an answer. It is not an error; the wait is repeated.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest small replica that is sent within the answer.
const INLINE_BYTES_MAX: u32 = 7 << 10;

/// Maximum number of abandoned requests on one connection whose memory the datanode may still write to: 5 MiB. At the
/// limit, no more memory is lent on it.
const ABANDONED_MAX: usize = 64;

/// An answer, with the memory that was lent for it, to which the datanode writes no more.
pub(super) type LocateResponse = (Located, Option<Arc<dyn Region>>);

/// A connection with its pending requests.
#[derive(Debug)]
pub(super) struct ReadConnection {
    connection: Arc<dyn Connection>,
    /// Incarnation of the datanode that this leads to.
    incarnation: u64,
    pending: Arc<PendingRequests>,
    receive_task: AbortHandle,
}

impl Drop for ReadConnection {
    fn drop(&mut self) {
        self.receive_task.abort();
    }
}

/// Requests that are not answered yet.
#[derive(Debug)]
struct PendingRequests {
    next: AtomicU64,
    /// `None` if the connection has ended.
    requests: Mutex<Option<LocateRequests>>,
}

#[derive(Debug, Default)]
struct LocateRequests {
    open: HashMap<u64, LocateRequest>,
    /// Number of requests in `open` that were cancelled but keep lent memory.
    abandoned: usize,
}

#[derive(Debug)]
struct LocateRequest {
    answer: oneshot::Sender<LocateResponse>,
    /// Memory that the datanode may write to until it has answered. If it were deregistered earlier, such a write would
    /// end the connection for all readers that share it. It could also reach other memory that has since got the same
    /// key.
    into: Option<Arc<dyn Region>>,
    /// The request was cancelled.
    abandoned: bool,
}

impl LocateRequests {
    fn remove(&mut self, request: u64) -> Option<LocateRequest> {
        let locate_request = self.open.remove(&request)?;
        self.abandoned -= usize::from(locate_request.abandoned);
        Some(locate_request)
    }
}

/// Removes a pending request on drop, or marks it as abandoned if it holds lent memory.
struct RequestGuard<'a> {
    pending: &'a PendingRequests,
    request: u64,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        if let Some(requests) = &mut *self.pending.requests.lock()
            && let Some(locate_request) = requests.open.get_mut(&self.request)
        {
            if locate_request.into.is_none() {
                requests.open.remove(&self.request);
            } else {
                locate_request.abandoned = true;
                requests.abandoned += 1;
            }
        }
    }
}

impl ReadConnection {
    pub(super) fn new(connection: Arc<dyn Connection>, incarnation: u64) -> Self {
        let pending = Arc::new(PendingRequests {
            next: AtomicU64::new(1),
            requests: Mutex::new(Some(LocateRequests::default())),
        });
        let receive_task =
            tokio::spawn(receive_responses(connection.clone(), ReceiveGuard(pending.clone()))).abort_handle();
        Self { connection, incarnation, pending, receive_task }
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn connection(&self) -> &Arc<dyn Connection> {
        &self.connection
    }

    pub(super) fn is_open(&self) -> bool {
        self.pending.requests.lock().is_some()
    }

    /// Returns true if memory may be lent for an answer.
    pub(super) fn may_grant_memory(&self) -> bool {
        self.pending.requests.lock().as_ref().is_some_and(|requests| requests.abandoned < ABANDONED_MAX)
    }

    /// Asks for the location of the bytes of `block`. `into`: memory lent for the answer, which is returned with it.
    pub(super) async fn locate(
        &self,
        block: &ExtendedBlock,
        token: &Token,
        into: Option<Arc<dyn Region>>,
        timeout: Duration,
    ) -> Result<LocateResponse, Error> {
        let peer = self.connection.peer();
        let closed = || Error::Closed { peer, why: "the connection ended before the answer".to_owned() };
        let request = self.pending.next.fetch_add(1, Ordering::Relaxed);
        let (block, token, slice) = (block.clone(), token.clone(), into.as_ref().map(|into| into.remote()));
        let message = Locate { request, block, token, inline_bytes_max: INLINE_BYTES_MAX, into: slice };
        let message = ControlMessage::Locate(message).encode().map_err(|_| Error::TooLong {
            what: "a request to locate a replica",
            bytes: usize::MAX,
            limit: hearth_wire::rdma_control::MESSAGE_BYTES_MAX,
        })?;
        let (sender, answer) = oneshot::channel();
        match &mut *self.pending.requests.lock() {
            Some(requests) => requests.open.insert(request, LocateRequest { answer: sender, into, abandoned: false }),
            None => return Err(closed()),
        };
        let _guard = RequestGuard { pending: &self.pending, request };
        self.connection.send(message, timeout).await?;
        match tokio::time::timeout(timeout, answer).await {
            Ok(answer) => answer.map_err(|_| closed()),
            Err(_) => {
                // A late answer could write to memory that this client has reused by then.
                self.connection.close().await;
                Err(Error::TimedOut { peer, action: "locating a replica", after: timeout })
            }
        }
    }
}

/// Drops all pending requests and refuses new ones when the receiving task ends, also with its runtime.
struct ReceiveGuard(Arc<PendingRequests>);

impl Drop for ReceiveGuard {
    fn drop(&mut self) {
        let ended = self.0.requests.lock().take();
        drop(ended);
    }
}

/// Delivers answers until the connection ends.
async fn receive_responses(connection: Arc<dyn Connection>, receive_task: ReceiveGuard) {
    let ReceiveGuard(pending) = &receive_task;
    loop {
        match connection.receive(RECEIVE_TIMEOUT).await {
            Ok(message) => match ControlMessage::decode(&message) {
                Ok(ControlMessage::Located(located)) => {
                    let mut requests = pending.requests.lock();
                    let locate_request = requests.as_mut().and_then(|requests| requests.remove(located.request()));
                    drop(requests);
                    if let Some(LocateRequest { answer, into, .. }) = locate_request {
                        // The send fails if the request was cancelled.
                        let _ = answer.send((located, into));
                    }
                }
                other => {
                    tracing::warn!(peer = %connection.peer(), ?other, "unexpected message, closing the connection");
                    connection.close().await;
                    break;
                }
            },
            Err(Error::NoMessage { .. }) => {}
            Err(_) => break,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use hearth_fabric::Memory;
    use hearth_fabric::one_sided::{Access, Domain, Limits, Transport};
    use hearth_fabric::sim::Sim;
    use hearth_testkit::until;
    use hearth_types::{Block, BlockId, BlockPoolId, GenerationStamp};
    use hearth_wire::data_transfer::Status;
    use hearth_wire::rdma_control::Refusal;

    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    /// A client's connection, the other end of it, and the domain in which memory for it is registered.
    async fn connect() -> (ReadConnection, Arc<dyn Connection>, Arc<dyn Domain>) {
        let sim = Sim::new();
        let domain = sim.domain().unwrap();
        let listener = sim.listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let accept = async { listener.accept().await.unwrap().accept(&domain, b"", Limits::default(), WAIT).await };
        let connect = sim.connect(&domain, listener.address(), b"", Limits::default(), WAIT);
        let (near, far) = tokio::join!(connect, accept);
        (ReadConnection::new(near.unwrap(), 1), far.unwrap(), domain)
    }

    fn register(domain: &dyn Domain) -> Arc<dyn Region> {
        domain.register(&Arc::new(Memory::fresh(4096).unwrap()), 0..4096, Access::RemoteWrite).unwrap()
    }

    async fn locate(read_connection: &ReadConnection, into: Option<Arc<dyn Region>>) -> Result<LocateResponse, Error> {
        let block = Block { id: BlockId(1), stamp: GenerationStamp(1), length: 4096 };
        read_connection
            .locate(&ExtendedBlock { pool: BlockPoolId::new("BP-1"), block }, &Token::default(), into, WAIT)
            .await
    }

    /// Sends a request and cancels it once the other side has received it. Returns the request.
    async fn leave(read_connection: &ReadConnection, far: &dyn Connection, into: Arc<dyn Region>) -> Locate {
        let received = tokio::select! {
            _ = locate(read_connection, Some(into)) => panic!("nobody has answered"),
            received = far.receive(WAIT) => received.unwrap(),
        };
        let Ok(ControlMessage::Locate(asked)) = ControlMessage::decode(&received) else { panic!("no question") };
        asked
    }

    async fn answer(far: &dyn Connection, asked: &Locate) {
        let refusal = Refusal { status: Status::Error, message: String::new() };
        let located = Located::Refused { request: asked.request, refusal };
        far.send(ControlMessage::Located(located).encode().unwrap(), WAIT).await.unwrap();
    }

    #[tokio::test]
    async fn abandoned_memory_is_held_until_answered() {
        let (read_connection, far, domain) = connect().await;
        let mut asked = Vec::new();
        while read_connection.may_grant_memory() {
            asked.push(leave(&read_connection, &*far, register(&*domain)).await);
        }
        assert_eq!((asked.len(), domain.registered_bytes()), (ABANDONED_MAX, ABANDONED_MAX as u64 * 4096));
        // These answers are received before that of the next request.
        for asked in &asked {
            answer(&*far, asked).await;
        }
        let into = register(&*domain);
        let (last, _) = tokio::join!(locate(&read_connection, Some(Arc::clone(&into))), async {
            let Ok(ControlMessage::Locate(asked)) = ControlMessage::decode(&far.receive(WAIT).await.unwrap()) else {
                panic!("no question")
            };
            answer(&*far, &asked).await;
        });
        let (_, lent) = last.unwrap();
        assert!(Arc::ptr_eq(&lent.unwrap(), &into) && read_connection.may_grant_memory());
        drop(into);
        assert_eq!(domain.registered_bytes(), 0);
    }

    #[tokio::test]
    async fn ended_connection_releases_memory() {
        let (read_connection, far, domain) = connect().await;
        leave(&read_connection, &*far, register(&*domain)).await;
        far.close().await;
        assert!(locate(&read_connection, None).await.is_err());
        until("the end of the connection", async || !read_connection.is_open()).await;
        assert!(!read_connection.may_grant_memory());
        assert_eq!(domain.registered_bytes(), 0);
    }

    #[tokio::test]
    async fn connection_of_ended_runtime_is_not_open() {
        let elsewhere = tokio::task::spawn_blocking(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(connect())
        });
        let (read_connection, _far, _domain) = elsewhere.await.unwrap();
        assert!(!read_connection.is_open());
    }
}
