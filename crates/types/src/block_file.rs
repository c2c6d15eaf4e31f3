//! On-disk format of Apache HDFS replicas: file names, directories, meta-file header, `VERSION` files. This module only
//! computes and parses; the owner of the directories does the I/O.
//!
//! ```text
//! <volume>/in_use.lock
//! <volume>/current/VERSION                                   StorageVersion
//! <volume>/current/<pool>/current/VERSION                    PoolVersion
//! <volume>/current/<pool>/current/finalized/subdir<A>/subdir<B>/blk_<id>
//! <volume>/current/<pool>/current/finalized/subdir<A>/subdir<B>/blk_<id>_<stamp>.meta
//! <volume>/current/<pool>/current/rbw/...                    being written
//! <volume>/current/<pool>/tmp/...                            temporary, dropped at start
//! ```
//! Source: layout version -57 of the DataNode (Hadoop 3.3 to 3.5).

mod meta;
mod names;
mod properties;
mod version;

pub use meta::{META_HEADER_BYTES, META_VERSION, decode_meta_header, meta_file_bytes};
pub use names::{ReplicaFile, block_file_name, finalized_subdirectory, meta_file_name};
pub use properties::{parse_properties, print_properties};
pub use version::{DATANODE_LAYOUT_VERSION, PoolVersion, StorageVersion};

/// Errors in a file of a storage directory. The caller adds the path.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockFileError {
    #[error("meta file of {bytes} bytes is shorter than its header of {META_HEADER_BYTES}")]
    MetaTooShort { bytes: usize },
    #[error("meta file version {found}, only {META_VERSION} is known")]
    MetaVersion { found: u16 },
    #[error("meta file with unknown checksum kind {found}")]
    ChecksumKind { found: u8 },
    #[error("meta file with {found} bytes per chunk")]
    BytesPerChunk { found: u32 },
    #[error("properties line {line}: {why}")]
    Properties { line: usize, why: &'static str },
    #[error("VERSION file lacks {key}")]
    MissingKey { key: &'static str },
    #[error("VERSION file: {key} is {value:?}, which is not {expected}")]
    BadValue { key: &'static str, value: String, expected: &'static str },
}
