//! Towards the namenodes: one actor for each, grouped by nameservice; a nameservice's namenodes share one block pool.
//!
//! An actor goes through versionRequest, storage, registration, and then heartbeats and reports for ever; when its
//! namenode forgets this datanode it begins again. Work comes with the answers to heartbeats; a namenode of Hearth's says
//! when there is some (`awaiting.rs`). It works the same with Apache's NameNode and with our own.
//! Source: DatanodeProtocol.proto.

mod actor;
mod announcing;
mod awaiting;
mod commands;
mod handshake;
mod heartbeat;
mod lifeline;
mod proxy;
mod pulse;
mod recovery;
mod reporting;
mod service;

use std::sync::Arc;

pub(crate) use handshake::SOFTWARE_VERSION;
pub use service::Services;
pub(crate) use service::{ServedNamenode, Service};

use crate::datanode::Datanode;

/// Starts an actor for each configured namenode.
pub(crate) fn start_all(datanode: &Arc<Datanode>) {
    let services: Vec<_> = datanode.options.nameservices.iter().map(|named| Arc::new(Service::new(named))).collect();
    datanode.services.set(services.clone());
    for service in services {
        for index in 0..service.namenodes.len() {
            tokio::spawn(actor::run(datanode.clone(), service.clone(), crate::pool::NamenodeIndex(index)));
        }
    }
}
