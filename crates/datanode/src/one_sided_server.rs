//! Listener for one-sided connections, and the messages on them.
//!
//! The first private byte of a client states the purpose of its connection. A reader gets a connection in the one
//! domain in which replicas are shown; it sends requests for the locations of replicas.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_fabric::one_sided::{Connection, Error, Incoming, Limits, Listener};
use hearth_fabric::{ConnectionPermit, Party};
use hearth_protocol::block_token::AccessMode;
use hearth_wire::data_transfer::Status;
use hearth_wire::rdma_control::{
    ControlMessage, Locate, Located, MESSAGE_BYTES_MAX, PURPOSE_READING, PURPOSE_WRITING, Refusal, SmallBytes,
    SmallReplica, VERSION, encode_acceptance,
};
use tokio::sync::Semaphore;

use crate::advertise::{AdvertiseError, LocateOutcome, small_bytes};
use crate::datanode::Datanode;
use crate::metrics::ReadPath;
use crate::one_sided::{OneSidedAccess, PEER_TIMEOUT};
use crate::ops::{OpError, write_one_sided};

/// Readers send little on a connection: a few requests at a time.
const READER_LIMITS: Limits = Limits { reads_in_flight: 16, operations: 64, messages: 16 };

/// A writer has a window of slices in flight.
const WRITER_LIMITS: Limits = Limits { reads_in_flight: 1, operations: 64, messages: 64 };

/// Time without messages after which a connection is closed, because the peer's machine may be gone. A reader with keys
/// sends at least one message per lease.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Accepts connections until the DataNode stops.
pub async fn accept(datanode: Arc<Datanode>, one_sided: Arc<OneSidedAccess>, listener: Box<dyn Listener>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = datanode.lifecycle.stopping() => return,
        };
        let incoming = match accepted {
            Ok(incoming) => incoming,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a one-sided connection");
                one_sided.connection_limit.shed();
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let peer = incoming.peer();
        let Some((place, mut gives_way)) = one_sided.connection_limit.admit(Party::from(peer.ip())) else {
            tracing::warn!(%peer, "rejecting a one-sided connection: the maximum is reached and all are busy");
            tokio::spawn(async move { incoming.reject(b"too many connections").await.is_ok() });
            continue;
        };
        let (datanode, one_sided) = (datanode.clone(), one_sided.clone());
        tokio::spawn(async move {
            place.mark_established();
            tokio::select! {
                () = serve_connection(&datanode, &one_sided, incoming, &place) => {}
                () = datanode.lifecycle.stopping() => {}
                () = gives_way.wait() => tracing::debug!(%peer, "closing an idle one-sided connection: the maximum is reached"),
            }
        });
    }
}

async fn serve_connection(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedAccess>,
    incoming: Box<dyn Incoming>,
    place: &ConnectionPermit,
) {
    let peer = incoming.peer();
    let served = match incoming.private() {
        [PURPOSE_READING, VERSION, ..] => {
            let domain = one_sided.advertiser.domain();
            match incoming
                .accept(
                    domain,
                    &encode_acceptance(PURPOSE_READING, datanode.endpoints.incarnation),
                    READER_LIMITS,
                    PEER_TIMEOUT,
                )
                .await
            {
                Ok(connection) => serve_reader(datanode, one_sided, &connection, place).await,
                Err(error) => Err(error.into()),
            }
        }
        [PURPOSE_WRITING, VERSION, ..] => serve_writer(datanode, one_sided, incoming).await,
        _ => incoming.reject(b"unknown purpose or version").await.map_err(Into::into),
    };
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "one-sided connection ended");
    }
}

/// Serves a writer. Its keys are valid only on its own connection, and so is its domain.
async fn serve_writer(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedAccess>,
    incoming: Box<dyn Incoming>,
) -> Result<(), ServeError> {
    let domain = one_sided.new_writer_domain()?;
    let private = encode_acceptance(PURPOSE_WRITING, datanode.endpoints.incarnation);
    let connection = incoming.accept(&domain, &private, WRITER_LIMITS, PEER_TIMEOUT).await?;
    let served = write_one_sided::serve(datanode, connection.clone(), domain).await;
    connection.close().await;
    Ok(served?)
}

