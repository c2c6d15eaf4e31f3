//! Communication with the NameNodes: one actor for each, grouped by nameservice. The NameNodes of a nameservice share
//! one block pool.
//!
//! An actor performs versionRequest, opens the storage, registers, and then sends heartbeats and reports indefinitely.
//! When its NameNode forgets this DataNode, it starts over. Commands arrive with the answers to heartbeats; Hearth's
//! NameNode also notifies the DataNode when it has some (`work_poll.rs`). Works the same with Apache's NameNode and
//! with Hearth's.
//! Source: DatanodeProtocol.proto.

mod actor;
mod announcer;
mod block_recovery;
mod commands;
mod handshake;
mod heartbeat;
mod lifeline;
mod proxy;
mod reporting;
mod work_poll;

use std::sync::Arc;

pub(crate) use handshake::SOFTWARE_VERSION;

use crate::block_pool_service::BlockPoolService;
use crate::datanode::Datanode;
use crate::pool::NamenodeIndex;

/// Starts an actor for each configured NameNode.
pub(crate) fn start_all(datanode: &Arc<Datanode>) {
    let services: Vec<_> =
        datanode.options.nameservices.iter().map(|named| Arc::new(BlockPoolService::new(named))).collect();
    datanode.services.set(services.clone());
    for service in services {
        for index in 0..service.namenodes.len() {
            tokio::spawn(actor::run(datanode.clone(), service.clone(), NamenodeIndex(index)));
        }
    }
}
