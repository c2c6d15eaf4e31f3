//! A memory copy in its own two files: one with the data from offset 0, one with the header and the CRCs.

mod lent;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use hearth_types::{BlockId, ChecksumError, ChecksumSpec, ReplicaState};
use parking_lot::Mutex;

use super::budget::{Budget, Share};
use super::header::{self, HEADER_BYTES, Identity, Progress};
use crate::mmap::mapping::Mapping;
use crate::mmap::shared_map::SharedMap;
use crate::sys::{self, PAGE};

pub use self::lent::{HUGE_PAGE_BYTES, LentState, Settled};

/// Parsed name of a copy's data file or CRC file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileName {
    Data {
        block: BlockId,
        nonce: u64,
    },
    /// `replaced`: number of earlier CRC files of this copy.
    Crc {
        block: BlockId,
        nonce: u64,
        replaced: u32,
    },
}

impl FileName {
    pub fn text(self) -> String {
        match self {
            Self::Data { block, nonce } => format!("{block}_{nonce:016x}.data"),
            Self::Crc { block, nonce, replaced } => format!("{block}_{nonce:016x}_{replaced}.crc"),
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("blk_")?;
        if let Some(rest) = rest.strip_suffix(".data") {
            let (block, nonce) = rest.split_once('_')?;
            return Some(Self::Data {
                block: BlockId(block.parse().ok()?),
                nonce: u64::from_str_radix(nonce, 16).ok()?,
            });
        }
        let mut parts = rest.strip_suffix(".crc")?.splitn(3, '_');
        Some(Self::Crc {
            block: BlockId(parts.next()?.parse().ok()?),
            nonce: u64::from_str_radix(parts.next()?, 16).ok()?,
            replaced: parts.next()?.parse().ok()?,
        })
    }
}

struct Part {
    path: PathBuf,
    /// Returned when the last guard is dropped, which is when the kernel frees the memory.
    share: Share,
    /// Bytes of the tmpfs that an external writer has taken beyond `share`, as of the last check.
    beyond: Share,
    /// Other processes have been given it, or may have been by an earlier process. From then on it is not truncated in
    /// place.
    shown: AtomicBool,
    /// Other processes may have it open, if only for writing.
    outside: AtomicBool,
    /// The file after it was unlinked, if `outside` was set: shows whether another process still holds the memory.
    unlinked: Mutex<Option<File>>,
}

impl Part {
    fn new(path: PathBuf, share: Share, shown: bool) -> Arc<Self> {
        Arc::new(Self {
            path,
            beyond: share.budget().take_found(0),
            share,
            shown: AtomicBool::new(shown),
            outside: AtomicBool::new(shown),
            unlinked: Mutex::new(None),
        })
    }

    fn retire(&self) {
        if self.outside.load(Ordering::Acquire)
            && let Ok(file) = File::open(&self.path)
        {
            *self.unlinked.lock() = Some(file);
        }
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(file) = self.unlinked.get_mut().take()
            && sys::is_open_elsewhere(&file) == Some(true)
        {
            self.share.budget().watch(file, self.share.take_all());
        }
    }
}

/// A copy as readers see it. If dropped without `retire`, it stays for the next start.
pub struct FileCopy {
    data: Arc<Part>,
    crc: Arc<Part>,
    pub checksum: ChecksumSpec,
    pub nonce: u64,
    replaced: u32,
    /// A `Borrower`, for the data file. It never decreases, since a lent descriptor cannot be revoked.
    lent: Arc<AtomicU8>,
    open: Mutex<Weak<OpenFiles>>,
}

/// Least trusted holder outside this process of a descriptor for writing a copy's data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Borrower {
    Nobody = 0,
    /// A writer that may keep its descriptor of the finalized replica.
    Trusted = 1,
    /// A writer whose bytes are copied to other memory when the replica is finalized.
    Untrusted = 2,
}

