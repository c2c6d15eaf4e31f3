//! Verification of replicas against their CRCs, after a reader's complaint or by the scrubber, which checks all
//! replicas continually.

use std::sync::Arc;
use std::time::Duration;

use hearth_types::{ExtendedBlock, GenerationStamp};

use crate::blockstore::Blockstore;
use crate::counters::count;
use crate::disk::copy;
use crate::error::{Result, StoreError};
use crate::replica::{Core, Replica};
use crate::snapshot::{CopyError, Snapshot, Source};
use crate::{WithdrawReason, sys};

impl Blockstore {
    /// Checks every byte of every copy of the replica against its CRCs. Bad copies are dropped while a good one is
    /// left. If none is left, the replica is marked corrupt, with an event. Waits for the disk.
    ///
    /// Errors: `Corrupt`; `ReplicaNotFound`; `Io`, when a copy cannot be opened and no other copy is good. The state of
    /// the replica is unknown then.
    pub fn verify(&self, block: &ExtendedBlock) -> Result<()> {
        self.with_replica(block, |replica| match self.verify_replica(replica, &mut |_| true) {
            // It may have moved to another storage.
            Err(StoreError::ReplicaNotFound { .. }) if replica.core().lifecycle.is_gone() => Ok(None),
            other => other.map(Some),
        })
    }

    /// Checks every copy of a finalized replica. A bad copy is dropped while there is a good one; a copy that could not
    /// be checked counts as neither.
    pub(crate) fn verify_replica(&self, replica: &Arc<Replica>, pause: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let read_too;
        let (memory, disk, stamp, checked) = {
            let mut core = replica.core();
            if core.lifecycle.is_gone() {
                return Err(StoreError::ReplicaNotFound { block: replica.block(&core) });
            }
            if let Some(reason) = core.lifecycle.corrupt() {
                return Err(StoreError::Corrupt { block: replica.block(&core), reason: reason.to_string() });
            }
            if !core.lifecycle.is_finalized() {
                return Ok(());
            }
            let memory = core.copies.is_in_memory().then(|| replica.snapshot(&mut core));
            let disk = core.is_on_disk().then(|| replica.disk_snapshot(&mut core));
            // Pages of replicas that are read now and then stay in the page cache; those of the others are dropped
            // again.
            read_too = core.copies.cached_files().is_some();
            // Held so that it is not evicted while the copy on disk, which may be bad, is read.
            (memory, disk, core.lifecycle.stamp(), core.copies.memory().cloned())
        };
        let memory = memory.map(|opened| check(opened, read_too, pause));
        let disk = disk.map(|opened| check(opened, read_too, pause));
        if ![&memory, &disk].into_iter().flatten().any(|seen| matches!(seen, CheckResult::Bad(_))) {
            if matches!(memory, Some(CheckResult::Good)) {
                self.note_verified(replica, stamp);
            }
            return match (memory, disk) {
                (Some(CheckResult::Good), _) | (_, Some(CheckResult::Good)) => Ok(()),
                (Some(CheckResult::Unknown(Some(error))), _) | (_, Some(CheckResult::Unknown(Some(error)))) => {
                    Err(error)
                }
                _ => Ok(()),
            };
        }
        let _change = replica.change.lock();
        let mut core = replica.core();
        if core.lifecycle.is_gone() || core.lifecycle.stamp() != stamp || !core.lifecycle.is_finalized() {
            // Reopened or recovered since: the check may have seen a change in progress. Retry at the next check.
            return Ok(());
        }
        if let Some(now) = core.copies.memory()
            && !checked.as_ref().is_some_and(|then| now.same(then))
        {
            // For example, read back since.
            return Ok(());
        }
        let memory = memory.filter(|_| core.copies.is_in_memory());
        match (memory, disk) {
            (Some(CheckResult::Bad(problem)), Some(CheckResult::Good)) if core.is_on_disk() => {
                tracing::error!(block = %replica.block(&core), problem, "bad copy in memory is dropped; the disk has a good one");
                count(&self.counters.corruptions, 1);
                self.withdraw(replica, &mut core, WithdrawReason::Corruption);
                core.copies.drop_memory();
                Ok(())
            }
            (Some(CheckResult::Bad(problem)), Some(CheckResult::Unknown(error))) if core.is_on_disk() => {
                // The disk may have the good copy.
                tracing::error!(block = %replica.block(&core), problem, "copy in memory is bad, the one on disk cannot be checked");
                core.lifecycle.mark_unverified();
                error.map_or(Ok(()), Err)
            }
            (Some(seen @ (CheckResult::Good | CheckResult::Unknown(_))), Some(CheckResult::Bad(problem))) => {
                tracing::error!(block = %replica.block(&core), problem, "bad copy on disk is written again from memory");
                count(&self.counters.corruptions, 1);
                self.lose_disk(replica, &mut core, matches!(seen, CheckResult::Good));
                Ok(())
            }
            (Some(CheckResult::Bad(problem)), _) | (_, Some(CheckResult::Bad(problem))) => {
                Err(self.mark_corrupt(replica, &mut core, &problem))
            }
            _ => Ok(()),
        }
    }

    /// Drops the bad copy on disk; the one in memory is to be written again. `remove`: the copy in memory is known to
    /// be good.
    fn lose_disk(&self, replica: &Arc<Replica>, core: &mut Core, remove: bool) {
        let bad = core.copies.lose_disk();
        // If the files stayed, the next start would take them for the replica, and discard the copy in memory.
        if let Some(bad) = bad
            && remove
            && !replica.slice.volume.is_failed()
        {
            copy::remove(&replica.slice.dirs, replica.id, bad);
        }
        self.note_dirty(replica, core);
        replica.settle_space(core);
    }

