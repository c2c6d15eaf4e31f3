//! The nouns of HDFS and pure arithmetic on them. No I/O, no async, no protobuf. All other crates use these types.

mod access;
mod acl;
mod block;
pub mod block_file;
mod calendar;
mod checksum;
mod clock;
mod crc_combine;
mod datanode;
mod file;
mod histogram;
mod located;
mod outliers;
mod range;
mod remote_slice;
mod sharded;
mod system_error;
mod token;
mod validity_record;
mod xattr;

pub use access::Access;
pub use acl::{AclChange, AclEntry, AclKey, AclScope, AclSpecError, AclStatus, AclType, effective_access, whole_acl};
pub use block::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp, ReplicaState};
pub use calendar::Calendar;
pub use checksum::{ChecksumError, ChecksumKind, ChecksumSpec, crc32c};
pub use clock::{Clock, ManualClock, SystemClock};
pub use crc_combine::CrcCombiner;
pub use datanode::{
    DatanodeAdminState, DatanodeId, DatanodeInfo, DatanodeUuid, PoolIdentity, StorageId, StorageReport, StorageType,
};
pub use file::{
    ContentSummary, FileFlags, FileKind, FileStatus, FsPermission, ServerDefaults, SnapshotShare, TypeQuota,
};
pub use histogram::{Histogram, HistogramSnapshot, RpcFigures, RpcMethodFigures};
pub use located::{LocatedAdvertisement, LocatedBlock, LocatedBlocks};
pub use outliers::{Outlier, SlowDisk, find_outliers};
pub use range::ByteRange;
pub use remote_slice::RemoteSlice;
pub use sharded::Sharded;
pub use system_error::suggested_fix;
pub use token::Token;
pub use validity_record::ValidityRecord;
pub use xattr::{Xattr, XattrSpace};
