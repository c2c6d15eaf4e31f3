//! The bytes of one copy of a replica at one moment. Readers, the flusher and the checks all read through a snapshot.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use hearth_types::{ByteRange, ChecksumError, ChecksumSpec};

use crate::disk::files::DiskFiles;
use crate::memory::copy::MemoryCopy;
use crate::memory::file::{FileCopy, OpenFiles};
use crate::memory::header::HEADER_BYTES;
use crate::memory::slab::Slot;
use crate::mmap::mapping::Mapping;

#[derive(Clone)]
pub enum Source {
    Slot(Arc<Slot>),
    /// The copy keeps the memory counted; the descriptors keep it allocated.
    File {
        // Dropped first: the copy checks whether other processes have its files open.
        files: Arc<OpenFiles>,
        copy: Arc<FileCopy>,
    },
    Disk(Arc<DiskFiles>),
}

#[derive(Clone)]
pub struct Snapshot {
    pub checksum: ChecksumSpec,
    /// Number of valid bytes, all of them recorded.
    pub length: u64,
    /// CRC of the last chunk up to `length`, if it is not whole. The table may contain another value by now.
    pub partial_crc: u32,
    pub source: Source,
}

/// Bytes that are read and checked at once, so that they stay in the CPU cache between the two.
const PIECE_BYTES: usize = 128 << 10;

/// Consecutive bytes of a snapshot that were checked, with their place in the replica.
pub struct CheckedWindow<'a> {
    /// A chunk's start.
    pub offset: u64,
    pub data: &'a [u8],
    /// Offset of `crcs` in the table of CRCs.
    pub crc_at: u64,
    pub crcs: &'a [u8],
}

/// Reason why a copy could not be read or copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("reading failed: {0}")]
    Read(io::Error),
    #[error("writing failed: {0}")]
    Write(io::Error),
    #[error("from byte {offset}: {error}")]
    Corrupt { offset: u64, error: ChecksumError },
}

impl Snapshot {
    /// The first `length` bytes of a copy on disk.
    pub fn of_disk(files: Arc<DiskFiles>, length: u64) -> io::Result<Self> {
        let (checksum, partial_crc) = (files.checksum, files.partial_crc(length)?);
        Ok(Self { checksum, length, partial_crc, source: Source::Disk(files) })
    }

    /// Returns whether its bytes are those of `memory`.
    pub fn is_of(&self, memory: &MemoryCopy) -> bool {
        match (&self.source, memory) {
            (Source::Slot(ours), MemoryCopy::Slot(slot)) => Arc::ptr_eq(ours, slot),
            (Source::File { copy: ours, .. }, MemoryCopy::File(copy)) => Arc::ptr_eq(ours, copy),
            _ => false,
        }
    }

    pub fn in_memory(&self) -> bool {
        !matches!(self.source, Source::Disk(_))
    }

