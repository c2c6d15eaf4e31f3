//! A batch of packets on its way into the store.

use hearth_blockstore::{Checksums, ReplicaWriter, StoreError};
use hearth_types::{ChecksumError, ChecksumSpec, ExtendedBlock};
use hearth_wire::data_transfer::PacketHeader;

use super::{IN_PLACE_BYTES_MAX, Packet};
use crate::ops::OpError;

/// How the packets of a block are checked and kept.
#[derive(Clone)]
pub(super) struct BatchStore {
    pub block: ExtendedBlock,
    /// What the sender's CRCs are.
    pub checksum: ChecksumSpec,
    pub verify: bool,
    /// The replica keeps CRCs of another kind than the sender's.
    pub translate: bool,
}

/// What has come of a batch.
pub(super) struct Stored {
    /// So many packets from its front are stored.
    pub packets: usize,
    /// Why no more.
    pub rejected: Option<Rejected>,
}

/// Why a packet was not stored.
pub(super) enum Rejected {
    /// To be told to the sender as ERROR_CHECKSUM.
    Corrupt {
        seqno: i64,
        offset: u64,
        source: ChecksumError,
    },
    Failed(OpError),
}

impl BatchStore {
    /// Checks the packets of `batch`, which lie in `available`, and hands them to `writer`.
    pub(super) fn store(&self, writer: &mut ReplicaWriter, available: &[u8], batch: &[Packet]) -> Stored {
        for (index, packet) in batch.iter().enumerate() {
            if let Err(rejected) = self.store_packet(writer, available, packet) {
                return Stored { packets: index, rejected: Some(rejected) };
            }
        }
        Stored { packets: batch.len(), rejected: None }
    }

    fn store_packet(&self, writer: &mut ReplicaWriter, available: &[u8], packet: &Packet) -> Result<(), Rejected> {
        let header = &packet.header;
        let crcs = &available[packet.checksums.clone()];
        if packet.received_in_place {
            return accepted(writer.accept(u64::from(header.data_bytes), crcs), header);
        }
        if packet.in_place {
            if header.is_heartbeat() {
                let error = OpError::Malformed("a sign of life says that it has put data in place");
                return Err(Rejected::Failed(error));
            }
            return commit(writer, header, crcs);
        }
        if header.is_heartbeat() || packet.data.is_empty() {
            return Ok(());
        }
        let data = &available[packet.data.clone()];
        let given = !crcs.is_empty();
        if given && crcs.len() as u64 != self.checksum.checksum_bytes(data.len() as u64) {
            return Err(Rejected::Failed(OpError::ChecksumBytes {
                block: self.block.clone(),
                seqno: header.seqno,
                data_bytes: data.len(),
                actual: crcs.len(),
            }));
        }
        if given && (self.verify || self.translate) {
            let corrupt = |source| Rejected::Corrupt { seqno: header.seqno, offset: header.offset, source };
            self.checksum.verify(data, crcs).map_err(corrupt)?;
        }
        let checksums = if given && !self.translate { Checksums::Given(crcs) } else { Checksums::Compute };
        writer.write(header.offset, data, checksums).map_err(|error| Rejected::Failed(error.into()))?;
        Ok(())
    }
}

/// Has the store check what a local writer says that it has put in place.
fn commit(writer: &mut ReplicaWriter, header: &PacketHeader, crcs: &[u8]) -> Result<(), Rejected> {
    // With the data it may have to go on as a packet.
    if header.data_bytes as usize > IN_PLACE_BYTES_MAX || !header.fits(crcs.len()) {
        return Err(Rejected::Failed(OpError::Malformed("a packet of a local writer covers too much")));
    }
    accepted(writer.commit(header.offset, u64::from(header.data_bytes), crcs), header)
}

/// What the store has said to data in place.
fn accepted(outcome: hearth_blockstore::Result<u64>, header: &PacketHeader) -> Result<(), Rejected> {
    match outcome {
        Ok(_) => Ok(()),
        Err(StoreError::BadCommit { start, source, .. }) => {
            Err(Rejected::Corrupt { seqno: header.seqno, offset: start, source })
        }
        Err(error) => Err(Rejected::Failed(error.into())),
    }
}
