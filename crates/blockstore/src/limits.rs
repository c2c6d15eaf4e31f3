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
        self.shrink_to_limit();
        // The flushers find that memory is short.
        self.threads.wake();
        Ok(())
    }

    /// Evicts clean replicas while a lowered limit is exceeded.
    pub(crate) fn shrink_to_limit(&self) {
        let beyond = self.budget.beyond_lowered_limit();
        if beyond > 0 {
            self.reclaim(beyond);
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
