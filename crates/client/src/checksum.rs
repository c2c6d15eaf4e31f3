//! Checksums of whole files, combined from those of their blocks as Hadoop's clients do, so that two files can be
//! compared without reading them, also across clusters.

use std::fmt;
use std::sync::Arc;

use hearth_types::{ChecksumKind, CrcCombiner, LocatedBlock};
use hearth_wire::data_transfer::{
    BlockChecksum, BlockChecksumAnswer, BlockChecksumKind, BlockChecksumOptions, Operation,
};
use md5::{Digest, Md5};

use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;
use crate::options::ChecksumCombine;
use crate::session::Session;

/// Checksum of a file, or of its first bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileChecksum {
    /// The MD5 of the MD5s of each block's CRCs. Two files of equal content have equal checksums only if bytes per CRC,
    /// CRC type and block boundaries are also equal.
    Md5 {
        /// Bytes that each CRC covers.
        bytes_per_crc: u32,
        /// CRCs per block; 0 for a file of one block.
        crcs_per_block: u64,
        /// Kind of the CRCs.
        crc_kind: ChecksumKind,
        /// MD5 of the MD5s.
        md5: [u8; 16],
    },
    /// The CRC of the file's bytes.
    Composite {
        /// Kind of the CRC.
        crc_kind: ChecksumKind,
        /// Value of the CRC.
        crc: u32,
    },
}

fn name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::Null => "NULL",
        ChecksumKind::Crc32 => "CRC32",
        ChecksumKind::Crc32c => "CRC32C",
    }
}

impl FileChecksum {
    /// Returns the algorithm's name, such as `MD5-of-262144MD5-of-512CRC32C` or `COMPOSITE-CRC32C`.
    pub fn algorithm(&self) -> String {
        match self {
            Self::Md5 { bytes_per_crc, crcs_per_block, crc_kind, .. } => {
                format!("MD5-of-{crcs_per_block}MD5-of-{bytes_per_crc}{}", name(*crc_kind))
            }
            Self::Composite { crc_kind, .. } => format!("COMPOSITE-{}", name(*crc_kind)),
        }
    }

    /// Returns the bytes as `FileSystem.getFileChecksum` serializes them: bytes per CRC, CRCs per block and MD5, or the
    /// CRC.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Md5 { bytes_per_crc, crcs_per_block, md5, .. } => {
                [&bytes_per_crc.to_be_bytes()[..], &crcs_per_block.to_be_bytes(), md5].concat()
            }
            Self::Composite { crc, .. } => crc.to_be_bytes().to_vec(),
        }
    }
}

impl fmt::Display for FileChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.algorithm())?;
        f.write_str(":")?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// MD5s of the blocks, in a buffer that grows as Java's does. Hadoop digests the whole buffer, including its unused
/// zeros.
#[derive(Debug)]
struct Digests {
    bytes: Vec<u8>,
    filled: usize,
}

impl Digests {
    fn new() -> Self {
        Self { bytes: vec![0; 32], filled: 0 }
    }

    fn push(&mut self, digest: &[u8]) {
        let end = self.filled + digest.len();
        if end > self.bytes.len() {
            let length = (self.bytes.len() * 2).max(end);
            self.bytes.resize(length, 0);
        }
        self.bytes[self.filled..end].copy_from_slice(digest);
        self.filled = end;
    }

    fn md5(&self) -> [u8; 16] {
        Md5::digest(&self.bytes).into()
    }
}

/// Checksum of the blocks processed so far.
enum Combined {
    Md5(Digests),
    Crc(u32),
}

impl FileSystem {
    /// Returns the checksum of the file's first `length` bytes, or of the whole file if `None`. It is combined from the
    /// checksums of the blocks, as in Hadoop's clients.
    pub async fn checksum(&self, path: &str, length: Option<u64>) -> Result<FileChecksum, Error> {
        file_checksum(&self.session, &self.absolute(path)?, length).await
    }
}

