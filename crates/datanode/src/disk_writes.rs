//! Writes that may wait for a disk. Nearly all of them end in the page cache at once, where handing them to another thread costs a fifth of
//! what they do: so some are done where they are due, as long as that leaves one of the runtime's threads to everybody else, and disks
//! are quick. The rest is for threads that may wait.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

/// A write that takes longer has waited for its disk: 512 KiB into the page cache are a tenth of a millisecond.
const SLOW: Duration = Duration::from_millis(10);

/// For so long nothing is written where it is due then.
const WARY: Duration = Duration::from_secs(1);

/// Of all connections.
pub struct DiskWrites {
    begun: Instant,
    /// Done at the moment by threads that serve.
    running: AtomicUsize,
    /// Until then disks count as slow, in ms since `begun`.
    wary_until: AtomicU64,
}

/// The calling thread may write, and may be held up by it, until this is dropped.
pub struct Here<'a> {
    writes: &'a DiskWrites,
    since: Instant,
}

impl DiskWrites {
    pub fn new() -> Self {
        Self { begun: Instant::now(), running: AtomicUsize::new(0), wary_until: AtomicU64::new(0) }
    }

    /// For a write on this thread, one of a runtime's; `None`: it belongs on another, that may wait.
    pub fn here(&self) -> Option<Here<'_>> {
        let since = Instant::now();
        if self.millis(since) < self.wary_until.load(Ordering::Relaxed) {
            return None;
        }
        let at_once = Handle::current().metrics().num_workers().saturating_sub(1);
        let here = Here { writes: self, since };
        // Given back by its drop, also where there were too many.
        let before = self.running.fetch_add(1, Ordering::Relaxed);
        (before < at_once).then_some(here)
    }

    fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begun).as_millis() as u64
    }
}

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.writes.running.fetch_sub(1, Ordering::Relaxed);
        let now = Instant::now();
        if now.saturating_duration_since(self.since) > SLOW {
            self.writes.wary_until.fetch_max(self.writes.millis(now + WARY), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_left_to_everybody_else() {
        let alone = tokio::runtime::Builder::new_current_thread().build().unwrap();
        alone.block_on(async { assert!(DiskWrites::new().here().is_none()) });
        let three = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
        three.block_on(async {
            let writes = DiskWrites::new();
            // Whatever this machine does meanwhile, they are not called slow.
            let quick = || {
                writes.here().map(|mut here| {
                    here.since = Instant::now() + WARY * 60;
                    here
                })
            };
            let (first, second) = (quick().unwrap(), quick().unwrap());
            assert!(quick().is_none());
            drop(first);
            let third = quick().unwrap();
            drop((second, third));
            assert_eq!(writes.running.load(Ordering::Relaxed), 0);
        });
    }

    #[test]
    fn behind_a_slow_write_none_is_done_where_it_is_due() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
        runtime.block_on(async {
            let writes = DiskWrites::new();
            let here = writes.here().unwrap();
            std::thread::sleep(SLOW * 2);
            drop(here);
            let until = writes.wary_until.load(Ordering::Relaxed);
            assert!(until >= WARY.as_millis() as u64, "{until} ms");
            writes.wary_until.store(u64::MAX, Ordering::Relaxed);
            assert!(writes.here().is_none());
            writes.wary_until.store(0, Ordering::Relaxed);
            assert!(writes.here().is_some());
        });
    }
}
