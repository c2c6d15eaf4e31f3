//! Pool of registered memory of this client. Registering memory costs more than most reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_fabric::Memory;
use hearth_fabric::one_sided::{Access, Domain, Error, Region};
use parking_lot::Mutex;

/// Buffer sizes in bytes: a few chunks with their CRCs, a small replica, a stream window with its CRCs, and larger
/// batches.
const CLASSES: [u64; 4] = [16 << 10, 160 << 10, (1 << 20) + (64 << 10), (8 << 20) + (128 << 10)];

/// Pool of buffers by size class.
#[derive(Debug)]
pub(super) struct BufferPool {
    domain: Arc<dyn Domain>,
    idle: [Mutex<Vec<Arc<dyn Region>>>; CLASSES.len()],
    /// Bytes of the buffers in `idle`.
    idle_bytes: AtomicU64,
    idle_bytes_max: u64,
}

/// A buffer in use. On drop, it is deregistered once no operation holds it; `give_back` returns it to the pool.
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
    /// `idle_bytes_max`: maximum bytes of idle buffers.
    pub(super) fn new(domain: Arc<dyn Domain>, idle_bytes_max: u64) -> Self {
        Self { domain, idle: Default::default(), idle_bytes: AtomicU64::new(0), idle_bytes_max }
    }

    /// Returns memory of at least `bytes`. It may contain old data.
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

    /// Returns a buffer that no operation uses to the pool.
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
    fn buffers_are_reused_up_to_idle_limit() {
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