/// Reason why a connection is closed.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error(transparent)]
    Connection(#[from] Error),
    #[error("the peer sent an invalid message: {0}")]
    Message(#[from] hearth_wire::rdma_control::ControlError),
    #[error("the peer sent an answer without a request")]
    Unexpected,
    #[error(transparent)]
    Write(#[from] write_one_sided::WriteError),
}

/// Answers requests until the connection ends.
async fn serve_reader(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedAccess>,
    connection: &Arc<dyn Connection>,
    place: &ConnectionPermit,
) -> Result<(), ServeError> {
    // One more than the peer can have sent.
    let places = Arc::new(Semaphore::new(usize::from(READER_LIMITS.messages) + 1));
    loop {
        // A reader may be reading with its keys all the time. It sends at least one message per lease.
        place.mark_idle();
        let message = connection.receive(IDLE_TIMEOUT).await?;
        let ControlMessage::Locate(locate) = ControlMessage::decode(&message)? else {
            return Err(ServeError::Unexpected);
        };
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (datanode, one_sided, connection) = (datanode.clone(), one_sided.clone(), connection.clone());
        // A request that has to register memory first delays no other request.
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = answer_locate(&datanode, &one_sided, &*connection, locate).await {
                tracing::debug!(peer = %connection.peer(), %error, "cannot answer a request");
            }
        });
    }
}

async fn answer_locate(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedAccess>,
    connection: &dyn Connection,
    locate: Locate,
) -> Result<(), Error> {
    let (request, began) = (locate.request, tokio::time::Instant::now());
    let refused = |status, message: String| Located::Refused { request, refusal: Refusal { status, message } };
    let located = match locate_replica(datanode, one_sided, &locate).await {
        Ok(LocateOutcome::Shown(advertisement)) => {
            datanode.replicas.metrics.note_client_activity();
            Located::Shown { request, advertisement: *advertisement }
        }
        Ok(LocateOutcome::NotShown(why)) => refused(Status::ErrorUnsupported, why.to_owned()),
        Ok(LocateOutcome::Small(reader)) => match small_bytes(&reader) {
            Ok((data, crcs)) => {
                datanode.replicas.metrics.record_read(ReadPath::OneSided, data.len() as u64, began.elapsed());
                datanode.replicas.metrics.note_client_activity();
                let replica =
                    |bytes| SmallReplica { block: reader.block().clone(), checksum: reader.checksum(), bytes };
                if data.len() + crcs.len() <= inline_max(&locate) {
                    let bytes = SmallBytes::Inline { data: data.into(), checksums: crcs.into() };
                    Located::Small { request, replica: replica(bytes) }
                } else {
                    match locate.into.and_then(|into| into.part(0, (data.len() + crcs.len()) as u64)) {
                        Some(into) => {
                            let message = Located::Small { request, replica: replica(SmallBytes::Written) };
                            return one_sided.write_small(connection, into, &data, &crcs, encode(message)).await;
                        }
                        None => refused(Status::ErrorUnsupported, "the replica is too large for an answer".to_owned()),
                    }
                }
            }
            Err(error) => refused(Status::Error, error.to_string()),
        },
        Err(error) => refused(error.status(), error.text()),
    };
    connection.send(encode(located), PEER_TIMEOUT).await
}

/// Returns the maximum number of bytes of a replica that fit into a message beside its other fields.
fn inline_max(locate: &Locate) -> usize {
    const REST: usize = 512;
    (locate.inline_bytes_max as usize).min(MESSAGE_BYTES_MAX - REST)
}

fn encode(located: Located) -> Bytes {
    let request = located.request();
    ControlMessage::Located(located).encode().unwrap_or_else(|error| {
        // Occurs only if the name of a pool is thousands of bytes long.
        let refusal = Refusal { status: Status::Error, message: error.to_string() };
        ControlMessage::Located(Located::Refused { request, refusal }).encode().expect("a short refusal fits")
    })
}

async fn locate_replica(
    datanode: &Arc<Datanode>,
    one_sided: &Arc<OneSidedAccess>,
    locate: &Locate,
) -> Result<LocateOutcome, OpError> {
    let pool = datanode.replicas.ready_pool(&locate.block.pool).await?;
    pool.tokens.check(&locate.token, &locate.block, AccessMode::Read)?;
    one_sided.advertiser.locate(&datanode.replicas.store, &locate.block).await.map_err(|error| match error {
        AdvertiseError::Store(error) => error.into(),
        AdvertiseError::Interrupted => OpError::Interrupted,
        error => OpError::Advertise(error),
    })
}
