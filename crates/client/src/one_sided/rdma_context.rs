//! The transport of one-sided operations: connections over it, and this client's memory in it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hearth_fabric::one_sided::{Access, Connection, Domain, Error, Limits, Region, Transport};
use hearth_protocol::one_sided_write::{WriteBuffers, WriterConnectionPool};
use hearth_types::DatanodeId;
use hearth_wire::offer::Offer;
use hearth_wire::rdma_control::{VERSION, decode_acceptance};
use parking_lot::Mutex;

use super::buffer_pool::BufferPool;
use super::crc_tables::{CrcTables, TABLES_BYTES_MAX};
use crate::DatanodeError;
use crate::datanode::Datanodes;
use crate::options::OneSidedOptions;

/// Room for the largest small replica with its CRCs.
pub(super) const SMALL_BYTES_MAX: u64 = 80 << 10;

/// Maximum number of idle regions for small replicas.
const SMALL_REGIONS_MAX: usize = 16;

/// Limits of this side of a connection.
const CONNECTION_LIMITS: Limits = Limits { reads_in_flight: 16, operations: 128, messages: 32 };

/// The transport, and this client's memory in it.
#[derive(Debug)]
pub(super) struct RdmaContext {
    transport: Arc<dyn Transport>,
    pub domain: Arc<dyn Domain>,
    pub buffers: Arc<BufferPool>,
    pub tables: Arc<CrcTables>,
    /// Time-out of a connection attempt, a request, or a batch of reads.
    pub timeout: Duration,
    /// Memory that datanodes may write small replicas to.
    small: Mutex<Vec<Arc<dyn Region>>>,
    /// Created for the first writer.
    pub write_buffers: OnceLock<Arc<WriteBuffers>>,
    pub writers: Arc<WriterConnectionPool>,
}

impl RdmaContext {
    /// Returns `None` if this machine has no such network, or if the options disable it.
    pub(super) fn new(options: &OneSidedOptions) -> Option<Self> {
        let transport = options.transport.clone()?;
        match transport.domain() {
            Ok(domain) => Some(Self {
                buffers: Arc::new(BufferPool::new(domain.clone(), options.idle_buffer_bytes_max)),
                transport,
                domain,
                tables: CrcTables::new(TABLES_BYTES_MAX),
                timeout: options.timeout,
                small: Mutex::default(),
                write_buffers: OnceLock::new(),
                writers: Arc::default(),
            }),
            Err(error) => {
                tracing::debug!(%error, "one-sided reads and writes disabled");
                None
            }
        }
    }

    /// Returns true if the datanode of `offer` listens in this network.
    pub(super) fn can_reach(&self, offer: &Offer) -> bool {
        let same = offer.transport.as_ref().is_none_or(|name| name == self.transport.name());
        same && !offer.one_sided.is_empty()
    }

    /// Returns memory to which no datanode may write any more.
    pub(super) fn small_memory(&self) -> Result<Arc<dyn Region>, Error> {
        if let Some(kept) = self.small.lock().pop() {
            return Ok(kept);
        }
        let failed = |source| Error::Register { bytes: SMALL_BYTES_MAX, source };
        let memory = Arc::new(hearth_fabric::Memory::fresh(SMALL_BYTES_MAX).map_err(failed)?);
        self.domain.register(&memory, 0..SMALL_BYTES_MAX, Access::RemoteWrite)
    }

    /// Keeps memory for reuse. No datanode may write to it any more.
    pub(super) fn keep_small_memory(&self, memory: Arc<dyn Region>) {
        let mut kept = self.small.lock();
        if kept.len() < SMALL_REGIONS_MAX {
            kept.push(memory);
        }
    }

    /// Opens a new connection, and returns it with the incarnation of the datanode. Returns `None` if the datanode does
    /// not listen in this client's network.
    ///
    /// Errors: also if the datanode does not listen at the offered address and gives no newer one.
    pub(super) async fn connect(
        &self,
        datanodes: &Datanodes,
        datanode: &DatanodeId,
        purpose: u8,
    ) -> Result<Option<(Arc<dyn Connection>, u64)>, DatanodeError> {
        let mut again = true;
        loop {
            let offer = datanodes.offer(datanode).await?;
            let Some(offer) = offer.filter(|offer| self.can_reach(offer)) else { return Ok(None) };
            let Some(address) = address_in(&offer, datanodes, datanode).await? else { return Ok(None) };
            let (private, timeout) = ([purpose, VERSION], self.timeout);
            let connected = self.transport.connect(&self.domain, address, &private, CONNECTION_LIMITS, timeout).await;
            let error: DatanodeError = match connected {
                Ok(connection) if decode_acceptance(connection.private()) == Some(offer.incarnation) => {
                    return Ok(Some((connection, offer.incarnation)));
                }
                Ok(connection) => {
                    connection.close().await;
                    DatanodeError::OtherIncarnation { peer: address }
                }
                Err(error) => error.into(),
            };
            // The datanode may have restarted on another port.
            datanodes.offers.note_stale(&datanode.uuid, &offer);
            // A datanode that timed out here will most likely not answer DESCRIBE either, and that wait may be longer.
            let silent = matches!(error, DatanodeError::OneSided(Error::TimedOut { .. }));
            if silent || !std::mem::take(&mut again) {
                return Err(error);
            }
            tracing::debug!(%datanode, %error, "asking the datanode for its address, then retrying");
        }
    }
}

/// Returns the address on which the datanode of `offer` listens, as this client reaches it.
async fn address_in(
    offer: &Offer,
    datanodes: &Datanodes,
    datanode: &DatanodeId,
) -> Result<Option<SocketAddr>, DatanodeError> {
    let own = datanodes.address(datanode, datanode.transfer_port).await?.ip();
    Ok(offer.listener(own))
}
