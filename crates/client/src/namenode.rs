//! Calls to the namenode: one method per call, with arguments and results in the types of `hearth_types`. Protobuf
//! messages are not used outside this module.

mod admin;
mod exceptions;
mod extended;
mod failover;
mod files;
mod observer;
mod open_many;
mod writing;

pub use admin::{BlockStatistics, DatanodeReportKind, FsUsage, SafeModeAction};
pub use exceptions::Exception;
pub(crate) use exceptions::without_stack_trace;
pub(crate) use failover::Namenode;
pub use files::{Listing, QuotaUsage};
pub(crate) use observer::Observers;
pub(crate) use writing::CreateRequest;
