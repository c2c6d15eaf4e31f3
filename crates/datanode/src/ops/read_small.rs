//! READ_SMALL (0xA1): many short ranges in one answer, over the domain socket. Whatever is wrong with one of them is that one's
//! answer; the others are read.

use std::sync::Arc;

use hearth_blockstore::StoreError;
use hearth_protocol::block_token::AccessMode;
use hearth_wire::data_transfer::{ReadSmall, SmallAnswer, SmallData, SmallPiece, SmallRange, SmallRefusal, Status};

use crate::datanode::Datanode;
use crate::ops::{After, OpError, check_token};
use crate::session::Session;

pub async fn serve(datanode: &Arc<Datanode>, session: &Session, request: ReadSmall) -> Result<After, OpError> {
    if !session.connection.is_unix() {
        let refusal = SmallRefusal {
            status: Status::ErrorUnsupported,
            message: "short ranges are read over the domain socket only".to_owned(),
        };
        session.send(&SmallAnswer { pieces: vec![Err(refusal)] }.encode()).await?;
        return Ok(After::Close);
    }
    let mut pieces = Vec::with_capacity(request.ranges.len());
    let mut bytes = 0;
    for range in &request.ranges {
        let piece = read(datanode, range).await;
        let more = piece.as_ref().map_or(0, |read| read.data.len() + read.checksums.len());
        if bytes + more > ReadSmall::BYTES_MAX && !pieces.is_empty() {
            // The client asks again for this one and those behind it.
            break;
        }
        bytes += more;
        pieces.push(piece);
    }
    session.send(&SmallAnswer { pieces }.encode()).await?;
    Ok(After::KeepAlive)
}

async fn read(datanode: &Arc<Datanode>, range: &SmallRange) -> SmallPiece {
    try_read(datanode, range).await.map_err(|error| SmallRefusal { status: error.status(), message: error.text() })
}

async fn try_read(datanode: &Arc<Datanode>, asked: &SmallRange) -> Result<SmallData, OpError> {
    let block = &asked.block;
    let pool = datanode.ready_pool(&block.pool).await?;
    check_token(&pool, &asked.token, block, AccessMode::Read)?;
    let reader = datanode.store.reader(block)?;
    if asked.range.end() > reader.length() {
        let (block, range, length) = (reader.block().clone(), asked.range, reader.length());
        return Err(StoreError::OutOfRange { block, range, length }.into());
    }
    let checksum = reader.checksum();
    let range = asked.range.widened(checksum.bytes_per_chunk, reader.length());
    if range.length() + checksum.checksum_bytes(range.length()) > ReadSmall::BYTES_MAX as u64 {
        return Err(OpError::Malformed("a range is too long to be read with others"));
    }
    // A few KiB, most likely of memory: not worth a thread that may wait.
    let mut data = vec![0; range.length() as usize];
    reader.read_at(range.start(), &mut data)?;
    let mut checksums = Vec::new();
    reader.checksums(range, &mut checksums)?;
    datanode.load.read_bytes(range.length());
    Ok(SmallData {
        stamp: reader.block().stamp(),
        replica_length: reader.length(),
        checksum,
        offset: range.start(),
        data: data.into(),
        checksums: checksums.into(),
    })
}