impl Borrower {
    /// Treats an unknown number as the least trusted.
    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Nobody,
            1 => Self::Trusted,
            _ => Self::Untrusted,
        }
    }
}

/// Unused memory of a lent copy that is tolerated instead of copying the data: an eighth of the bytes, and at least 64
/// KiB.
const REST_SHARE: u64 = 8;
const REST_BYTES_MIN: u64 = 64 << 10;

/// Descriptors of a copy, for reading.
pub struct OpenFiles {
    pub data: File,
    pub crc: File,
}

/// The mapped header and CRC table of a copy that is being changed.
pub struct CrcMap {
    file: File,
    map: SharedMap,
}

/// A writer's access to its copy.
pub struct FileWriter {
    pub copy: Arc<FileCopy>,
    data: File,
    pub crcs: Arc<CrcMap>,
    /// Bytes of data that have memory.
    allocated: u64,
    /// Mapping of some or all of the data, made once bytes are to be checked in place.
    mapped: Option<Mapping>,
}

/// Parameters of a new copy.
#[derive(Clone, Copy)]
pub struct NewCopy<'a> {
    pub dir: &'a Path,
    pub budget: &'a Arc<Budget>,
    pub block: BlockId,
    pub nonce: u64,
    pub checksum: ChecksumSpec,
    pub created_ms: u64,
    /// Expected number of bytes, as far as is known: sizes the mapping.
    pub expected_bytes: u64,
}

/// Error for a limit that is reached; looks like a full tmpfs.
fn full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}

pub fn crc_file_bytes(checksum: ChecksumSpec, data_bytes: u64) -> u64 {
    sys::pages(HEADER_BYTES + checksum.checksum_bytes(data_bytes))
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

impl NewCopy<'_> {
    /// Creates both files; `begin` then makes them a replica's.
    pub fn create(self) -> io::Result<FileWriter> {
        let name = FileName::Crc { block: self.block, nonce: self.nonce, replaced: 0 };
        let crc_path = self.dir.join(name.text());
        let data_path = self.dir.join(FileName::Data { block: self.block, nonce: self.nonce }.text());
        let crc_share = self.budget.take(PAGE).ok_or_else(full)?;
        let crcs = CrcMap::create(&crc_path, self.checksum, self.expected_bytes);
        let data = crcs.and_then(|crcs| Ok((crcs, create(&data_path)?)));
        let (crcs, data) = data.inspect_err(|_| {
            let _ = fs::remove_file(&crc_path);
            let _ = fs::remove_file(&data_path);
        })?;
        let copy = FileCopy {
            data: Part::new(data_path, self.budget.take_found(0), false),
            crc: Part::new(crc_path, crc_share, false),
            checksum: self.checksum,
            nonce: self.nonce,
            replaced: 0,
            lent: Arc::new(AtomicU8::new(Borrower::Nobody as u8)),
            open: Mutex::new(Weak::new()),
        };
        Ok(FileWriter { copy: Arc::new(copy), data, crcs: Arc::new(crcs), allocated: 0, mapped: None })
    }

    fn identity(&self) -> Identity {
        Identity {
            block: self.block,
            nonce: self.nonce,
            checksum: self.checksum,
            data_offset: 0,
            slot_bytes: 0,
            created_ms: self.created_ms,
        }
    }

    /// Writes the header of a copy made with these values.
    pub fn begin(&self, writer: &FileWriter, progress: &Progress) {
        header::write_new(&writer.crcs.map, 0, &self.identity(), progress);
    }
}

impl CrcMap {
    fn create(path: &Path, checksum: ChecksumSpec, expected_bytes: u64) -> io::Result<Self> {
        let file = create(path)?;
        sys::allocate(&file, 0, PAGE)?;
        // Only address space: the file grows under the mapping as data arrives.
        let map = SharedMap::new(&file, crc_file_bytes(checksum, expected_bytes.max(1 << 20)))?;
        Ok(Self { file, map })
    }

