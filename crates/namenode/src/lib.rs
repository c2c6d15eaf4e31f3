//! The embedded NameNode: namespace, leases, block map, and the store that makes every change durable before it is
//! acknowledged.
//!
//! `service` decodes a call and passes it to one file of `ops`. That takes the one lock (`state`), checks, changes
//! `namespace`, `leases` and `blocks` in memory, and hands the list of changes to `store`, whose single thread commits
//! many operations at a time. The answer is sent when the commit is on disk.

pub mod audit;
pub mod block_tokens;
pub mod blocks;
pub mod caching;
pub mod changes;
pub mod datanode_service;
mod date;
mod dense_map;
pub mod error;
pub mod fsck;
pub mod groups;
pub mod image;
mod jmx;
pub mod leases;
pub mod memory;
mod metasave;
mod metrics;
mod monitors;
pub mod namespace;
pub mod ops;
mod packed;
mod parallel;
pub mod proxy_users;
mod reconfiguration;
pub mod retries;
mod round_robin;
pub mod service;
pub mod settings;
pub mod slow_nodes;
pub mod start;
pub mod state;
pub mod store;
pub mod top_users;
pub mod trash;
mod web;

pub use error::Error;
pub use start::{
    FormatPolicy, Handle, NamenodeOptions, StartError, format_directory, import_directory, recover_directory,
};
pub use state::{Namenode, State};
pub use store::RecoveryReport;
