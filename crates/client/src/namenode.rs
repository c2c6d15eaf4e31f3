//! Calls to the namenode, with arguments and results in the types of `hearth_types`: methods of
//! [`crate::FileSystem`], and of [`Namenode`] where other parts of the client make the call too. Protobuf messages are
//! not used outside this module.

mod admin;
pub mod administration;
mod balancing;
mod caching;
mod exceptions;
mod extended;
mod failover;
mod files;
mod listing;
mod observer;
mod open_many;
mod quotas;
mod snapshots;
mod storage_policies;
mod writing;

pub use admin::{
    BlockStatistics, DatanodeReportKind, FsUsage, HaState, OpenFile, OpenFilesKind, Page, RollingUpgrade,
    RollingUpgradeAction, SafeModeAction,
};
pub use balancing::{DatanodeStorages, PlacedBlock};
pub use caching::{CacheDirective, CacheDirectiveUsage, CacheExpiration, CachePool, CachePoolUsage};
pub use exceptions::Exception;
pub(crate) use exceptions::without_stack_trace;
pub(crate) use failover::Namenode;
pub use files::{QuotaUsage, RenameOptions};
pub use listing::Listing;
pub(crate) use observer::Observers;
pub use quotas::QuotaChange;
pub use snapshots::{SnapshotDifference, SnapshotInfo, SnapshottableDirectory};
pub use storage_policies::StoragePolicy;
pub(crate) use writing::CreateRequest;
