//! Towards the namenodes: one actor for each, grouped by nameservice; a nameservice's namenodes share one block pool.
//!
//! An actor goes through versionRequest, storage, registration, and then heartbeats and reports for ever; when its
//! namenode forgets this datanode it begins again. Work comes with the answers to heartbeats; a namenode of Hearth's says
//! when there is some (`work_poll.rs`). It works the same with Apache's NameNode and with our own.
//! Source: DatanodeProtocol.proto.

mod actor;
mod announcer;
mod block_pool_service;
mod block_recovery;
mod commands;
mod handshake;
mod heartbeat;
mod last_contact;
mod lifeline;
mod proxy;
mod reporting;
mod work_poll;

use std::sync::Arc;

pub use block_pool_service::BlockPoolServices;
pub(crate) use block_pool_service::{BlockPoolService, ServedNamenode};
pub(crate) use handshake::SOFTWARE_VERSION;

use crate::datanode::Datanode;

/// Starts an actor for each configured namenode.
pub(crate) fn start_all(datanode: &Arc<Datanode>) {
    let services: Vec<_> =
        datanode.options.nameservices.iter().map(|named| Arc::new(BlockPoolService::new(named))).collect();
    datanode.services.set(services.clone());
    for service in services {
        for index in 0..service.namenodes.len() {
            tokio::spawn(actor::run(datanode.clone(), service.clone(), crate::pool::NamenodeIndex(index)));
        }
    }
}
