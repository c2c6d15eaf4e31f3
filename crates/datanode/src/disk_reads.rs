//! Runs short reads that wait for a disk on blocking threads. Their number is limited, so that a hanging disk leaves
//! threads for all other blocking work.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hearth_types::StorageId;
use parking_lot::Mutex;
use tokio::sync::{AcquireError, Semaphore};

/// Limit per storage directory: deeper than a disk's queue, and low enough that a hanging disk leaves the other disks
/// their share.
const READS_PER_STORAGE_MAX: usize = 64;

/// Limit over all storage directories: half of a runtime's default number of blocking threads.
/// Source: tokio, `max_blocking_threads`, 512.
const READS_MAX: usize = 256;

/// Shared by all connections.
pub struct DiskReads {
    queue_timeout: Duration,
    permits: Arc<Semaphore>,
    /// One entry per storage directory.
    by_storage: Mutex<HashMap<StorageId, Arc<Semaphore>>>,
}

/// Reason why a read was not done.
#[derive(Debug, thiserror::Error)]
pub enum DiskReadError {
    #[error("too many reads wait for the disk of {storage}")]
    TooMany { storage: StorageId },
    #[error("a read was interrupted")]
    Interrupted,
}

impl DiskReads {
    /// `queue_timeout`: maximum time that a read waits for a permit. Must be shorter than its client's timeout.
    pub fn new(queue_timeout: Duration) -> Self {
        Self { queue_timeout, permits: Arc::new(Semaphore::new(READS_MAX)), by_storage: Mutex::default() }
    }

    /// Returns the maximum time that a read waits for a permit.
    pub fn queue_timeout(&self) -> Duration {
        self.queue_timeout
    }

    /// Runs `read` of a replica in `storage` once there is a permit for it.
    ///
    /// Errors: those of `read`; `TooMany` if there was no permit in time.
    pub async fn run<T, E>(
        &self,
        storage: &StorageId,
        read: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<DiskReadError> + Send + 'static,
    {
        let of_storage = {
            let mut all = self.by_storage.lock();
            let new = || Arc::new(Semaphore::new(READS_PER_STORAGE_MAX));
            Arc::clone(all.entry(storage.clone()).or_insert_with(new))
        };
        let places = async {
            let first = of_storage.acquire_owned().await?;
            Ok::<_, AcquireError>((first, Arc::clone(&self.permits).acquire_owned().await?))
        };
        let Ok(Ok(places)) = tokio::time::timeout(self.queue_timeout, places).await else {
            return Err(DiskReadError::TooMany { storage: storage.clone() }.into());
        };
        let reading = move || {
            // Held as long as the thread is busy, even if its caller has gone.
            let _places = places;
            read()
        };
        tokio::task::spawn_blocking(reading).await.map_err(|_| DiskReadError::Interrupted)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use hearth_testkit::until;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn hanging_reads_leave_threads_to_others() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(READS_PER_STORAGE_MAX + 2).build().unwrap();
        runtime.block_on(async {
            let reads = Arc::new(DiskReads::new(Duration::from_millis(20)));
            let (go_on, wait) = mpsc::channel::<()>();
            let wait = Arc::new(std::sync::Mutex::new(wait));
            let mut hanging = Vec::new();
            let [hangs, well] = ["hangs", "well"].map(|name| StorageId(name.into()));
            for number in 0..READS_PER_STORAGE_MAX {
                let (reads, wait, hangs) = (reads.clone(), wait.clone(), hangs.clone());
                let read = move || {
                    // Blocks until the sender is dropped.
                    let _ = wait.lock().unwrap().recv();
                    Ok::<_, DiskReadError>(number)
                };
                hanging.push(tokio::spawn(async move { reads.run(&hangs, read).await }));
            }
            let all_taken = async {
                while reads.permits.available_permits() > READS_MAX - READS_PER_STORAGE_MAX {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LONG, all_taken).await.expect("each read gets a permit");
            let other = tokio::task::spawn_blocking(|| 7);
            assert_eq!(tokio::time::timeout(LONG, other).await.expect("a thread is available").unwrap(), 7);
            let well = reads.run(&well, || Ok::<_, DiskReadError>(8));
            assert_eq!(tokio::time::timeout(LONG, well).await.expect("another disk answers").unwrap(), 8);
            // No caller waits for these reads any more, but their threads are still busy.
            hanging.drain(1..).for_each(|hanging| hanging.abort());
            let refused = reads.run(&hangs, || Ok::<_, DiskReadError>(())).await;
            assert!(matches!(refused, Err(DiskReadError::TooMany { .. })), "{refused:?}");
            drop(go_on);
            assert_eq!(hanging.remove(0).await.unwrap().unwrap(), 0, "the disk answers again");
            until("each permit to be returned", async || reads.permits.available_permits() == READS_MAX).await;
            assert_eq!(reads.run(&hangs, || Ok::<_, DiskReadError>(9)).await.unwrap(), 9);
        });
    }
}