    /// Reads at `offset`. `offset + into.len()` is at most `length`.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.source {
            Source::Slot(slot) => {
                let data = slot.data(self.length);
                let from = offset as usize;
                into.copy_from_slice(&data[from..from + into.len()]);
                Ok(())
            }
            Source::File { files, .. } => files.data.read_exact_at(into, offset),
            Source::Disk(files) => files.read_data(offset, into),
        }
    }

    /// Appends the CRCs of the chunks `[first, end)`.
    pub fn checksums(&self, first: u64, end: u64, into: &mut Vec<u8>) -> io::Result<()> {
        let size = self.checksum.kind.size() as u64;
        if size == 0 {
            return Ok(());
        }
        let whole = self.length / u64::from(self.checksum.bytes_per_chunk);
        let in_table = end.min(whole).saturating_sub(first) * size;
        let start = into.len();
        into.resize(start + in_table as usize, 0);
        let table = &mut into[start..];
        match &self.source {
            Source::Slot(slot) => slot.read_crcs(first * size, table),
            Source::File { files, .. } => files.crc.read_exact_at(table, HEADER_BYTES + first * size)?,
            Source::Disk(files) => files.read_crcs(first * size, table)?,
        }
        if end > whole {
            into.extend_from_slice(&self.partial_crc.to_be_bytes());
        }
        Ok(())
    }

    /// Appends the CRCs of the chunks that `range` touches, then the data, unless that would wait for a disk. `range`
    /// is as for [`Self::read_checked`]. False: nothing was appended.
    pub fn read_now(&self, range: ByteRange, into: &mut Vec<u8>) -> io::Result<bool> {
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        let (first, end) = (range.start() / chunk, range.end().div_ceil(chunk));
        let (start, bytes) = (into.len(), range.length() as usize);
        let Source::Disk(files) = &self.source else {
            self.checksums(first, end, into)?;
            let at = into.len();
            into.resize(at + bytes, 0);
            self.read_at(range.start(), &mut into[at..])?;
            return Ok(true);
        };
        let size = self.checksum.kind.size() as u64;
        let whole = self.length / chunk;
        let in_table = (end.min(whole).saturating_sub(first) * size) as usize;
        let partial = if end > whole && size > 0 { 4 } else { 0 };
        into.resize(start + in_table + partial + bytes, 0);
        let (table, rest) = into[start..].split_at_mut(in_table);
        let (last, data) = rest.split_at_mut(partial);
        last.copy_from_slice(&self.partial_crc.to_be_bytes()[..partial]);
        let read = files.read_now(range.start(), data, first * size, table);
        if !read {
            into.truncate(start);
        }
        Ok(read)
    }

    /// Checks the bytes in `range` of a memory-file copy in place, through `mapping`, and appends their CRCs. `range`
    /// is as for [`Self::read_checked`]. False: the bytes cannot be read this way.
    pub fn check_mapped(&self, mapping: &Mapping, range: ByteRange, crcs: &mut Vec<u8>) -> Result<bool, CopyError> {
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        let start = crcs.len();
        self.checksums(range.start() / chunk, range.end().div_ceil(chunk), crcs).map_err(CopyError::Read)?;
        match mapping.verify(range.start(), range.length() as usize, self.checksum, &crcs[start..]) {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(CopyError::Corrupt { offset: range.start(), error }),
        }
    }

    /// Reads bytes that start on a chunk boundary and end on one or at `length`, appends their CRCs, and checks them.
    pub fn read_checked(&self, offset: u64, into: &mut [u8], crcs: &mut Vec<u8>) -> Result<(), CopyError> {
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        let start = crcs.len();
        let end = (offset + into.len() as u64).div_ceil(chunk);
        self.checksums(offset / chunk, end, crcs).map_err(CopyError::Read)?;
        // Piece by piece: each is still in the CPU cache when its CRCs are computed.
        let piece = (PIECE_BYTES / chunk as usize).max(1) * chunk as usize;
        let mut sums = &crcs[start..];
        let mut at = offset;
        for data in into.chunks_mut(piece) {
            self.read_at(at, data).map_err(CopyError::Read)?;
            let (these, others) = sums.split_at(self.checksum.checksum_bytes(data.len() as u64) as usize);
            self.checksum.verify(data, these).map_err(|error| CopyError::Corrupt { offset: at, error })?;
            sums = others;
            at += data.len() as u64;
        }
        Ok(())
    }

    /// Maps its data, so that it can be written to a disk without a copy. `None`: the data is not in a memory file with
    /// huge pages, or it cannot be mapped.
    ///
    /// The whole last page is mapped.
    pub fn mapped(&self) -> Option<Mapping> {
        match &self.source {
            Source::File { files, .. } if self.length > 0 && Mapping::has_huge_pages(&files.data) => {
                Mapping::new(&files.data, self.length).ok()
            }
            _ => None,
        }
    }

    /// Number of bytes to process at once: about 1 MiB, whole chunks, and whole pages if the chunk size allows it.
    pub fn window(&self) -> usize {
        const AIM: usize = 1 << 20;
        let chunk = self.checksum.bytes_per_chunk as usize;
        if chunk >= AIM { chunk } else { AIM / chunk * chunk }
    }

    /// Reads and checks the bytes from `start` (a chunk's start) to the end, and passes them to `take`, a window at a
    /// time. If that returns false, the rest is not read.
    pub fn for_each_window(
        &self,
        start: u64,
        mut take: impl FnMut(CheckedWindow<'_>) -> Result<bool, CopyError>,
    ) -> Result<(), CopyError> {
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        let mut buffer = vec![0; self.window().min((self.length - start) as usize)];
        let mut crcs = Vec::new();
        let mut offset = start;
        while offset < self.length {
            let bytes = buffer.len().min((self.length - offset) as usize);
            let data = &mut buffer[..bytes];
            crcs.clear();
            self.read_checked(offset, data, &mut crcs)?;
            let crc_at = offset / chunk * self.checksum.kind.size() as u64;
            if !take(CheckedWindow { offset, data, crc_at, crcs: &crcs })? {
                break;
            }
            offset += bytes as u64;
        }
        Ok(())
    }

    /// Checks every byte. `pause` is called with the number of bytes read and may slow the check down; `false` ends it.
    pub fn verify(&self, pause: &mut dyn FnMut(u64) -> bool) -> Result<(), CopyError> {
        self.for_each_window(0, |window| Ok(pause(window.data.len() as u64)))
    }

    /// Returns the same bytes truncated to `length`, with the new CRC of the last chunk. That chunk is checked first.
    pub fn cut(&self, length: u64) -> Result<Self, CopyError> {
        assert!(length <= self.length, "a snapshot can only be truncated");
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        let mut cut = Self { length, ..self.clone() };
        if length == self.length || length.is_multiple_of(chunk) || self.checksum.kind.size() == 0 {
            return Ok(cut);
        }
        let start = length / chunk * chunk;
        let mut bytes = vec![0; (self.length - start).min(chunk) as usize];
        self.read_checked(start, &mut bytes, &mut Vec::new())?;
        cut.partial_crc = self.checksum.kind.of(&bytes[..(length - start) as usize]);
        Ok(cut)
    }
}