    fn open(path: &Path, at_least: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let length = file.metadata()?.len().max(at_least).max(PAGE);
        let map = SharedMap::new(&file, sys::pages(length))?;
        Ok(Self { file, map })
    }

    /// Records progress. Only one caller at a time.
    pub fn record(&self, progress: &Progress) {
        header::write_progress(&self.map, 0, progress);
    }
}

impl FileCopy {
    /// Opens a copy found at the start, from its CRC file and the decoded header.
    ///
    /// `Ok(None)`: the data file is missing or shorter than recorded.
    pub fn found(
        dir: &Path,
        budget: &Arc<Budget>,
        identity: &Identity,
        progress: &Progress,
        replaced: u32,
    ) -> io::Result<Option<Self>> {
        use std::os::unix::fs::MetadataExt;
        let data_path = dir.join(FileName::Data { block: identity.block, nonce: identity.nonce }.text());
        let crc_path = dir.join(FileName::Crc { block: identity.block, nonce: identity.nonce, replaced }.text());
        let data = match fs::metadata(&data_path) {
            Ok(data) => data,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let crc = fs::metadata(&crc_path)?;
        let crc_bytes = HEADER_BYTES + identity.checksum.checksum_bytes(progress.received);
        if data.len() < progress.received || crc.len() < crc_bytes {
            return Ok(None);
        }
        let mut lent = Borrower::Nobody as u8;
        if progress.state != ReplicaState::Finalized {
            let mut bytes = [0; HEADER_BYTES as usize];
            File::open(&crc_path)?.read_exact_at(&mut bytes, 0)?;
            lent = header::read_lent(&bytes);
        }
        // An earlier process may have passed on descriptors; this process has not opened it yet.
        let shown = sys::is_open_elsewhere(&File::open(&data_path)?).unwrap_or(true);
        Ok(Some(Self {
            data: Part::new(data_path, budget.take_found(data.blocks() * 512), shown),
            crc: Part::new(crc_path, budget.take_found(crc.blocks() * 512), shown),
            checksum: identity.checksum,
            nonce: identity.nonce,
            replaced,
            lent: Arc::new(AtomicU8::new(lent)),
            open: Mutex::new(Weak::new()),
        }))
    }

    /// Opens descriptors for reading, shared by all current readers.
    pub fn open(&self) -> io::Result<Arc<OpenFiles>> {
        let mut open = self.open.lock();
        if let Some(files) = open.upgrade() {
            return Ok(files);
        }
        let files = Arc::new(OpenFiles { data: File::open(&self.data.path)?, crc: File::open(&self.crc.path)? });
        *open = Arc::downgrade(&files);
        Ok(files)
    }

    pub fn is_shown(&self) -> bool {
        self.data.shown.load(Ordering::Acquire)
    }

    /// Marks the copy as shown: its memory leaves this process now.
    pub fn set_shown(&self) {
        for part in [&self.data, &self.crc] {
            part.shown.store(true, Ordering::Release);
            part.outside.store(true, Ordering::Release);
        }
    }

    /// Frees memory behind the `length` bytes of a finalized replica, just before it is shown for the first time. A
    /// writer that the memory was lent to has declared that there will be no more bytes.
    pub fn cut_before_showing(&self, length: u64) -> io::Result<()> {
        if self.is_shown() {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(&self.data.path)?;
        if file.metadata()?.len() > length {
            file.set_len(length)?;
            self.data.share.shrink_to(sys::pages(length));
        }
        Ok(())
    }

    /// Clears the shown mark: no process that was shown the copy holds it any more.
    pub fn clear_shown(&self) {
        self.data.shown.store(false, Ordering::Release);
        self.crc.shown.store(false, Ordering::Release);
    }

    /// Returns whether its data is in the same file as `other`'s.
    pub fn shares_data(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.data, &other.data)
    }

    /// Returns whether the data is open or mapped, in another process or by a reader or writer in this one.
    pub fn is_held(&self) -> bool {
        File::open(&self.data.path).is_ok_and(|file| sys::is_open_elsewhere(&file).unwrap_or(true))
    }

    /// Returns the least trusted borrower that may still write to the data.
    pub fn lent(&self) -> Borrower {
        Borrower::from_number(self.lent.load(Ordering::Acquire))
    }

    /// Returns whether a reader has it open now, apart from the holder of `own`.
    pub fn is_open_beside(&self, own: Option<&Arc<OpenFiles>>) -> bool {
        let open = self.open.lock();
        let is_own = own.is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), open.as_ptr()));
        open.strong_count() > usize::from(is_own)
    }

    /// Records progress of a copy that no writer has open.
    pub fn record(&self, progress: &Progress) -> io::Result<()> {
        CrcMap::open(&self.crc.path, PAGE).map(|crcs| crcs.record(progress))
    }

    /// Unlinks the files: the replica is no longer in them. The kernel frees them with the last descriptor or mapping.
    pub fn retire(&self) {
        // The header goes first: a data file without a header is ignored.
        self.crc.retire();
        self.data.retire();
    }

    /// Unlinks only the CRC file, after `FileWriter::reopen` has created its replacement.
    pub fn retire_crcs(&self) {
        self.crc.retire();
    }
}