async fn file_checksum(session: &Session, path: &str, length: Option<u64>) -> Result<FileChecksum, Error> {
    let whole = length.unwrap_or(u64::MAX >> 1);
    let located = session.namenode.block_locations(path, 0, whole).await?;
    if located.under_construction {
        let why = "Fail to get checksum, since file is under construction.";
        return Err(Failure::InvalidPath { path: path.to_owned(), why }.into());
    }
    let combine = session.options.checksum_combine;
    let mut combined = match combine {
        // For a file without blocks, Hadoop always returns this checksum, whatever the requested kind.
        ChecksumCombine::CompositeCrc if !located.blocks.is_empty() => Combined::Crc(0),
        _ => Combined::Md5(Digests::new()),
    };
    let mut found: Option<(u32, ChecksumKind)> = None;
    let mut crcs_per_block = 0;
    let mut left = whole.min(located.file_length);
    let several = located.blocks.len() > 1;
    for (index, mut block) in located.blocks.into_iter().enumerate() {
        if left == 0 {
            break;
        }
        let counted = block.block.length().min(left);
        block.block.block.length = counted;
        left -= counted;
        let answer = block_checksum(session, path, &block, combine).await?;
        let kind = answer.crc_kind.unwrap_or(ChecksumKind::Crc32);
        match found {
            None => found = Some((answer.bytes_per_crc, kind)),
            Some(first) if first == (answer.bytes_per_crc, kind) => {}
            Some(_) => {
                let why = "its blocks have different kinds of checksums, which cannot be combined";
                return Err(Failure::InvalidPath { path: path.to_owned(), why }.into());
            }
        }
        if index == 0 && several {
            crcs_per_block = answer.crcs;
        }
        match &mut combined {
            Combined::Md5(digests) => digests.push(&answer.checksum),
            Combined::Crc(crc) => {
                let Ok(next) = <[u8; 4]>::try_from(answer.checksum).map(u32::from_be_bytes) else {
                    let why = "a DataNode gave several CRCs for one block";
                    return Err(Failure::InvalidPath { path: path.to_owned(), why }.into());
                };
                let Some(joiner) = CrcCombiner::new(kind, counted) else {
                    let why = "its blocks have no CRCs to combine";
                    return Err(Failure::InvalidPath { path: path.to_owned(), why }.into());
                };
                *crc = if index == 0 { next } else { joiner.join(*crc, next) };
            }
        }
    }
    let (bytes_per_crc, crc_kind) = found.unwrap_or((0, ChecksumKind::Crc32));
    Ok(match combined {
        Combined::Md5(digests) => FileChecksum::Md5 { bytes_per_crc, crcs_per_block, crc_kind, md5: digests.md5() },
        Combined::Crc(crc) => FileChecksum::Composite { crc_kind, crc },
    })
}

/// Returns the first successful answer of the block's datanodes.
async fn block_checksum(
    session: &Session,
    path: &str,
    block: &LocatedBlock,
    combine: ChecksumCombine,
) -> Result<BlockChecksumAnswer, Error> {
    let (kind, bytes, missing) = match combine {
        ChecksumCombine::Md5Md5Crc => (BlockChecksumKind::Md5Crc, 16, "no MD5 in its answer"),
        ChecksumCombine::CompositeCrc => (BlockChecksumKind::CompositeCrc, 4, "no CRC of the block in its answer"),
    };
    let operation = Operation::BlockChecksum(BlockChecksum {
        block: block.block.clone(),
        token: block.token.clone(),
        options: BlockChecksumOptions { kind, stripe_length: 0 },
    });
    let timeouts = session.datanodes.options.pipeline_timeouts(block.locations.len());
    let mut last = None;
    for datanode in &block.locations {
        let answer = async {
            let mut peer = session.datanodes.request(&datanode.id, &operation, timeouts).await?;
            let address = peer.receiver.peer();
            let response = peer.accepted("BLOCK_CHECKSUM", &block.block).await?;
            match response.block_checksum {
                Some(answer) if answer.checksum.len() == bytes => Ok(answer),
                _ => Err(crate::DatanodeError::Protocol { peer: address, what: missing.to_owned() }),
            }
        };
        match answer.await {
            Ok(answer) => return Ok(answer),
            Err(error) => {
                tracing::info!(
                    path, block = %block.block, datanode = %datanode.id, %error,
                    "checksum request failed, trying the next replica"
                );
                last = Some(Arc::new(error));
            }
        }
    }
    Err(Failure::BlockMissing { block: Box::new(block.block.clone()), path: path.to_owned(), source: last }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_blocks_has_hadoops_traditional_checksum() {
        let md5 = Digests::new().md5();
        let checksum = FileChecksum::Md5 { bytes_per_crc: 0, crcs_per_block: 0, crc_kind: ChecksumKind::Crc32, md5 };
        assert_eq!(
            checksum.to_string(),
            "MD5-of-0MD5-of-0CRC32:00000000000000000000000070bc8f4b72a86921468bf8e8441dce51"
        );
    }

    #[test]
    fn digests_keep_the_zeros_of_a_buffer_that_doubles() {
        let mut digests = Digests::new();
        for _ in 0..3 {
            digests.push(&[7; 16]);
        }
        assert_eq!((digests.bytes.len(), digests.filled), (64, 48));
    }
}
