//! Header of every copy in memory: the 256 bytes before its CRCs, drawn in docs/design/0001. Little-endian.

use hearth_types::{BlockId, ChecksumKind, ChecksumSpec, GenerationStamp, ReplicaState, crc32c};

use crate::mmap::shared_map::SharedMap;

pub const HEADER_BYTES: u64 = 256;

const MAGIC: u64 = u64::from_le_bytes(*b"HEARTHR1");
/// One byte: the borrower that the data was lent to for writing. Outside the identity's CRC, since it changes.
const LENT: u64 = 56;
const PROGRESS: [u64; 2] = [64, 128];
const PROGRESS_BYTES: usize = 48;
/// Record that a one-sided reader checks; zero while the copy is not shown.
pub const SHOWN: u64 = 192;

/// The part that never changes while a copy lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub block: BlockId,
    /// Number of this copy: ties the data file to its CRC file, and distinguishes the copy from later ones of the same
    /// block.
    pub nonce: u64,
    pub checksum: ChecksumSpec,
    /// Offset of the data in a slot; 0 if the copy has a file of its own.
    pub data_offset: u32,
    /// Size of the slot; 0 when the copy has files of its own.
    pub slot_bytes: u32,
    pub created_ms: u64,
}

/// The part that changes with every packet and ack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Increases with every record of this store: of two copies of a block, the one with the higher sequence is newer.
    pub sequence: u64,
    pub stamp: GenerationStamp,
    pub received: u64,
    pub acked: u64,
    /// CRC of the last chunk if it is not whole; covers the bytes up to `received`.
    pub partial_crc: u32,
    pub state: ReplicaState,
}

impl Identity {
    pub fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, self.block.0 as u64);
        put(&mut bytes, 16, self.nonce);
        put(&mut bytes, 24, u64::from(self.checksum.kind as u8) | u64::from(self.checksum.bytes_per_chunk) << 32);
        put(&mut bytes, 32, u64::from(self.data_offset) | u64::from(self.slot_bytes) << 32);
        put(&mut bytes, 40, self.created_ms);
        let check = crc32c(&bytes[..48]);
        put(&mut bytes, 48, u64::from(check));
        bytes
    }

    /// `None`: no copy, or a torn header.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let valid = get(bytes, 0)? == MAGIC && get(bytes, 48)? == u64::from(crc32c(bytes.get(..48)?));
        if !valid {
            return None;
        }
        let spec = get(bytes, 24)?;
        let place = get(bytes, 32)?;
        let bytes_per_chunk = (spec >> 32) as u32;
        if bytes_per_chunk == 0 {
            return None;
        }
        Some(Self {
            block: BlockId(get(bytes, 8)? as i64),
            nonce: get(bytes, 16)?,
            checksum: ChecksumSpec { kind: ChecksumKind::from_number(spec as u8)?, bytes_per_chunk },
            data_offset: place as u32,
            slot_bytes: (place >> 32) as u32,
            created_ms: get(bytes, 40)?,
        })
    }
}