impl FileWriter {
    /// Makes room up to `end` bytes of data. `slice`: maximum number of bytes to allocate at once.
    ///
    /// Errors: out of space (see `sys::is_out_of_space`) when the limit or the tmpfs ends; nothing has changed then.
    pub fn reserve(&mut self, budget: &Arc<Budget>, end: u64, slice: u64) -> io::Result<()> {
        let covered = crc_file_bytes(self.copy.checksum, end) <= self.copy.crc.share.bytes();
        if end <= self.allocated && covered {
            return Ok(());
        }
        // Grows with the replica: a small one must not take a large slice first.
        let slice = self.allocated.clamp(256 << 10, slice.max(256 << 10));
        let wanted = sys::pages(end.max(self.allocated + slice));
        let crc_now = self.copy.crc.share.bytes();
        let crc_wanted = crc_file_bytes(self.copy.checksum, wanted).max(crc_now);
        let share = budget.take(wanted - self.allocated).ok_or_else(full)?;
        let crc_share = budget.take(crc_wanted - crc_now).ok_or_else(full)?;
        if crc_wanted > self.crcs.map.length() {
            let grown = CrcMap::open(&self.copy.crc.path, crc_wanted * 2)?;
            self.crcs = Arc::new(grown);
        }
        sys::allocate(&self.crcs.file, crc_now, crc_wanted - crc_now)?;
        self.copy.crc.share.merge(crc_share);
        sys::allocate(&self.data, self.allocated, wanted - self.allocated)?;
        self.copy.data.share.merge(share);
        self.allocated = wanted;
        Ok(())
    }

    /// Writes bytes at `offset` of the block, for which there is room.
    pub fn write_data(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(offset + bytes.len() as u64 <= self.allocated, "data beyond the allocated memory");
        self.data.write_all_at(bytes, offset)
    }

    pub fn read_data(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.data.read_exact_at(into, offset)
    }

    /// Maps the data up to `end`, for which there is memory. `None`: not worth mapping, or the mapping failed.
    pub fn mapped(&mut self, end: u64) -> Option<&Mapping> {
        if self.mapped.as_ref().is_none_or(|mapped| mapped.length() < end) {
            let bytes = self.allocated.max(end);
            let has_huge_pages = Mapping::has_huge_pages(&self.data);
            self.mapped = has_huge_pages.then(|| Mapping::for_receiving(&self.data, bytes).ok()).flatten();
        }
        self.mapped.as_ref()
    }

