//! This datanode as the client of another one: connections, and the opening of an operation.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp;
use hearth_wire::delimited;
use hearth_wire::proto::hdfs::DatanodeIdProto;
use prost::Message;

use crate::datanode::Datanode;
use crate::ops::OpError;
use crate::options::TransferOptions;
use crate::server::DATA_TRANSFER_VERSION;
use crate::session::{Session, SessionError};

/// What each further datanode of a pipeline adds to the waits.
const WAIT_PER_TARGET: Duration = Duration::from_secs(5);

/// How long to wait for the next datanode, which waits for those behind it.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    pub connect: Duration,
    pub read: Duration,
    pub write: Duration,
}

impl Waits {
    /// `targets`: datanodes from here to the pipeline's end.
    pub fn new(options: &TransferOptions, targets: u32) -> Self {
        let more = WAIT_PER_TARGET * targets.min(1000);
        let read = options.read_timeout + more;
        Self { connect: read, read, write: options.write_timeout + more }
    }
}

/// Opens a data connection.
pub async fn connect(datanode: &Arc<Datanode>, id: &DatanodeIdProto, waits: Waits) -> Result<Session, OpError> {
    let address = resolve(datanode, id, id.xfer_port).await?;
    let connection = tcp::connect(address, None, datanode.options.transfer.socket, waits.connect).await?;
    Ok(Session::new(Arc::new(connection), datanode.options.transfer.packet_bytes_max, waits.write))
}

/// The address of one of a datanode's ports: by its IP, or by its name where the configuration wants that.
pub async fn resolve(datanode: &Datanode, id: &DatanodeIdProto, port: u32) -> Result<SocketAddr, OpError> {
    let unresolved = || OpError::Unresolved { name: format!("{} ({}:{port})", id.host_name, id.ip_addr) };
    let port = u16::try_from(port).map_err(|_| unresolved())?;
    if !datanode.options.use_host_names
        && let Ok(ip) = id.ip_addr.parse::<IpAddr>()
    {
        return Ok(SocketAddr::new(ip, port));
    }
    let name = if datanode.options.use_host_names { &id.host_name } else { &id.ip_addr };
    let mut addresses = tokio::net::lookup_host((name.as_str(), port)).await.map_err(|_| unresolved())?;
    addresses.next().ok_or_else(unresolved)
}

/// Sends version, operation code and message.
pub async fn send_operation(session: &Session, code: u8, message: &impl Message) -> Result<(), OpError> {
    let mut bytes = Vec::with_capacity(3 + 5 + message.encoded_len());
    bytes.extend_from_slice(&DATA_TRANSFER_VERSION.to_be_bytes());
    bytes.push(code);
    bytes.extend_from_slice(&delimited::to_vec(message));
    session.connection.write_all(&bytes, session.write_timeout).await.map_err(SessionError::from)?;
    Ok(())
}
