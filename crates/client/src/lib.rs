//! Rust client of HDFS. It works with Hearth's own servers and with Apache Hadoop's.
//!
//! ```no_run
//! # async fn example() -> Result<(), hearth_client::Error> {
//! use hearth_client::{CreateOptions, FileSystem};
//!
//! let fs = FileSystem::builder().url("hdfs://localhost:8020").user("ada").build()?;
//! let mut writer = fs.create("notes.txt", CreateOptions::default()).await?;
//! writer.write(b"in memory").await?;
//! writer.close().await?;
//!
//! let bytes = fs.read_bytes("notes.txt").await?;
//! assert_eq!(bytes, "in memory");
//! # Ok(()) }
//! ```
//!
//! # Entry points
//!
//! - [`FileSystem`] has every operation of HDFS. [`FileSystem::builder`] makes one, from the environment as Hadoop's
//!   clients do ([`FileSystemBuilder::from_env`]) or from settings in code.
//! - [`Reader`] reads a file: as a stream without copies ([`Reader::next`]), at any position by many tasks
//!   ([`Reader::read_at`]), or in place in the memory of a local DataNode ([`Reader::view`]).
//!   [`Reader::into_async_read`] gives tokio's traits, and [`Reader::into_stream`] a stream of [`Bytes`].
//! - [`Writer`] writes a file: [`Writer::write`], or [`Writer::space`] without a copy. [`Writer::into_async_write`]
//!   gives tokio's trait.
//! - [`WebFileSystem`] does the same over HTTP (WebHDFS).
//! - [`LocalBlocks`] reads single blocks of DataNodes on this machine, for other HDFS clients.
//! - `HdfsObjectStore`, with the feature `object_store`, implements the trait of the crate
//!   [object_store](https://docs.rs/object_store), so that DataFusion, Delta Lake and others can use HDFS.
//!
//! Every call needs a tokio runtime with its I/O and time drivers enabled. [`process::runtime`] is one for programs that
//! have none.
//!
//! # Errors
//!
//! Every call returns [`Error`]. [`Error::kind`] gives a category, and [`Error::is_retryable`] tells whether the same
//! call may succeed later. `Error` converts to [`std::io::Error`].
//!
//! # Cancel safety
//!
//! Every future of this crate may be dropped at any time, for example by a time-out. A call that changes the file system
//! may then have taken effect. The calls that keep a position say what a dropped future leaves behind.
//!
//! # Features
//!
//! - `object_store` (off by default): the module `object_store`.
//! - `opentelemetry` (off by default): [`trace`] has an effect.

#![deny(missing_docs)]

mod arguments;
mod async_io;
mod backoff;
mod balancing;
mod builder;
mod checksum;
mod checksummed;
mod contents;
mod copy;
mod data_path;
mod datanode;
mod error;
mod file_system;
pub mod from_env;
mod lease;
mod local_blocks;
mod multiplexed;
mod namenode;
#[cfg(feature = "object_store")]
pub mod object_store;
mod one_sided;
mod options;
mod path;
pub mod process;
mod read;
mod resolve;
mod retry_notices;
mod session;
mod short_circuit;
mod single_flight;
mod statistics;
pub mod trace;
mod user;
mod webhdfs;
mod write;

pub use arguments::MkdirsOptions;
pub use async_io::{AsyncReader, AsyncWriter, ByteStream};
pub use balancing::{ReplicaMove, ReplicaMover};
pub use builder::{FileSystemBuilder, WebFileSystemBuilder};
pub use bytes::Bytes;
pub use checksum::FileChecksum;
pub use data_path::DataPath;
pub(crate) use error::DatanodeError;
pub use error::{Error, ErrorKind};
pub use file_system::FileSystem;
pub use hearth_config::{ConfigError, Configuration, Environment};
pub use hearth_types::{
    Access, AclChange, AclEntry, AclScope, AclSpecError, AclStatus, AclType, Block, BlockId, BlockPoolId, ByteRange,
    ChecksumError, ChecksumKind, ContentSummary, DatanodeAdminState, DatanodeId, DatanodeInfo, DatanodeUuid,
    ExtendedBlock, FileFlags, FileKind, FileStatus, FsPermission, GenerationStamp, LocatedAdvertisement, LocatedBlock,
    LocatedBlocks, RemoteSlice, ServerDefaults, SnapshotShare, StorageId, StorageReport, StorageType, Token, TypeQuota,
    Xattr, XattrSpace,
};
pub use local_blocks::{LocalBlock, LocalBlocks};
pub use namenode::administration::{
    Administration, DatanodeDescription, HaStatus, HaTransition, Reconfiguration, ReconfiguredKey, RefreshAnswer,
    ServerKind, VolumeDescription,
};
pub use namenode::{
    BlockStatistics, CacheDirective, CacheDirectiveUsage, CacheExpiration, CachePool, CachePoolUsage,
    DatanodeReportKind, DatanodeStorages, Exception, FsUsage, HaState, Listing, OpenFile, OpenFilesKind, Page,
    PlacedBlock, QuotaChange, QuotaUsage, RenameOptions, RollingUpgrade, RollingUpgradeAction, SafeModeAction,
    SnapshotDifference, SnapshotInfo, SnapshottableDirectory, StoragePolicy,
};
#[cfg(feature = "object_store")]
pub use object_store::HdfsObjectStore;
pub use options::ChecksumCombine;
pub use read::{PositionedReader, Reader, View, ViewChecks};
pub use statistics::{ReadStatistics, Statistics};
pub use user::os_user_name;
pub use webhdfs::{WebFileSystem, WebReader, WebWriter};
pub use write::{CreateOptions, FlushOptions, ForeignFile, PendingFlush, Writer};
