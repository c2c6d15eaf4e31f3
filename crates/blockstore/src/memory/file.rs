//! A replica with files of its own: data at offset 0 of one, header and CRCs in the other.

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
use crate::mapping::Mapping;
use crate::sys::{self, Map, PAGE};

pub use self::lent::{HUGE_PAGE_BYTES, LentState, Settled};

/// The name of a copy's data file or CRC file, apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileName {
    Data {
        block: BlockId,
        nonce: u64,
    },
    /// `replaced`: how many CRC files this copy has had before.
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
    /// Given back when the last guard is gone, which is when the kernel frees the memory.
    share: Share,
    /// What a writer outside has taken of the tmpfs beyond `share`, as of the last look.
    beyond: Share,
    /// Other processes have been given it, or may have been by a former life of this one: from then on it is not cut in place.
    shown: AtomicBool,
    /// Other processes may have it open, if only to write it.
    outside: AtomicBool,
    /// Unlinked, and outside before: by it one sees whether somebody still holds the memory.
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

/// A copy as readers see it. Dropped without `retire`, it stays for the next start.
pub struct FileCopy {
    data: Arc<Part>,
    crc: Arc<Part>,
    pub checksum: ChecksumSpec,
    pub nonce: u64,
    replaced: u32,
    /// A `Borrower`, of the data file. Nobody takes a descriptor back: it only rises.
    lent: Arc<AtomicU8>,
    open: Mutex<Weak<OpenFiles>>,
}

/// Who outside this process may have a descriptor to write a copy's data with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Borrower {
    Nobody = 0,
    /// A writer that may keep its descriptor of the finalized replica.
    Trusted = 1,
    /// A writer from which the bytes are copied away when the replica is finalized.
    Untrusted = 2,
}

impl Borrower {
    /// An unknown number is the least trusted.
    fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Nobody,
            1 => Self::Trusted,
            _ => Self::Untrusted,
        }
    }
}

/// Unused memory of a lent copy that is borne rather than copied away: an eighth of the bytes, and 64 KiB of any.
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
    map: Map,
}

/// The hands of a writer on its copy.
pub struct FileWriter {
    pub copy: Arc<FileCopy>,
    data: File,
    pub crcs: Arc<CrcMap>,
    /// Bytes of data that have memory.
    allocated: u64,
    /// Some or all of them, mapped, once bytes are there that are to be checked where they lie.
    mapped: Option<Mapping>,
}

/// What a new copy is to be.
#[derive(Clone, Copy)]
pub struct NewCopy<'a> {
    pub dir: &'a Path,
    pub budget: &'a Arc<Budget>,
    pub block: BlockId,
    pub nonce: u64,
    pub checksum: ChecksumSpec,
    pub created_ms: u64,
    /// Bytes that will come, as far as is known: sizes the mapping.
    pub expected_bytes: u64,
}

/// An error for a limit that is reached; looks like a full tmpfs.
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
    /// Makes both files; `FileWriter::begin` makes them a replica's.
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
        // Address space only: the file grows under the mapping as data comes.
        let map = Map::new(&file, crc_file_bytes(checksum, expected_bytes.max(1 << 20)))?;
        Ok(Self { file, map })
    }

    fn open(path: &Path, at_least: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let length = file.metadata()?.len().max(at_least).max(PAGE);
        let map = Map::new(&file, sys::pages(length))?;
        Ok(Self { file, map })
    }

    /// One caller at a time.
    pub fn record(&self, progress: &Progress) {
        header::write_progress(&self.map, 0, progress);
    }
}

impl FileCopy {
    /// A copy that a start has found: its CRC file, and what the header said.
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
        // Descriptors may have left the former process; nobody here has it open yet.
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

    /// Descriptors for reading, shared by all readers of the moment.
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

    /// Its memory leaves this process now.
    pub fn set_shown(&self) {
        for part in [&self.data, &self.crc] {
            part.shown.store(true, Ordering::Release);
            part.outside.store(true, Ordering::Release);
        }
    }

    /// Gives back memory behind the `length` bytes of a finalized replica, right before it is shown for the first time: a writer
    /// that it was lent to has said that there will be no more.
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

