//! Background sync of replicas that were finalized in files: engines `mmap` and `file`, and `memory` when it was full.
//! Their bytes are in the page cache. The flusher's next round starts their writeback; when they are due, they are
//! synced.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::{Arc, Weak};

use crate::blockstore::Blockstore;
use crate::counters::count;
use crate::disk::files::DiskCopy;
use crate::flush::sync_dirs;
use crate::queues::Unsynced;
use crate::replica::Replica;
use crate::volume::Volume;
use crate::{FlushProgress, sys};

/// Number of replicas that are synced before their directories are: one journal commit then serves many.
const BATCH: usize = 256;
/// Maximum number of entries. Further replicas are left to the kernel, which writes data older than half a minute.
const UNSYNCED_MAX: usize = 1 << 20;

impl Blockstore {
    /// Records that `replica` was finalized as `copy`, in the page cache. Called under its core lock.
    pub(crate) fn note_unsynced(&self, replica: &Arc<Replica>, copy: DiskCopy) {
        let mut queue = self.unsynced[replica.slice.volume.index].lock();
        if queue.len() < UNSYNCED_MAX {
            let (since_ms, replica) = (self.now_ms(), Arc::downgrade(replica));
            queue.push_back(Unsynced { since_ms, replica, copy, begun: false });
        }
    }

    /// Starts the writeback of new entries, and syncs those finalized up to `before_ms`, if any.
    pub(crate) fn sync_behind(&self, volume: &Volume, before_ms: Option<u64>) -> FlushProgress {
        let _one_at_a_time = self.flushing[volume.index].lock();
        let queue = &self.unsynced[volume.index];
        let new: Vec<(Weak<Replica>, DiskCopy)> = {
            let mut queue = queue.lock();
            let new = queue.iter_mut().rev().take_while(|entry| !entry.begun);
            new.map(|entry| {
                entry.begun = true;
                (entry.replica.clone(), entry.copy)
            })
            .collect()
        };
        for (replica, copy) in new.iter().rev() {
            if let Some(Ok((data, meta))) = replica.upgrade().and_then(|replica| open(&replica, *copy)) {
                sys::start_writeback(&data);
                sys::start_writeback(&meta);
            }
        }
        let mut progress = FlushProgress::default();
        loop {
            let due: Vec<Unsynced> = {
                let mut queue = queue.lock();
                let due = queue
                    .iter()
                    .take(BATCH)
                    .take_while(|entry| before_ms.is_some_and(|before| entry.since_ms <= before))
                    .count();
                queue.drain(..due).collect()
            };
            if due.is_empty() {
                return progress;
            }
            self.sync_batch(due, &mut progress);
        }
    }

    fn sync_batch(&self, due: Vec<Unsynced>, progress: &mut FlushProgress) {
        let mut dirs = BTreeSet::new();
        let mut last = None;
        for Unsynced { replica, copy, .. } in due {
            let Some(replica) = replica.upgrade() else { continue };
            let Some(opened) = open(&replica, copy) else { continue };
            let began = self.options.clock.monotonic();
            let synced = opened.and_then(|(data, meta)| {
                data.sync_data()?;
                meta.sync_data()
            });
            let took = self.options.clock.monotonic().saturating_sub(began);
            replica.slice.volume.timers.note_syncs(took, 1);
            match synced {
                Ok(()) => {
                    dirs.insert(replica.slice.dirs.dir(copy.place, replica.id));
                    progress.replicas_done += 1;
                    progress.bytes_done += copy.length;
                    last = Some(replica);
                }
                // Deleted or reopened between the check and the sync.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.sync_failed(&replica, error, progress),
            }
        }
        if let (Err(error), Some(replica)) = (sync_dirs(&dirs), last) {
            self.sync_failed(&replica, error, progress);
        }
    }

    fn sync_failed(&self, replica: &Replica, error: io::Error, progress: &mut FlushProgress) {
        progress.failures += 1;
        count(&self.counters.flush_failures, 1);
        replica.slice.volume.note_failed_sync();
        // The kernel reports such an error once and drops the bytes: a broken disk fails the volume, and CRCs reveal
        // the rest.
        let error = self.disk_error(&replica.slice, "sync a replica in", error);
        tracing::error!(%error, storage = %replica.slice.volume.id, "a finalized replica may not be on disk");
    }
}

/// Opens the replica's files, if it still has the same copy.
fn open(replica: &Replica, copy: DiskCopy) -> Option<io::Result<(File, File)>> {
    let same = {
        let core = replica.core();
        !core.lifecycle.is_gone() && core.copies.disk() == Some(copy)
    };
    let dirs = &replica.slice.dirs;
    let files = || {
        let data = File::open(dirs.data(copy.place, replica.id))?;
        Ok((data, File::open(dirs.meta(copy.place, replica.id, copy.stamp))?))
    };
    same.then(files)
}
