//! What other datanodes offer, as they have said themselves: asked once for all who want to know, and believed for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hearth_fabric::tcp;
use hearth_types::DatanodeId;
use hearth_wire::data_transfer::{DatanodeDescription, Describe, Operation};
use parking_lot::Mutex;

use crate::datanode::Datanode;
use crate::downstream::{self, Timeouts};
use crate::ops::OpError;
use crate::session::{Session, SessionError};

/// How long a datanode's description of itself is believed, and that it has none.
const OFFER_TTL: Duration = Duration::from_secs(60);
const NO_OFFER_TTL: Duration = Duration::from_secs(600);

/// Datanodes that are remembered at most.
const PEERS_MAX: usize = 4096;

/// `None`: it is not Hearth's.
type Answer = Option<Arc<DatanodeDescription>>;

/// Held by who asks, so that the others hear the same answer, or that there was none.
type CachedOffer = Arc<tokio::sync::Mutex<Option<(Option<Answer>, Instant)>>>;

#[derive(Default)]
pub struct PeerOffers {
    /// By all that was said of them: what somebody names with an address of his own is nobody else's.
    known: Mutex<HashMap<DatanodeId, CachedOffer>>,
}

impl PeerOffers {
    /// What `id` offers; it is asked unless that is known. `timeout`: for all of it.
    ///
    /// Errors: it cannot be asked, which only those hear who waited for the same question.
    pub async fn get(&self, datanode: &Arc<Datanode>, id: &DatanodeId, timeout: Duration) -> Result<Answer, OpError> {
        let asking = tokio::time::timeout(timeout, self.ask_once(datanode, id, timeout));
        asking.await.unwrap_or_else(|_| Err(undescribed(id)))
    }

    async fn ask_once(&self, datanode: &Arc<Datanode>, id: &DatanodeId, timeout: Duration) -> Result<Answer, OpError> {
        let began = Instant::now();
        let known = {
            let mut known = self.known.lock();
            if known.len() >= PEERS_MAX && !known.contains_key(id) {
                known.clear();
            }
            known.entry(id.clone()).or_default().clone()
        };
        let mut known = known.lock().await;
        match &*known {
            Some((Some(answer), since))
                if since.elapsed() < if answer.is_some() { OFFER_TTL } else { NO_OFFER_TTL } =>
            {
                return Ok(answer.clone());
            }
            // While this one waited.
            Some((None, failed)) if *failed >= began => return Err(undescribed(id)),
            _ => {}
        }
        let timeouts = Timeouts { connect: timeout, read: timeout, write: timeout, heartbeat: timeout };
        let asked = async {
            let mut session = downstream::connect(datanode, id, timeouts).await?;
            Ok(ask(datanode, &mut session, timeout).await?.map(Arc::new))
        };
        let answer: Result<Answer, OpError> = asked.await;
        *known = Some((answer.as_ref().ok().cloned(), Instant::now()));
        answer
    }

    /// It was not what it had said: it may be another one now.
    pub fn forget(&self, id: &DatanodeId) {
        self.known.lock().remove(id);
    }
}

fn undescribed(id: &DatanodeId) -> OpError {
    OpError::Undescribed { name: id.transfer_address() }
}

/// Asks the peer of a connection, which is good for another operation afterwards unless the answer is `None`.
pub async fn ask(
    datanode: &Datanode,
    session: &mut Session,
    timeout: Duration,
) -> Result<Option<DatanodeDescription>, SessionError> {
    let question = Describe { client_name: datanode.store.datanode_uuid().to_string() };
    session.send(&Operation::Describe(question).encode()).await?;
    match session.receive_message(DatanodeDescription::decode, timeout).await {
        Ok(description) => Ok(Some(description)),
        // Whoever does not know the question closes the connection.
        Err(SessionError::Connection(tcp::Error::Closed { .. } | tcp::Error::Socket { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}
