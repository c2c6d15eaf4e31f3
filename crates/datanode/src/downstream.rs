//! This datanode as the client of another one: addresses, timeouts, connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp;
use hearth_types::DatanodeId;

use crate::datanode::Datanode;
use crate::ops::OpError;
use crate::options::TransferOptions;
use crate::session::Session;

/// What each further datanode of a pipeline adds to the waits.
const TIMEOUT_PER_TARGET: Duration = Duration::from_secs(5);

/// Other datanodes may bear less silence than this one.
const HEARTBEAT_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// How long to wait for the next datanode, which waits for those behind it.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    pub read: Duration,
    pub write: Duration,
    /// How often we say that we are there while we wait: twice within what other datanodes bear of silence by default.
    pub heartbeat: Duration,
}

impl Timeouts {
    /// `targets`: datanodes from here to the pipeline's end.
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

/// The address of one of a datanode's ports: by its IP, or by its name where the configuration wants that.
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
