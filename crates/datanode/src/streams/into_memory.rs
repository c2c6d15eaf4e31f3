//! A replica on its way into another datanode's memory, on this machine or over a network: that is a pipeline of one, and this
//! datanode its writer.
//!
//! Bounds: a few replicas at once to each datanode, a slice of each under way beyond what the receiver has granted.

use std::io;
use std::sync::Arc;

use hearth_blockstore::ReplicaReader;
use hearth_protocol::replica_stream::{ReplicaSource, SourceData};
use hearth_types::{ByteRange, ExtendedBlock};
use hearth_wire::data_transfer::{PacketHeader, PipelineTarget, Status};
use tokio::task::JoinSet;

use super::source::StreamSource;
use super::{FRAME_BYTES, Order};
use crate::datanode::Datanode;
use crate::downstream::Waits;
use crate::forward::{self, Data, Mirror, MirrorError, Opened, SendError, Way};
use crate::ops::OpError;
use crate::pool::Pool;
use crate::transfer;

/// Shorter ones go by streams, which need no answer before the next: registering memory costs more than they do.
const BYTES_MIN: u64 = 1 << 20;

/// What became of a replica.
pub enum Carried {
    /// The target has it.
    Whole,
    /// It began. The target has a part of it, or all of it and could not say so: a stream goes on.
    Broke,
    /// There is no such way for it.
    NotThisWay,
}

/// Has a finalized replica put into the memory of `target`, if there is a way to that. Dropped, it ends.
///
/// Errors: those of this datanode's own replica.
pub async fn carry(
    datanode: &Arc<Datanode>,
    pool: &Arc<Pool>,
    block: &ExtendedBlock,
    target: &PipelineTarget,
    order: Order,
) -> Result<Carried, OpError> {
    // Most targets of a cluster are elsewhere: they cost neither a turn nor an open replica.
    let may_lead = datanode.one_sided.is_some() || datanode.local_forwarding.leads_to(datanode, &target.datanode.id);
    if !may_lead || !datanode.streams.are_on() || block.length() < BYTES_MIN {
        return Ok(Carried::NotThisWay);
    }
    let turn = datanode.streams.peers.memory_turn(&target.datanode.id, order).await;
    let (here, pool, block, target) = (datanode.clone(), pool.clone(), block.clone(), target.clone());
    let carrying = async move {
        let _turn = turn;
        tokio::select! {
            carried = try_to_carry(&here, &pool, &block, &target, order) => carried,
            () = here.stopping() => Err(OpError::Interrupted),
        }
    };
    let mut running = JoinSet::new();
    running.spawn_on(carrying, &datanode.streams.threads.start()?);
    running.join_next().await.and_then(Result::ok).unwrap_or(Err(OpError::Interrupted))
}

async fn try_to_carry(
    datanode: &Arc<Datanode>,
    pool: &Pool,
    block: &ExtendedBlock,
    target: &PipelineTarget,
    order: Order,
) -> Result<Carried, OpError> {
    let reader = Arc::new(datanode.store.reader(block)?);
    let chunk = reader.checksum().bytes_per_chunk.max(1);
    // Whole chunks in each slice.
    let step = u64::from(FRAME_BYTES / chunk * chunk);
    if step == 0 {
        return Ok(Carried::NotThisWay);
    }
    let request = transfer::write_request(pool, block, target, pool.token_for(block, target), reader.checksum());
    let waits = Waits::new(&datanode.options.transfer, 1);
    let next = &target.datanode;
    let mirror = match forward::into_memory(datanode, next, request, waits, false).await {
        Ok(None) => return Ok(Carried::NotThisWay),
        Ok(Some(Opened::Ready(mirror))) => mirror,
        Ok(Some(Opened::Refused(answer))) => {
            let (status, message) = (answer.status, answer.message.unwrap_or_default());
            tracing::info!(%block, target = %next.id, ?status, message, "a replica is not taken into memory");
            return Ok(Carried::NotThisWay);
        }
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::info!(%block, target = %next.id, error, "no way into memory for a replica");
            return Ok(Carried::NotThisWay);
        }
    };
    let source = StreamSource::into_memory(datanode, reader.clone(), order);
    let sender = Way::new(&mirror);
    let last = i64::try_from(block.length().div_ceil(step)).unwrap_or(i64::MAX);
    let sending = async { send(&sender, source, &reader, block.length(), step).await.map_err(Broken::Sending) };
    // Not what came before: clients' writes wait for the same connections and answers.
    let copying = async { tokio::try_join!(sending, acknowledged(mirror, last)) };
    match datanode.streams.threads.paced(copying).await {
        Ok(_) => Ok(Carried::Whole),
        Err(why) => {
            tracing::info!(%block, target = %next.id, %why, "a copy into memory broke: the rest goes by a stream");
            Ok(Carried::Broke)
        }
    }
}

/// Why a copy did not get to its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("sending: {0}")]
    Sending(SendError),
    #[error("waiting for acknowledgements: {0}")]
    Acknowledgement(#[from] MirrorError),
    #[error("the datanode answered with {0:?}")]
    Refused(Status),
}

/// Down: slices of `step` bytes, and an empty one that ends it.
async fn send(
    sender: &Way,
    mut source: StreamSource,
    reader: &Arc<ReplicaReader>,
    length: u64,
    step: u64,
) -> Result<(), SendError> {
    let (mut crcs, mut scratch) = (Vec::new(), Vec::new());
    let mut header = PacketHeader { offset: 0, seqno: 0, last: false, data_bytes: 0, sync: false };
    while header.offset < length {
        let bytes = step.min(length - header.offset);
        let range = ByteRange::with_length(header.offset, bytes).expect("lies in the replica");
        crcs.clear();
        source.checksums(range, &mut crcs).map_err(cannot_read)?;
        header.data_bytes = bytes as u32;
        let data = match source.data(range).await.map_err(cannot_read)? {
            SourceData::Bytes(bytes) => Data::Bytes(bytes),
            SourceData::File { .. } if reader.in_memory() => Data::Replica(reader),
            // A file on a disk can be cut under its mapping.
            SourceData::File { .. } => {
                scratch.resize(bytes as usize, 0);
                reader.read_at(range.start(), &mut scratch).map_err(|error| cannot_read(error.into()))?;
                Data::Bytes(&scratch)
            }
        };
        sender.send_packet(&header, &crcs, data).await?;
        // Where nothing of that had to wait, it is all one poll, and copies rest between polls only.
        tokio::task::yield_now().await;
        header.offset += bytes;
        header.seqno += 1;
    }
    header.data_bytes = 0;
    header.last = true;
    sender.send_packet(&header, &[], Data::Bytes(&[])).await
}

fn cannot_read(error: crate::sender::SendError) -> SendError {
    SendError::Read(io::Error::other(error))
}

/// Up: until the replica is finalized over there.
async fn acknowledged(mut mirror: Mirror, last: i64) -> Result<(), Broken> {
    loop {
        let ack = mirror.next_ack().await?;
        if let Some(bad) = ack.replies.iter().map(|reply| reply.status()).find(|status| *status != Status::Success) {
            return Err(Broken::Refused(bad));
        }
        if ack.seqno == last {
            mirror.ended();
            return Ok(());
        }
    }
}