    /// Assesses a finalized replica that was found at a start, to compare it with another of the same block. Its bytes
    /// are read from the disk itself as long as `room` bytes suffice: after a failed write the page cache has data that
    /// the disk lacks. A bad copy beside a good one is dropped.
    pub(crate) fn assess(&self, replica: &Arc<Replica>, room: &mut u64) -> CopyQuality {
        let mut core = replica.core();
        if !core.lifecycle.is_finalized() {
            return CopyQuality::Unknown;
        }
        let go_on = &mut |_| true;
        let memory = core.copies.is_in_memory().then(|| check(replica.snapshot(&mut core), false, go_on));
        let disk = core.is_on_disk().then(|| match room.checked_sub(core.lifecycle.received()) {
            None => CheckResult::Unknown(None),
            Some(left) => {
                *room = left;
                check(replica.disk_snapshot(&mut core).and_then(|disk| on_the_disk(replica, disk)), false, go_on)
            }
        });
        match (&memory, &disk) {
            (Some(CheckResult::Bad(_)), Some(CheckResult::Good)) => core.copies.drop_memory(),
            (Some(CheckResult::Good), Some(CheckResult::Bad(_))) => self.lose_disk(replica, &mut core, true),
            _ => {}
        }
        match (memory, disk) {
            (_, Some(CheckResult::Good)) => CopyQuality::GoodOnDisk,
            (Some(CheckResult::Good), _) => CopyQuality::GoodInMemory,
            (Some(CheckResult::Unknown(_)), _) | (_, Some(CheckResult::Unknown(_))) => CopyQuality::Unknown,
            _ => CopyQuality::Bad,
        }
    }

    /// Records that the copy in memory was checked, as it was under `stamp`.
    fn note_verified(&self, replica: &Replica, stamp: GenerationStamp) {
        let mut core = replica.core();
        if core.lifecycle.stamp() == stamp && core.lifecycle.is_finalized() && core.copies.is_in_memory() {
            core.lifecycle.mark_verified();
        }
    }

    /// Checks all replicas once, at `StoreOptions::scrub_bytes_per_second`.
    pub(crate) fn scrub(&self) {
        let rate = self.options.scrub_bytes_per_second;
        let mut replicas = Vec::new();
        self.for_each_replica(|replica| replicas.push(Arc::downgrade(replica)));
        for entry in replicas {
            let Some(replica) = entry.upgrade() else { continue };
            if self.threads.is_stopping() {
                return;
            }
            let volume = &replica.slice.volume;
            match self.forget_if_missing_from(volume, &replica) {
                Ok(false) => {}
                Ok(true) => continue,
                Err(error) => tracing::warn!(%error, "cannot scrub a replica"),
            }
            let mut goes_on = true;
            let outcome = self.verify_replica(&replica, &mut |bytes| {
                count(&self.counters.scrubbed_bytes, bytes);
                goes_on = self.threads.sleep(Duration::from_secs_f64(bytes as f64 / rate as f64));
                goes_on
            });
            if let Err(error) = outcome {
                tracing::warn!(%error, "cannot scrub a replica");
            }
            if !goes_on {
                return;
            }
        }
    }
}

/// Result of checking a copy's bytes.
enum CheckResult {
    /// Every byte matches its CRC.
    Good,
    Bad(String),
    /// It could not be opened, or the check was interrupted.
    Unknown(Option<StoreError>),
}

/// Quality of a replica's best copy; greater is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CopyQuality {
    Bad,
    Unknown,
    GoodInMemory,
    GoodOnDisk,
}

/// `read_too`: clients read the replica, so its pages stay in the page cache.
fn check(opened: Result<Snapshot>, read_too: bool, pause: &mut dyn FnMut(u64) -> bool) -> CheckResult {
    let snapshot = match opened {
        Ok(snapshot) => snapshot,
        Err(
            error @ (StoreError::Corrupt { .. } | StoreError::ReplicaNotFound { .. } | StoreError::FilesMissing { .. }),
        ) => return CheckResult::Bad(error.to_string()),
        Err(error) if is_not_there(&error) => return CheckResult::Bad(error.to_string()),
        // For example, no descriptors are left: the state of the bytes is unknown.
        Err(error) => {
            tracing::warn!(%error, "cannot open a replica to check it");
            return CheckResult::Unknown(Some(error));
        }
    };
    let mut is_whole = true;
    let outcome = snapshot.verify(&mut |bytes| {
        is_whole = pause(bytes);
        is_whole
    });
    if let (Source::Disk(files), false) = (&snapshot.source, read_too) {
        sys::drop_cache(&files.data);
    }
    match outcome {
        Ok(()) if is_whole => CheckResult::Good,
        Ok(()) => CheckResult::Unknown(None),
        Err(CopyError::Read(error)) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
            // On a disk this is as bad as wrong bytes; memory does not fail this way.
            CheckResult::Bad(format!("reading failed: {error}"))
        }
        Err(error) => CheckResult::Bad(error.to_string()),
    }
}

fn is_not_there(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// Syncs the snapshot's files and drops their pages from the page cache, so that reads go to the disk.
fn on_the_disk(replica: &Replica, snapshot: Snapshot) -> Result<Snapshot> {
    if let Source::Disk(files) = &snapshot.source {
        for file in [&files.data, &files.meta] {
            file.sync_data().map_err(StoreError::io("sync a replica in", &replica.slice.dirs.root))?;
            sys::drop_cache(file);
        }
    }
    Ok(snapshot)
}
