//! Waiting for conditions in async tests. [`wait_until`](crate::wait_until) is for tests that may block.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Longest wait: far longer than any condition takes, also on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(2);

/// Polls `probe` until it returns a value. Panics, naming `what`, if there is none after two minutes.
pub async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let polling = async {
        loop {
            if let Some(value) = probe().await {
                return value;
            }
            sleep(PAUSE).await;
        }
    };
    match timeout(WAIT_MAX, polling).await {
        Ok(value) => value,
        Err(_) => panic!("waited {WAIT_MAX:?} for {what}"),
    }
}

/// Polls until `is_so` returns true. Panics like [`eventually`].
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    eventually(what, async || is_so().await.then_some(())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn condition_is_polled_until_it_holds() {
        let mut polls = 0;
        until("the third poll", async || {
            polls += 1;
            polls == 3
        })
        .await;
        assert_eq!(polls, 3);
    }
}
