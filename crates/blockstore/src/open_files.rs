//! Cache of open (and optionally mapped) files of replicas that have their own files, on disk (engines `mmap` and
//! `file`) or in memory. Short reads then need no `open`; mapped ones need no system call. The number of replicas is
//! bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::error::Result;
use crate::mmap::mapped_bytes::MappedBytesLimit;
use crate::options::{Engine, OpenFileCacheOptions};
use crate::replica::cached_files::{CachedFiles, CachedSource, OnDisk};
use crate::replica::{CORE_LOCK_TIMEOUT, Core, Replica};
use crate::snapshot::{Snapshot, Source};
use crate::sys;

/// Cache of the files that the store keeps open.
pub struct OpenFileCache {
    /// Cached replicas, in the order in which the clock hand visits them. Entries may be stale.
    entries: Mutex<VecDeque<Weak<Replica>>>,
    /// Maximum number of replicas; each has two descriptors, and up to two mappings.
    max: AtomicUsize,
    map_at: u8,
    pub mapped: Arc<MappedBytesLimit>,
    /// Number of replicas that found no room for a mapping.
    wanting: AtomicUsize,
}

/// Number of entries that the clock hand checks to make room for a mapping.
const LOOKS: usize = 32;
/// Number of uses after which mapping is tried again for a replica that could not be mapped.
const TRY_AGAIN: u8 = 64;

/// Limits a number of replicas: connections and clients also need descriptors.
fn within_descriptors(replicas: usize) -> usize {
    replicas.min(sys::descriptor_limit() / 8)
}

impl OpenFileCache {
    pub fn new(options: &OpenFileCacheOptions) -> Self {
        Self {
            entries: Mutex::new(VecDeque::new()),
            max: AtomicUsize::new(within_descriptors(options.replicas_max)),
            map_at: options.map_at.clamp(1, TRY_AGAIN - 1),
            mapped: Arc::new(MappedBytesLimit::new(options.mapped_bytes_max)),
            wanting: AtomicUsize::new(0),
        }
    }

    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Returns the maximum number of replicas.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes the maximum number of replicas. `tidy` is due.
    pub fn set_max(&self, replicas_max: usize) {
        self.max.store(within_descriptors(replicas_max), Ordering::Relaxed);
    }

    /// Opens the bytes of a finalized replica of an engine without a memory tier, under its core lock. True: the
    /// replica was added to the cache, and `tidy` is due once the lock is released.
    pub fn open(&self, replica: &Arc<Replica>, core: &mut Core) -> Result<(Snapshot, bool)> {
        let kept = core.copies.take_cached_files();
        let now = core.copies.disk();
        let current = match kept {
            Some(CachedFiles { files: CachedSource::Disk(kept), .. }) if kept.is_of(now) => Some(kept),
            _ => None,
        };
        let Some(mut current) = current else {
            let snapshot = replica.disk_snapshot(core)?;
            let (Source::Disk(files), Some(copy), true) = (&snapshot.source, core.copies.disk(), self.max() > 0) else {
                return Ok((snapshot, false));
            };
            // The cache serves short reads; long ones open the file for themselves.
            sys::advise_random(&files.data);
            let (files, partial_crc) = (files.clone(), snapshot.partial_crc);
            let mut kept = OnDisk { copy, files, partial_crc, uses: 0 };
            self.note_use(replica, &mut kept, snapshot.length);
            self.keep(replica, core, CachedSource::Disk(kept));
            return Ok((snapshot, true));
        };
        let tidy = self.note_use(replica, &mut current, core.lifecycle.received());
        let source = Source::Disk(current.files.clone());
        let (checksum, partial_crc) = (current.files.checksum, current.partial_crc);
        core.copies.cache_files(CachedFiles { files: CachedSource::Disk(current), recent: true });
        Ok((Snapshot { checksum, length: core.lifecycle.received(), partial_crc, source }, tidy))
    }

    /// Like [`Self::open`], for a replica in its own memory file, which `snapshot` has open. True: `tidy` is due.
    pub fn keep_memory(&self, replica: &Arc<Replica>, core: &mut Core, snapshot: &Snapshot) -> bool {
        let Source::File { files, .. } = &snapshot.source else { return false };
        if let Some(kept) = core.copies.cached_files_mut() {
            kept.recent = true;
            return false;
        }
        // An operation that changes the replica asks the kernel which other processes have it open.
        if self.max() == 0 || core.showing.is_changing() || !core.lifecycle.is_finalized() {
            return false;
        }
        self.keep(replica, core, CachedSource::Memory(files.clone()));
        true
    }

    fn keep(&self, replica: &Arc<Replica>, core: &mut Core, files: CachedSource) {
        core.copies.cache_files(CachedFiles { files, recent: true });
        self.entries.lock().push_back(Arc::downgrade(replica));
    }

    /// Maps a replica that is read repeatedly. True: there was no room.
    fn note_use(&self, replica: &Replica, kept: &mut OnDisk, length: u64) -> bool {
        if replica.slice.volume.engine != Engine::Mmap || kept.files.is_mapped() {
            return false;
        }
        kept.uses = kept.uses.wrapping_add(1);
        if kept.uses % TRY_AGAIN != self.map_at || kept.files.map(length, &self.mapped) {
            return false;
        }
        self.wanting.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Closes the files that an earlier [`Self::tidy`] had to leave open. Where the limit is now zero, no read calls
    /// `tidy` again.
    pub fn tidy_if_beyond(&self) {
        if self.len() > self.max() {
            self.tidy();
        }
    }

    /// Closes the files beyond the limits. The caller holds no lock of a replica.
    pub fn tidy(&self) {
        let wanted = self.wanting.swap(0, Ordering::Relaxed) > 0;
        let mut looks = if wanted { LOOKS } else { 0 };
        let mut spared = 0;
        loop {
            let entry = {
                let mut entries = self.entries.lock();
                let beyond = entries.len() > self.max();
                if !beyond && looks == 0 {
                    return;
                }
                looks = looks.saturating_sub(1);
                let Some(entry) = entries.pop_front() else { return };
                entry
            };
            let Some(replica) = entry.upgrade() else { continue };
            let Some(mut core) = replica.core_within(CORE_LOCK_TIMEOUT) else {
                // A thread is opening its files, which may wait for a disk. The next call retries.
                self.entries.lock().push_back(entry);
                return;
            };
            let Some(kept) = core.copies.cached_files_mut() else { continue };
            // Even if all were read recently, one must be closed in the end.
            if std::mem::take(&mut kept.recent) && spared < self.max() {
                spared += 1;
                drop(core);
                self.entries.lock().push_back(entry);
                continue;
            }
            let closed = core.copies.take_cached_files();
            drop(core);
            drop(closed);
        }
    }
}
