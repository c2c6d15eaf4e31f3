//! COPY_BLOCK (84): sends a whole replica to the balancer's target. Source: datatransfer.proto, `OpCopyBlockProto`.

use std::sync::Arc;

use hearth_protocol::block_token::AccessMode;
use hearth_types::{ByteRange, ExtendedBlock};
use hearth_wire::data_transfer::{BlockOpResponse, CopyBlock};

use crate::datanode::Datanode;
use crate::metrics::ReadPath;
use crate::move_permits::MovePermit;
use crate::ops::{Continuation, OpError, answer_error};
use crate::sender::PacketSender;
use crate::session::Session;

/// Bytes after the last packet: the Java char `d`.
pub const END_MARK: [u8; 2] = [0, b'd'];

/// Acquires a permit for one of the balancer's copies. `action`: the operation on the block, for the refusal.
///
/// Errors: the maximum number of copies is running.
pub fn acquire_move_permit(
    datanode: &Datanode,
    block: &ExtendedBlock,
    action: &'static str,
) -> Result<MovePermit, OpError> {
    datanode.move_permits.try_acquire().ok_or(OpError::TooManyMoves { action, block: block.id() })
}

pub async fn serve(
    datanode: &Arc<Datanode>,
    session: &mut Session,
    request: CopyBlock,
) -> Result<Continuation, OpError> {
    let began = tokio::time::Instant::now();
    let CopyBlock { block, token } = request;
    let pool = datanode.replicas.ready_pool(&block.pool).await?;
    let opened = async {
        pool.tokens.check(&token, &block, AccessMode::Copy)?;
        let place = acquire_move_permit(datanode, &block, "copy")?;
        Ok((datanode.replicas.reader(&block).await?, place))
    };
    let (reader, _place) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            answer_error(session, &error).await?;
            return Err(error);
        }
    };
    let checksum = reader.checksum();
    let options = &datanode.options.transfer;
    let sender = PacketSender {
        reader: &reader,
        disk_reads: &datanode.replicas.disk_reads,
        connection: &session.connection,
        checksum,
        transfer_to: options.transfer_to,
        packet_bytes: options.read_packet_bytes,
        write_timeout: options.write_timeout,
        client_metrics: None,
        throttle: Some(&datanode.replicas.balance_throttle),
        bypass_page_cache: true,
    };
    let all = ByteRange::with_length(0, reader.length())
        .ok_or(OpError::Malformed("the length of the replica is out of range"))?;
    sender
        .send(BlockOpResponse::read(checksum, 0).encode(), all)
        .await
        .map_err(|source| OpError::Send { block, source })?;
    session.connection.write_all(&END_MARK, options.write_timeout).await?;
    datanode.replicas.metrics.record_read(ReadPath::Copy, reader.length(), began.elapsed());
    Ok(Continuation::Close)
}
