//! Short reads that wait for a disk, on threads that may: so many at once that a disk which hangs leaves threads to everything else
//! that has to wait.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::ops::OpError;

/// A quarter of the threads that a runtime has for waiting, and more than any disk's queue is deep. Source: tokio, `max_blocking_threads`,
/// 512.
const READS_MAX: usize = 128;

/// Of all connections.
pub struct DiskReads {
    places: Arc<Semaphore>,
}

impl Default for DiskReads {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(READS_MAX)) }
    }
}

impl DiskReads {
    /// Has `read` done when there is a place for it.
    ///
    /// Errors: its own; `Refused` when there was none for `patience`.
    pub async fn run<T: Send + 'static>(
        &self,
        patience: Duration,
        read: impl FnOnce() -> Result<T, OpError> + Send + 'static,
    ) -> Result<T, OpError> {
        let Ok(Ok(place)) = tokio::time::timeout(patience, self.places.clone().acquire_owned()).await else {
            return Err(OpError::Refused("too many reads wait for disks".to_owned()));
        };
        let reading = move || {
            // As long as the thread is taken, whoever still waits for it.
            let _place = place;
            read()
        };
        tokio::task::spawn_blocking(reading).await.map_err(|_| OpError::Interrupted)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn reads_that_hang_leave_threads_to_others() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(READS_MAX + 1).build().unwrap();
        runtime.block_on(async {
            let reads = Arc::new(DiskReads::default());
            let (go_on, wait) = mpsc::channel::<()>();
            let wait = Arc::new(std::sync::Mutex::new(wait));
            let mut hanging = Vec::new();
            for number in 0..READS_MAX + 10 {
                let (reads, wait) = (reads.clone(), wait.clone());
                let read = move || {
                    // Until the sender is gone.
                    let _ = wait.lock().unwrap().recv();
                    Ok(number)
                };
                hanging.push(tokio::spawn(async move { reads.run(LONG, read).await }));
            }
            let all_taken = async {
                while reads.places.available_permits() > 0 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(LONG, all_taken).await.expect("each read has a place");
            let other = tokio::task::spawn_blocking(|| 7);
            assert_eq!(tokio::time::timeout(LONG, other).await.expect("it has a thread").unwrap(), 7);
            // Nobody waits for these any more: their threads are taken all the same.
            hanging.drain(..READS_MAX).for_each(|hanging| hanging.abort());
            let refused = reads.run(Duration::from_millis(20), || Ok(())).await;
            assert!(matches!(refused, Err(OpError::Refused(_))), "{refused:?}");
            drop(go_on);
            for (number, hanging) in hanging.into_iter().enumerate() {
                assert_eq!(hanging.await.unwrap().unwrap(), READS_MAX + number);
            }
        });
    }
}