    /// Nobody has it any more who has been shown it: it is as if it never had been.
    pub fn clear_shown(&self) {
        self.data.shown.store(false, Ordering::Release);
        self.crc.shown.store(false, Ordering::Release);
    }

    /// Whether its data is in the same file as `other`'s.
    pub fn shares_data(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.data, &other.data)
    }

    /// Somebody has the data open or mapped: another process, or a reader or writer in this one.
    pub fn is_held(&self) -> bool {
        File::open(&self.data.path).is_ok_and(|file| sys::is_open_elsewhere(&file).unwrap_or(true))
    }

    /// Who may still write to the data beside the store.
    pub fn lent(&self) -> Borrower {
        Borrower::from_number(self.lent.load(Ordering::Acquire))
    }

    /// Somebody reads from it at this moment, beside the one who holds `own`.
    pub fn is_open_beside(&self, own: Option<&Arc<OpenFiles>>) -> bool {
        let open = self.open.lock();
        let is_own = own.is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), open.as_ptr()));
        open.strong_count() > usize::from(is_own)
    }

    /// Records progress of a copy that no writer has open.
    pub fn record(&self, progress: &Progress) -> io::Result<()> {
        CrcMap::open(&self.crc.path, PAGE).map(|crcs| crcs.record(progress))
    }

    /// The replica is not here any more: unlinked now, freed by the kernel with the last descriptor or mapping.
    pub fn retire(&self) {
        // The header goes first: a data file without one is nothing.
        self.crc.retire();
        self.data.retire();
    }

    /// Only the CRC file, after `FileWriter::reopen` has put another in its place.
    pub fn retire_crcs(&self) {
        self.crc.retire();
    }
}

