//! Connections for one-sided writes, and their resources.

use std::sync::Arc;

use hearth_fabric::one_sided::Connection;
use hearth_protocol::one_sided_write::{WriteBuffers, WriterConnectionPool};
use hearth_types::DatanodeId;
use hearth_wire::rdma_control::PURPOSE_WRITING;
use tokio::time::Instant;

use super::OneSided;
use crate::DataPath;

/// Room at a datanode for the CRCs of the slices that a writer has in flight.
const WRITER_CHECKSUM_BYTES: u64 = 256 << 10;

/// Maximum size of a packet: it must not exceed the first grant of a datanode.
const WRITER_PACKET_BYTES_MAX: u64 = 1 << 20;

/// Resources that a writer needs for a block.
type WriterParts = (Arc<dyn Connection>, Arc<WriterConnectionPool>, Arc<WriteBuffers>);

impl OneSided {
    /// Returns a connection for writing a block at `datanode`, with the resources for it. Returns `None` if there is no
    /// such path, or if it recently failed.
    pub(crate) async fn writer(&self, datanode: &DatanodeId) -> Option<WriterParts> {
        let rdma = self.rdma.as_ref()?;
        let (data_bytes, packets) = (self.packets.data_bytes as u64, self.packets.in_flight as u64);
        let checksum_bytes = self.packets.checksum.checksum_bytes(data_bytes);
        // The datanode has room for a limited number of slices.
        if checksum_bytes * (packets + 4) > WRITER_CHECKSUM_BYTES || data_bytes > WRITER_PACKET_BYTES_MAX {
            return None;
        }
        let make = || WriteBuffers::new(rdma.domain.clone(), data_bytes, checksum_bytes, packets as usize * 2);
        let buffers = rdma.write_buffers.get_or_init(make).clone();
        let writers = rdma.writers.clone();
        if let Some(connection) = writers.take(datanode) {
            return Some((connection, writers, buffers));
        }
        let peer = self.peers.get(&datanode.uuid);
        if peer.failed_lately() {
            return None;
        }
        match rdma.connect(&self.datanodes, datanode, PURPOSE_WRITING).await {
            Ok(connection) => Some((connection?.0, writers, buffers)),
            Err(error) => {
                if self.datanodes.warning_limit.is_due(&datanode.uuid, DataPath::OneSided, Instant::now()) {
                    tracing::warn!(%datanode, %error, "cannot write one-sided, trying another path");
                }
                peer.note_failure();
                None
            }
        }
    }
}
