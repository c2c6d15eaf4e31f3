//! This DataNode as a client of another DataNode: addresses, timeouts, connections, requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp;
use hearth_types::{ChecksumSpec, DatanodeId, ExtendedBlock, GenerationStamp, Token};
use hearth_wire::data_transfer::{CachingStrategy, PipelineTarget, Stage, WriteBlock};

use crate::options::{DatanodeOptions, TransferOptions};
use crate::pool::Pool;
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

/// Reason why there is no connection to a DataNode.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot resolve the address of datanode {name}")]
    Unresolved { name: String },
    #[error(transparent)]
    Connection(#[from] tcp::Error),
}

impl ConnectError {
    /// Returns true if the peer disconnected.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_disconnect())
    }
}

/// Opens a data connection.
pub async fn connect(options: &DatanodeOptions, id: &DatanodeId, timeouts: Timeouts) -> Result<Session, ConnectError> {
    let address = resolve(options, id, id.transfer_port).await?;
    let connection = tcp::connect(address, None, options.transfer.socket, timeouts.connect).await?;
    Ok(Session::new(Arc::new(connection), timeouts.write))
}

/// Resolves the address of one of a DataNode's ports: by its IP address, or by its name if so configured.
pub async fn resolve(options: &DatanodeOptions, id: &DatanodeId, port: u16) -> Result<SocketAddr, ConnectError> {
    let unresolved = || ConnectError::Unresolved { name: format!("{} ({}:{port})", id.host_name, id.ip) };
    if !options.use_host_names
        && let Ok(ip) = id.ip.parse::<IpAddr>()
    {
        return Ok(SocketAddr::new(ip, port));
    }
    let name = if options.use_host_names { &id.host_name } else { &id.ip };
    let mut addresses = tokio::net::lookup_host((name.as_str(), port)).await.map_err(|_| unresolved())?;
    addresses.next().ok_or_else(unresolved)
}

/// Builds the request to write a copy of a finalized replica to `target` alone, as ordered by a NameNode.
pub fn write_request(
    pool: &Pool,
    block: &ExtendedBlock,
    target: &PipelineTarget,
    token: Token,
    checksum: ChecksumSpec,
) -> WriteBlock {
    WriteBlock {
        block: block.clone(),
        token,
        client_name: String::new(),
        targets: Vec::new(),
        source: pool.own_datanode_info(),
        stage: Stage::PipelineSetupCreate,
        pipeline_size: 0,
        bytes_received_min: 0,
        bytes_received_max: 0,
        latest_stamp: GenerationStamp(0),
        checksum,
        caching: CachingStrategy { drop_behind: Some(true), readahead: None },
        storage_type: target.storage_type,
        storage_id: target.storage_id.clone(),
        allow_lazy_persist: false,
        pinned: target.pinned,
    }
}
