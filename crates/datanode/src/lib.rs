//! The datanode: where replicas meet the wire.
//!
//! [`Datanode::start`] opens the storage directories (`hearth_blockstore`), serves DataTransferProtocol
//! (`server` → `ops/`), answers IPC (`ipc`), and keeps one actor for each namenode (`namenode/`), Apache's or our own.
//!
//! ```text
//! READ_BLOCK   server → ops/read_block → sender → fabric (sendfile)
//! WRITE_BLOCK  server → ops/write_block → receiver → blockstore, and downstream; acknowledgements back
//! reports      blockstore, ops → pool → reports → namenode/reporting
//! commands     namenode/actor → namenode/commands → transfer → streams (to Hearth's datanodes), blockstore, namenode/block_recovery
//! ```

// An error ends its operation and is logged: what it names is worth more than its size.
#![allow(clippy::result_large_err)]

mod advertise;
mod cache;
mod datanode;
mod disk_reads;
mod downstream;
mod error;
mod forward;
mod grants;
mod groups;
mod ipc;
mod lazy_persist;
mod locked_memory;
mod metrics;
mod namenode;
mod one_sided_server;
mod ops;
mod options;
mod peer_offers;
mod pool;
mod read_ahead;
mod receiver;
mod replica_recovery;
mod reports;
mod reserved_space;
mod sender;
mod server;
mod session;
mod slots;
mod streams;
mod throttle;
mod tokens;
mod transfer;
mod web;
mod withdraw_hooks;

pub use datanode::{Addresses, Datanode, EndReason, Handle};
pub use error::Error;
pub use one_sided_server::OneSidedOptions;
pub use options::{DatanodeOptions, RpcOptions, StreamOptions, TimingOptions, TransferOptions, available_memory};

/// Empties the memory tier that a killed datanode left: everything to disk, verified. After that its directories can be
/// given to Apache's DataNode. Blocks.
///
/// `progress` is told after each batch, and ends the work by answering false.
pub fn flush_offline(
    options: &DatanodeOptions,
    progress: &mut dyn FnMut(hearth_blockstore::FlushProgress) -> bool,
) -> Result<hearth_blockstore::FlushProgress, Error> {
    Ok(hearth_blockstore::Blockstore::flush_offline(options.store.clone(), progress)?)
}
