//! Background flush of replicas from memory to disk.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hearth_types::{GenerationStamp, ReplicaState};

use crate::FlushProgress;
use crate::blockstore::Blockstore;
use crate::counters::count;
use crate::disk::copy::{self, DiskWriter, StagedCopy};
use crate::disk::files::DiskCopy;
use crate::disk::layout::ReplicaDir;
use crate::error::{Result, StoreError};
use crate::memory::copy::MemoryCopy;
use crate::mmap::aligned_buffer::AlignedBuffer;
use crate::replica::copies::Dirty;
use crate::replica::{Core, Replica};
use crate::snapshot::{CopyError, Snapshot};
use crate::sys;
use crate::volume::Volume;
use crate::write_target::dir_for_state;

/// Limits of a batch: the number of replicas, each with two open files, and their bytes, unless one replica alone has
/// more.
const BATCH_REPLICAS: usize = 256;
const BATCH_BYTES: u64 = 32 << 20;

/// State of a replica when its flush began.
struct Job {
    replica: Arc<Replica>,
    stamp: GenerationStamp,
    memory: MemoryCopy,
    prepared: StagedCopy,
}

impl Blockstore {
    /// Marks a finalized replica as dirty: its newest bytes are only in memory.
    pub(crate) fn note_dirty(&self, replica: &Arc<Replica>, core: &mut Core) {
        if core.copies.is_dirty() {
            return;
        }
        let dirty = Dirty { since_ms: self.now_ms(), ticket: self.next_ticket() };
        core.copies.mark_dirty(dirty);
        count(&self.counters.dirty_replicas, 1);
        count(&self.counters.dirty_bytes, core.lifecycle.received());
        self.dirty[replica.slice.volume.index].lock().push_back((dirty.ticket, Arc::downgrade(replica)));
    }

    /// Marks a replica as clean. Called before its length changes: the store counts its bytes as dirty.
    pub(crate) fn clear_dirty(&self, core: &mut Core) {
        if core.copies.mark_clean() {
            self.counters.dirty_replicas.fetch_sub(1, Ordering::Relaxed);
            self.counters.dirty_bytes.fetch_sub(core.lifecycle.received(), Ordering::Relaxed);
        }
    }

    fn next_ticket(&self) -> NonZeroU64 {
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        NonZeroU64::new(ticket).expect("tickets begin with 1 and do not run out")
    }

    /// Flushes the dirty finalized `replica` to disk. The caller holds `change`.
    pub(crate) fn flush_one(&self, replica: &Arc<Replica>) -> Result<()> {
        let seen = self.look(replica)?;
        let Some((snapshot, stamp, _memory)) = seen else { return Ok(()) };
        let dirs = &replica.slice.dirs;
        let failed = |error| self.disk_error(&replica.slice, "flush a replica to", error);
        let prepared = StagedCopy::write(dirs, replica.id, stamp, &snapshot, &mut None)
            .map_err(|error| self.flush_failed(replica, error))?;
        prepared.sync().map_err(failed)?;
        let mut touched = BTreeSet::new();
        let new = prepared.commit(dirs, &mut touched).map_err(failed)?;
        sync_dirs(&touched).map_err(failed)?;
        self.is_clean(replica, new);
        Ok(())
    }

    /// Returns the bytes that a flush of a dirty replica has to write. `Ok(None)`: nothing.
    fn look(&self, replica: &Replica) -> Result<Option<(Snapshot, GenerationStamp, MemoryCopy)>> {
        let mut core = replica.core();
        if !core.copies.is_dirty() || core.lifecycle.is_gone() || !core.lifecycle.is_finalized() {
            return Ok(None);
        }
        let Some(memory) = core.copies.memory().cloned() else { return Ok(None) };
        Ok(Some((replica.snapshot(&mut core)?, core.lifecycle.stamp(), memory)))
    }

    fn flush_failed(&self, replica: &Replica, error: CopyError) -> StoreError {
        count(&self.counters.flush_failures, 1);
        match error {
            CopyError::Corrupt { .. } => self.mark_corrupt(replica, &mut replica.core(), &error.to_string()),
            other => self.copy_error(&replica.slice, replica.id, replica.core().lifecycle.stamp(), other),
        }
    }

