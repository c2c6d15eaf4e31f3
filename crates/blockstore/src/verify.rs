//! Do the bytes still fit their CRCs? Asked by a reader's complaint, or by the scrubber, which walks all replicas for ever.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hearth_types::{ExtendedBlock, GenerationStamp, ReplicaState};

use crate::error::{Result, StoreError};
use crate::inner::{Inner, count};
use crate::replica::Replica;
use crate::snapshot::{CopyError, Snapshot, Source};
use crate::{Withdrawal, sys};

impl Inner {
    pub fn verify(&self, block: &ExtendedBlock) -> Result<()> {
        let replica = self.replica(block)?;
        self.verify_replica(&replica, &mut |_| true)
    }

    /// Checks every copy of a finalized replica. A bad one is dropped while there is a good one.
    pub fn verify_replica(&self, replica: &Arc<Replica>, pause: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let read_too;
        let (memory, disk, stamp, checked) = {
            let mut core = replica.core();
            if core.gone {
                return Err(StoreError::ReplicaNotFound { block: replica.block(&core) });
            }
            if let Some(reason) = &core.corrupt {
                return Err(StoreError::Corrupt { block: replica.block(&core), reason: reason.to_string() });
            }
            if core.state != ReplicaState::Finalized {
                return Ok(());
            }
            let memory = core.memory.is_some().then(|| replica.snapshot(&mut core));
            let disk = core.is_on_disk().then(|| replica.disk_snapshot(&mut core));
            // What is read now and then stays in the page cache, the rest leaves it again.
            read_too = core.kept.is_some();
            // Held, it is not evicted while the disk's copy, which may be bad, is read.
            (memory, disk, core.stamp, core.memory.clone())
        };
        let memory = memory.map(|opened| check(opened, read_too, pause));
        let disk = disk.map(|opened| check(opened, read_too, pause));
        if [&memory, &disk].into_iter().flatten().all(|problem| problem.is_none()) {
            if memory.is_some() {
                self.note_verified(replica, stamp);
            }
            return Ok(());
        }
        let _change = replica.change.lock();
        let mut core = replica.core();
        if core.gone || core.stamp != stamp || core.state != ReplicaState::Finalized {
            // Opened or recovered meanwhile: what was seen may have been a change in progress. Next time.
            return Ok(());
        }
        let is_same = match (&core.memory, &checked) {
            (Some(now), Some(then)) => now.same(then),
            _ => false,
        };
        match (memory, disk) {
            (Some(Some(problem)), Some(None)) if core.is_on_disk() => {
                tracing::error!(block = %replica.block(&core), problem, "copy in memory is bad, the disk has a good one");
                count(&self.counters.corruptions, 1);
                self.withdraw(replica, &mut core, Withdrawal::Corruption);
                self.drop_memory(&mut core);
                Ok(())
            }
            (Some(None), Some(Some(problem))) if is_same => {
                tracing::error!(block = %replica.block(&core), problem, "copy on disk is bad, memory has a good one");
                count(&self.counters.corruptions, 1);
                // The next flush writes it anew over the old names.
                core.disk = None;
                self.note_dirty(replica, &mut core);
                self.settle_space(replica, &mut core);
                Ok(())
            }
            (Some(Some(problem)), _) | (_, Some(Some(problem))) => Err(self.mark_corrupt(replica, &mut core, &problem)),
            _ => Ok(()),
        }
    }

    /// The copy in memory was checked, as it was under `stamp`.
    fn note_verified(&self, replica: &Replica, stamp: GenerationStamp) {
        let mut core = replica.core();
        if core.stamp == stamp && core.state == ReplicaState::Finalized && core.memory.is_some() {
            core.verified = true;
        }
    }

    /// One walk over all replicas at `StoreOptions::scrub_bytes_per_second`.
    pub fn scrub(&self) {
        let rate = self.options.scrub_bytes_per_second;
        let mut replicas = Vec::new();
        self.for_each_replica(|replica| replicas.push(Arc::downgrade(replica)));
        for entry in replicas {
            let Some(replica) = entry.upgrade() else { continue };
            if self.threads.is_stopping() {
                return;
            }
            let mut goes_on = true;
            let outcome = self.verify_replica(&replica, &mut |bytes| {
                count(&self.counters.scrubbed_bytes, bytes);
                goes_on = self.threads.sleep(Duration::from_secs_f64(bytes as f64 / rate as f64));
                goes_on
            });
            if let Err(error) = outcome {
                tracing::warn!(%error, "scrubbing");
            }
            if !goes_on {
                return;
            }
        }
    }
}

/// `None`: every byte fits. `read_too`: others read it, so the page cache keeps it.
fn check(opened: Result<Snapshot>, read_too: bool, pause: &mut dyn FnMut(u64) -> bool) -> Option<String> {
    let snapshot = match opened {
        Ok(snapshot) => snapshot,
        Err(error @ (StoreError::Corrupt { .. } | StoreError::ReplicaNotFound { .. })) => {
            return Some(error.to_string());
        }
        // No descriptors left, say: nothing is known of the bytes.
        Err(error) => {
            tracing::warn!(%error, "could not open a replica to check it");
            return None;
        }
    };
    let outcome = snapshot.verify(pause);
    if let (Source::Disk(files), false) = (&snapshot.source, read_too) {
        sys::drop_cache(&files.data);
    }
    match outcome {
        Ok(()) => None,
        Err(CopyError::Read(error)) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            // Of a disk this is as bad as wrong bytes; memory does not fail so.
            Some(format!("reading failed: {error}"))
        }
        Err(error) => Some(error.to_string()),
    }
}

impl crate::inner::Threads {
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Sleeps unless the store is being closed; false then.
    pub fn sleep(&self, duration: Duration) -> bool {
        let end = Instant::now() + duration;
        let mut guard = self.lock.lock();
        while !self.is_stopping() && Instant::now() < end {
            self.wake.wait_until(&mut guard, end);
        }
        !self.is_stopping()
    }
}
