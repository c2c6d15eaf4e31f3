//! Slab allocator for small replicas, which share files. A slab has slots of one size class; each slot has its own
//! header, so that the next start finds it.
//!
//! A slot is reused once its replica has left it and no guard on it remains. Nothing of a slab is therefore ever shown:
//! no descriptor of it is passed on, not even to sendfile, whose pages are sent after the call returns.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use hearth_types::ChecksumSpec;
use parking_lot::Mutex;

use super::budget::{Budget, Share};
use super::header::{self, HEADER_BYTES, Identity, Progress};
use crate::mmap::shared_map::SharedMap;
use crate::mmap::write_once::WriteOnceRange;
use crate::sys::{self, PAGE};

const SLAB_BYTES: u64 = 1 << 20;

/// Slot sizes: 512 B times powers of two, and one between each pair. The last holds 64 KiB of data with CRCs per 512
/// bytes and a page to spare.
const CLASSES: [u32; 15] =
    [512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 69632];

/// Allocation step of a slab once that many bytes are in use; before that, pages are allocated one by one.
const STEP: u64 = 64 << 10;

/// The slabs of one pool on one volume.
pub struct Slabs {
    dir: PathBuf,
    budget: Arc<Budget>,
    /// Slabs that may have a free slot; the last is tried first. Full slabs are referenced only by their slots.
    open: [Mutex<Vec<Arc<Slab>>>; CLASSES.len()],
    next_number: AtomicU64,
    /// Bytes of slots in use.
    used: AtomicU64,
    count: AtomicU64,
    /// Bytes of memory that slabs have.
    allocated: AtomicU64,
    /// Set when another process may use the directory.
    closed: AtomicBool,
    me: Weak<Slabs>,
}

struct Slab {
    path: PathBuf,
    map: SharedMap,
    class: usize,
    share: Share,
    state: Mutex<SlabState>,
    owner: Weak<Slabs>,
}

struct SlabState {
    /// Bytes from the start of the file that have memory.
    allocated: u64,
    /// Slots from this index on were never used.
    fresh: u32,
    free: Vec<u16>,
    live: u32,
    /// Listed among the open slabs of its class.
    listed: bool,
    /// Unlinked: no slot may be allocated any more.
    dead: bool,
}

/// One replica's place in a slab, from `begin` to `retire`. If it is dropped in between, when the process ends, it
/// stays for the next start.
pub struct Slot {
    slab: Arc<Slab>,
    /// Bytes of the block; those recorded are fixed.
    data: WriteOnceRange,
    index: u16,
    /// The slot holds a replica.
    begun: AtomicBool,
}

/// Reason why no slot could be allocated.
#[derive(Debug)]
pub enum NoSlot {
    /// Replicas of this size and checksum have files of their own.
    TooLarge,
    /// The limit is reached or the tmpfs is full.
    Full,
    Io(io::Error),
}

/// A slot found at the start.
pub struct FoundSlot {
    pub slot: Slot,
    pub identity: Identity,
    pub progress: Progress,
}

fn class_for(bytes: u64) -> Option<usize> {
    CLASSES.iter().position(|slot_bytes| u64::from(*slot_bytes) >= bytes)
}

fn crc_bytes(checksum: ChecksumSpec, capacity: u32) -> u64 {
    // Data begins at a multiple of 8, which makes copies cheaper.
    checksum.checksum_bytes(u64::from(capacity)).div_ceil(8) * 8
}

/// Returns the class of slots that hold `capacity` bytes of data with their CRCs. `None`: no class does.
fn class_of_replica(checksum: ChecksumSpec, capacity: u32) -> Option<usize> {
    class_for(HEADER_BYTES + crc_bytes(checksum, capacity) + u64::from(capacity))
}

