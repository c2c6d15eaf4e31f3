//! The runtime's clock in the hands of a test that uses sockets.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{advance, pause, resume};

/// Longest test. After it the clock moves on by itself, so that a hang ends with the test's own time-outs.
const HELD_MAX: Duration = Duration::from_secs(120);

/// Most steps of one [`StoppedClock::during`], far more than any test takes.
const STEPS_MAX: usize = 10_000;

/// Real time after each step, in which the kernel delivers bytes and tasks handle them. Several rounds: after one alone, the
/// test could go on before a task that became ready at the same moment.
const ROUND: Duration = Duration::from_millis(1);
const ROUNDS: usize = 3;

/// The clock of a single-threaded runtime, stopped. It moves only in steps that the test asks for, so time-outs do not
/// depend on how busy the machine is.
///
/// The paused clock of tokio alone leaps to the next time-out while the runtime waits for sockets. This one stands still.
pub struct StoppedClock {
    /// A blocking task waits for its end. Tokio's clock does not leap while one runs.
    _held: Sender<()>,
}

impl StoppedClock {
    /// Stops the clock until this is dropped, both within the same runtime. Panics if it has more than one thread.
    #[expect(clippy::new_without_default, reason = "it changes the runtime")]
    pub fn new() -> Self {
        pause();
        let (held, dropped) = channel::<()>();
        spawn_blocking(move || {
            if dropped.recv_timeout(HELD_MAX) == Err(RecvTimeoutError::Timeout) {
                eprintln!("the test takes longer than {HELD_MAX:?}: its clock moves on");
            }
        });
        Self { _held: held }
    }

    /// Moves the clock by `time`, and lets all tasks handle what follows.
    pub async fn pass(&self, time: Duration) {
        advance(time).await;
        self.settle().await;
    }

    async fn settle(&self) {
        for _ in 0..ROUNDS {
            spawn_blocking(|| thread::sleep(ROUND)).await.expect("sleeping does not fail");
        }
    }

    /// Runs `work` to its end while time passes in steps of `step`. Within a step, bytes take no time. Panics if the work
    /// does not end.
    pub async fn during<T>(&self, step: Duration, work: impl Future<Output = T>) -> T {
        let passing = async {
            self.settle().await;
            for _ in 0..STEPS_MAX {
                self.pass(step).await;
            }
        };
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = passing => panic!("it goes on after {STEPS_MAX} steps of {step:?}"),
        }
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        resume();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn time_passes_only_in_steps() {
        let (clock, start) = (StoppedClock::new(), Instant::now());
        let long = Duration::from_secs(3600);
        let waiting = tokio::spawn(sleep(long));
        clock.pass(long - Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        // Timers are late by up to a millisecond.
        clock.pass(Duration::from_millis(1001)).await;
        assert!(waiting.is_finished());
        assert_eq!(start.elapsed(), long + Duration::from_millis(1));
    }

    #[tokio::test]
    async fn work_ends_in_passing_time() {
        let clock = StoppedClock::new();
        let (mut near, mut far) = duplex(16);
        let answering = tokio::spawn(async move {
            sleep(Duration::from_secs(8)).await;
            far.write_all(b"x").await.unwrap();
            far
        });
        let read = timeout(Duration::from_secs(10), near.read_u8());
        let read = clock.during(Duration::from_secs(1), read).await;
        assert_eq!(read.unwrap().unwrap(), b'x');
        answering.await.unwrap();
    }
}
