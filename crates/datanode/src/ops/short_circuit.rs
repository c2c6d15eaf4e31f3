//! Reads that bypass the DataNode. A client on this machine gets descriptors of a replica (87), a shared-memory segment
//! with a slot that signals when they are out of date (89), and releases the slot (88). Only over the domain socket;
//! over TCP they are refused as in Java's DataNode, and clients then read over TCP.
//! Source: datatransfer.proto, `DataXceiver` of Hadoop 3.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{Shown, StoreError};
use hearth_protocol::block_token::AccessMode;
use hearth_types::ExtendedBlock;
use hearth_wire::data_transfer::{
    BlockOpResponse, RequestShortCircuitFds, ShmResponse, ShmSlot, ShortCircuitReleaseResponse, Status,
};

use crate::datanode::Datanode;
use crate::ops::{Continuation, OpError, answer_error, text_of};
use crate::replica_service::ReplicaError;
use crate::session::Session;
use crate::slots::{SegmentGuard, SlotError, SlotGuard};

/// The only format of meta files that has ever existed.
const FORMAT_VERSION: u32 = 1;

/// Value of the byte that carries the descriptors: requests the client to confirm their receipt, or not.
const VERIFY_RECEIPT: u8 = 1;
const DO_NOT_VERIFY_RECEIPT: u8 = 0;

/// Maximum number of attempts to open a replica that changes while it is opened.
const ATTEMPTS: usize = 3;

/// Read timeout of the watch on a client's segment.
const WATCH_INTERVAL: Duration = Duration::from_secs(3600);

/// Handles REQUEST_SHORT_CIRCUIT_FDS.
pub async fn request_descriptors(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    request: RequestShortCircuitFds,
) -> Result<Continuation, OpError> {
    if !session.connection.is_unix() {
        let message = "You cannot pass file descriptors over anything but a UNIX domain socket.";
        session.send(&BlockOpResponse::error(Status::Error, message).encode()).await?;
        return Ok(Continuation::Close);
    }
    if let Err(error) = check_access(datanode, &request).await {
        answer_error(session, &error).await?;
        return Err(error);
    }
    datanode.replicas.metrics.note_client_activity();
    let (slot, shown) = match open(datanode, &request).await {
        Ok(opened) => opened,
        Err(error) => {
            log_refusal(&request.block, &error);
            session.send(&refusal(&error).encode()).await?;
            return Ok(Continuation::KeepAlive);
        }
    };
    let answer =
        BlockOpResponse { short_circuit_version: Some(FORMAT_VERSION), ..BlockOpResponse::new(Status::Success) };
    session.send(&answer.encode()).await?;
    let verify = request.supports_receipt_verification;
    let byte = if verify { VERIFY_RECEIPT } else { DO_NOT_VERIFY_RECEIPT };
    let descriptors = [shown.data.as_fd(), shown.meta.as_fd()];
    session.connection.send_with_descriptors(&[byte], &descriptors, session.write_timeout).await?;
    if verify {
        session.buffer.fill_to(&session.connection, 1, datanode.options.transfer.read_timeout).await?;
        session.buffer.consume(1);
    }
    datanode.slots.count_passed(descriptors.len() as u64);
    if let Some(slot) = slot {
        slot.keep();
    }
    Ok(Continuation::KeepAlive)
}

async fn check_access(datanode: &Arc<Datanode>, request: &RequestShortCircuitFds) -> Result<(), OpError> {
    let pool = datanode.replicas.ready_pool(&request.block.pool).await?;
    Ok(pool.tokens.check(&request.token, &request.block, AccessMode::Read)?)
}

/// Returns the replica's descriptors, and the slot that stands for them if the client named one.
async fn open(
    datanode: &Arc<Datanode>,
    request: &RequestShortCircuitFds,
) -> Result<(Option<SlotGuard>, Shown), OpenError> {
    if request.version_max < FORMAT_VERSION {
        return Err(OpenError::Version);
    }
    // Registered before the replica is opened, so that every later withdrawal reaches the slot.
    let slot = request.slot.map(|slot| datanode.slots.register(slot, &request.block)).transpose()?;
    let (block, wants_anchor) = (request.block.clone(), slot.is_some());
    let shown = datanode.replicas.run_blocking(move |store| show(store, &block, wants_anchor)).await?;
    if let Some(slot) = request.slot
        && shown.verified
    {
        datanode.slots.set_anchorable(slot);
    }
    Ok((slot, shown))
}

/// `verified`: the client would benefit from bytes that have been verified.
fn show(
    store: &hearth_blockstore::Blockstore,
    block: &ExtendedBlock,
    verified: bool,
) -> hearth_blockstore::Result<Shown> {
    for _ in 1..ATTEMPTS {
        match show_once(store, block, verified) {
            Err(StoreError::Withdrawn { .. }) => {}
            outcome => return outcome,
        }
    }
    show_once(store, block, verified)
}

