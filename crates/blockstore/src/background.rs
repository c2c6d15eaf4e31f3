//! The store's own threads: one flusher per volume, one thread for read-back, and one scrubber.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::store::Store;

/// Interval between two checks of the directories of a volume that may be idle.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Number of suspect replicas that are checked between two flushes.
const SUSPECTS_AT_ONCE: usize = 4;

/// Interval between two checks of lent memory; a little less than the pause of the thread that does it.
const LENT_INTERVAL: Duration = Duration::from_millis(900);

pub struct Background {
    inner: Arc<Store>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    pub fn start(inner: &Arc<Store>) -> io::Result<Self> {
        let mut background = Self { inner: inner.clone(), threads: Vec::new() };
        if !inner.options.background {
            return Ok(background);
        }
        for volume in inner.volumes.clone() {
            // Short enough that no replica is much older than the delay, and that a full memory is relieved soon.
            let pause = (inner.options.flush_delay / 4).clamp(Duration::from_millis(20), Duration::from_secs(1));
            background.spawn(format!("flush-{}", volume.index), move |inner| {
                let mut looked_at = Instant::now();
                while inner.threads.pause(pause) {
                    inner.budget.sweep();
                    inner.look_at_suspects(&volume, SUSPECTS_AT_ONCE);
                    if looked_at.elapsed() >= LOOK_INTERVAL {
                        inner.probe_volume(&volume);
                        looked_at = Instant::now();
                    }
                    inner.flush_due(&volume);
                }
            })?;
        }
        background.spawn("read-back".to_owned(), |inner| {
            let mut lent_looked_at = Instant::now();
            while inner.threads.pause(Duration::from_secs(1)) {
                if lent_looked_at.elapsed() >= LENT_INTERVAL {
                    inner.sweep_lent();
                    lent_looked_at = Instant::now();
                }
                inner.run_read_back();
            }
        })?;
        if inner.options.scrub_bytes_per_second > 0 {
            background.spawn("scrub".to_owned(), |inner| {
                while inner.threads.sleep(inner.options.scrub_pause) {
                    inner.scrub();
                }
            })?;
        }
        Ok(background)
    }

    fn spawn(&mut self, name: String, work: impl FnOnce(Arc<Store>) + Send + 'static) -> io::Result<()> {
        let inner = self.inner.clone();
        self.threads.push(Builder::new().name(name).spawn(move || work(inner))?);
        Ok(())
    }
}

impl Background {
    /// Ends and joins the threads.
    pub fn stop(&mut self) {
        self.inner.threads.stopping.store(true, Ordering::Release);
        self.inner.wake();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl crate::store::Threads {
    /// Waits for a wake-up, `duration` at most. False: the store is being closed.
    fn pause(&self, duration: Duration) -> bool {
        let mut guard = self.lock.lock();
        if !self.is_stopping() {
            self.wake.wait_for(&mut guard, duration);
        }
        !self.is_stopping()
    }
}
