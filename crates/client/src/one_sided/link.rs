//! A connection to one datanode: questions and their answers, and the reads that need none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hearth_fabric::one_sided::{Connection, Error};
use hearth_types::{ExtendedBlock, RemoteSlice, Token};
use hearth_wire::rdma_control::{ControlMessage, Locate, Located};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// The answers of a datanode are waited for one at a time; this wait alone ends nothing.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest small replica that is answered within the message.
const INLINE_BYTES_MAX: u32 = 7 << 10;

/// A connection, as long as it lasts.
#[derive(Debug)]
pub(super) struct Link {
    connection: Arc<dyn Connection>,
    /// Which life of the datanode this leads to.
    incarnation: u64,
    waiting: Arc<Waiting>,
    hearing: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.hearing.abort();
    }
}

/// Questions that were asked and not answered.
#[derive(Debug, Default)]
struct Waiting {
    next: AtomicU64,
    /// `None`: the connection has ended.
    questions: Mutex<Option<HashMap<u64, oneshot::Sender<Located>>>>,
}

/// A question that is over, answered or not.
struct Asked<'a> {
    waiting: &'a Waiting,
    request: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(questions) = &mut *self.waiting.questions.lock() {
            questions.remove(&self.request);
        }
    }
}

impl Link {
    pub(super) fn new(connection: Arc<dyn Connection>, incarnation: u64) -> Self {
        let waiting = Arc::new(Waiting { next: AtomicU64::new(1), questions: Mutex::new(Some(HashMap::new())) });
        let hearing = tokio::spawn(hear(connection.clone(), waiting.clone())).abort_handle();
        Self { connection, incarnation, waiting, hearing }
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub(super) fn connection(&self) -> &Arc<dyn Connection> {
        &self.connection
    }

    pub(super) fn is_open(&self) -> bool {
        self.waiting.questions.lock().is_some()
    }

    /// Asks where the bytes of `block` are.
    pub(super) async fn locate(
        &self,
        block: &ExtendedBlock,
        token: &Token,
        into: Option<RemoteSlice>,
        timeout: Duration,
    ) -> Result<Located, Error> {
        let peer = self.connection.peer();
        let closed = || Error::Closed { peer, why: "it ended while an answer was waited for".to_owned() };
        let request = self.waiting.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        match &mut *self.waiting.questions.lock() {
            Some(questions) => questions.insert(request, sender),
            None => return Err(closed()),
        };
        let _asked = Asked { waiting: &self.waiting, request };
        let (block, token) = (block.clone(), token.clone());
        let message = Locate { request, block, token, inline_bytes_max: INLINE_BYTES_MAX, into };
        let message = ControlMessage::Locate(message).encode().map_err(|_| Error::TooLong {
            what: "a question",
            bytes: usize::MAX,
            limit: hearth_wire::rdma_control::MESSAGE_BYTES_MAX,
        })?;
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

/// Hands out answers until the connection ends.
async fn hear(connection: Arc<dyn Connection>, waiting: Arc<Waiting>) {
    loop {
        match connection.receive(RECEIVE_TIMEOUT).await {
            Ok(message) => match ControlMessage::decode(&message) {
                Ok(ControlMessage::Located(located)) => {
                    let question = waiting.questions.lock().as_mut().and_then(|open| open.remove(&located.request()));
                    if let Some(question) = question {
                        // Who asked may have gone.
                        let _ = question.send(located);
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
    waiting.questions.lock().take();
}
