//! Read-back of replicas that are repeatedly read from disk into memory. If memory has room to spare, a second reader
//! is enough. If other replicas would have to be evicted, as many bytes must have been read as the replica is long.
//! Otherwise short reads of a set larger than memory would evict one replica after another, and read each in full for a
//! few chunks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearth_types::ReplicaState;

use crate::blockstore::Blockstore;
use crate::counters::count;
use crate::error::Result;
use crate::options::Engine;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::writer_shared::WriteTarget;
use crate::replica::{Core, Replica};
use crate::snapshot::{CopyError, Source};
use crate::sys;
use crate::write_target::CopyRequest;

/// Maximum number of queued replicas.
const READ_BACK_QUEUE_MAX: usize = 1000;

impl Blockstore {
    /// Records that a reader was served from disk.
    pub(crate) fn note_disk_read(&self, replica: &Arc<Replica>, core: &mut Core) {
        if replica.slice.volume.engine != Engine::Memory || !core.lifecycle.is_finalized() {
            return;
        }
        let is_worth_it = core.eviction.read_from_disk();
        // A replica may take at most half of the memory, since a larger one would evict everything else.
        if !is_worth_it || core.lifecycle.received() > self.budget.limit() / 2 {
            return;
        }
        // In addition to the memory that is reclaimed at once for writers.
        let taken = self.budget.used().saturating_add(core.lifecycle.received()).saturating_add(self.reclaim_step());
        if taken > self.budget.limit() && replica.disk_bytes.load(Ordering::Relaxed) < core.lifecycle.received() {
            return;
        }
        let mut wanted = self.read_back_queue.lock();
        if wanted.len() < READ_BACK_QUEUE_MAX {
            wanted.push_back(Arc::downgrade(replica));
            drop(wanted);
            core.eviction.queue_read_back();
            self.threads.wake();
        }
    }

    /// Reads the queued replicas back, until the queue is empty or the store closes.
    pub(crate) fn run_read_back(&self) {
        while !self.threads.is_stopping() {
            let Some(entry) = self.read_back_queue.lock().pop_front() else { return };
            let Some(replica) = entry.upgrade() else { continue };
            if let Err(error) = self.read_back(&replica) {
                if error.makes_suspect() {
                    replica.slice.volume.suspects.add(&replica);
                }
                tracing::warn!(%error, "cannot read a replica back into memory");
            }
        }
    }

    /// Reads a finalized replica on disk into memory, if there is room.
    pub(crate) fn read_back(&self, replica: &Arc<Replica>) -> Result<()> {
        let (content, mut scratch) = {
            let mut core = replica.core();
            core.eviction.begin_read_back();
            replica.forget_disk_reads(&mut core);
            if core.copies.is_in_memory()
                || core.lifecycle.is_gone()
                || core.lifecycle.is_corrupt()
                || !core.is_on_disk()
            {
                return Ok(());
            }
            let content = replica.disk_snapshot(&mut core)?;
            let (state, stamp) = (ReplicaState::Finalized, core.lifecycle.stamp());
            let lifecycle = Lifecycle::of_copy(state, stamp, content.length, content.partial_crc);
            (content, Core::new(lifecycle, core.copies.sequence()))
        };
        let wanted = CopyRequest {
            slice: &replica.slice,
            id: replica.id,
            checksum: content.checksum,
            expected_bytes: content.length,
        };
        let began = self.options.clock.monotonic();
        let made = self.memory_target(&wanted, &mut scratch, content.length, Some(&content));
        if matches!(made, Ok(Some(_))) {
            let took = self.options.clock.monotonic().saturating_sub(began);
            replica.slice.volume.timers.note_read(took, content.length);
        }
        if let Source::Disk(files) = &content.source {
            sys::drop_cache(&files.data);
        }
        let mut target = match made {
            Ok(Some(target)) => target,
            Ok(None) => return Ok(()),
            Err(error @ crate::StoreError::Corrupt { .. }) => {
                // Found while reading: the only copy is bad.
                let mut core = replica.core();
                return Err(self.mark_corrupt(replica, &mut core, &error.to_string()));
            }
            Err(error) => return Err(error),
        };
        if let WriteTarget::File(file) = &mut target {
            let trimmed = file.trim(content.length);
            trimmed.map_err(|error| {
                self.copy_error(&replica.slice, replica.id, scratch.lifecycle.stamp(), CopyError::Read(error))
            })?;
        }
        target.install(&mut scratch);
        let memory = scratch.copies.take_memory();
        let _change = replica.change.lock();
        let mut core = replica.core();
        let same = !self.threads.is_stopping()
            && !core.copies.is_in_memory()
            && !core.lifecycle.is_gone()
            && core.lifecycle.recovery().is_none()
            && core.lifecycle.is_finalized()
            && core.lifecycle.stamp() == scratch.lifecycle.stamp()
            && core.lifecycle.received() == content.length;
        if !same {
            if let Some(memory) = memory {
                memory.retire();
            }
            return Ok(());
        }
        core.copies.read_back(memory, scratch.copies.sequence());
        core.lifecycle.set_partial_crc(content.partial_crc);
        core.lifecycle.set_checksum(content.checksum);
        // Checked while it was read.
        core.lifecycle.mark_verified();
        core.eviction.reference();
        drop(core);
        self.resident.lock().add(replica);
        count(&self.counters.read_backs, 1);
        Ok(())
    }
}