impl Slabs {
    pub fn new(dir: PathBuf, budget: Arc<Budget>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            dir,
            budget,
            open: std::array::from_fn(|_| Mutex::new(Vec::new())),
            next_number: AtomicU64::new(0),
            used: AtomicU64::new(0),
            count: AtomicU64::new(0),
            allocated: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            me: me.clone(),
        })
    }

    /// Returns the bytes of slots in use and the number of slabs.
    pub fn use_now(&self) -> (u64, u64) {
        (self.used.load(Ordering::Relaxed), self.count.load(Ordering::Relaxed))
    }

    /// Bytes of memory that the slabs hold.
    pub fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// Returns the size of the slot for `capacity` bytes of data. `None`: no slot is large enough.
    pub fn slot_bytes_for(&self, checksum: ChecksumSpec, capacity: u64) -> Option<u32> {
        class_of_replica(checksum, u32::try_from(capacity).ok()?).map(|class| CLASSES[class])
    }

    /// Allocates a slot for `capacity` bytes of data; `begin` then makes it a replica's.
    pub fn take(&self, checksum: ChecksumSpec, capacity: u32) -> Result<Slot, NoSlot> {
        let class = class_of_replica(checksum, capacity).ok_or(NoSlot::TooLarge)?;
        let data_offset = (HEADER_BYTES + crc_bytes(checksum, capacity)) as u32;
        let mut open = self.open[class].lock();
        while let Some(slab) = open.last() {
            match slab.take(&self.budget) {
                Ok(Some(index)) => return Ok(self.slot(slab, index, data_offset, capacity, None)),
                Ok(None) => {
                    slab.state.lock().listed = false;
                    open.pop();
                }
                Err(error) if sys::is_out_of_space(&error) => {
                    // No memory for another slot, but another slab may have a freed one.
                    let freed = open.iter().find_map(|slab| slab.take_freed().map(|index| (slab, index)));
                    let (slab, index) = freed.ok_or(NoSlot::Full)?;
                    return Ok(self.slot(slab, index, data_offset, capacity, None));
                }
                Err(error) => return Err(NoSlot::Io(error)),
            }
        }
        let slab = self.new_slab(class).map_err(no_slot)?;
        let index = match slab.take(&self.budget) {
            Ok(Some(index)) => index,
            other => {
                let _ = fs::remove_file(&slab.path);
                return Err(other.err().map_or(NoSlot::Full, no_slot));
            }
        };
        open.push(slab.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(self.slot(&slab, index, data_offset, capacity, None))
    }

    /// Makes a slot of the place `index` of `slab`, which nothing else uses until the slot is dropped. `found`: bytes
    /// that it holds, if a start has found a replica there.
    fn slot(&self, slab: &Arc<Slab>, index: u32, data_offset: u32, capacity: u32, found: Option<u64>) -> Slot {
        self.used.fetch_add(u64::from(slab.slot_bytes()), Ordering::Relaxed);
        let data = WriteOnceRange::new(index * slab.slot_bytes() + data_offset, capacity, found.unwrap_or(0));
        Slot { slab: slab.clone(), data, index: index as u16, begun: AtomicBool::new(found.is_some()) }
    }

    fn new_slab(&self, class: usize) -> io::Result<Arc<Slab>> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("slab_{}_{number}", CLASSES[class]));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.set_len(SLAB_BYTES)?;
        let map = SharedMap::new(&file, SLAB_BYTES)?;
        let share = self.budget.take_found(0);
        Ok(Arc::new(Slab {
            path,
            map,
            class,
            share,
            state: Mutex::new(SlabState {
                allocated: 0,
                fresh: 0,
                free: Vec::new(),
                live: 0,
                listed: true,
                dead: false,
            }),
            owner: self.me.clone(),
        }))
    }

    /// Finds the slots of an earlier process. Slabs without any are removed. Called once, before any `take`.
    pub fn load(&self) -> io::Result<Vec<FoundSlot>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((slot_bytes, number)) = name.to_str().and_then(parse_name) else { continue };
            self.next_number.fetch_max(number + 1, Ordering::Relaxed);
            let class = CLASSES.iter().position(|class| *class == slot_bytes);
            let Some(class) = class else { continue };
            self.load_slab(&entry.path(), class, &mut found)?;
        }
        Ok(found)
    }

    fn load_slab(&self, path: &Path, class: usize, found: &mut Vec<FoundSlot>) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let about = file.metadata()?;
        // Memory is allocated from the start, so the blocks are a prefix. A file truncated by a kill during its
        // creation is empty.
        let allocated = (about.blocks() * 512).min(SLAB_BYTES).min(about.len()) / PAGE * PAGE;
        let slot_bytes = u64::from(CLASSES[class]);
        let slots = allocated / slot_bytes;
        let mut headers = Vec::new();
        let mut bytes = [0; HEADER_BYTES as usize];
        for index in 0..slots {
            file.read_exact_at(&mut bytes, index * slot_bytes)?;
            let Some((identity, progress)) = header::read(&bytes) else { continue };
            let fits = u64::from(identity.slot_bytes) == slot_bytes
                && u64::from(identity.data_offset)
                    >= HEADER_BYTES + identity.checksum.checksum_bytes(progress.received)
                && u64::from(identity.data_offset) + progress.received <= slot_bytes;
            if fits {
                headers.push((index as u32, identity, progress));
            }
        }
        if headers.is_empty() {
            return fs::remove_file(path);
        }
        let fresh = headers.last().map_or(0, |(index, ..)| index + 1);
        let in_use: std::collections::HashSet<u32> = headers.iter().map(|(index, ..)| *index).collect();
        let slab = Arc::new(Slab {
            path: path.to_owned(),
            map: SharedMap::new(&file, SLAB_BYTES)?,
            class,
            share: self.budget.take_found(allocated),
            state: Mutex::new(SlabState {
                allocated,
                fresh,
                free: (0..fresh).filter(|index| !in_use.contains(index)).map(|index| index as u16).collect(),
                live: headers.len() as u32,
                listed: true,
                dead: false,
            }),
            owner: self.me.clone(),
        });
        self.count.fetch_add(1, Ordering::Relaxed);
        self.allocated.fetch_add(allocated, Ordering::Relaxed);
        for (index, identity, progress) in headers {
            let capacity = capacity_of(&identity);
            let slot = self.slot(&slab, index, identity.data_offset, capacity, Some(progress.received));
            found.push(FoundSlot { slot, identity, progress });
        }
        let mut open = self.open[class].lock();
        open.push(slab);
        // Sorted so that free slots are used before new memory is allocated.
        open.sort_by_key(|slab| slab.state.lock().free.len());
        Ok(())
    }

    /// Removes the slabs that hold no replica, also the one that is kept for the next writer.
    pub fn remove_unused(&self) {
        for open in &self.open {
            open.lock().retain(|slab| {
                let mut state = slab.state.lock();
                if state.live > 0 {
                    return true;
                }
                self.remove(slab, &mut state);
                false
            });
        }
    }

    fn remove(&self, slab: &Slab, state: &mut SlabState) {
        state.dead = true;
        let _ = fs::remove_file(&slab.path);
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.allocated.fetch_sub(state.allocated, Ordering::Relaxed);
    }

    /// No file is touched from now on: guards may outlive the store.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Handles a slot of `slab` that has become free.
    fn freed(&self, slab: &Arc<Slab>) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let mut open = self.open[slab.class].lock();
        let mut state = slab.state.lock();
        if state.dead {
            return;
        }
        // Every writer starts in a slot of the last class, so the last slab of that class is kept.
        let last_of_writers = slab.class + 1 == CLASSES.len() && open.iter().all(|other| Arc::ptr_eq(other, slab));
        if state.live == 0 && !last_of_writers {
            open.retain(|other| !Arc::ptr_eq(other, slab));
            self.remove(slab, &mut state);
        } else if !state.listed {
            state.listed = true;
            open.push(slab.clone());
        }
    }
}

