//! A connection to one datanode: questions and their answers, and the reads that need none.

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

/// The answers of a datanode are waited for one at a time; this wait alone ends nothing.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest small replica that is answered within the message.
const INLINE_BYTES_MAX: u32 = 7 << 10;

/// Memory of askers who have gone that the datanode may still write to, on one connection: 5 MiB. Then no more is lent on it.
const ABANDONED_MAX: usize = 64;

/// An answer, and the memory that was lent for it: the datanode writes there no more.
pub(super) type LocateResponse = (Located, Option<Arc<dyn Region>>);

/// A connection, as long as it lasts.
#[derive(Debug)]
pub(super) struct ReadConnection {
    connection: Arc<dyn Connection>,
    /// Which life of the datanode this leads to.
    incarnation: u64,
    pending: Arc<PendingRequests>,
    receive_task: AbortHandle,
}

impl Drop for ReadConnection {
    fn drop(&mut self) {
        self.receive_task.abort();
    }
}

/// Questions that were asked and not answered.
#[derive(Debug)]
struct PendingRequests {
    next: AtomicU64,
    /// `None`: the connection has ended.
    requests: Mutex<Option<LocateRequests>>,
}

#[derive(Debug, Default)]
struct LocateRequests {
    open: HashMap<u64, LocateRequest>,
    /// Those of `open` that keep memory of an asker who has gone.
    abandoned: usize,
}

#[derive(Debug)]
struct LocateRequest {
    answer: oneshot::Sender<LocateResponse>,
    /// The datanode may write there until it has answered. Once that is deregistered its writing would end the connection, for all who
    /// share it, or go to memory that has got the same key since.
    into: Option<Arc<dyn Region>>,
    /// Its asker has gone.
    abandoned: bool,
}

impl LocateRequests {
    fn remove(&mut self, request: u64) -> Option<LocateRequest> {
        let locate_request = self.open.remove(&request)?;
        self.abandoned -= usize::from(locate_request.abandoned);
        Some(locate_request)
    }
}

/// Somebody waits for the answer to a question.
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

    /// Whether memory may be lent for an answer.
    pub(super) fn may_grant_memory(&self) -> bool {
        self.pending.requests.lock().as_ref().is_some_and(|requests| requests.abandoned < ABANDONED_MAX)
    }

    /// Asks where the bytes of `block` are. `into`: lent for the answer, with which it comes back.
    pub(super) async fn locate(
        &self,
        block: &ExtendedBlock,
        token: &Token,
        into: Option<Arc<dyn Region>>,
        timeout: Duration,
    ) -> Result<LocateResponse, Error> {
        let peer = self.connection.peer();
        let closed = || Error::Closed { peer, why: "it ended while an answer was waited for".to_owned() };
        let request = self.pending.next.fetch_add(1, Ordering::Relaxed);
        let (block, token, slice) = (block.clone(), token.clone(), into.as_ref().map(|into| into.remote()));
        let message = Locate { request, block, token, inline_bytes_max: INLINE_BYTES_MAX, into: slice };
        let message = ControlMessage::Locate(message).encode().map_err(|_| Error::TooLong {
            what: "a question",
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
                // What comes so late may write where this client has other things by then.
                self.connection.close().await;
                Err(Error::TimedOut { peer, action: "asking for a replica", after: timeout })
            }
        }
    }
}

/// Nobody is left waiting, and nobody asks any more, when the task that hears the answers ends: also with its runtime.
struct ReceiveGuard(Arc<PendingRequests>);

impl Drop for ReceiveGuard {
    fn drop(&mut self) {
        let ended = self.0.requests.lock().take();
        drop(ended);
    }
}

/// Hands out answers until the connection ends.
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
                        // Who asked may have gone.
                        let _ = answer.send((located, into));
                    }
                }
                other => {
                    tracing::warn!(peer = %connection.peer(), ?other, "the datanode does not keep to the protocol");
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
    use hearth_types::{Block, BlockId, BlockPoolId, GenerationStamp};
    use hearth_wire::data_transfer::Status;
    use hearth_wire::rdma_control::Refusal;

    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    /// A link, the other end of its connection, and where memory for it is registered.
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

    /// Asks, and leaves when the question has come to the other side, which is given back.
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
    async fn memory_stays_until_the_question_is_answered_whoever_has_gone_and_so_much_and_no_more() {
        let (read_connection, far, domain) = connect().await;
        let mut asked = Vec::new();
        while read_connection.may_grant_memory() {
            asked.push(leave(&read_connection, &*far, register(&*domain)).await);
        }
        assert_eq!((asked.len(), domain.registered_bytes()), (ABANDONED_MAX, ABANDONED_MAX as u64 * 4096));
        // The answers are heard before the one to a question that is asked behind them.
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
    async fn nothing_stays_when_the_connection_has_ended() {
        let (read_connection, far, domain) = connect().await;
        leave(&read_connection, &*far, register(&*domain)).await;
        far.close().await;
        assert!(locate(&read_connection, None).await.is_err());
        let noticed = async {
            while read_connection.is_open() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(WAIT, noticed).await.unwrap();
        assert!(!read_connection.may_grant_memory());
        assert_eq!(domain.registered_bytes(), 0);
    }

    #[tokio::test]
    async fn a_link_whose_runtime_has_ended_is_not_open() {
        let elsewhere = tokio::task::spawn_blocking(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(connect())
        });
        let (read_connection, _far, _domain) = elsewhere.await.unwrap();
        assert!(!read_connection.is_open());
    }
}
