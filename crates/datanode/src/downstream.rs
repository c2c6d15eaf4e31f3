//! This DataNode as a client of another DataNode: addresses, timeouts, connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp;
use hearth_types::DatanodeId;

use crate::datanode::Datanode;
use crate::ops::OpError;
use crate::options::TransferOptions;
use crate::session::Session;

/// Time that each further DataNode of a pipeline adds to the timeouts.
const TIMEOUT_PER_TARGET: Duration = Duration::from_secs(5);

/// Other DataNodes may have a shorter read timeout than this one.
const HEARTBEAT_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// Timeouts for the next DataNode, which in turn waits for those after it.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    pub read: Duration,
    pub write: Duration,
    /// Interval of heartbeats while waiting: half of other DataNodes' default read timeout.
    pub heartbeat: Duration,
}

impl Timeouts {
    /// `targets`: number of DataNodes from here to the end of the pipeline.
    pub fn new(options: &TransferOptions, targets: u32) -> Self {
        let more = TIMEOUT_PER_TARGET * targets.min(1000);
        let read = options.read_timeout + more;
        let heartbeat = (options.read_timeout / 2).min(HEARTBEAT_INTERVAL_MAX);
        Self { connect: read, read, write: options.write_timeout + more, heartbeat }
    }
}

/// Opens a data connection.
pub async fn connect(datanode: &Arc<Datanode>, id: &DatanodeId, timeouts: Timeouts) -> Result<Session, OpError> {
    let address = resolve(datanode, id, id.transfer_port).await?;
    let connection = tcp::connect(address, None, datanode.options.transfer.socket, timeouts.connect).await?;
    Ok(Session::new(Arc::new(connection), timeouts.write))
}

/// Resolves the address of one of a DataNode's ports: by its IP address, or by its name if so configured.
pub async fn resolve(datanode: &Datanode, id: &DatanodeId, port: u16) -> Result<SocketAddr, OpError> {
    let unresolved = || OpError::Unresolved { name: format!("{} ({}:{port})", id.host_name, id.ip) };
    if !datanode.options.use_host_names
        && let Ok(ip) = id.ip.parse::<IpAddr>()
    {
        return Ok(SocketAddr::new(ip, port));
    }
    let name = if datanode.options.use_host_names { &id.host_name } else { &id.ip };
    let mut addresses = tokio::net::lookup_host((name.as_str(), port)).await.map_err(|_| unresolved())?;
    addresses.next().ok_or_else(unresolved)
}
