//! An open replica: its data and CRCs, mapped or by descriptor, and the slot that shows if they are still valid.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearth_fabric::local::FileMapping;
use hearth_types::{ByteRange, ChecksumSpec};
use rustix::io::ReadWriteFlags;
use tokio::time::Instant;

use super::slots::Slot;
use crate::checksummed::{Checksummed, FetchedRange};

/// Maximum age of an open replica without a slot: nothing signals that it has changed, so it is opened again after this
/// time. Source: `dfs.client.read.short.circuit.replica.stale.threshold.ms`.
const STALE: Duration = Duration::from_secs(30 * 60);

/// One replica, open for any number of readers. It is finalized, so its bytes do not change.
#[derive(Debug)]
pub(crate) struct LocalReplica {
    checksum: ChecksumSpec,
    /// Length of the replica when it was opened.
    length: u64,
    contents: Contents,
    slot: Option<Slot>,
    opened: Instant,
    /// Used since the last check.
    touched: AtomicBool,
}

#[derive(Debug)]
enum Contents {
    /// `meta`: the checksum header, then a CRC for each chunk.
    Mapped { data: FileMapping, meta: FileMapping },
    /// Read on demand: the files of a datanode that may shorten them, or files on a disk.
    Files { data: File, meta: File },
}

/// Offset of the CRCs in a meta file.
const CRCS_AT: usize = ChecksumSpec::META_HEADER_BYTES;

