//! READ_BLOCK (81): sends packets of a replica to a client, and receives its status. Source: datatransfer.proto.

use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{ReplicaReader, StoreError};
use hearth_protocol::block_token::AccessMode;
use hearth_types::{ByteRange, ChecksumKind, ChecksumSpec, ReplicaState};
use hearth_wire::data_transfer::{BlockOpResponse, ReadBlock, Status, client_read_status};

use crate::metrics::ReadPath;
use crate::ops::{Continuation, OpError, answer_error};
use crate::replica_service::ReplicaService;
use crate::sender::PacketSender;
use crate::session::Session;

/// Time that a read of a replica being written waits for bytes that have not arrived yet. Hadoop's value.
const BYTES_TIMEOUT: Duration = Duration::from_secs(3);
const BYTES_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Length from which the kernel is advised to read ahead on disk.
const LONG_READ_BYTES: u64 = 512 << 10;

pub async fn serve(
    replicas: &Arc<ReplicaService>,
    session: &mut Session,
    request: ReadBlock,
) -> Result<Continuation, OpError> {
    let began = tokio::time::Instant::now();
    let (mut reader, range) = match open(replicas, &request).await {
        Ok(opened) => opened,
        Err(error) => {
            answer_error(session, &error).await?;
            return Err(error);
        }
    };
    if range.length() >= LONG_READ_BYTES {
        reader.read_ahead();
    }
    let checksum = if request.send_checksums {
        reader.checksum()
    } else {
        ChecksumSpec { kind: ChecksumKind::Null, ..reader.checksum() }
    };
    let options = &replicas.options.transfer;
    let sender = PacketSender {
        reader: &reader,
        disk_reads: &replicas.disk_reads,
        connection: &session.connection,
        checksum,
        transfer_to: options.transfer_to,
        packet_bytes: options.read_packet_bytes,
        write_timeout: options.write_timeout,
        throttle: None,
        client_metrics: Some(&replicas.metrics),
        bypass_page_cache: false,
    };
    let sent = sender.send(BlockOpResponse::read(checksum, range.start()).encode(), range).await;
    sent.map_err(|source| OpError::Send { block: request.block, source })?;
    replicas.metrics.record_read(ReadPath::Packets, range.length(), began.elapsed());

    // A client that stops early closes the connection; one that received all bytes reports if the CRCs were correct.
    match session.receive_message(client_read_status, options.read_timeout).await? {
        Status::Success | Status::ChecksumOk => Ok(Continuation::KeepAlive),
        _ => Ok(Continuation::Close),
    }
}

/// Opens the replica and determines the bytes to send: the requested range, widened to whole chunks.
async fn open(replicas: &Arc<ReplicaService>, request: &ReadBlock) -> Result<(ReplicaReader, ByteRange), OpError> {
    let block = &request.block;
    let pool = replicas.ready_pool(&block.pool).await?;
    pool.tokens.check(&request.token, block, AccessMode::Read)?;

    let mut reader = replicas.reader(block).await?;
    let asked_end = request.length.map(|length| request.offset.saturating_add(length));
    if reader.state() == ReplicaState::BeingWritten
        && let Some(end) = asked_end
    {
        let deadline = tokio::time::Instant::now() + BYTES_TIMEOUT;
        while reader.length() < end && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(BYTES_POLL_INTERVAL).await;
            reader = replicas.reader(block).await?;
        }
    }
    let end = asked_end.unwrap_or_else(|| reader.visible_length());
    let range = ByteRange::new(request.offset, end)
        .ok_or(OpError::Malformed("the offset is beyond the end of the requested range"))?;
    if end > reader.length() {
        let error = StoreError::OutOfRange { block: reader.block().clone(), range, length: reader.length() };
        return Err(error.into());
    }
    let widened = range.widened(reader.checksum().bytes_per_chunk, reader.length());
    Ok((reader, widened))
}
