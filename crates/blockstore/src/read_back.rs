//! Replicas that are read from disk again and again come back into memory: into room that nobody needs soon, into room that others have to
//! leave when as much was read of them as they are long. Short reads of a set that is larger than memory would else push out one replica
//! after another, and read all of each from disk, for a few chunks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearth_types::ReplicaState;

use crate::error::Result;
use crate::options::Engine;
use crate::replica::{Core, Replica, WriteTarget};
use crate::snapshot::{CopyError, Source};
use crate::store::{Store, count};
use crate::sys;
use crate::write_target::CopyRequest;

/// Readers from disk before a replica comes back: one may be a copy passing through.
const READS: u8 = 2;
/// More replicas than that are not waited for.
const READ_BACK_QUEUE_MAX: usize = 1000;

impl Store {
    /// A reader was served from disk.
    pub fn note_disk_read(&self, replica: &Arc<Replica>, core: &mut Core) {
        if replica.slice.volume.engine != Engine::Memory || core.state != ReplicaState::Finalized {
            return;
        }
        core.disk_reads = core.disk_reads.saturating_add(1);
        // Half of the memory is as much as one replica gets: it would push everything else out.
        if core.is_read_back_queued || core.disk_reads < READS || core.received > self.budget.limit() / 2 {
            return;
        }
        // Beside what is made free at a time for those that write.
        let taken = self.budget.used().saturating_add(core.received).saturating_add(self.reclaim_step());
        if taken > self.budget.limit() && replica.disk_bytes.load(Ordering::Relaxed) < core.received {
            return;
        }
        let mut wanted = self.read_back_queue.lock();
        if wanted.len() < READ_BACK_QUEUE_MAX {
            wanted.push_back(Arc::downgrade(replica));
            drop(wanted);
            core.is_read_back_queued = true;
            self.wake();
        }
    }

    /// Brings in what is wanted, until the store closes.
    pub fn run_read_back(&self) {
        while !self.threads.is_stopping() {
            let Some(entry) = self.read_back_queue.lock().pop_front() else { return };
            let Some(replica) = entry.upgrade() else { continue };
            if let Err(error) = self.read_back(&replica) {
                if error.makes_suspect() {
                    replica.slice.volume.suspects.add(&replica);
                }
                tracing::warn!(%error, "reading a replica back into memory");
            }
        }
    }

    /// Brings a finalized replica that lies on disk into memory, if there is room.
    pub fn read_back(&self, replica: &Arc<Replica>) -> Result<()> {
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
                // Found on the way in: the only copy is bad.
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
        // Checked on the way in.
        core.verified = true;
        drop(core);
        self.note_resident(replica);
        count(&self.counters.read_backs, 1);
        Ok(())
    }
}