impl FileWriter {
    /// Makes room up to `end` bytes of data. `slice`: how much to take at once at most.
    ///
    /// Errors: out of space (see `sys::is_out_of_space`) when the limit or the tmpfs ends; nothing has changed then.
    pub fn reserve(&mut self, budget: &Arc<Budget>, end: u64, slice: u64) -> io::Result<()> {
        let covered = crc_file_bytes(self.copy.checksum, end) <= self.copy.crc.share.bytes();
        if end <= self.allocated && covered {
            return Ok(());
        }
        // Grows with the replica: a small one shall not take a large slice first.
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

    /// Bytes at `offset` of the block, for which room was made.
    pub fn write_data(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(offset + bytes.len() as u64 <= self.allocated, "data beyond the memory taken");
        self.data.write_all_at(bytes, offset)
    }

    pub fn read_data(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.data.read_exact_at(into, offset)
    }

    /// The data up to `end`, for which there is memory, where it lies. `None`: it is not worth that, or cannot be had.
    pub fn mapped(&mut self, end: u64) -> Option<&Mapping> {
        if self.mapped.as_ref().is_none_or(|mapped| mapped.length() < end) {
            let bytes = self.allocated.max(end);
            let has_huge_pages = Mapping::has_huge_pages(&self.data);
            self.mapped = has_huge_pages.then(|| Mapping::for_receiving(&self.data, bytes).ok()).flatten();
        }
        self.mapped.as_ref()
    }

    /// Whether `crcs` fit the bytes at `offset`, for which there is memory: looked at where they lie if that is in huge pages, else read into
    /// `scratch`.
    ///
    /// Errors: `UnexpectedEof` when somebody has cut the file.
    pub fn check(
        &mut self,
        offset: u64,
        bytes: usize,
        crcs: &[u8],
        scratch: &mut Vec<u8>,
    ) -> io::Result<Result<(), ChecksumError>> {
        let checksum = self.copy.checksum;
        // SAFETY: sums are computed, of whatever is there.
        let look = |mapped: &Mapping| unsafe { mapped.with_bytes(offset, bytes, |data| checksum.verify(data, crcs)) };
        if let Some(checked) = self.mapped(offset + bytes as u64).and_then(look) {
            return Ok(checked);
        }
        scratch.resize(scratch.len().max(bytes), 0);
        let data = &mut scratch[..bytes];
        self.read_data(offset, data)?;
        Ok(checksum.verify(data, crcs))
    }

    /// CRCs, `at` bytes into the table; their data has room.
    pub fn write_crcs(&self, at: u64, bytes: &[u8]) {
        assert!(HEADER_BYTES + at + bytes.len() as u64 <= self.copy.crc.share.bytes(), "CRCs beyond their table");
        self.crcs.map.write(HEADER_BYTES + at, bytes);
    }

    /// Bytes from the start of the block that have memory.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// A descriptor for reading and writing the data. It has a position and flags of its own: what its holder sets with
    /// fcntl does not reach ours.
    ///
    /// `to` is on record before the descriptor exists, so that whoever finds the copy after a kill knows of it.
    pub fn lend(&self, to: Borrower) -> io::Result<OwnedFd> {
        assert!(to != Borrower::Nobody, "a descriptor goes to somebody");
        self.note_lent(to);
        self.copy.data.outside.store(true, Ordering::Release);
        Ok(OpenOptions::new().read(true).write(true).open(&self.copy.data.path)?.into())
    }

    fn note_lent(&self, to: Borrower) {
        let now = self.copy.lent().max(to);
        header::write_lent(&self.crcs.map, 0, now as u8);
        self.copy.lent.store(now as u8, Ordering::Release);
    }

    /// Whoever it was lent to has not said that there will be no more, and may be filling it, mapped, at this moment: it is not to be
    /// finalized, and then cut for readers, under his hands.
    pub fn distrust(&self) {
        if self.copy.lent() != Borrower::Nobody {
            self.note_lent(Borrower::Untrusted);
        }
    }

    /// Whether a stranger has taken more of the tmpfs than was granted, which nobody counts: then he has it no longer. `slack` is borne.
    pub fn reclaim_overfill(&self, slack: u64) -> io::Result<bool> {
        if self.copy.lent() != Borrower::Untrusted {
            return Ok(false);
        }
        if sys::memory_of(&self.data)? <= self.copy.data.share.bytes() + slack {
            return Ok(false);
        }
        // Also what lies behind the end of the file. Readers have none of that.
        self.data.set_len(self.allocated)?;
        Ok(true)
    }

    /// Others can be lent the data for writing: not once it was finalized, since readers rely on those bytes.
    pub fn may_be_lent(&self) -> bool {
        self.copy.replaced == 0
    }

    /// With `length` bytes the replica must not be finalized in this copy: a stranger could still change it, or it was
    /// lent and so much of it is unused that a tight copy is the cheaper way to give that back.
    pub fn is_to_be_copied(&self, length: u64) -> bool {
        let rest = self.copy.data.share.bytes().saturating_sub(sys::pages(length));
        match self.copy.lent() {
            Borrower::Nobody => false,
            Borrower::Trusted => rest > (length / REST_SHARE).max(REST_BYTES_MIN) || self.copy.is_overfilled(),
            Borrower::Untrusted => true,
        }
    }

    /// Gives back memory behind `length` bytes of data, unless other processes have been shown the file: they may have mapped
    /// it. Then it stays counted until the file goes.
    pub fn trim(&mut self, length: u64) -> io::Result<()> {
        if self.copy.is_shown() || self.copy.lent() != Borrower::Nobody {
            return Ok(());
        }
        self.data.set_len(length)?;
        self.copy.data.share.shrink_to(sys::pages(length));
        self.allocated = sys::pages(length);
        // For the whole last page: a writer who reopens the file finds that much room in it.
        let crc_bytes = crc_file_bytes(self.copy.checksum, sys::pages(length));
        self.crcs.file.set_len(crc_bytes)?;
        self.copy.crc.share.shrink_to(crc_bytes);
        Ok(())
    }

    /// A writer on a finalized copy: the same data file, and a new CRC file with all that stood in the old one. The header
    /// says `progress`. The old copy stays for its readers; the caller retires its CRC file when the new one counts.
    pub fn reopen(old: &FileCopy, new: &NewCopy<'_>, length: u64, progress: &Progress) -> io::Result<Self> {
        let replaced = old.replaced + 1;
        let crc_path = new.dir.join(FileName::Crc { block: new.block, nonce: old.nonce, replaced }.text());
        let data = OpenOptions::new().read(true).write(true).open(&old.data.path)?;
        // The data file may have room beyond `length` already; the table must cover all of it.
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

    /// A writer on the copy of a replica whose former writer is gone.
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
    fn names_are_read_back() {
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