fn show_once(
    store: &hearth_blockstore::Blockstore,
    block: &ExtendedBlock,
    verified: bool,
) -> hearth_blockstore::Result<Shown> {
    let reader = store.reader(block)?;
    if verified && let Err(error) = reader.verify_memory() {
        if let StoreError::Corrupt { .. } = error {
            // Checks for a good copy on disk, and drops or reports the bad one.
            store.verify(block)?;
            return store.reader(block)?.show();
        }
        return Err(error);
    }
    reader.show()
}

/// Reason why there are no descriptors.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("the replica's format has version {FORMAT_VERSION}, which the client cannot read")]
    Version,
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Replica(#[from] ReplicaError),
}

/// Clients that do not know which DataNodes have a block ask each one of their machine.
fn log_refusal(block: &ExtendedBlock, error: &OpenError) {
    let cause = error as &dyn std::error::Error;
    if matches!(error, OpenError::Replica(ReplicaError::Store(StoreError::ReplicaNotFound { .. }))) {
        tracing::debug!(%block, error = cause, "no replica for a local client");
    } else {
        tracing::info!(%block, error = cause, "cannot pass file descriptors to a local client");
    }
}

/// Builds the refusal. UNSUPPORTED with a version makes a client read this one block over TCP. Any other status keeps
/// the client from the socket for ten minutes, which is only for errors that the client causes.
fn refusal(error: &OpenError) -> BlockOpResponse {
    let status = match error {
        OpenError::Slot(SlotError::NoSlot { .. } | SlotError::InUse { .. } | SlotError::NotValid { .. }) => {
            return BlockOpResponse::error(Status::ErrorInvalid, error.to_string());
        }
        OpenError::Slot(_) | OpenError::Version | OpenError::Replica(_) => Status::ErrorUnsupported,
    };
    BlockOpResponse {
        short_circuit_version: Some(FORMAT_VERSION),
        ..BlockOpResponse::error(
            status,
            match error {
                OpenError::Replica(error) => text_of(error),
                other => other.to_string(),
            },
        )
    }
}

/// Handles RELEASE_SHORT_CIRCUIT_FDS: the client has closed the descriptors of the slot.
pub async fn release(datanode: &Arc<Datanode>, session: &Session, slot: ShmSlot) -> Result<Continuation, OpError> {
    if !session.connection.is_unix() {
        let error = Some("unsupported operation".to_owned());
        session.send(&ShortCircuitReleaseResponse { status: Status::ErrorUnsupported, error }.encode()).await?;
        return Ok(Continuation::KeepAlive);
    }
    let response = match datanode.slots.release(slot) {
        Ok(()) => ShortCircuitReleaseResponse { status: Status::Success, error: None },
        Err(error) => ShortCircuitReleaseResponse { status: Status::ErrorInvalid, error: Some(error.to_string()) },
    };
    session.send(&response.encode()).await?;
    Ok(Continuation::KeepAlive)
}

/// Handles REQUEST_SHORT_CIRCUIT_SHM: creates a segment of slots. From now on the connection keeps the segment alive.
pub async fn request_shared_memory(
    datanode: &Arc<Datanode>,
    session: &Session,
    client_name: String,
) -> Result<Continuation, OpError> {
    let refuse = |status, error: String| ShmResponse { status, error: Some(error), segment: None }.encode();
    if !session.connection.is_unix() {
        let message = "shared memory segments are available only over a UNIX domain socket".to_owned();
        session.send(&refuse(Status::ErrorInvalid, message)).await?;
        return Ok(Continuation::Close);
    }
    let peer = session.connection.peer();
    let (segment, descriptor) = match datanode.slots.create_segment(peer) {
        Ok(created) => created,
        Err(error) => {
            tracing::warn!(%peer, client_name, %error, "cannot create a shared memory segment for a local client");
            session.send(&refuse(Status::Error, error.to_string())).await?;
            return Ok(Continuation::Close);
        }
    };
    let answer = ShmResponse { status: Status::Success, error: None, segment: Some(segment.id) };
    session.send(&answer.encode()).await?;
    session.connection.send_with_descriptors(&[0], &[descriptor.as_fd()], session.write_timeout).await?;
    Ok(Continuation::WatchSegment(segment))
}

/// Keeps a segment until its client dies or closes the connection, on which no further message is sent.
pub async fn watch(session: &Session, segment: SegmentGuard) {
    let mut byte = [0; 1];
    let said = loop {
        match session.connection.read(&mut byte, WATCH_INTERVAL).await {
            Ok(bytes) => break bytes > 0 || !session.buffer.available().is_empty(),
            Err(hearth_fabric::tcp::Error::ReadTimedOut { .. }) => {}
            Err(_) => break false,
        }
    };
    if said {
        tracing::warn!(peer = %session.connection.peer(), "a client sent data on a shared memory connection; its segment is released");
    }
    drop(segment);
}