    /// Checks `crcs` against the bytes at `offset`, for which there is memory. The bytes are checked in place if their
    /// memory is in huge pages, otherwise they are read into `scratch`.
    ///
    /// Errors: `UnexpectedEof` when another process has truncated the file.
    pub fn check(
        &mut self,
        offset: u64,
        bytes: usize,
        crcs: &[u8],
        scratch: &mut Vec<u8>,
    ) -> io::Result<Result<(), ChecksumError>> {
        let checksum = self.copy.checksum;
        let look = |mapped: &Mapping| mapped.verify(offset, bytes, checksum, crcs);
        if let Some(checked) = self.mapped(offset + bytes as u64).and_then(look) {
            return Ok(checked);
        }
        scratch.resize(scratch.len().max(bytes), 0);
        let data = &mut scratch[..bytes];
        self.read_data(offset, data)?;
        Ok(checksum.verify(data, crcs))
    }

    /// Writes CRCs `at` bytes into the table; their data has room.
    pub fn write_crcs(&self, at: u64, bytes: &[u8]) {
        assert!(HEADER_BYTES + at + bytes.len() as u64 <= self.copy.crc.share.bytes(), "CRCs beyond their table");
        self.crcs.map.write(HEADER_BYTES + at, bytes);
    }

    /// Returns the number of bytes from the start of the block that have memory.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Opens a descriptor for reading and writing the data. It has a position and flags of its own: fcntl calls of its
    /// holder do not affect ours.
    ///
    /// `to` is recorded before the descriptor exists, so that a start after a kill knows of it.
    pub fn lend(&self, to: Borrower) -> io::Result<OwnedFd> {
        assert!(to != Borrower::Nobody, "a descriptor is lent to a borrower");
        self.note_lent(to);
        self.copy.data.outside.store(true, Ordering::Release);
        Ok(OpenOptions::new().read(true).write(true).open(&self.copy.data.path)?.into())
    }

    fn note_lent(&self, to: Borrower) {
        let now = self.copy.lent().max(to);
        header::write_lent(&self.crcs.map, 0, now as u8);
        self.copy.lent.store(now as u8, Ordering::Release);
    }

    /// Marks the borrower, if any, as untrusted. It has not declared that there will be no more bytes, and may be
    /// filling the mapped file now: the file must not be finalized, and then truncated for readers, while the borrower
    /// writes.
    pub fn distrust(&self) {
        if self.copy.lent() != Borrower::Nobody {
            self.note_lent(Borrower::Untrusted);
        }
    }

    /// Truncates the file if an untrusted borrower has taken more of the tmpfs than was granted, which is not accounted
    /// for. `slack` bytes are tolerated. Returns whether it did.
    pub fn reclaim_overfill(&self, slack: u64) -> io::Result<bool> {
        if self.copy.lent() != Borrower::Untrusted {
            return Ok(false);
        }
        if sys::memory_of(&self.data)? <= self.copy.data.share.bytes() + slack {
            return Ok(false);
        }
        // This also frees memory behind the end of the file. Readers use none of that.
        self.data.set_len(self.allocated)?;
        Ok(true)
    }

    /// Returns whether the data may be lent for writing: not after it was finalized once, since readers rely on those
    /// bytes.
    pub fn may_be_lent(&self) -> bool {
        self.copy.replaced == 0
    }

    /// Returns whether the replica, with `length` bytes, must not be finalized in this copy. Either an untrusted
    /// borrower could still change it, or it was lent and so much of it is unused that a tight copy is the cheaper way
    /// to free that memory.
    pub fn is_to_be_copied(&self, length: u64) -> bool {
        let rest = self.copy.data.share.bytes().saturating_sub(sys::pages(length));
        match self.copy.lent() {
            Borrower::Nobody => false,
            Borrower::Trusted => rest > (length / REST_SHARE).max(REST_BYTES_MIN) || self.copy.is_overfilled(),
            Borrower::Untrusted => true,
        }
    }

