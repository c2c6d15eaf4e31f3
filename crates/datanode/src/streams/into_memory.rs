//! Sends a replica into another DataNode's memory, on this machine or over a network. This works like a pipeline of one
//! DataNode, with this DataNode as its writer.
//!
//! Bounds: a few replicas at once to each DataNode, and one slice of each in flight beyond the receiver's grants.

use std::io;
use std::sync::Arc;

use hearth_blockstore::ReplicaReader;
use hearth_protocol::replica_stream::{ReplicaSource, SourceData};
use hearth_types::ByteRange;
use hearth_wire::data_transfer::{PacketHeader, Status};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use super::error::CopyError;
use super::order::CopyOrder;
use super::source::{FRAME_BYTES, StreamSource};
use super::threads::CopyThreads;
use crate::downstream::{self, Timeouts};
use crate::forward::{ForwardError, Forwarding, Mirror, MirrorError, MirrorSender, PacketData, SetupAnswer};
use crate::replica_service::ReplicaService;

/// Minimum size; shorter replicas are sent by streams, which need no answer before the next one, because registering
/// memory costs more.
pub const REPLICA_BYTES_MIN: u64 = 1 << 20;

/// Result of sending a replica.
pub enum MemoryCopyOutcome {
    /// The target has it.
    Complete,
    /// The transfer began. The target has a part, or all of it without an acknowledgement: a stream resumes.
    Incomplete,
    /// There is no such path for it.
    NotSupported,
}

/// Puts a finalized replica into the memory of its target, if there is a path to it. Dropping the future ends the
/// transfer. `turn`: held until then.
///
/// Errors: those of this DataNode's own replica.
pub async fn send_replica(
    replicas: &Arc<ReplicaService>,
    forwarding: &Arc<Forwarding>,
    threads: &Arc<CopyThreads>,
    turn: OwnedSemaphorePermit,
    order: &CopyOrder,
) -> Result<MemoryCopyOutcome, CopyError> {
    let runtime = threads.start()?;
    let (replicas, forwarding, threads, order) = (replicas.clone(), forwarding.clone(), threads.clone(), order.clone());
    let carrying = async move {
        let _turn = turn;
        tokio::select! {
            carried = try_send_replica(&replicas, &forwarding, &threads, &order) => carried,
            () = replicas.lifecycle.stopping() => Err(CopyError::Interrupted),
        }
    };
    let mut running = JoinSet::new();
    running.spawn_on(carrying, &runtime);
    running.join_next().await.and_then(Result::ok).unwrap_or(Err(CopyError::Interrupted))
}

async fn try_send_replica(
    replicas: &Arc<ReplicaService>,
    forwarding: &Forwarding,
    threads: &CopyThreads,
    order: &CopyOrder,
) -> Result<MemoryCopyOutcome, CopyError> {
    let CopyOrder { pool, block, target, requested_by } = order;
    let reader = Arc::new(replicas.store.reader(block)?);
    let chunk = reader.checksum().bytes_per_chunk.max(1);
    // Each slice holds whole chunks.
    let step = u64::from(FRAME_BYTES / chunk * chunk);
    if step == 0 {
        return Ok(MemoryCopyOutcome::NotSupported);
    }
    let request = downstream::write_request(pool, block, target, pool.token_for(block, target), reader.checksum());
    let timeouts = Timeouts::new(&replicas.options.transfer, 1);
    let next = &target.datanode;
    let mirror = match forwarding.open_memory(replicas, next, request, timeouts, false).await {
        Ok(None) => return Ok(MemoryCopyOutcome::NotSupported),
        Ok(Some(SetupAnswer::Ready(mirror))) => mirror,
        Ok(Some(SetupAnswer::Refused(answer))) => {
            let (status, message) = (answer.status, answer.message.unwrap_or_default());
            tracing::info!(%block, target = %next.id, ?status, message, "the target refused a replica into its memory");
            return Ok(MemoryCopyOutcome::NotSupported);
        }
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::info!(%block, target = %next.id, error, "cannot send a replica into the target's memory");
            return Ok(MemoryCopyOutcome::NotSupported);
        }
    };
    let source = StreamSource::into_memory(replicas, reader.clone(), *requested_by);
    let sender = MirrorSender::new(&mirror);
    let last = i64::try_from(block.length().div_ceil(step)).unwrap_or(i64::MAX);
    let sending =
        async { send(&sender, source, &reader, block.length(), step).await.map_err(MemoryCopyError::Sending) };
    // Only this part is limited, not the set-up: clients' writes wait for the same connections and answers.
    let copying = async { tokio::try_join!(sending, acknowledged(mirror, last)) };
    match threads.cpu_limited(copying).await {
        Ok(_) => Ok(MemoryCopyOutcome::Complete),
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::info!(%block, target = %next.id, error, "a copy into memory failed; sending the rest by a stream");
            Ok(MemoryCopyOutcome::Incomplete)
        }
    }
}

/// Reason why a copy did not complete.
#[derive(Debug, thiserror::Error)]
enum MemoryCopyError {
    #[error("cannot send: {0}")]
    Sending(ForwardError),
    #[error("no acknowledgement")]
    Acknowledgement(#[from] MirrorError),
    #[error("the datanode answered with {0:?}")]
    Refused(Status),
}

/// Sends slices of `step` bytes downstream, and an empty one at the end.
async fn send(
    sender: &MirrorSender,
    mut source: StreamSource,
    reader: &Arc<ReplicaReader>,
    length: u64,
    step: u64,
) -> Result<(), ForwardError> {
    let (mut crcs, mut scratch) = (Vec::new(), Vec::new());
    let mut header = PacketHeader { offset: 0, seqno: 0, last: false, data_bytes: 0, sync: false };
    while header.offset < length {
        let bytes = step.min(length - header.offset);
        let range = ByteRange::with_length(header.offset, bytes).expect("lies in the replica");
        crcs.clear();
        source.checksums(range, &mut crcs).map_err(cannot_read)?;
        header.data_bytes = bytes as u32;
        let data = match source.data(range).await.map_err(cannot_read)? {
            SourceData::Bytes(bytes) => PacketData::Bytes(bytes),
            SourceData::File { .. } if reader.in_memory() => PacketData::Replica(reader),
            // A file on a disk can be truncated while it is mapped.
            SourceData::File { .. } => {
                scratch.resize(bytes as usize, 0);
                reader.read_at(range.start(), &mut scratch).map_err(|error| cannot_read(error.into()))?;
                PacketData::Bytes(&scratch)
            }
        };
        sender.send_packet(&header, &crcs, data).await?;
        // If nothing above had to wait, the whole loop would be one poll, and copies pause only between polls.
        tokio::task::yield_now().await;
        header.offset += bytes;
        header.seqno += 1;
    }
    header.data_bytes = 0;
    header.last = true;
    sender.send_packet(&header, &[], PacketData::Bytes(&[])).await
}

fn cannot_read(error: crate::sender::SendError) -> ForwardError {
    ForwardError::Read(io::Error::other(error))
}

/// Receives acknowledgements until the replica is finalized at the target.
async fn acknowledged(mut mirror: Mirror, last: i64) -> Result<(), MemoryCopyError> {
    loop {
        let ack = mirror.next_ack().await?;
        if let Some(bad) = ack.replies.iter().map(|reply| reply.status()).find(|status| *status != Status::Success) {
            return Err(MemoryCopyError::Refused(bad));
        }
        if ack.seqno == last {
            mirror.ended();
            return Ok(());
        }
    }
}
