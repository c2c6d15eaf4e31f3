//! Single-flight: concurrent callers share one attempt, for example to connect.
//!
//! Waiters also share its failure, so a dead datanode costs one time-out. If each waiter retried in turn, the last of a
//! hundred readers would wait a hundred times as long as the first. Later callers retry.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::DatanodeError;

#[derive(Debug, Default)]
pub(crate) struct SingleFlight {
    /// The last failure and its time. The caller that runs the attempt holds the lock.
    failed: Mutex<Option<(Instant, Arc<DatanodeError>)>>,
}

impl SingleFlight {
    /// Returns the cached value from `find`, or runs `make` to create it. After a successful `make`, `find` must return
    /// the value.
    ///
    /// Errors: those of `make`, as `SharedAttempt`, which all waiters share. Errors that concern a single reader (see
    /// [`is_reader_specific`]) are not shared.
    pub(crate) async fn get_or_try_init<T>(
        &self,
        mut find: impl FnMut() -> Option<T>,
        make: impl Future<Output = Result<T, DatanodeError>>,
    ) -> Result<T, DatanodeError> {
        let came = Instant::now();
        let mut failed = self.failed.lock().await;
        if let Some(found) = find() {
            return Ok(found);
        }
        if let Some((at, error)) = &*failed
            && came < *at
        {
            return Err(DatanodeError::SharedAttempt(Arc::clone(error)));
        }
        let error = match make.await {
            Err(error) if !is_reader_specific(&error) => Arc::new(error),
            outcome => return outcome,
        };
        *failed = Some((Instant::now(), Arc::clone(&error)));
        Err(DatanodeError::SharedAttempt(error))
    }
}

/// Returns true for errors that concern one reader only: another reader may have a valid token or want another replica.
fn is_reader_specific(error: &DatanodeError) -> bool {
    matches!(error.cause(), DatanodeError::AccessToken { .. } | DatanodeError::NotAdvertised { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;
    use hearth_types::{Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp};

    use super::*;

    const WAIT: Duration = Duration::from_millis(100);

    fn unreachable() -> DatanodeError {
        DatanodeError::Address { address: "nowhere".to_owned(), why: String::new() }
    }

    fn access_token() -> DatanodeError {
        let block = Block { id: BlockId(1), stamp: GenerationStamp(1), length: 1 };
        DatanodeError::AccessToken { block: Box::new(ExtendedBlock { pool: BlockPoolId::new("BP-1"), block }) }
    }

    /// Starts `count` callers at once, each of which runs `make` after a delay. Returns the number of attempts and each
    /// caller's outcome.
    async fn at_once(
        flight: &SingleFlight,
        count: usize,
        make: impl Fn() -> Result<(), DatanodeError>,
    ) -> (u32, Vec<Result<(), DatanodeError>>) {
        let (made, found) = (AtomicU32::new(0), AtomicU32::new(0));
        let one = || {
            flight.get_or_try_init(|| (found.load(Ordering::Relaxed) > 0).then_some(()), async {
                made.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(WAIT).await;
                make().inspect(|()| found.store(1, Ordering::Relaxed))
            })
        };
        let outcomes = join_all((0..count).map(|_| one())).await;
        (made.into_inner(), outcomes)
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_share_a_failure_and_later_callers_retry() {
        let flight = SingleFlight::default();
        for _ in 0..2 {
            let (made, outcomes) = at_once(&flight, 20, || Err(unreachable())).await;
            let all = outcomes.iter().all(|outcome| {
                matches!(outcome.as_ref().map_err(DatanodeError::cause), Err(DatanodeError::Address { .. }))
            });
            assert!(made == 1 && all, "{made} {outcomes:?}");
        }
        let (made, outcomes) = at_once(&flight, 20, || Ok(())).await;
        assert!(made == 1 && outcomes.iter().all(Result::is_ok), "{made} {outcomes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn reader_specific_errors_are_not_shared() {
        let (made, outcomes) = at_once(&SingleFlight::default(), 3, || Err(access_token())).await;
        assert!(made == 3 && outcomes.iter().all(Result::is_err), "{made} {outcomes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_attempt_is_taken_over_by_a_waiter() {
        let flight = SingleFlight::default();
        let stuck = flight.get_or_try_init(|| None, std::future::pending::<Result<(), _>>());
        let left = tokio::time::timeout(WAIT, stuck);
        let (left, (made, outcomes)) = tokio::join!(left, at_once(&flight, 2, || Ok(())));
        assert!(left.is_err() && made == 1 && outcomes.iter().all(Result::is_ok), "{made} {outcomes:?}");
    }
}
