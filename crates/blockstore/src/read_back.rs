//! Read-back of replicas that are repeatedly read from disk into memory. If memory has room to spare, a second reader
//! is enough. If other replicas would have to be evicted, as many bytes must have been read as the replica is long.
//! Otherwise short reads of a set larger than memory would evict one replica after another, and read each in full for a
//! few chunks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearth_types::ReplicaState;

use crate::blockstore::Blockstore;
use crate::error::Result;
use crate::metrics::count;
use crate::options::Engine;
use crate::replica::{Core, Replica, WriteTarget};
use crate::snapshot::{CopyError, Source};
use crate::sys;
use crate::write_target::CopyRequest;

/// Number of reads from disk before a replica is read back: a single one may be a copy in transit.
const READS: u8 = 2;
/// Maximum number of queued replicas.
const READ_BACK_QUEUE_MAX: usize = 1000;

impl Blockstore {
    /// Records that a reader was served from disk.
    pub(crate) fn note_disk_read(&self, replica: &Arc<Replica>, core: &mut Core) {
        if replica.slice.volume.engine != Engine::Memory || core.state != ReplicaState::Finalized {
            return;
        }
        core.disk_reads = core.disk_reads.saturating_add(1);
        // A replica may take at most half of the memory, since a larger one would evict everything else.
        if core.is_read_back_queued || core.disk_reads < READS || core.received > self.budget.limit() / 2 {
            return;
        }
        // In addition to the memory that is reclaimed at once for writers.
        let taken = self.budget.used().saturating_add(core.received).saturating_add(self.reclaim_step());
        if taken > self.budget.limit() && replica.disk_bytes.load(Ordering::Relaxed) < core.received {
            return;
        }
        let mut wanted = self.read_back_queue.lock();
        if wanted.len() < READ_BACK_QUEUE_MAX {
            wanted.push_back(Arc::downgrade(replica));
            drop(wanted);
            core.is_read_back_queued = true;
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
            core.is_read_back_queued = false;
            replica.forget_disk_reads(&mut core);
            if core.memory.is_some() || core.gone || core.corrupt.is_some() || !core.is_on_disk() {
                return Ok(());
            }
            let content = replica.disk_snapshot(&mut core)?;
            let mut scratch = Core::new(ReplicaState::Finalized, core.stamp);
            (scratch.received, scratch.acked) = (content.length, content.length);
            scratch.partial_crc = content.partial_crc;
            scratch.sequence = core.sequence;
            (content, scratch)
        };
        let wanted = CopyRequest {
            slice: &replica.slice,
            id: replica.id,
            checksum: content.checksum,
            expected_bytes: content.length,
        };
        let made = self.memory_target(&wanted, &mut scratch, content.length, Some(&content));
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
            trimmed
                .map_err(|error| self.copy_error(&replica.slice, replica.id, scratch.stamp, CopyError::Read(error)))?;
        }
        target.install(&mut scratch);
        scratch.open_header = None;
        let _change = replica.change.lock();
        let mut core = replica.core();
        let same = core.memory.is_none()
            && !core.gone
            && core.recovery.is_none()
            && core.state == ReplicaState::Finalized
            && core.stamp == scratch.stamp
            && core.received == content.length;
        if !same {
            self.drop_memory(&mut scratch);
            return Ok(());
        }
        core.memory = scratch.memory.take();
        core.sequence = scratch.sequence;
        core.partial_crc = content.partial_crc;
        core.checksum = Some(content.checksum);
        core.referenced = true;
        // Checked while it was read.
        core.verified = true;
        drop(core);
        self.resident.lock().add(replica);
        count(&self.counters.read_backs, 1);
        Ok(())
    }
}
