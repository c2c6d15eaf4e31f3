//! Registered memory of this client, kept for the next operation: registering costs more than most reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Domain, Error, Region};
use parking_lot::Mutex;

/// Sizes of buffers, bytes: for a few chunks with their CRCs, for a small replica, for a window of a stream with its CRCs.
const CLASSES: [u64; 4] = [16 << 10, 160 << 10, (1 << 20) + (64 << 10), (8 << 20) + (128 << 10)];

/// Buffers that are kept, or out, at a time.
#[derive(Debug)]
pub(super) struct BufferPool {
    domain: Arc<dyn Domain>,
    idle: [Mutex<Vec<Arc<dyn Region>>>; CLASSES.len()],
    /// Bytes of those in `idle`.
    idle_bytes: AtomicU64,
    idle_bytes_max: u64,
}

/// A buffer in use. Dropped, it is deregistered as soon as no operation has it any more; `give_back` keeps it.
#[derive(Debug)]
pub(super) struct PooledBuffer {
    region: Arc<dyn Region>,
    class: Option<usize>,
}

impl PooledBuffer {
    pub(super) fn region(&self) -> &Arc<dyn Region> {
        &self.region
    }

    pub(super) fn memory(&self) -> &Memory {
        self.region.memory()
    }
}

impl BufferPool {
    /// `idle_bytes_max`: bytes of idle buffers.
    pub(super) fn new(domain: Arc<dyn Domain>, idle_bytes_max: u64) -> Self {
        Self { domain, idle: Default::default(), idle_bytes: AtomicU64::new(0), idle_bytes_max }
    }

    /// Memory of at least `bytes`, with whatever it held before.
    ///
    /// Errors: `Register`.
    pub(super) fn take(&self, bytes: u64) -> Result<PooledBuffer, Error> {
        let class = CLASSES.iter().position(|size| *size >= bytes);
        if let Some(class) = class
            && let Some(region) = self.idle[class].lock().pop()
        {
            self.idle_bytes.fetch_sub(CLASSES[class], Ordering::Relaxed);
            return Ok(PooledBuffer { region, class: Some(class) });
        }
        let size = class.map_or(bytes, |class| CLASSES[class]);
        let failed = |source| Error::Register { bytes: size, source };
        let memory = Arc::new(Memory::fresh(size).map_err(failed)?);
        Ok(PooledBuffer { region: self.domain.register(&memory, 0..size, Access::Local)?, class })
    }

    /// Keeps a buffer that no operation uses any more.
    pub(super) fn give_back(&self, buffer: PooledBuffer) {
        let Some(class) = buffer.class else { return };
        let size = CLASSES[class];
        if self.idle_bytes.fetch_add(size, Ordering::Relaxed) + size > self.idle_bytes_max {
            self.idle_bytes.fetch_sub(size, Ordering::Relaxed);
            return;
        }
        self.idle[class].lock().push(buffer.region);
    }
}

#[cfg(test)]
mod tests {
    use hearth_fabric::one_sided::Transport;
    use hearth_fabric::sim::Sim;

    use super::*;

    #[test]
    fn buffers_are_used_again_and_not_more_are_kept_than_may_be() {
        let domain = Sim::new().domain().unwrap();
        let buffers = BufferPool::new(domain.clone(), 40 << 10);
        let first = buffers.take(100).unwrap();
        let address = first.memory().address();
        buffers.give_back(first);
        let again = buffers.take(16 << 10).unwrap();
        assert_eq!(again.memory().address(), address);
        let others: Vec<_> = (0..3).map(|_| buffers.take(1).unwrap()).collect();
        assert_eq!(domain.registered_bytes(), 64 << 10);
        buffers.give_back(again);
        others.into_iter().for_each(|buffer| buffers.give_back(buffer));
        assert_eq!(domain.registered_bytes(), 32 << 10);
        let huge = buffers.take(100 << 20).unwrap();
        assert_eq!(huge.memory().length(), 100 << 20);
        buffers.give_back(huge);
        assert_eq!(domain.registered_bytes(), 32 << 10);
    }
}