fn parse_name(name: &str) -> Option<(u32, u64)> {
    let (slot_bytes, number) = name.strip_prefix("slab_")?.split_once('_')?;
    Some((slot_bytes.parse().ok()?, number.parse().ok()?))
}

/// Returns the largest capacity whose CRCs and data fit the layout of a found slot.
fn capacity_of(identity: &Identity) -> u32 {
    let by_data = identity.slot_bytes.saturating_sub(identity.data_offset);
    let crcs = u64::from(identity.data_offset).saturating_sub(HEADER_BYTES);
    let size = identity.checksum.kind.size() as u64;
    if size == 0 {
        return by_data;
    }
    let by_crcs = (crcs / size).saturating_mul(u64::from(identity.checksum.bytes_per_chunk));
    by_data.min(u32::try_from(by_crcs).unwrap_or(u32::MAX))
}

fn no_slot(error: io::Error) -> NoSlot {
    if sys::is_out_of_space(&error) { NoSlot::Full } else { NoSlot::Io(error) }
}

impl Slab {
    fn slot_bytes(&self) -> u32 {
        CLASSES[self.class]
    }

    /// Allocates a slot. `Ok(None)`: all slots are in use. An out-of-space error: no memory for another slot.
    fn take(&self, budget: &Arc<Budget>) -> io::Result<Option<u32>> {
        let mut state = self.state.lock();
        if state.dead {
            return Ok(None);
        }
        if let Some(index) = state.free.pop() {
            state.live += 1;
            return Ok(Some(u32::from(index)));
        }
        let end = u64::from(state.fresh + 1) * u64::from(self.slot_bytes());
        if end > SLAB_BYTES {
            return Ok(None);
        }
        if end > state.allocated {
            let step = if state.allocated < STEP { PAGE } else { STEP };
            let wanted = end.div_ceil(step) * step;
            let wanted = wanted.min(SLAB_BYTES);
            let full = || io::Error::from_raw_os_error(libc::ENOSPC);
            let share = budget.take(wanted - state.allocated).ok_or_else(full)?;
            // Opened only for this call: thousands of slabs must not hold thousands of descriptors.
            let file = File::options().write(true).open(&self.path)?;
            sys::allocate(&file, state.allocated, wanted - state.allocated)?;
            self.share.merge(share);
            if let Some(owner) = self.owner.upgrade() {
                owner.allocated.fetch_add(wanted - state.allocated, Ordering::Relaxed);
            }
            state.allocated = wanted;
        }
        let index = state.fresh;
        state.fresh += 1;
        state.live += 1;
        Ok(Some(index))
    }
}

