//! Lifelines to a NameNode that is too busy to answer heartbeats, sent to a separate port.
//! Source: DatanodeProtocol.proto, `DatanodeLifelineProtocol`.

use std::sync::Arc;

use hearth_wire::proto::hdfs::DatanodeRegistrationProto;
use hearth_wire::rpc::protocols;
use tokio::time::Instant;

use super::heartbeat;
use super::proxy::Proxy;
use crate::block_pool_service::ServedNamenode;
use crate::datanode::Datanode;
use crate::pool::Pool;

/// Sends a lifeline whenever no heartbeat was answered for an interval. Never ends; the caller drops it when the
/// registration ends.
pub async fn run(
    datanode: &Arc<Datanode>,
    namenode: &ServedNamenode,
    pool: &Pool,
    registration: &DatanodeRegistrationProto,
) {
    let Some(address) = &namenode.lifeline else { return std::future::pending().await };
    let interval = datanode.options.current().timing.lifeline;
    let proxy = Proxy::for_protocol(
        datanode.rpc.clone(),
        address.clone(),
        &datanode.options.user,
        protocols::DATANODE_LIFELINE,
    );
    let mut sent = Instant::now();
    loop {
        let silent = namenode.last_contact.since_heartbeat().unwrap_or(sent.elapsed()).min(sent.elapsed());
        if silent < interval {
            tokio::time::sleep(interval - silent).await;
            continue;
        }
        sent = Instant::now();
        let request = heartbeat::request(datanode, pool, registration, false);
        match tokio::time::timeout(interval, proxy.lifeline(&request)).await {
            Ok(Ok(())) => tracing::info!(%address, "the namenode does not answer heartbeats but accepted a lifeline"),
            Ok(Err(error)) => tracing::warn!(%address, %error, "lifeline failed"),
            Err(_) => tracing::warn!(%address, "lifeline failed: no answer in time"),
        }
    }
}
