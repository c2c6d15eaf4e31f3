//! Storing of one batch of packets.

use hearth_blockstore::{Checksums, ReplicaWriter, StoreError};
use hearth_types::{ChecksumError, ChecksumSpec, ExtendedBlock};
use hearth_wire::data_transfer::PacketHeader;

use super::error::ReceiveError;
use super::packet::Packet;
use crate::grants::IN_PLACE_BYTES_MAX;

/// Settings for checking and storing the packets of a block.
#[derive(Clone)]
pub(super) struct BatchStore {
    pub block: ExtendedBlock,
    /// Checksum type of the sender's CRCs.
    pub checksum: ChecksumSpec,
    pub verify: bool,
    /// The replica keeps CRCs of a different type from the sender's.
    pub translate: bool,
}

/// Result of storing a batch.
pub(super) struct Stored {
    /// Number of packets, from the front of the batch, that are stored.
    pub packets: usize,
    /// Reason why the next packet was not stored, if any.
    pub rejected: Option<Rejected>,
}

/// Reason why a packet was not stored.
pub(super) enum Rejected {
    /// The data was corrupt; reported to the sender as ERROR_CHECKSUM.
    Corrupt {
        seqno: i64,
        offset: u64,
        source: ChecksumError,
    },
    Failed(ReceiveError),
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
                let error = ReceiveError::HeartbeatInPlace;
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
            return Err(Rejected::Failed(ReceiveError::ChecksumBytes {
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

/// Makes the store check the data that a local writer reports to have put in place.
fn commit(writer: &mut ReplicaWriter, header: &PacketHeader, crcs: &[u8]) -> Result<(), Rejected> {
    // Together with its data it may have to be forwarded as a packet.
    if header.data_bytes as usize > IN_PLACE_BYTES_MAX || !header.fits(crcs.len()) {
        return Err(Rejected::Failed(ReceiveError::LocalPacketTooLong));
    }
    accepted(writer.commit(header.offset, u64::from(header.data_bytes), crcs), header)
}

/// Converts the store's answer for data in place.
fn accepted(outcome: hearth_blockstore::Result<u64>, header: &PacketHeader) -> Result<(), Rejected> {
    match outcome {
        Ok(_) => Ok(()),
        Err(StoreError::BadCommit { start, source, .. }) => {
            Err(Rejected::Corrupt { seqno: header.seqno, offset: start, source })
        }
        Err(error) => Err(Rejected::Failed(error.into())),
    }
}
