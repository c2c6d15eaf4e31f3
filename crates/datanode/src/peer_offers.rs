//! Cache of the offers of other DataNodes, as they describe them. Concurrent callers share one request, and the answer
//! is used for a limited time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp;
use hearth_types::DatanodeId;
use hearth_wire::data_transfer::{DatanodeDescription, Describe, Operation};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::downstream::{self, ConnectError, Timeouts};
use crate::replica_service::ReplicaService;
use crate::session::{Session, SessionError};

/// Time for which a DataNode's description, or the fact that it has none, is used.
const OFFER_TTL: Duration = Duration::from_secs(60);
const NO_OFFER_TTL: Duration = Duration::from_secs(600);

/// Maximum number of DataNodes that are remembered.
const PEERS_MAX: usize = 4096;

/// `None`: it is not a Hearth DataNode.
type Answer = Option<Arc<DatanodeDescription>>;

/// Locked during the request, so that waiting callers get the same answer or the same failure.
type CachedOffer = Arc<tokio::sync::Mutex<Option<(Option<Answer>, Instant)>>>;

/// Reason why a DataNode has not described itself.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    #[error("datanode {name} did not answer DESCRIBE")]
    Unanswered { name: String },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl DescribeError {
    /// Returns true if the peer disconnected.
    pub fn is_disconnect(&self) -> bool {
        match self {
            Self::Unanswered { .. } => false,
            Self::Connect(error) => error.is_disconnect(),
            Self::Session(error) => error.is_disconnect(),
        }
    }
}

#[derive(Default)]
pub struct PeerOffers {
    /// Keyed by the complete ID, so that an entry that a caller made with a wrong address affects no other caller.
    known: Mutex<HashMap<DatanodeId, CachedOffer>>,
}

impl PeerOffers {
    /// Returns the offer of `id`, requested from it unless it is cached. `timeout` covers everything.
    ///
    /// Errors: the request failed. Only callers that waited for the same request share the failure.
    pub async fn get(
        &self,
        replicas: &ReplicaService,
        id: &DatanodeId,
        timeout: Duration,
    ) -> Result<Answer, DescribeError> {
        let asking = tokio::time::timeout(timeout, self.ask_once(replicas, id, timeout));
        asking.await.unwrap_or_else(|_| Err(unanswered(id)))
    }

    async fn ask_once(
        &self,
        replicas: &ReplicaService,
        id: &DatanodeId,
        timeout: Duration,
    ) -> Result<Answer, DescribeError> {
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
            // Failed while this caller waited.
            Some((None, failed)) if *failed >= began => return Err(unanswered(id)),
            _ => {}
        }
        let timeouts = Timeouts { connect: timeout, read: timeout, write: timeout, heartbeat: timeout };
        let asked = async {
            let mut session = downstream::connect(&replicas.options, id, timeouts).await?;
            Ok(ask(replicas, &mut session, timeout).await?.map(Arc::new))
        };
        let answer: Result<Answer, DescribeError> = asked.await;
        *known = Some((answer.as_ref().ok().cloned(), Instant::now()));
        answer
    }

    /// Forgets a description that has proved wrong: the DataNode may have been replaced.
    pub fn forget(&self, id: &DatanodeId) {
        self.known.lock().remove(id);
    }
}

fn unanswered(id: &DatanodeId) -> DescribeError {
    DescribeError::Unanswered { name: id.transfer_address() }
}

/// Requests the description from the peer of a connection. The connection can be used for another operation afterwards
/// unless the answer is `None`.
pub async fn ask(
    replicas: &ReplicaService,
    session: &mut Session,
    timeout: Duration,
) -> Result<Option<DatanodeDescription>, SessionError> {
    let question = Describe { client_name: replicas.store.datanode_uuid().to_string() };
    session.send(&Operation::Describe(question).encode()).await?;
    match session.receive_message(DatanodeDescription::decode, timeout).await {
        Ok(description) => Ok(Some(description)),
        // A DataNode that does not know the request closes the connection.
        Err(SessionError::Connection(tcp::Error::Closed { .. } | tcp::Error::Socket { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}
