//! Eviction of clean replicas from memory, in clock order, when a new copy finds no room.

use std::io;

use crate::blockstore::Blockstore;
use crate::counters::count;
use crate::memory::copy::MemoryCopy;
use crate::replica::CORE_LOCK_TIMEOUT;
use crate::replica::cached_files::CachedFiles;
use crate::sys;
use crate::{WithdrawReason, WithdrawReply};

impl Blockstore {
    /// Runs `attempt`, which allocates memory. Retries after reclaiming memory while that helps. `Ok(None)`: memory is
    /// full.
    pub(crate) fn with_memory<T>(&self, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
        for _ in 0..8 {
            match attempt() {
                Err(error) if sys::is_out_of_space(&error) => {
                    if !self.reclaim(self.reclaim_step()) {
                        break;
                    }
                }
                other => return other.map(Some),
            }
        }
        count(&self.counters.memory_full, 1);
        self.threads.wake();
        Ok(None)
    }

    /// Bytes to reclaim at once, enough for more than one caller.
    pub(crate) fn reclaim_step(&self) -> u64 {
        (self.budget.limit() / 32).clamp(1 << 20, 64 << 20)
    }

    /// Evicts clean replicas from memory, in clock order, until `bytes` are free. False: not one byte was freed.
    ///
    /// Replicas that other processes hold come last, and are only withdrawn: their memory is free once those processes
    /// have released it.
    pub(crate) fn reclaim(&self, bytes: u64) -> bool {
        let before = self.budget.used();
        self.budget.sweep();
        self.sweep_lent();
        let goal = before.saturating_sub(bytes);
        let free = |memory: &MemoryCopy| !(memory.is_pinned() || memory.is_shown() && memory.is_held_outside());
        if self.evict(goal, u64::MAX, free) > 0 || self.budget.used() < before {
            return true;
        }
        if self.budget.lingering() < bytes {
            self.evict(goal, bytes, MemoryCopy::is_shown);
        }
        self.budget.used() < before
    }

    /// Evicts replicas that `may` accepts until at most `goal` bytes are used or `bytes` of replicas have been evicted.
    /// Returns the bytes of the evicted replicas.
    fn evict(&self, goal: u64, bytes: u64, may: impl Fn(&MemoryCopy) -> bool) -> u64 {
        let mut gone = 0;
        let mut looks = self.resident.lock().len() * 2;
        while looks > 0 && gone < bytes && self.budget.used() > goal {
            looks -= 1;
            let Some(entry) = self.resident.lock().next() else { break };
            let Some(replica) = entry.upgrade() else { continue };
            // An operation that changes the replica now needs it.
            let Some(_change) = replica.change.try_lock() else {
                self.resident.lock().keep(entry);
                continue;
            };
            // The caller writes to memory, and must not wait for the disk of another replica.
            let Some(mut core) = replica.core_within(CORE_LOCK_TIMEOUT) else {
                self.resident.lock().keep(entry);
                continue;
            };
            if !core.copies.is_in_memory() {
                continue;
            }
            // The data on a failed disk may differ from what was written to it: the copy in memory is evacuated to
            // another storage.
            let clean = core.lifecycle.is_finalized() && core.is_on_disk() && !replica.slice.volume.is_failed();
            // Only shown memory may become free by its withdrawal.
            let own = core.copies.cached_files().and_then(CachedFiles::in_memory);
            let is_held = |memory: &MemoryCopy| memory.is_pinned_beside(own) && !memory.is_shown();
            let keep = !clean
                || core.copies.memory().is_some_and(is_held)
                || core.lifecycle.is_corrupt()
                || core.lifecycle.recovery().is_some();
            if keep {
                drop(core);
                self.resident.lock().keep(entry);
                continue;
            }
            // Close the store's own descriptors, so that they do not hold the memory.
            core.copies.take_cached_files();
            let keep = !core.copies.memory().is_some_and(&may)
                || core.eviction.pass()
                || self.withdraw(&replica, &mut core, WithdrawReason::Eviction) == WithdrawReply::Later
                || core.copies.memory().is_some_and(MemoryCopy::is_pinned);
            if keep {
                drop(core);
                self.resident.lock().keep(entry);
                continue;
            }
            gone += core.lifecycle.received().max(1);
            core.copies.drop_memory();
            replica.forget_disk_reads(&mut core);
            count(&self.counters.evictions, 1);
        }
        gone
    }
}