impl Slab {
    fn take_freed(&self) -> Option<u32> {
        let mut state = self.state.lock();
        let index = state.free.pop()?;
        state.live += 1;
        Some(u32::from(index))
    }
}

impl Slot {
    fn base(&self) -> u64 {
        u64::from(self.index) * u64::from(self.slab.slot_bytes())
    }

    /// Returns the number of data bytes that it can hold.
    pub fn capacity(&self) -> u32 {
        self.data.length()
    }

    pub fn slot_bytes(&self) -> u32 {
        self.slab.slot_bytes()
    }

    pub fn data_offset(&self) -> u32 {
        self.data.start() - self.base() as u32
    }

    /// Makes the slot a replica's. The data and CRCs that `progress` covers are already written.
    pub fn begin(&self, identity: &Identity, progress: &Progress) {
        assert!(identity.data_offset == self.data_offset() && identity.slot_bytes == self.slot_bytes());
        header::write_new(&self.slab.map, self.base(), identity, progress);
        self.data.fix(progress.received);
        self.begun.store(true, Ordering::Release);
    }

    /// Records progress. Only one caller at a time.
    pub fn record(&self, progress: &Progress) {
        header::write_progress(&self.slab.map, self.base(), progress);
        self.data.fix(progress.received);
    }

    /// Writes bytes at `offset` of the block that readers do not rely on yet.
    pub fn write_data(&self, offset: u64, bytes: &[u8]) {
        self.data.write(&self.slab.map, offset, bytes);
    }

    /// Writes CRCs `at` bytes into the table.
    pub fn write_crcs(&self, at: u64, bytes: &[u8]) {
        assert!(HEADER_BYTES + at + bytes.len() as u64 <= u64::from(self.data_offset()), "CRCs beyond their table");
        self.slab.map.write(self.base() + HEADER_BYTES + at, bytes);
    }

    /// Reads CRCs of whole chunks that have been recorded, `at` bytes into the table.
    pub fn read_crcs(&self, at: u64, into: &mut [u8]) {
        assert!(HEADER_BYTES + at + into.len() as u64 <= u64::from(self.data_offset()), "CRCs beyond their table");
        self.slab.map.read(self.base() + HEADER_BYTES + at, into);
    }

    /// Returns the first `length` bytes of the block, which are recorded in this slot. They are not written again while
    /// the slot is this replica's: a truncated replica moves to another slot if a guard remains.
    pub fn data(&self, length: u64) -> &[u8] {
        self.data.bytes(&self.slab.map, length)
    }