    /// Marks the replica as clean. The caller holds `change`; `new` is durable.
    fn is_clean(&self, replica: &Replica, new: DiskCopy) {
        let old = {
            let mut core = replica.core();
            let old = core.copies.set_disk(new);
            // All of it was checked while it was written to disk.
            core.lifecycle.mark_verified();
            self.clear_dirty(&mut core);
            replica.settle_space(&mut core);
            old
        };
        if let Some(old) = old {
            copy::remove_superseded(&replica.slice.dirs, replica.id, old, new);
        }
        count(&self.counters.flushed_replicas, 1);
        count(&self.counters.flushed_bytes, new.length);
    }

    /// Flushes replicas that became dirty before `before_ms`, oldest first, until none is left or `goes_on` returns
    /// false.
    pub(crate) fn flush_volume(&self, volume: &Volume, before_ms: u64, goes_on: &mut dyn FnMut(FlushProgress) -> bool) {
        let _one_at_a_time = self.flushing[volume.index].lock();
        let mut buffer = None;
        // Kept out of the queue until the end, so that a replica that fails does not block those behind it.
        let mut again = Vec::new();
        loop {
            let batch = self.next_batch(volume, before_ms);
            if batch.is_empty() || !goes_on(self.flush_batch(volume, batch, &mut buffer, &mut again)) {
                break;
            }
        }
        for replica in again.iter().rev() {
            let core = replica.core();
            if let Some(dirty) = core.copies.dirty() {
                self.dirty[volume.index].lock().push_front((dirty.ticket, Arc::downgrade(replica)));
            }
        }
    }

    fn next_batch(&self, volume: &Volume, before_ms: u64) -> Vec<(NonZeroU64, Arc<Replica>)> {
        let queue = &self.dirty[volume.index];
        let mut batch = Vec::new();
        let mut bytes = 0;
        // A thread that makes a replica dirty locks its core, then the queue: never the other way round. The front does
        // not change, since only one flush per volume runs and all other threads add at the back.
        loop {
            let front = queue.lock().front().cloned();
            let Some((ticket, entry)) = front else { break };
            let replica = entry.upgrade();
            let about = replica.as_ref().and_then(|replica| {
                let core = replica.core();
                let dirty = core.copies.dirty().filter(|dirty| dirty.ticket == ticket);
                dirty.map(|dirty| (dirty.since_ms, core.lifecycle.received()))
            });
            if let (Some(replica), Some((since, length))) = (replica, about) {
                let enough = batch.len() == BATCH_REPLICAS || (bytes + length > BATCH_BYTES && !batch.is_empty());
                // The replica was reopened and finalized again since it was taken: a batch locks each of its replicas.
                let taken = batch.iter().any(|(_, other)| Arc::ptr_eq(other, &replica));
                if since > before_ms || enough || taken {
                    break;
                }
                bytes += length;
                batch.push((ticket, replica));
            }
            queue.lock().pop_front();
        }
        batch
    }

