//! A replica's two files on disk: write and move them.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_types::{BlockId, ByteRange, ChecksumSpec, GenerationStamp};

use super::files::{DiskCopy, DiskFiles, META_HEADER, open_files};
use super::layout::{PoolDirs, ReplicaDir};
use crate::mmap::aligned_buffer::AlignedBuffer;
use crate::mmap::mapping::Mapping;
use crate::snapshot::{CopyError, Snapshot};
use crate::sys::{self, PAGE};

/// A copy on disk, open for writing.
pub struct DiskWriter {
    pub files: Arc<DiskFiles>,
}

impl DiskWriter {
    /// Creates an empty copy in `place`. Existing files of those names are leftovers and are truncated.
    pub fn create(
        dirs: &PoolDirs,
        place: ReplicaDir,
        id: BlockId,
        stamp: GenerationStamp,
        checksum: ChecksumSpec,
    ) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        dirs.make_dir(place, id)?;
        let meta = options.open(dirs.meta(place, id, stamp))?;
        meta.write_all_at(&checksum.to_meta_header(), 0)?;
        let data = options.open(dirs.data(place, id))?;
        Ok(Self { files: Arc::new(DiskFiles::new(data, meta, checksum)) })
    }

    pub fn open(dirs: &PoolDirs, id: BlockId, copy: DiskCopy) -> io::Result<Self> {
        let files = open_files(dirs, id, copy, OpenOptions::new().read(true).write(true))?;
        Ok(Self { files: Arc::new(files) })
    }

    /// Opens a copy in `place` that holds all of `content`, unsynced. If `there` has that place and stamp and no more
    /// bytes, it is extended. Otherwise a new copy is created, and the returned flag is true.
    pub fn holding(
        dirs: &PoolDirs,
        place: ReplicaDir,
        id: BlockId,
        stamp: GenerationStamp,
        there: Option<DiskCopy>,
        content: &Snapshot,
    ) -> Result<(Self, bool), CopyError> {
        let usable =
            there.filter(|there| there.place == place && there.stamp == stamp && there.length <= content.length);
        let opened = match usable {
            Some(there) => Self::open(dirs, id, there),
            None => Self::create(dirs, place, id, stamp, content.checksum),
        };
        let writer = opened.map_err(CopyError::Write)?;
        writer.extend(content, usable.map_or(0, |there| there.length))?;
        Ok((writer, usable.is_none()))
    }

    pub fn write_data(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.files.data.write_all_at(bytes, offset)
    }

    /// Writes CRCs `at` bytes into the table. Call it after their data is written: see `scan::whole_length`.
    pub fn write_crcs(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.files.meta.write_all_at(bytes, META_HEADER + at)
    }

    /// Appends the bytes of `snapshot` beyond `from`, unsynced. CRCs are checked in the process.
    pub fn extend(&self, snapshot: &Snapshot, from: u64) -> Result<(), CopyError> {
        let chunk = u64::from(snapshot.checksum.bytes_per_chunk);
        snapshot.for_each_window(from / chunk * chunk, |window| {
            self.write_data(window.offset, window.data).map_err(CopyError::Write)?;
            self.write_crcs(window.crc_at, window.crcs).map_err(CopyError::Write)?;
            Ok(true)
        })
    }

    /// Truncates to `snapshot`, which is of this very copy. If a kill or a power failure interrupts this, the copy is
    /// found to have at least that many bytes: data may be longer than its CRCs say (`scan::whole_length`, for chunks
    /// up to 64 KiB), but is never shorter.
    pub fn truncate(&self, snapshot: &Snapshot) -> io::Result<()> {
        self.cut_crcs(snapshot)?;
        self.files.data.set_len(snapshot.length)
    }

    /// Truncates the CRCs, durably. Whole CRCs are removed before the last one is rewritten for fewer bytes, since that
    /// one is valid only as the last.
    pub(super) fn cut_crcs(&self, snapshot: &Snapshot) -> io::Result<()> {
        let chunk = u64::from(snapshot.checksum.bytes_per_chunk);
        let (meta, length) = (&self.files.meta, snapshot.length);
        let meta_bytes = META_HEADER + snapshot.checksum.checksum_bytes(length);
        if meta.metadata()?.len() != meta_bytes {
            meta.set_len(meta_bytes)?;
            meta.sync_data()?;
        }
        if !length.is_multiple_of(chunk) && snapshot.checksum.kind.size() > 0 {
            self.write_crcs(length / chunk * 4, &snapshot.partial_crc.to_be_bytes())?;
            meta.sync_data()?;
        }
        Ok(())
    }

    pub fn sync(&self) -> io::Result<()> {
        self.files.data.sync_data()?;
        self.files.meta.sync_data()
    }
}