    /// Frees memory behind `length` bytes of data, unless other processes have been shown the file and may have mapped
    /// it. In that case it stays counted until the file is removed.
    pub fn trim(&mut self, length: u64) -> io::Result<()> {
        if self.copy.is_shown() || self.copy.lent() != Borrower::Nobody {
            return Ok(());
        }
        self.data.set_len(length)?;
        self.copy.data.share.shrink_to(sys::pages(length));
        self.allocated = sys::pages(length);
        // For the whole last page: a writer that reopens the file finds that much room in it.
        let crc_bytes = crc_file_bytes(self.copy.checksum, sys::pages(length));
        self.crcs.file.set_len(crc_bytes)?;
        self.copy.crc.share.shrink_to(crc_bytes);
        Ok(())
    }

    /// Opens a writer on a finalized copy, with the same data file and a new CRC file that contains all CRCs of the old
    /// one. The header says `progress`. The old copy stays for its readers; the caller retires its CRC file when the
    /// new one counts.
    pub fn reopen(old: &FileCopy, new: &NewCopy<'_>, length: u64, progress: &Progress) -> io::Result<Self> {
        let replaced = old.replaced + 1;
        let crc_path = new.dir.join(FileName::Crc { block: new.block, nonce: old.nonce, replaced }.text());
        let data = OpenOptions::new().read(true).write(true).open(&old.data.path)?;
        // The data file may already have room beyond `length`; the table must cover all of it.
        let covered = old.data.share.bytes().max(length);
        let share = new.budget.take(crc_file_bytes(old.checksum, covered)).ok_or_else(full)?;
        let made = (|| {
            let crcs = CrcMap::create(&crc_path, old.checksum, new.expected_bytes.max(covered))?;
            sys::allocate(&crcs.file, 0, share.bytes())?;
            let mut table = vec![0; old.checksum.checksum_bytes(length) as usize];
            File::open(&old.crc.path)?.read_exact_at(&mut table, HEADER_BYTES)?;
            crcs.map.write(HEADER_BYTES, &table);
            header::write_new(&crcs.map, 0, &new.identity(), progress);
            header::write_lent(&crcs.map, 0, old.lent() as u8);
            Ok::<_, io::Error>(crcs)
        })();
        let crcs = made.inspect_err(|_| {
            let _ = fs::remove_file(&crc_path);
        })?;
        let allocated = old.data.share.bytes();
        let copy = FileCopy {
            data: old.data.clone(),
            crc: Part::new(crc_path, share, false),
            checksum: old.checksum,
            nonce: old.nonce,
            replaced,
            lent: old.lent.clone(),
            open: Mutex::new(Weak::new()),
        };
        Ok(Self { copy: Arc::new(copy), data, crcs: Arc::new(crcs), allocated, mapped: None })
    }

    /// Opens a writer on the copy of a replica whose previous writer is gone.
    pub fn resume(copy: &Arc<FileCopy>) -> io::Result<Self> {
        let data = OpenOptions::new().read(true).write(true).open(&copy.data.path)?;
        let crcs = CrcMap::open(&copy.crc.path, crc_file_bytes(copy.checksum, 128 << 20))?;
        let allocated = copy.data.share.bytes().min(data.metadata()?.len()) / PAGE * PAGE;
        Ok(Self { copy: copy.clone(), data, crcs: Arc::new(crcs), allocated, mapped: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip() {
        for name in [
            FileName::Data { block: BlockId(-5), nonce: 255 },
            FileName::Crc { block: BlockId(1073741825), nonce: u64::MAX, replaced: 3 },
        ] {
            assert_eq!(FileName::parse(&name.text()), Some(name));
        }
        for text in ["blk_1.data", "blk_x_1.data", "blk_1_1.crc", "slab_512_0", "INCARNATION", "blk_1_1_1.crc.x"] {
            assert_eq!(FileName::parse(text), None);
        }
    }
}