    /// Marks the slot as no longer holding the replica. The memory is reused once the last guard is dropped.
    pub fn retire(&self) {
        if self.begun.swap(false, Ordering::AcqRel) {
            header::wipe(&self.slab.map, self.base());
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(owner) = self.slab.owner.upgrade() {
            owner.used.fetch_sub(u64::from(self.slot_bytes()), Ordering::Relaxed);
        }
        if *self.begun.get_mut() {
            return;
        }
        let look = {
            let mut state = self.slab.state.lock();
            state.free.push(self.index);
            state.live -= 1;
            state.live == 0 || !state.listed
        };
        if look && let Some(owner) = self.slab.owner.upgrade() {
            owner.freed(&self.slab);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_types::{BlockId, GenerationStamp, ReplicaState};

    fn identity(slot: &Slot, id: i64) -> Identity {
        Identity {
            block: BlockId(id),
            nonce: id as u64,
            checksum: ChecksumSpec::DEFAULT,
            data_offset: slot.data_offset(),
            slot_bytes: slot.slot_bytes(),
            created_ms: 0,
        }
    }

    fn progress(length: u64) -> Progress {
        Progress {
            sequence: 1,
            stamp: GenerationStamp(1),
            received: length,
            acked: length,
            partial_crc: 0,
            state: ReplicaState::Finalized,
        }
    }

    fn fill(slabs: &Slabs, id: i64, data: &[u8]) -> Slot {
        let slot = slabs.take(ChecksumSpec::DEFAULT, data.len() as u32).unwrap();
        slot.write_data(0, data);
        slot.begin(&identity(&slot, id), &progress(data.len() as u64));
        slot
    }

    #[test]
    fn hundred_bytes_take_a_512_byte_slot() {
        let dir = tempfile::tempdir().unwrap();
        let budget = Budget::new(1 << 30);
        let slabs = Slabs::new(dir.path().to_owned(), budget.clone());
        let slots: Vec<Slot> = (0..10_000).map(|id| fill(&slabs, id, &[id as u8; 100])).collect();
        assert!(slots.iter().all(|slot| slot.slot_bytes() == 512));
        assert!(budget.used() <= 10_000 * 512 + STEP, "{}", budget.used());
    }

    #[test]
    fn live_slots_are_found_after_restart() {
        let dir = tempfile::tempdir().unwrap();
        let budget = Budget::new(1 << 30);
        {
            let slabs = Slabs::new(dir.path().to_owned(), budget.clone());
            let slots: Vec<Slot> = (0..3000).map(|id| fill(&slabs, id, &[id as u8; 100])).collect();
            slots.iter().step_by(2).for_each(Slot::retire);
        }
        assert_eq!(budget.used(), 0);
        let slabs = Slabs::new(dir.path().to_owned(), budget.clone());
        let found = slabs.load().unwrap();
        assert_eq!(found.len(), 1500);
        for FoundSlot { slot, identity, progress } in &found {
            assert_eq!(identity.block.0 % 2, 1);
            let data = slot.data(progress.received);
            assert_eq!(data, &[identity.block.0 as u8; 100]);
        }
        // Freed slots are used before new memory is allocated.
        let before = budget.used();
        let more: Vec<Slot> = (0..1000).map(|id| fill(&slabs, id, &[1; 100])).collect();
        assert_eq!(budget.used(), before);
        for slot in more.iter().chain(found.iter().map(|found| &found.slot)) {
            slot.retire();
        }
        drop((more, found));
        assert_eq!((budget.used(), slabs.use_now()), (0, (0, 0)));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn unused_slabs_are_removed_also_that_of_writers() {
        let dir = tempfile::tempdir().unwrap();
        let slabs = Slabs::new(dir.path().to_owned(), Budget::new(1 << 30));
        let slots = [fill(&slabs, 1, &[1; 100]), fill(&slabs, 2, &vec![2; 65_000])];
        let files = || fs::read_dir(dir.path()).unwrap().count();
        slabs.remove_unused();
        assert_eq!(files(), 2, "both are in use");
        slots[1].retire();
        let [small, large] = slots;
        drop(large);
        assert_eq!(files(), 2, "kept for the next writer");
        slabs.remove_unused();
        assert_eq!((files(), slabs.use_now().1), (1, 1));
        small.retire();
        drop(small);
        assert_eq!((files(), slabs.use_now()), (0, (0, 0)));
    }

    #[test]
    fn guarded_slot_is_not_reused() {
        let dir = tempfile::tempdir().unwrap();
        let slabs = Slabs::new(dir.path().to_owned(), Budget::new(1 << 30));
        let slot = Arc::new(fill(&slabs, 1, &[1; 100]));
        let guard = slot.clone();
        slot.retire();
        drop(slot);
        let _other = fill(&slabs, 2, &[2; 100]);
        assert_eq!(guard.data(100), &[1; 100]);
    }

    #[test]
    fn full_budget_differs_from_too_large_replica() {
        let dir = tempfile::tempdir().unwrap();
        let slabs = Slabs::new(dir.path().to_owned(), Budget::new(PAGE));
        assert!(slabs.take(ChecksumSpec::DEFAULT, 100).is_ok());
        assert!(matches!(slabs.take(ChecksumSpec::DEFAULT, 65536), Err(NoSlot::Full)));
        assert!(matches!(slabs.take(ChecksumSpec::DEFAULT, 70000), Err(NoSlot::TooLarge)));
    }
}
