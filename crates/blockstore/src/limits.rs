//! Limits that can change while the store is in use.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::blockstore::Blockstore;
use crate::error::{Result, StoreError};
use crate::options::{Engine, MemoryOptions};
use crate::start::memory_limit;

impl Blockstore {
    /// Returns the limit of the memory for replicas.
    pub fn memory_limit(&self) -> u64 {
        self.budget.limit()
    }

    /// Changes the limit of the memory for replicas. As at the start, it is lowered to what the tmpfs and the cgroup
    /// can hold. Below the used memory, clean replicas are evicted now, and the others as they get to disk. Until then
    /// no replica gets new memory but free slots of slabs, whose memory is already counted.
    ///
    /// Errors: `BadOptions`: no storage directory has replicas in memory, or the tmpfs is too small; `Io`.
    pub fn set_memory_limit(&self, limit: u64) -> Result<()> {
        if !self.volumes.iter().any(|volume| volume.engine == Engine::Memory) {
            return Err(StoreError::BadOptions("no storage directory has replicas in memory".to_owned()));
        }
        let mut warnings = Vec::new();
        let wanted = MemoryOptions { limit, ..self.options.memory.clone() };
        let limit = memory_limit(&wanted, &mut warnings)?.map_err(StoreError::BadOptions)?;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        self.budget.set_limit(limit);
        *self.shrink_pace.lock() = ShrinkPace::default();
        self.shrink_to_limit();
        // The flushers find that memory is short.
        self.threads.wake();
        Ok(())
    }

    /// Evicts clean replicas while a lowered limit is exceeded. Does nothing if the last pass was too recent.
    pub(crate) fn shrink_to_limit(&self) {
        let beyond = self.budget.beyond_lowered_limit();
        if beyond == 0 {
            return;
        }
        let flushed = self.counters.flushed_replicas.load(Ordering::Relaxed);
        if !self.shrink_pace.lock().begin(self.now_ms(), flushed) {
            return;
        }
        let has_freed = self.reclaim(beyond);
        if self.shrink_pace.lock().end(has_freed) {
            let (used, limit) = (self.budget.used(), self.budget.limit());
            tracing::warn!(
                used,
                limit,
                "the lowered memory limit cannot be kept now: the rest is not on disk, or in use; will retry"
            );
        }
    }

    /// Returns the maximum age of a finalized replica that is not yet on disk.
    pub fn flush_delay(&self) -> Duration {
        Duration::from_millis(self.flush_delay_ms.load(Ordering::Relaxed))
    }

    /// Changes the maximum age of a finalized replica that is not yet on disk.
    pub fn set_flush_delay(&self, delay: Duration) {
        self.flush_delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.threads.wake();
    }

    /// Returns the maximum number of replicas that stay open between reads.
    pub fn open_replicas_max(&self) -> usize {
        self.open_files.max()
    }

    /// Changes the maximum number of replicas that stay open between reads. As at the start, it is at most an eighth
    /// of the process's descriptors. Replicas beyond it are closed; one whose files are being opened follows
    /// within seconds. May wait for a disk.
    pub fn set_open_replicas_max(&self, replicas: usize) {
        self.open_files.set_max(replicas);
        self.open_files.tidy();
    }

    /// Returns the maximum bytes of address space for mapped replicas.
    pub fn mapped_bytes_max(&self) -> u64 {
        self.open_files.mapped.max()
    }

    /// Changes the maximum bytes of address space for mapped replicas. Replicas beyond a lower one stay mapped until
    /// they are closed.
    pub fn set_mapped_bytes_max(&self, bytes: u64) {
        self.open_files.mapped.set_max(bytes);
    }
}

/// Shortest and longest pause between two passes of [`Blockstore::shrink_to_limit`], which look at all replicas.
const SHRINK_PAUSE_MIN_MS: u64 = 1000;
const SHRINK_PAUSE_MAX_MS: u64 = 60_000;

/// Pace of the passes that evict replicas while a lowered limit is exceeded. The pauses double while nothing can be
/// freed, for example because the rest is pinned.
#[derive(Default)]
pub(crate) struct ShrinkPace {
    /// Time of the last pass.
    last_ms: u64,
    /// Zero before the first pass.
    pause_ms: u64,
    /// Number of replicas that had been flushed before the last pass.
    flushed: u64,
}

impl ShrinkPace {
    /// Begins a pass if one is due. A replica that was flushed can probably be evicted, and ends a long pause.
    fn begin(&mut self, now_ms: u64, flushed: u64) -> bool {
        if flushed != self.flushed {
            self.pause_ms = self.pause_ms.min(SHRINK_PAUSE_MIN_MS);
        }
        if now_ms < self.last_ms.saturating_add(self.pause_ms) {
            return false;
        }
        (self.last_ms, self.flushed) = (now_ms, flushed);
        // No other thread begins one until this one ends.
        self.pause_ms = self.pause_ms.max(SHRINK_PAUSE_MIN_MS);
        true
    }

    /// Ends a pass. True: for about a minute none has freed anything, which is to be logged.
    fn end(&mut self, has_freed: bool) -> bool {
        if has_freed {
            self.pause_ms = SHRINK_PAUSE_MIN_MS;
            return false;
        }
        let before = self.pause_ms;
        self.pause_ms = (before * 2).min(SHRINK_PAUSE_MAX_MS);
        before < SHRINK_PAUSE_MAX_MS && self.pause_ms == SHRINK_PAUSE_MAX_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_free_nothing_become_rare() {
        let mut pace = ShrinkPace::default();
        let mut passes = Vec::new();
        let mut logged = Vec::new();
        for second in 0..300 {
            if pace.begin(second * 1000, 7) {
                passes.push(second);
                if pace.end(false) {
                    logged.push(second);
                }
            }
        }
        assert_eq!(passes, [0, 2, 6, 14, 30, 62, 122, 182, 242]);
        assert_eq!(logged, [62]);
    }

    #[test]
    fn freed_or_flushed_replicas_end_a_long_pause() {
        let mut pace = ShrinkPace::default();
        for second in 0..100 {
            if pace.begin(second * 1000, 0) {
                pace.end(false);
            }
        }
        assert!(!pace.begin(100_000, 0));
        assert!(pace.begin(100_000, 1));
        assert!(!pace.end(true) && !pace.begin(100_500, 2));
        assert!(pace.begin(101_000, 2));
    }
}
