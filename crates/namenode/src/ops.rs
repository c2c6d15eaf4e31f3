//! The operations of ClientNamenodeProtocol, one per file: decode → check → act → answer.
//!
//! Each is a function of the NameNode, the call's [`CallContext`](crate::state::CallContext) and the request message;
//! it returns the encoded answer or the exception. The function for its audit line stands beside it ([`audited`]). Small administrative calls, and unsupported ones, share a file.

pub mod abandon_block;
pub mod acl;
pub mod add_block;
pub mod append;
pub mod audited;
pub mod caching;
pub mod check_access;
pub mod cluster;
pub mod complete;
pub mod concat;
pub mod content_summary;
pub mod create;
pub mod delegation_tokens;
pub mod delete;
pub mod file_info;
pub mod fsync;
pub mod get_additional_datanode;
pub mod get_block_locations;
pub mod lease;
pub mod listing;
mod located;
pub mod maintenance;
pub mod mkdirs;
pub mod open_many;
pub mod rename;
pub mod safe_mode;
pub mod server_defaults;
pub mod set_attributes;
pub mod set_quota;
pub mod snapshot_diff;
pub mod snapshots;
mod status;
pub mod storage_policy;
pub mod synchronize_block;
pub mod truncate;
pub mod unsupported;
pub mod update_pipeline;
mod writing;
pub mod xattrs;
