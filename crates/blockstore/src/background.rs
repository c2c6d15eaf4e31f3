//! The store's own threads: one flusher per volume, one thread for read-back, and one scrubber.

use std::io;
use std::thread::Builder;
use std::time::Duration;

use crate::blockstore::Blockstore;

/// Interval between two checks of the directories of a volume that may be idle.
const LOOK_INTERVAL_MS: u64 = 10_000;

/// Number of suspect replicas that are checked between two flushes.
const SUSPECTS_AT_ONCE: usize = 4;

/// Interval between two checks of lent memory and of open files; a little less than the pause of the thread that does
/// them.
const CHECK_INTERVAL_MS: u64 = 900;

impl Blockstore {
    /// Starts the threads, unless `StoreOptions::background` is off. Dropping this value ends them.
    pub(crate) fn start_threads(&mut self) -> io::Result<()> {
        self.owned_threads = Some(Vec::new());
        if !self.options.background {
            return Ok(());
        }
        for volume in self.volumes.clone() {
            self.spawn(format!("flush-{}", volume.index), move |store| {
                let mut looked_at_ms = store.now_ms();
                while store.threads.pause(store.flush_pause()) {
                    store.budget.sweep();
                    store.check_suspects(&volume, SUSPECTS_AT_ONCE);
                    if store.now_ms() - looked_at_ms >= LOOK_INTERVAL_MS {
                        store.probe_volume(&volume);
                        looked_at_ms = store.now_ms();
                    }
                    store.flush_due_on(&volume);
                }
            })?;
        }
        self.spawn("read-back".to_owned(), |store| {
            let mut checked_at_ms = store.now_ms();
            while store.threads.pause(Duration::from_secs(1)) {
                if store.now_ms() - checked_at_ms >= CHECK_INTERVAL_MS {
                    store.sweep_lent();
                    store.open_files.tidy_if_beyond();
                    checked_at_ms = store.now_ms();
                }
                store.shrink_to_limit();
                store.run_read_back();
            }
        })?;
        if self.options.scrub_bytes_per_second > 0 {
            self.spawn("scrub".to_owned(), |store| {
                while store.threads.sleep(store.options.scrub_pause) {
                    store.scrub();
                }
            })?;
        }
        Ok(())
    }

    /// Short enough that no replica is much older than the delay, and that a full memory is relieved soon.
    fn flush_pause(&self) -> Duration {
        (self.flush_delay() / 4).clamp(Duration::from_millis(20), Duration::from_secs(1))
    }

    fn spawn(&mut self, name: String, work: impl FnOnce(Blockstore) + Send + 'static) -> io::Result<()> {
        let store = self.share();
        let thread = Builder::new().name(name).spawn(move || work(store))?;
        self.owned_threads.get_or_insert_default().push(thread);
        Ok(())
    }
}
