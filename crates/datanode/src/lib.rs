//! The HDFS DataNode: connects the replicas of `hearth_blockstore` to the network.
//!
//! [`Datanode::start`] opens the storage directories (`hearth_blockstore`), serves DataTransferProtocol (`server` →
//! `ops/`), answers IPC (`ipc`), and runs one actor per NameNode (`namenode/`), Apache's or Hearth's.
//!
//! ```text
//! READ_BLOCK   server → ops/read_block → sender → fabric (sendfile)
//! WRITE_BLOCK  server → ops/write_block → receiver → blockstore, and downstream; acknowledgements back
//! reports      blockstore, ops → pool → reports → namenode/reporting
//! commands     namenode/actor → namenode/commands → transfer → streams (to Hearth's DataNodes), blockstore,
//!              namenode/block_recovery
//! ```
//!
//! Floors, from the top. A file imports from lower floors, and from its neighbours where no circle results:
//!
//! ```text
//! ports, actors   start → server, one_sided_server, ipc, web, namenode/, store_events
//! operations      ops/, with the errors that peers get (ops/error)
//! state           datanode: the parts that ports, actors and operations share
//! paths           transfer, streams/, receiver/ → forward/ → peer_offers, downstream; lazy_persist, replica_recovery
//! ground          replica_service: store, pools, counters, disk reads, bandwidths
//! parts           pool, tokens, reports, sender, session, advertise, slots, cache, ... → options
//! ```

// An error ends its operation and is logged, so its detail matters more than its size.
#![allow(clippy::result_large_err)]

mod advertise;
mod block_pool_service;
mod cache;
mod data_connections;
mod datanode;
mod disk_reads;
mod downstream;
mod endpoints;
mod error;
mod forward;
mod grants;
mod groups;
mod ipc;
mod lazy_persist;
mod lifecycle;
mod locked_memory;
mod metrics;
mod move_permits;
mod namenode;
mod one_sided;
mod one_sided_server;
mod ops;
mod options;
mod outliers;
mod peer_offers;
mod pool;
mod read_ahead;
mod receiver;
mod reconfiguration;
mod replica_recovery;
mod replica_service;
mod reports;
mod reserved_space;
mod sender;
mod server;
mod session;
mod slots;
mod start;
mod store_events;
mod streams;
mod throttle;
mod tokens;
mod transfer;
mod web;
mod withdraw_hooks;
mod writers;

pub use datanode::Datanode;
pub use endpoints::Addresses;
pub use error::Error;
pub use options::{
    AnnouncementOptions, ChangeableOptions, DatanodeOptions, OneSidedOptions, RpcOptions, StreamOptions, TimingOptions,
    TransferOptions, available_memory,
};
pub use outliers::OutlierOptions;
pub use start::{EndReason, Handle};

/// Empties the memory tier that a killed DataNode left behind: writes every replica to disk and verifies it. After that
/// the storage directories can be given to Apache's DataNode. Blocks the calling thread.
///
/// `progress` is called after each batch; the work stops when it returns false.
pub fn flush_offline(
    options: &DatanodeOptions,
    progress: &mut dyn FnMut(hearth_blockstore::FlushProgress) -> bool,
) -> Result<hearth_blockstore::FlushProgress, Error> {
    Ok(hearth_blockstore::Blockstore::flush_offline(options.store.clone(), progress)?)
}