impl LocalReplica {
    /// Opens a replica. `data`, `meta`: descriptors from the datanode. `mapped`: the datanode never shortens a file
    /// that it has shown. `least`: minimum length of the replica in bytes.
    ///
    /// Errors: `InvalidData` if the files do not match each other or `least`; errors of the operating system.
    pub(super) fn new(data: OwnedFd, meta: OwnedFd, mapped: bool, least: u64, slot: Option<Slot>) -> io::Result<Self> {
        let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let (data, meta) = (File::from(data), File::from(meta));
        let (length, meta_length) = (data.metadata()?.len(), meta.metadata()?.len());
        if length < least {
            return Err(wrong(format!("the replica has {length} bytes instead of {least}")));
        }
        let mut header = [0; CRCS_AT];
        std::os::unix::fs::FileExt::read_exact_at(&meta, &mut header, 0)?;
        let checksum = ChecksumSpec::from_meta_header(header)
            .ok_or_else(|| wrong(format!("invalid meta file header {header:02x?}")))?;
        let wanted = CRCS_AT as u64 + checksum.checksum_bytes(length);
        if meta_length < wanted {
            return Err(wrong(format!("the meta file has {meta_length} bytes instead of {wanted}")));
        }
        let contents = if mapped && is_in_memory(&data) && is_in_memory(&meta) {
            Contents::Mapped { data: FileMapping::new(&data, length)?, meta: FileMapping::new(&meta, wanted)? }
        } else {
            Contents::Files { data, meta }
        };
        let touched = AtomicBool::new(true);
        Ok(Self { checksum, length, contents, slot, opened: Instant::now(), touched })
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if the datanode still serves these bytes as the replica.
    pub(crate) fn is_valid(&self) -> bool {
        match &self.slot {
            Some(slot) => slot.is_valid(),
            None => self.opened.elapsed() < STALE,
        }
    }

    /// Marks the replica as used.
    pub(crate) fn touch(&self) {
        // A store that changes nothing would still take the cache line from other readers.
        if !self.is_touched() {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_touched(&self) -> bool {
        self.touched.load(Ordering::Relaxed)
    }

    pub(super) fn take_touch(&self) -> bool {
        self.touched.swap(false, Ordering::Relaxed)
    }

    /// Returns all of the replica, in place, if it is mapped.
    pub(crate) fn mapped(&self) -> Option<Checksummed<'_>> {
        match &self.contents {
            Contents::Mapped { data, meta } => {
                Some(Checksummed { data: data.bytes(), checksums: &meta.bytes()[CRCS_AT..], spec: self.checksum })
            }
            Contents::Files { .. } => None,
        }
    }

    /// Returns the number of bytes that it maps.
    pub(super) fn mapped_bytes(&self) -> u64 {
        match &self.contents {
            Contents::Mapped { data, meta } => (data.bytes().len() + meta.bytes().len()) as u64,
            Contents::Files { .. } => 0,
        }
    }

    /// Counts a reader that does not verify CRCs in the slot. Returns false if the datanode does not offer this.
    pub(crate) fn anchor(&self) -> bool {
        self.slot.as_ref().is_some_and(Slot::anchor)
    }

    pub(crate) fn release_anchor(&self) {
        if let Some(slot) = &self.slot {
            slot.release_anchor();
        }
    }

    /// Reads the chunks that `range` (within the replica) touches, with their CRCs, of a replica that is not mapped.
    /// Bytes in the page cache are read at once; others are read on a blocking thread.
    pub(crate) async fn fetch(self: &Arc<Self>, range: ByteRange) -> io::Result<FetchedRange> {
        let widened = range.widened(self.checksum.bytes_per_chunk, self.length);
        let size = self.checksum.kind.size() as u64;
        let first = widened.start() / u64::from(self.checksum.bytes_per_chunk);
        let crcs_at = CRCS_AT as u64 + first * size;
        let (start, spec) = (widened.start(), self.checksum);
        let mut data = vec![0; widened.length() as usize];
        let mut checksums = vec![0; spec.checksum_bytes(widened.length()) as usize];
        let files = self.files()?;
        if !(read_cached(files.0, &mut data, start) && read_cached(files.1, &mut checksums, crcs_at)) {
            let replica = Arc::clone(self);
            let read = move || {
                use std::os::unix::fs::FileExt;
                let files = replica.files()?;
                files.0.read_exact_at(&mut data, start)?;
                files.1.read_exact_at(&mut checksums, crcs_at)?;
                io::Result::Ok((data, checksums))
            };
            (data, checksums) = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        }
        Ok(FetchedRange::new(start, data.into(), checksums.into(), spec))
    }

    fn files(&self) -> io::Result<(&File, &File)> {
        match &self.contents {
            Contents::Files { data, meta } => Ok((data, meta)),
            Contents::Mapped { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Returns true if the file is in memory only, so that accessing a mapping of it never waits for a disk.
fn is_in_memory(file: &File) -> bool {
    /// Source: linux/magic.h.
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    rustix::fs::fstatfs(file.as_fd()).is_ok_and(|found| found.f_type as u64 == TMPFS_MAGIC)
}

/// Fills `into` from `offset` if all of it is in the page cache. Returns false if it is not, or if the system cannot
/// tell.
fn read_cached(file: &File, into: &mut [u8], offset: u64) -> bool {
    let mut filled = 0;
    while filled < into.len() {
        let mut rest = [io::IoSliceMut::new(&mut into[filled..])];
        match rustix::io::preadv2(file, &mut rest, offset + filled as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(_) => return false,
            Ok(count) => filled += count,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use hearth_types::ChecksumKind;

    use super::*;

    fn file_of(parts: &[&[u8]]) -> OwnedFd {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        for part in parts {
            file.write_all(part).unwrap();
        }
        file.into()
    }

    fn sample(length: usize) -> (Vec<u8>, Vec<u8>) {
        let data: Vec<u8> = (0..length).map(|index| (index / 3) as u8).collect();
        let mut crcs = Vec::new();
        ChecksumSpec::DEFAULT.compute(&data, &mut crcs);
        (data, crcs)
    }

    #[tokio::test]
    async fn mapped_and_read_replicas_match() {
        let (data, crcs) = sample(5000);
        let header = ChecksumSpec::DEFAULT.to_meta_header();
        for mapped in [true, false] {
            let (data_file, meta_file) = (file_of(&[&data]), file_of(&[&header, &crcs]));
            let replica = Arc::new(LocalReplica::new(data_file, meta_file, mapped, 5000, None).unwrap());
            assert!(replica.is_valid() && replica.length() == 5000 && !replica.anchor());
            assert_eq!(replica.mapped().is_some(), mapped);
            let mut into = [0; 700];
            match replica.mapped() {
                Some(checked) => checked.copy(4300, &mut into).unwrap(),
                None => {
                    let fetched = replica.fetch(ByteRange::new(4300, 5000).unwrap()).await.unwrap();
                    assert_eq!((fetched.start, fetched.data().len()), (4096, 904));
                    fetched.checked().copy(204, &mut into).unwrap();
                }
            }
            assert!(into == data[4300..]);
        }
    }

    #[test]
    fn mismatched_files_are_refused() {
        let (data, crcs) = sample(1000);
        let header = ChecksumSpec::DEFAULT.to_meta_header();
        let open = |meta: &[&[u8]], least| LocalReplica::new(file_of(&[&data]), file_of(meta), true, least, None);
        open(&[&header, &crcs], 1000).unwrap();
        assert!(open(&[&header, &crcs], 1001).is_err());
        assert!(open(&[&header, &crcs[..7]], 1000).is_err());
        assert!(open(&[&[0, 7, 1, 0, 0, 2, 0], &crcs], 1000).is_err());
        assert!(open(&[&[0, 1]], 1000).is_err());
        let none = ChecksumSpec { kind: ChecksumKind::Null, bytes_per_chunk: 512 }.to_meta_header();
        open(&[&none], 1000).unwrap();
    }
}
