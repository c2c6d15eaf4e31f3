//! Cache of the advertisements that the namenode sends with the locations of blocks. With one, the first read of a
//! replica need not ask the datanode. An advertisement is a hint with a lease: one that does not match is dropped, and
//! the datanode is asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hearth_types::LocatedBlock;
use hearth_wire::rdma_control::Advertisement;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::advertised_replica::Key;

/// Maximum number of replicas remembered.
const REPLICAS_MAX: usize = 16384;

/// Minimum remaining time of a useful lease. Reads must end well before the lease does; a read that does not would end
/// the connection for all readers of that datanode.
const LEASE_MIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct PiggybackedAdvertisements {
    replicas: Mutex<HashMap<Key, PiggybackedAdvertisement>>,
    used: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug)]
struct PiggybackedAdvertisement {
    advertisement: Bytes,
    /// Time of the request to the namenode.
    asked: Instant,
    /// Lease, counted from `asked`.
    lease: Duration,
}

impl PiggybackedAdvertisement {
    fn has_expired(&self, now: Instant) -> bool {
        self.asked + self.lease < now + LEASE_MIN
    }
}

impl PiggybackedAdvertisements {
    /// Stores the advertisements that came with the locations of `block`. `asked`: time of the request.
    pub(super) fn note(&self, block: &LocatedBlock, asked: Instant) {
        let mut replicas = self.replicas.lock();
        for handed_on in &block.advertisements {
            let Some(datanode) = block.locations.get(handed_on.location) else { continue };
            if replicas.len() >= REPLICAS_MAX {
                let now = Instant::now();
                replicas.retain(|_, entry| !entry.has_expired(now));
                if replicas.len() >= REPLICAS_MAX {
                    replicas.clear();
                }
            }
            let advertisement = handed_on.advertisement.clone();
            replicas.insert(
                Key::new(block, &datanode.id),
                PiggybackedAdvertisement { advertisement, asked, lease: handed_on.lease },
            );
        }
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.replicas.lock().contains_key(key)
    }

    /// Takes the advertisement of a replica on a datanode with this `incarnation`, with its lease and the time from
    /// which the lease counts. Each is returned only once.
    pub(super) fn take(&self, key: &Key, incarnation: u64, now: Instant) -> Option<(Advertisement, Instant)> {
        let entry = self.replicas.lock().remove(key)?;
        let advertisement = Advertisement::decode(&entry.advertisement).ok();
        // Keys of an earlier incarnation may now belong to other memory.
        let advertisement = advertisement.filter(|said| said.incarnation == incarnation && !entry.has_expired(now));
        let Some(advertisement) = advertisement else {
            self.note_refused();
            return None;
        };
        Some((Advertisement { lease: entry.lease, ..advertisement }, entry.asked))
    }

    pub(super) fn forget(&self, key: &Key) {
        self.replicas.lock().remove(key);
    }

    pub(super) fn note_used(&self) {
        self.used.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the numbers of advertisements used and refused.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::*;

    use super::{PiggybackedAdvertisements, *};

    const LEASE: Duration = Duration::from_secs(600);

    fn datanode() -> DatanodeId {
        DatanodeId {
            ip: "127.0.0.1".to_owned(),
            host_name: "localhost".to_owned(),
            uuid: DatanodeUuid("uuid".into()),
            transfer_port: 1,
            info_port: 0,
            ipc_port: 0,
            info_secure_port: 0,
        }
    }

    fn advertisement(block: &ExtendedBlock) -> Advertisement {
        let slice = |length| RemoteSlice { address: 4096, length, key: 5 };
        let checksum = ChecksumSpec { kind: ChecksumKind::Crc32c, bytes_per_chunk: 512 };
        Advertisement {
            block: block.clone(),
            checksum,
            nonce: 3,
            data: slice(block.length()),
            checksums: slice(checksum.checksum_bytes(block.length())),
            shown: slice(ValidityRecord::BYTES as u64),
            lease: Duration::ZERO,
            incarnation: 7,
        }
    }

    fn located(location: usize, advertisement: Option<Bytes>) -> LocatedBlock {
        let block = Block { id: BlockId(1), stamp: GenerationStamp(1001), length: 5000 };
        let block = ExtendedBlock { pool: BlockPoolId::new("BP-1"), block };
        let advertisement = advertisement.unwrap_or_else(|| self::advertisement(&block).encode());
        LocatedBlock {
            locations: vec![DatanodeInfo::of(datanode())],
            advertisements: vec![hearth_types::LocatedAdvertisement { location, lease: LEASE, advertisement }],
            ..LocatedBlock::nowhere(block)
        }
    }

    #[test]
    fn advertisement_is_taken_once_with_its_lease() {
        let (piggybacked, block, asked) = (PiggybackedAdvertisements::default(), located(0, None), Instant::now());
        let key = Key::new(&block, &datanode());
        piggybacked.note(&block, asked);
        let taken = piggybacked.take(&key, 7, asked + LEASE / 2).unwrap();
        assert_eq!(taken, (Advertisement { lease: LEASE, ..advertisement(&block.block) }, asked));
        assert_eq!(piggybacked.take(&key, 7, asked), None);
        assert_eq!(piggybacked.counts(), (0, 0));
    }

    #[test]
    fn stale_or_unreadable_advertisement_is_refused() {
        let (piggybacked, asked) = (PiggybackedAdvertisements::default(), Instant::now());
        let block = located(0, None);
        let key = Key::new(&block, &datanode());
        let unreadable = located(0, Some(Bytes::from_static(b"\xff")));
        let late = asked + LEASE - LEASE_MIN / 2;
        for (block, incarnation, now) in [(&block, 8, asked), (&block, 7, late), (&unreadable, 7, asked)] {
            piggybacked.note(block, asked);
            assert!(piggybacked.has(&key));
            assert_eq!(piggybacked.take(&key, incarnation, now), None);
            assert!(!piggybacked.has(&key));
        }
        assert_eq!(piggybacked.counts(), (0, 3));
        piggybacked.note(&located(1, None), asked);
        assert!(!piggybacked.has(&key), "there is no such location");
    }
}