/// A copy written under temporary names in `tmp`, to be moved to `finalized`.
pub struct StagedCopy {
    id: BlockId,
    stamp: GenerationStamp,
    length: u64,
    data: File,
    meta: File,
    data_path: PathBuf,
    meta_path: PathBuf,
    done: bool,
}

static NEXT_NAME: AtomicU64 = AtomicU64::new(0);

/// Smaller copies share a journal commit, and gain nothing from direct I/O.
const DIRECT_BYTES_MIN: u64 = 256 << 10;

/// Returns `buffer`, allocated or enlarged to `bytes`.
fn at_least(buffer: &mut Option<AlignedBuffer>, bytes: usize) -> Result<&mut AlignedBuffer, CopyError> {
    match buffer {
        Some(buffer) if buffer.len() >= bytes => {}
        _ => *buffer = Some(AlignedBuffer::new(bytes).map_err(CopyError::Read)?),
    }
    Ok(buffer.as_mut().expect("made above"))
}

/// Windows of a snapshot that are written at once: each direct write costs a wait for the disk, about 20 us of CPU
/// time.
const WINDOWS_PER_WRITE: usize = 4;

impl StagedCopy {
    /// Writes all of `snapshot`, checking its CRCs. It counts only after `sync` and `commit`.
    pub fn write(
        dirs: &PoolDirs,
        id: BlockId,
        stamp: GenerationStamp,
        snapshot: &Snapshot,
        buffer: &mut Option<AlignedBuffer>,
    ) -> Result<Self, CopyError> {
        let name = format!("{id}_{stamp}.{}", NEXT_NAME.fetch_add(1, Ordering::Relaxed));
        let data_path = dirs.temporary.join(format!("{name}.data"));
        let meta_path = dirs.temporary.join(format!("{name}.meta"));
        let direct = match snapshot.length >= DIRECT_BYTES_MIN && (snapshot.window() as u64).is_multiple_of(PAGE) {
            true => sys::create_direct(&data_path).map_err(CopyError::Write)?,
            false => None,
        };
        let is_direct = direct.is_some();
        let data = direct.map_or_else(|| File::create(&data_path), Ok).map_err(CopyError::Write)?;
        let meta = match File::create(&meta_path) {
            Ok(meta) => meta,
            Err(error) => {
                let _ = fs::remove_file(&data_path);
                return Err(CopyError::Write(error));
            }
        };
        let mut prepared = Self { id, stamp, length: snapshot.length, data, meta, data_path, meta_path, done: false };
        let result = prepared.fill(snapshot, is_direct, buffer);
        if is_direct && matches!(&result, Err(CopyError::Write(error)) if error.raw_os_error() == Some(libc::EINVAL)) {
            // Opening for direct I/O succeeded but writing did not: some file systems report the lack of support late.
            prepared.data = File::create(&prepared.data_path).map_err(CopyError::Write)?;
            prepared.fill(snapshot, false, buffer)?;
        } else {
            result?;
        }
        Ok(prepared)
    }

