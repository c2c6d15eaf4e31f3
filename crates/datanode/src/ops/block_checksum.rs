//! BLOCK_CHECKSUM (85): one checksum for a block, computed from the CRCs of its chunks; for
//! `FileSystem.getFileChecksum`.
//! Source: datatransfer.proto, `OpBlockChecksumProto`.

use std::sync::Arc;

use hearth_blockstore::ReplicaReader;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{ByteRange, ChecksumKind, ChecksumSpec, CrcCombiner};
use hearth_wire::data_transfer::{BlockChecksum, BlockChecksumAnswer, BlockChecksumKind, BlockOpResponse, Status};
use md5::{Digest, Md5};

use crate::ops::{Continuation, OpError, answer_error};
use crate::replica_service::ReplicaService;
use crate::session::Session;

/// Data bytes whose CRCs are processed together.
const STEP_BYTES: u64 = 64 << 20;

pub async fn serve(
    replicas: &Arc<ReplicaService>,
    session: &mut Session,
    request: BlockChecksum,
) -> Result<Continuation, OpError> {
    match run(replicas, request).await {
        Ok(answer) => {
            let answer = BlockOpResponse { block_checksum: Some(answer), ..BlockOpResponse::new(Status::Success) };
            session.send(&answer.encode()).await?;
            Ok(Continuation::Close)
        }
        Err(error) => {
            answer_error(session, &error).await?;
            Err(error)
        }
    }
}

async fn run(replicas: &Arc<ReplicaService>, request: BlockChecksum) -> Result<BlockChecksumAnswer, OpError> {
    let BlockChecksum { block, token, options } = request;
    let pool = replicas.ready_pool(&block.pool).await?;
    pool.tokens.check(&token, &block, AccessMode::Read)?;
    replicas.metrics.note_client_activity();
    replicas
        .run_blocking_op(move |store| {
            let reader = store.reader(&block)?;
            let length = block.length().min(reader.visible_length());
            let spec = reader.checksum();
            let checksum = match options.kind {
                BlockChecksumKind::Md5Crc => md5_of_crcs(&reader, length)?,
                BlockChecksumKind::CompositeCrc => composite_crc(&reader, length, options.stripe_length)?,
            };
            Ok(BlockChecksumAnswer {
                bytes_per_crc: spec.bytes_per_chunk,
                crcs: if spec.kind == ChecksumKind::Null { 0 } else { spec.chunks(reader.length()) },
                checksum,
                crc_kind: Some(spec.kind),
                options: Some(options),
            })
        })
        .await
}

/// Passes the CRCs of the first `length` bytes to `take`, in steps; the CRC of a truncated last chunk is computed.
fn for_each_crcs(reader: &ReplicaReader, length: u64, mut take: impl FnMut(&[u8])) -> Result<(), OpError> {
    let spec = reader.checksum();
    let chunk = u64::from(spec.bytes_per_chunk);
    // The CRC of a chunk is stored if the replica has the whole chunk or the chunk ends with the replica.
    let stored_end = if length == reader.length() { length } else { length / chunk * chunk };
    let step = (STEP_BYTES / chunk).max(1) * chunk;
    let mut crcs = Vec::new();
    let mut offset = 0;
    while offset < stored_end {
        let end = (offset + step).min(stored_end);
        crcs.clear();
        let range =
            ByteRange::new(offset, end).ok_or(OpError::Malformed("the length for the checksum is out of range"))?;
        reader.checksums(range, &mut crcs)?;
        take(&crcs);
        offset = end;
    }
    if offset < length {
        let mut data = vec![0; (length - offset) as usize];
        reader.read_at(offset, &mut data)?;
        crcs.clear();
        spec.compute(&data, &mut crcs);
        take(&crcs);
    }
    Ok(())
}

fn md5_of_crcs(reader: &ReplicaReader, length: u64) -> Result<Vec<u8>, OpError> {
    let mut md5 = Md5::new();
    for_each_crcs(reader, length, |crcs| md5.update(crcs))?;
    Ok(md5.finalize().to_vec())
}

/// `stripe`: one CRC for each `stripe` bytes; 0 for one over all bytes.
fn composite_crc(reader: &ReplicaReader, length: u64, stripe: u64) -> Result<Vec<u8>, OpError> {
    let spec = reader.checksum();
    let mut composer = Composer::new(spec, length, stripe)?;
    for_each_crcs(reader, length, |crcs| {
        for crc in crcs.chunks_exact(4) {
            composer.add(u32::from_be_bytes([crc[0], crc[1], crc[2], crc[3]]));
        }
    })?;
    Ok(composer.finish())
}

/// Combines the CRCs of consecutive chunks.
struct Composer {
    kind: ChecksumKind,
    chunk: u64,
    whole: CrcCombiner,
    stripe: u64,
    /// Bytes not yet covered.
    left: u64,
    in_stripe: u64,
    current: u32,
    done: Vec<u8>,
}

impl Composer {
    fn new(spec: ChecksumSpec, length: u64, stripe: u64) -> Result<Self, OpError> {
        let chunk = u64::from(spec.bytes_per_chunk);
        let whole = CrcCombiner::new(spec.kind, chunk).ok_or(OpError::NoChecksums)?;
        if !stripe.is_multiple_of(chunk) {
            return Err(OpError::Malformed("the stripe length is not a multiple of the chunk size"));
        }
        Ok(Self { kind: spec.kind, chunk, whole, stripe, left: length, in_stripe: 0, current: 0, done: Vec::new() })
    }

    fn add(&mut self, crc: u32) {
        let bytes = self.chunk.min(self.left);
        let joiner = if bytes == self.chunk { Some(self.whole) } else { CrcCombiner::new(self.kind, bytes) };
        self.current = match joiner {
            Some(joiner) if self.in_stripe > 0 => joiner.join(self.current, crc),
            _ => crc,
        };
        self.left -= bytes;
        self.in_stripe += bytes;
        if self.stripe > 0 && self.in_stripe >= self.stripe {
            self.end_stripe();
        }
    }

    fn end_stripe(&mut self) {
        self.done.extend_from_slice(&self.current.to_be_bytes());
        self.in_stripe = 0;
        self.current = 0;
    }

    fn finish(mut self) -> Vec<u8> {
        if self.in_stripe > 0 || self.done.is_empty() {
            self.end_stripe();
        }
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composed_crcs_match_crcs_of_data() {
        let data: Vec<u8> = (0..5000u32).map(|i| (i * i) as u8).collect();
        let spec = ChecksumSpec::DEFAULT;
        let mut crcs = Vec::new();
        spec.compute(&data, &mut crcs);
        for stripe in [0usize, 1024, 4096] {
            let mut composer = Composer::new(spec, data.len() as u64, stripe as u64).unwrap();
            crcs.chunks(4).for_each(|crc| composer.add(u32::from_be_bytes(crc.try_into().unwrap())));
            let cells = if stripe == 0 { data.len() } else { stripe };
            let expected: Vec<u8> = data.chunks(cells).flat_map(|cell| spec.kind.of(cell).to_be_bytes()).collect();
            assert_eq!(composer.finish(), expected, "stripe {stripe}");
        }
    }
}