    fn flush_batch(
        &self,
        volume: &Volume,
        batch: Vec<(NonZeroU64, Arc<Replica>)>,
        buffer: &mut Option<AlignedBuffer>,
        again: &mut Vec<Arc<Replica>>,
    ) -> FlushProgress {
        let began = self.options.clock.monotonic();
        let mut progress = FlushProgress::default();
        let mut jobs = Vec::with_capacity(batch.len());
        for (_, replica) in &batch {
            match self.prepare(replica, buffer) {
                Ok(Some(job)) => jobs.push(job),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, storage = %volume.id, "cannot flush a replica to disk");
                    progress.failures += 1;
                }
            }
        }
        let written = self.options.clock.monotonic();
        let lengths = jobs.iter().map(|job| job.prepared.length());
        volume.timers.note_writes(written.saturating_sub(began), lengths);
        // Writeback of all copies has started by now: the first sync commits the journal for most of them.
        let prepared = jobs.len() as u64;
        jobs.retain(|job| match job.prepared.sync() {
            Ok(()) => true,
            Err(error) => {
                self.give_up(volume, &job.replica, error, &mut progress);
                false
            }
        });
        volume.timers.note_syncs(self.options.clock.monotonic().saturating_sub(written), prepared);
        let replicas: Vec<Arc<Replica>> = jobs.iter().map(|job| job.replica.clone()).collect();
        // No other thread waits for one of these while holding another: see `replica.rs`.
        let _changes: Vec<_> = replicas.iter().map(|replica| replica.change.lock()).collect();
        let mut touched = BTreeSet::new();
        let mut committed = Vec::with_capacity(jobs.len());
        for Job { replica, stamp, memory, prepared } in jobs {
            let same = {
                let core = replica.core();
                core.copies.is_dirty()
                    && !core.lifecycle.is_gone()
                    && core.lifecycle.stamp() == stamp
                    && core.lifecycle.is_finalized()
                    && core.copies.memory().is_some_and(|now| now.same(&memory))
            };
            if !same {
                // Reopened, recovered or deleted since the flush began.
                continue;
            }
            match prepared.commit(&replica.slice.dirs, &mut touched) {
                Ok(new) => committed.push((replica, new)),
                Err(error) => self.give_up(volume, &replica, error, &mut progress),
            }
        }
        let synced = sync_dirs(&touched);
        for (replica, new) in committed {
            match &synced {
                Ok(()) => {
                    self.is_clean(&replica, new);
                    progress.replicas_done += 1;
                    progress.bytes_done += new.length;
                }
                Err(error) => {
                    let error = std::io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO));
                    self.give_up(volume, &replica, error, &mut progress);
                }
            }
        }
        if progress.replicas_done > 0 {
            self.counters.flushes.observe(self.options.clock.monotonic().saturating_sub(began));
        }
        // Replicas still dirty with the same ticket (they failed, or got a new stamp since) are retried. A replica that
        // became dirty again has another ticket, and its own place in the queue.
        again.extend(batch.into_iter().filter_map(|(ticket, replica)| {
            let still = {
                let core = replica.core();
                core.copies.dirty().is_some_and(|dirty| dirty.ticket == ticket)
            };
            still.then_some(replica)
        }));
        progress
    }

    fn prepare(&self, replica: &Arc<Replica>, buffer: &mut Option<AlignedBuffer>) -> Result<Option<Job>> {
        replica.slice.volume.check()?;
        let Some((snapshot, stamp, memory)) = self.look(replica)? else { return Ok(None) };
        match StagedCopy::write(&replica.slice.dirs, replica.id, stamp, &snapshot, buffer) {
            Ok(prepared) => Ok(Some(Job { replica: replica.clone(), stamp, memory, prepared })),
            Err(error) => {
                let changed = !replica.core().copies.memory().is_some_and(|now| now.same(&memory));
                // An append has replaced the CRCs during the read.
                if changed { Ok(None) } else { Err(self.flush_failed(replica, error)) }
            }
        }
    }

    fn give_up(&self, volume: &Volume, replica: &Arc<Replica>, error: std::io::Error, progress: &mut FlushProgress) {
        count(&self.counters.flush_failures, 1);
        let error = self.disk_error(&replica.slice, "flush a replica to", error);
        tracing::warn!(%error, storage = %volume.id, "cannot flush a replica to disk");
        progress.failures += 1;
    }

    /// Writes the received bytes, CRCs and directory entries of a replica being written in memory to disk, durably. The
    /// caller holds `change` and the lock of the replica's writer, which without memory continues in files of the same
    /// names.
    pub(crate) fn sync_being_written(&self, replica: &Arc<Replica>) -> Result<()> {
        let (content, stamp, place, there) = {
            let mut core = replica.core();
            if !core.copies.is_in_memory() {
                return Ok(());
            }
            // Also when the disk has all bytes: a replica that was finalized in files and is appended to may be only in
            // the page cache.
            (
                replica.snapshot(&mut core)?,
                core.lifecycle.stamp(),
                dir_for_state(core.lifecycle.state()),
                core.copies.disk(),
            )
        };
        let dirs = &replica.slice.dirs;
        // The kernel reports such an error once. A second sync of the same pages succeeds, although they may be lost.
        let failed = |error| {
            replica.slice.volume.note_failed_sync();
            self.disk_error(&replica.slice, "sync a replica in", error)
        };
        let (writer, is_new) = DiskWriter::holding(dirs, place, replica.id, stamp, there, &content)
            .map_err(|error| self.flush_failed(replica, error))?;
        writer.sync().map_err(failed)?;
        if is_new {
            sys::sync_dir(&dirs.dir(place, replica.id)).map_err(failed)?;
        }
        sys::drop_cache(&writer.files.data);
        let new = DiskCopy { place, stamp, length: content.length };
        let old = {
            let mut core = replica.core();
            core.copies.keep_durable();
            core.copies.set_disk(new)
        };
        if let Some(old) = old {
            copy::remove_superseded(dirs, replica.id, old, new);
        }
        Ok(())
    }

    /// Keeps a replica durable after finalize if it was made durable while it was written. After a power failure the
    /// NameNode counts on a finalized replica; one in the being-written place would not help it. If this fails, the
    /// replica is as dirty as any other. The caller holds `change`.
    pub(crate) fn stay_durable(&self, replica: &Arc<Replica>) {
        let stays = {
            let core = replica.core();
            core.copies.is_in_memory()
                && core
                    .copies
                    .disk()
                    .is_some_and(|disk| disk.place == ReplicaDir::BeingWritten && disk.stamp == core.lifecycle.stamp())
                // After a failed sync, a second one proves nothing. The flusher writes all bytes again.
                && !replica.slice.volume.has_failed_sync()
        };
        if !stays {
            return;
        }
        let moved = self.sync_being_written(replica).and_then(|()| {
            let Some(from) = replica.core().copies.disk() else { return Ok(None) };
            let to = copy::relocate(&replica.slice.dirs, replica.id, from, ReplicaDir::Finalized, from.stamp, true);
            to.map(Some).map_err(|error| self.disk_error(&replica.slice, "finalize a replica in", error))
        });
        match moved {
            Ok(Some(to)) => {
                let mut core = replica.core();
                core.copies.set_disk(to);
                self.clear_dirty(&mut core);
                replica.settle_space(&mut core);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, storage = %replica.slice.volume.id, "finalized replica is not durable yet; will flush it")
            }
        }
    }

    /// Returns the amount of data that is only in memory, as remaining progress, and the replicas of it that are being
    /// written.
    fn in_memory_only(&self) -> (FlushProgress, Vec<Arc<Replica>>) {
        let mut left = FlushProgress::default();
        let mut open = Vec::new();
        self.for_each_replica(|replica| {
            let core = replica.core();
            let written =
                matches!(core.lifecycle.state(), ReplicaState::BeingWritten | ReplicaState::WaitingToBeRecovered)
                    && core.copies.is_in_memory()
                    && !core.is_on_disk();
            if written {
                open.push(replica.clone());
            }
            if written || core.copies.is_dirty() {
                left.replicas_left += 1;
                left.bytes_left += core.lifecycle.received();
            }
        });
        (left, open)
    }

    /// Flushes the received bytes of a replica that was being written in memory, whatever state it is in by now.
    fn flush_written(&self, replica: &Arc<Replica>) -> Result<()> {
        let _change = replica.change.lock();
        let writer = replica.core().copies.writer().cloned();
        let _hands = match &writer {
            Some(writer) => {
                let target = writer.target.try_lock_for(self.options.writer_stop_timeout);
                Some(target.ok_or_else(|| StoreError::WriterStillRunning { block: replica.block(&replica.core()) })?)
            }
            None => None,
        };
        let (state, in_memory, disk) = {
            let core = replica.core();
            (core.lifecycle.state(), core.copies.is_in_memory(), core.copies.disk())
        };
        if state == ReplicaState::Finalized {
            return self.flush_one(replica);
        }
        if in_memory {
            return self.sync_being_written(replica);
        }
        // Memory was full, and the replica continued in files; or it is gone.
        let Some(disk) = disk else { return Ok(()) };
        let dirs = &replica.slice.dirs;
        DiskWriter::open(dirs, replica.id, disk)
            .and_then(|files| files.sync())
            .and_then(|()| sys::sync_dir(&dirs.dir(disk.place, replica.id)))
            .map_err(|error| self.disk_error(&replica.slice, "sync a replica in", error))
    }

    /// Writes everything that is only in memory to disk, replicas being written included. Calls `progress` after each
    /// batch and continues while it returns true. Data that arrives
    /// during the call may be left, and counts as left. Used before the process ends (SIGTERM).
    pub fn flush_all(&self, progress: &mut dyn FnMut(FlushProgress) -> bool) -> FlushProgress {
        self.volumes
            .iter()
            .filter(|volume| volume.is_failed())
            .for_each(|volume| self.evacuate_failed_volume(volume, true));
        let (mut total, _) = self.in_memory_only();
        let mut goes_on = progress(total);
        for volume in &self.volumes {
            if !goes_on {
                return total;
            }
            self.flush_volume(volume, u64::MAX, &mut |batch| {
                total.replicas_done += batch.replicas_done;
                total.bytes_done += batch.bytes_done;
                total.replicas_left = total.replicas_left.saturating_sub(batch.replicas_done);
                total.bytes_left = total.bytes_left.saturating_sub(batch.bytes_done);
                goes_on = progress(total);
                goes_on
            });
        }
        // The state as of now: a replica that was finalized may have been reopened, and the other way round.
        for replica in self.in_memory_only().1 {
            if !goes_on {
                return total;
            }
            let length = replica.core().lifecycle.received();
            match self.flush_written(&replica) {
                Ok(()) => {
                    total.replicas_done += 1;
                    total.bytes_done += length;
                    total.replicas_left = total.replicas_left.saturating_sub(1);
                    total.bytes_left = total.bytes_left.saturating_sub(length);
                }
                Err(error) => tracing::warn!(%error, "cannot flush a replica being written"),
            }
            goes_on = progress(total);
        }
        for volume in &self.volumes {
            total.failures += self.sync_behind(volume, Some(u64::MAX)).failures;
        }
        // The remaining data could not be written, or arrived during the call.
        let (left, _) = self.in_memory_only();
        total.replicas_left = total.replicas_left.max(left.replicas_left);
        total.bytes_left = total.bytes_left.max(left.bytes_left);
        total.failures += total.replicas_left;
        total
    }

    /// Writes everything that is due by `flush_delay`, once. The store's own threads do this; tests without threads
    /// call it.
    pub fn flush_due(&self) -> FlushProgress {
        let mut total = FlushProgress::default();
        for volume in &self.volumes {
            let done = self.flush_due_on(volume);
            total.replicas_done += done.replicas_done;
            total.bytes_done += done.bytes_done;
            total.failures += done.failures;
        }
        total
    }

    /// Flushes replicas that are due by age or, if memory is short, all of them.
    pub(crate) fn flush_due_on(&self, volume: &Volume) -> FlushProgress {
        if volume.is_failed() {
            self.evacuate_failed_volume(volume, false);
            return FlushProgress::default();
        }
        let flush_delay = self.flush_delay();
        let now = self.now_ms();
        let short = self.budget.is_short_with(0);
        let before = if short { u64::MAX } else { now.saturating_sub(flush_delay.as_millis() as u64) };
        let mut total = self.sync_behind(volume, now.checked_sub(flush_delay.as_millis() as u64));
        let due = short || now >= flush_delay.as_millis() as u64;
        if due {
            self.flush_volume(volume, before, &mut |batch| {
                total.replicas_done += batch.replicas_done;
                total.bytes_done += batch.bytes_done;
                total.failures += batch.failures;
                !self.threads.is_stopping()
            });
        }
        total
    }
}

pub fn sync_dirs(dirs: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    dirs.iter().try_for_each(|dir| sys::sync_dir(dir))
}