    fn fill(&mut self, snapshot: &Snapshot, direct: bool, buffer: &mut Option<AlignedBuffer>) -> Result<(), CopyError> {
        let length = snapshot.length;
        let window = snapshot.window() * WINDOWS_PER_WRITE;
        // Direct writes take the bytes from the mapping.
        let mut mapping = if direct { snapshot.mapped() } else { None };
        // Allocated as one extent; a full disk is reported now, not halfway.
        match sys::allocate(&self.data, 0, length) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            other => other.map_err(CopyError::Write)?,
        }
        let mut meta = Vec::with_capacity((META_HEADER + snapshot.checksum.checksum_bytes(length)) as usize);
        meta.extend_from_slice(&snapshot.checksum.to_meta_header());
        let mut offset = 0;
        while offset < length {
            let bytes = window.min((length - offset) as usize);
            let written = if direct { sys::pages(bytes as u64) as usize } else { bytes };
            let in_place = match &mapping {
                Some(mapping) => self.write_mapped(snapshot, mapping, offset, bytes, &mut meta)?,
                None => false,
            };
            if !in_place {
                mapping = None;
                let buffer = at_least(buffer, window.min(sys::pages(length) as usize))?;
                snapshot.read_checked(offset, &mut buffer[..bytes], &mut meta)?;
                self.data.write_all_at(&buffer[..written], offset).map_err(CopyError::Write)?;
            }
            offset += bytes as u64;
        }
        self.data.set_len(length).map_err(CopyError::Write)?;
        self.meta.write_all_at(&meta, 0).map_err(CopyError::Write)?;
        if !direct {
            sys::start_writeback(&self.data);
        }
        sys::start_writeback(&self.meta);
        Ok(())
    }

    /// Checks and writes `bytes` of `mapping`, and the rest of their last page. False: they cannot be read this way,
    /// and `meta` is unchanged.
    fn write_mapped(
        &self,
        snapshot: &Snapshot,
        mapping: &Mapping,
        offset: u64,
        bytes: usize,
        meta: &mut Vec<u8>,
    ) -> Result<bool, CopyError> {
        let before = meta.len();
        let range = ByteRange::with_length(offset, bytes as u64).expect("within the replica");
        let mut done = snapshot.check_mapped(mapping, range, meta)?;
        if done {
            match mapping.write_to(offset, sys::pages(bytes as u64) as usize, &self.data) {
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => done = false,
                other => other.map_err(CopyError::Write)?,
            }
        }
        if !done {
            meta.truncate(before);
        }
        Ok(done)
    }

    /// Returns the number of data bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn sync(&self) -> io::Result<()> {
        for file in [&self.data, &self.meta] {
            file.sync_data()?;
            sys::drop_cache(file);
        }
        Ok(())
    }

    /// Moves the copy into `finalized`, replacing `old` if there is one. Not durable before the directories in
    /// `touched` are synced; only then may `old` be cleaned up with `remove_superseded`.
    pub fn commit(mut self, dirs: &PoolDirs, touched: &mut BTreeSet<PathBuf>) -> io::Result<DiskCopy> {
        let dir = dirs.make_dir(ReplicaDir::Finalized, self.id)?;
        // The meta file first: of two meta files, the one that matches the data counts, and one without data is
        // removed.
        fs::rename(&self.meta_path, dirs.meta(ReplicaDir::Finalized, self.id, self.stamp))?;
        fs::rename(&self.data_path, dirs.data(ReplicaDir::Finalized, self.id))?;
        touched.insert(dir);
        self.done = true;
        Ok(DiskCopy { place: ReplicaDir::Finalized, stamp: self.stamp, length: self.length })
    }
}

impl Drop for StagedCopy {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.data_path);
            let _ = fs::remove_file(&self.meta_path);
        }
    }
}

/// Removes the remaining files of `old` after `new` has durably replaced it.
pub fn remove_superseded(dirs: &PoolDirs, id: BlockId, old: DiskCopy, new: DiskCopy) {
    if old.place != new.place {
        remove(dirs, id, old);
    } else if old.stamp != new.stamp {
        let _ = fs::remove_file(dirs.meta(old.place, id, old.stamp));
    }
}

/// Returns how many of a copy's two files are missing.
///
/// Errors: the existence of a file cannot be determined.
pub fn missing(dirs: &PoolDirs, id: BlockId, copy: DiskCopy) -> io::Result<usize> {
    let files = [dirs.data(copy.place, id), dirs.meta(copy.place, id, copy.stamp)];
    files.iter().try_fold(0, |missing, file| Ok(missing + usize::from(!file.try_exists()?)))
}

pub fn remove(dirs: &PoolDirs, id: BlockId, copy: DiskCopy) {
    let _ = fs::remove_file(dirs.data(copy.place, id));
    let _ = fs::remove_file(dirs.meta(copy.place, id, copy.stamp));
}

/// Moves a copy to another place or stamp (or both). On return it is durable if `durable`.
pub fn relocate(
    dirs: &PoolDirs,
    id: BlockId,
    from: DiskCopy,
    place: ReplicaDir,
    stamp: GenerationStamp,
    durable: bool,
) -> io::Result<DiskCopy> {
    let to = DiskCopy { place, stamp, length: from.length };
    if from == to {
        return Ok(to);
    }
    dirs.make_dir(place, id)?;
    let (old_meta, new_meta) = (dirs.meta(from.place, id, from.stamp), dirs.meta(place, id, stamp));
    let data_back = || {
        if from.place != place {
            let _ = fs::rename(dirs.data(place, id), dirs.data(from.place, id));
        }
    };
    if from.place != place {
        // Data first: a start moves data without a meta file back to its meta file.
        fs::rename(dirs.data(from.place, id), dirs.data(place, id))?;
    }
    fs::rename(&old_meta, &new_meta).inspect_err(|_| data_back())?;
    if durable {
        let sync = |place| sys::sync_dir(&dirs.dir(place, id));
        let synced = sync(place).and_then(|()| if from.place == place { Ok(()) } else { sync(from.place) });
        synced.inspect_err(|_| {
            // The caller continues with a copy in the old place.
            let _ = fs::rename(&new_meta, &old_meta);
            data_back();
        })?;
    }
    Ok(to)
}