impl Progress {
    pub fn encode(&self) -> [u8; PROGRESS_BYTES] {
        let mut bytes = [0; PROGRESS_BYTES];
        put(&mut bytes, 0, self.sequence);
        put(&mut bytes, 8, self.stamp.0);
        put(&mut bytes, 16, self.received);
        put(&mut bytes, 24, self.acked);
        put(&mut bytes, 32, u64::from(self.partial_crc) | (self.state as u64) << 32);
        let check = crc32c(&bytes[..40]);
        put(&mut bytes, 40, u64::from(check));
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if get(bytes, 40)? != u64::from(crc32c(bytes.get(..40)?)) {
            return None;
        }
        let last = get(bytes, 32)?;
        let progress = Self {
            sequence: get(bytes, 0)?,
            stamp: GenerationStamp(get(bytes, 8)?),
            received: get(bytes, 16)?,
            acked: get(bytes, 24)?,
            partial_crc: last as u32,
            state: ReplicaState::from_number((last >> 32) as u8)?,
        };
        // An all-zero record also has a valid CRC, but no sequence.
        (progress.sequence > 0 && progress.acked <= progress.received).then_some(progress)
    }
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn get(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Writes the header of a new copy at `base` of `map`. The first store invalidates the previous content.
pub fn write_new(map: &SharedMap, base: u64, identity: &Identity, progress: &Progress) {
    map.store(base, 0);
    let mut rest = [0; HEADER_BYTES as usize];
    let encoded = identity.encode();
    rest[1..encoded.len()].copy_from_slice(&encoded[1..]);
    let slot = PROGRESS[(progress.sequence % 2) as usize] as usize;
    rest[slot..slot + PROGRESS_BYTES].copy_from_slice(&progress.encode());
    map.write(base + 1, &rest[1..]);
    // The first byte of the magic makes it a copy, so it is written last.
    map.store(base, encoded[0]);
}

/// Records progress in the slot that does not hold the newest record. Only one caller at a time, with a sequence whose
/// parity differs from the last one's: see `Core::progress`.
pub fn write_progress(map: &SharedMap, base: u64, progress: &Progress) {
    map.write(base + PROGRESS[(progress.sequence % 2) as usize], &progress.encode());
}

/// Records the borrower that the data is lent to; `read_lent` returns it.
pub fn write_lent(map: &SharedMap, base: u64, lent: u8) {
    map.store(base + LENT, lent);
}

/// Returns the borrower that `write_lent` recorded last, from the first 256 bytes of a header; 0 for a copy never lent.
pub fn read_lent(bytes: &[u8]) -> u8 {
    bytes.get(LENT as usize).copied().unwrap_or(0)
}

/// Invalidates the header: the copy is gone.
pub fn wipe(map: &SharedMap, base: u64) {
    map.store(base, 0);
    map.write(base + SHOWN, &[0; 64]);
}

/// Decodes a header from its first 256 bytes. `None`: nothing that can be trusted.
pub fn read(bytes: &[u8]) -> Option<(Identity, Progress)> {
    let identity = Identity::decode(bytes)?;
    let newest = PROGRESS
        .iter()
        .filter_map(|at| Progress::decode(bytes.get(*at as usize..)?.get(..PROGRESS_BYTES)?))
        .max_by_key(|progress| progress.sequence)?;
    Some((identity, newest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity() -> Identity {
        Identity {
            block: BlockId(-42),
            nonce: 7,
            checksum: ChecksumSpec::DEFAULT,
            data_offset: 768,
            slot_bytes: 69632,
            created_ms: 9,
        }
    }

    fn progress(sequence: u64) -> Progress {
        Progress {
            sequence,
            stamp: GenerationStamp(1001),
            received: 1000 + sequence,
            acked: 1000,
            partial_crc: 0xdead_beef,
            state: ReplicaState::BeingWritten,
        }
    }

    fn map() -> (tempfile::NamedTempFile, SharedMap) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(512).unwrap();
        let map = SharedMap::new(file.as_file(), 512).unwrap();
        (file, map)
    }

    fn bytes(map: &SharedMap) -> [u8; 256] {
        let mut bytes = [0; 256];
        map.read(256, &mut bytes);
        bytes
    }

    #[test]
    fn newest_intact_record_is_used() {
        let (_file, map) = map();
        write_new(&map, 256, &identity(), &progress(1));
        assert_eq!(read(&bytes(&map)), Some((identity(), progress(1))));
        write_progress(&map, 256, &progress(2));
        write_progress(&map, 256, &progress(3));
        assert_eq!(read(&bytes(&map)).unwrap().1, progress(3));
        // The record of sequence 3 was torn: the record before it is still valid.
        map.write(256 + 128 + 16, &[0xff; 4]);
        assert_eq!(read(&bytes(&map)).unwrap().1, progress(2));
        wipe(&map, 256);
        assert_eq!(read(&bytes(&map)), None);
    }

    proptest! {
        #[test]
        fn flipped_bits_are_detected_or_harmless(bit in 0usize..256 * 8) {
            let (_file, map) = map();
            write_new(&map, 256, &identity(), &progress(4));
            write_progress(&map, 256, &progress(5));
            let mut bytes = bytes(&map);
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Some((found, newest)) = read(&bytes) {
                prop_assert_eq!(found, identity());
                prop_assert!(newest == progress(5) || newest == progress(4));
            }
        }

        #[test]
        fn random_bytes_are_no_header(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(read(&bytes), None);
        }
    }
}
