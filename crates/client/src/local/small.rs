//! Replicas that are too small to be worth a descriptor, or lie in a slab, whose descriptor nobody gets: their bytes come in the
//! answer, those of many replicas in one. Only Hearth's datanodes do that.

use std::sync::Arc;

use hearth_types::{ByteRange, ExtendedBlock, LocatedBlock, Token};
use hearth_wire::data_transfer::{Operation, ReadSmall, SmallAnswer, SmallPiece, SmallRange, Status};

use super::replica::Fetched;
use super::socket::Socket;
use crate::DatanodeError;

/// Replicas up to this length are read so. Hearth's datanodes keep longer ones in files of their own.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// A small replica of a datanode that serves READ_SMALL. Nothing is open.
#[derive(Clone, Debug)]
pub(crate) struct SmallReplica {
    socket: Arc<Socket>,
    block: ExtendedBlock,
    token: Token,
    client_name: String,
}

impl SmallReplica {
    pub(super) fn new(socket: Arc<Socket>, located: &LocatedBlock, client_name: &str) -> Self {
        let (block, token) = (located.block.clone(), located.token.clone());
        Self { socket, block, token, client_name: client_name.to_owned() }
    }

    /// The chunks that `range` (within the block) touches, with their CRCs.
    pub(crate) async fn fetch(&self, range: ByteRange) -> Result<Fetched, DatanodeError> {
        let mut pieces = fetch_many(&[self], &[range]).await?;
        pieces.pop().expect("a piece for each range")
    }
}

/// As [`SmallReplica::fetch`], a range of each of `replicas`, which are all of one datanode; as many as a request takes in one
/// round trip.
///
/// Errors: for all when the datanode does not answer; for one when it refuses that.
pub(crate) async fn fetch_many(
    replicas: &[&SmallReplica],
    ranges: &[ByteRange],
) -> Result<Vec<Result<Fetched, DatanodeError>>, DatanodeError> {
    assert_eq!(replicas.len(), ranges.len(), "a range for each replica");
    let mut fetched: Vec<Result<Fetched, DatanodeError>> = Vec::with_capacity(replicas.len());
    while fetched.len() < replicas.len() {
        let done = fetched.len();
        let count = (replicas.len() - done).min(ReadSmall::RANGES_MAX);
        let wanted = replicas[done..done + count].iter().zip(&ranges[done..]);
        let range = |(replica, range): (&&SmallReplica, &ByteRange)| SmallRange {
            block: replica.block.clone(),
            token: replica.token.clone(),
            range: *range,
        };
        let request =
            ReadSmall { ranges: wanted.map(range).collect(), client_name: replicas[done].client_name.clone() };
        let socket = &replicas[done].socket;
        let asked = socket.ask(&Operation::ReadSmall(request), SmallAnswer::decode).await;
        let (answer, conversation) = asked.inspect_err(|error| socket.disable(error))?;
        let peer = conversation.connection().peer();
        socket.keep(conversation);
        // None at all is no answer, and the decoder knows it.
        if answer.pieces.len() > count {
            let what = format!("{} pieces where {count} were asked for", answer.pieces.len());
            return Err(DatanodeError::Protocol { peer, what });
        }
        for (piece, (replica, range)) in answer.pieces.into_iter().zip(replicas[done..].iter().zip(&ranges[done..])) {
            let unfit = |what: String| DatanodeError::Protocol { peer, what };
            fetched.push(take(piece, &replica.block, *range).and_then(|taken| taken.map_err(unfit)));
        }
    }
    Ok(fetched)
}

/// The outer error is the datanode's refusal; the inner one says how the piece does not fit what was asked for.
fn take(piece: SmallPiece, block: &ExtendedBlock, range: ByteRange) -> Result<Result<Fetched, String>, DatanodeError> {
    let data = match piece {
        Ok(data) => data,
        Err(refusal) if refusal.status == Status::ErrorAccessToken => {
            return Err(DatanodeError::AccessToken { block: Box::new(block.clone()) });
        }
        Err(refusal) => {
            return Err(DatanodeError::Refused {
                operation: "READ_SMALL",
                block: Box::new(block.clone()),
                status: format!("{:?}", refusal.status),
                message: refusal.message,
            });
        }
    };
    let end = data.offset.saturating_add(data.data.len() as u64);
    if data.offset > range.start() || end < range.end() || data.offset % u64::from(data.checksum.bytes_per_chunk) != 0 {
        return Ok(Err(format!("bytes {}..{end} for {}..{}", data.offset, range.start(), range.end())));
    }
    let (data, checksums, spec, start) = (data.data, data.checksums, data.checksum, data.offset);
    Ok(Ok(Fetched { start, data, checksums, spec }))
}
