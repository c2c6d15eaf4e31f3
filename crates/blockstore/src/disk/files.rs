//! A replica's two files on disk, open for reading.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use hearth_types::{BlockId, ByteRange, ChecksumSpec, GenerationStamp};

use super::layout::{PoolDirs, ReplicaDir};
use crate::mmap::mapped_bytes::{MappedBytesLimit, MappedShare};
use crate::mmap::mapping::Mapping;
use crate::sys;

pub(super) const META_HEADER: u64 = ChecksumSpec::META_HEADER_BYTES as u64;

/// Maximum bytes read from a mapping at once. Longer reads go to the file: their copy costs far more than the system
/// call, and pages that are not cached are then read from the disk together instead of one by one.
const MAPPED_READ_MAX: usize = 16 << 10;

/// Place and length of a replica on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskCopy {
    pub place: ReplicaDir,
    pub stamp: GenerationStamp,
    /// Bytes of data with their CRCs.
    pub length: u64,
}

/// A copy on disk, open for reading.
pub struct DiskFiles {
    pub data: File,
    pub meta: File,
    pub checksum: ChecksumSpec,
    maps: OnceLock<Maps>,
    /// Set if the data is on a tmpfs.
    in_memory: OnceLock<bool>,
}

/// Mappings of the same files.
struct Maps {
    data: Mapping,
    meta: Mapping,
    _share: MappedShare,
}

fn bad_meta(path: &std::path::Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a block meta file", path.display()))
}

pub(super) fn open_files(dirs: &PoolDirs, id: BlockId, copy: DiskCopy, options: &OpenOptions) -> io::Result<DiskFiles> {
    let path = dirs.meta(copy.place, id, copy.stamp);
    let meta = options.open(&path)?;
    let mut header = [0; ChecksumSpec::META_HEADER_BYTES];
    match meta.read_exact_at(&mut header, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(bad_meta(&path)),
        other => other?,
    }
    let checksum = ChecksumSpec::from_meta_header(header).ok_or_else(|| bad_meta(&path))?;
    Ok(DiskFiles::new(options.open(dirs.data(copy.place, id))?, meta, checksum))
}

impl DiskFiles {
    pub(super) fn new(data: File, meta: File, checksum: ChecksumSpec) -> Self {
        Self { data, meta, checksum, maps: OnceLock::new(), in_memory: OnceLock::new() }
    }

    /// Opens the files for a long read: the data with an opening of its own, for which the kernel reads ahead
    /// sequentially.
    pub fn for_stream(&self) -> io::Result<Self> {
        let data = File::from(sys::reopen(&self.data)?);
        sys::advise_sequential(&data);
        Ok(Self::new(data, self.meta.try_clone()?, self.checksum))
    }

    /// Maps the `length` bytes of a finalized replica and their CRCs. False: there is no room, or mapping failed.
    pub fn map(&self, length: u64, room: &Arc<MappedBytesLimit>) -> bool {
        let meta_length = META_HEADER + self.checksum.checksum_bytes(length);
        if length == 0 {
            // An empty replica is never read.
            return true;
        }
        let Some(share) = room.take(sys::pages(length) + sys::pages(meta_length)) else { return false };
        let mapped =
            Mapping::new(&self.data, length).and_then(|data| Ok((data, Mapping::new(&self.meta, meta_length)?)));
        match mapped {
            Ok((data, meta)) => self.maps.set(Maps { data, meta, _share: share }).is_ok(),
            Err(error) => {
                tracing::debug!(%error, "a replica could not be mapped");
                false
            }
        }
    }

    pub fn is_mapped(&self) -> bool {
        self.maps.get().is_some()
    }

    /// Returns whether an access to one of its mappings has failed.
    pub fn is_lost(&self) -> bool {
        self.maps.get().is_some_and(|maps| maps.data.is_lost() || maps.meta.is_lost())
    }

    /// Returns the mappings if they are to be used for a read of that many bytes.
    fn maps_for(&self, bytes: usize) -> Option<&Maps> {
        if bytes <= MAPPED_READ_MAX { self.maps.get() } else { None }
    }

    /// Reads data from `offset`: from the mapping if there is one and the read is short. Otherwise, or if the mapping
    /// fails, from the file.
    pub fn read_data(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match self.maps_for(into.len()) {
            Some(maps) if offset + into.len() as u64 <= maps.data.length() && maps.data.copy(offset, into) => Ok(()),
            _ => self.data.read_exact_at(into, offset),
        }
    }

    /// Reads CRCs `at` bytes into the table.
    pub fn read_crcs(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let offset = META_HEADER + at;
        match self.maps_for(into.len()) {
            Some(maps) if offset + into.len() as u64 <= maps.meta.length() && maps.meta.copy(offset, into) => Ok(()),
            _ => self.meta.read_exact_at(into, offset),
        }
    }

    /// Returns whether the files are in memory, so that reads never wait for a disk.
    pub fn never_waits(&self) -> bool {
        *self.in_memory.get_or_init(|| sys::is_in_memory(&self.data))
    }

    /// Returns the range of the meta file with the CRCs of the chunks `[first, end)`. `None`: there are none.
    pub fn crcs_range(&self, first: u64, end: u64) -> Option<ByteRange> {
        let size = self.checksum.kind.size() as u64;
        ByteRange::new(META_HEADER + first * size, META_HEADER + end * size).filter(|range| !range.is_empty())
    }

    /// Reads data and CRCs unless that would wait for a disk. False: it most likely would, and the buffers' content is
    /// meaningless.
    pub fn read_now(&self, offset: u64, data: &mut [u8], crcs_at: u64, crcs: &mut [u8]) -> bool {
        let crcs_at = META_HEADER + crcs_at;
        match self.maps_for(data.len()) {
            Some(maps) => {
                maps.data.is_resident(offset, data.len())
                    && maps.data.copy(offset, data)
                    && maps.meta.is_resident(crcs_at, crcs.len())
                    && maps.meta.copy(crcs_at, crcs)
            }
            None if self.never_waits() => {
                self.data.read_exact_at(data, offset).is_ok() && self.meta.read_exact_at(crcs, crcs_at).is_ok()
            }
            None => sys::read_cached(&self.data, offset, data) && sys::read_cached(&self.meta, crcs_at, crcs),
        }
    }

    pub fn open(dirs: &PoolDirs, id: BlockId, copy: DiskCopy) -> io::Result<Self> {
        open_files(dirs, id, copy, OpenOptions::new().read(true))
    }

    /// Reads the CRC of the last chunk of `length` bytes from the meta file; 0 if that chunk is whole.
    pub fn partial_crc(&self, length: u64) -> io::Result<u32> {
        let chunk = u64::from(self.checksum.bytes_per_chunk);
        if length.is_multiple_of(chunk) || self.checksum.kind.size() == 0 {
            return Ok(0);
        }
        let mut crc = [0; 4];
        self.meta.read_exact_at(&mut crc, META_HEADER + length / chunk * 4)?;
        Ok(u32::from_be_bytes(crc))
    }
}
