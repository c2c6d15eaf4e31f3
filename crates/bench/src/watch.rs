//! Periodic sampling while other work runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

/// Runs `work` while a thread calls `look` every `pause`. Returns the result of `work`, and `seen` as `look` has
/// changed it.
pub fn watched<S: Send, R>(
    pause: Duration,
    mut seen: S,
    mut look: impl FnMut(&mut S) + Send,
    work: impl FnOnce() -> Result<R>,
) -> Result<(R, S)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(pause);
                look(&mut seen);
            }
            seen
        });
        let outcome = {
            let _over = Over(&done);
            work()
        };
        let seen = watcher.join().map_err(|_| anyhow::anyhow!("the watching thread panicked"))?;
        Ok((outcome?, seen))
    })
}

/// Signals on drop that the work is over, also after a panic: otherwise the sampling thread would be joined for ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_sampled_until_it_ends() {
        let looked = AtomicBool::new(false);
        let look = |looks: &mut i32| {
            *looks += 1;
            looked.store(true, Ordering::Relaxed);
        };
        let work = || {
            for _ in 0..4000 {
                if looked.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok("done")
        };
        let (outcome, looks) = watched(Duration::from_millis(5), 0, look, work).unwrap();
        assert_eq!(outcome, "done");
        assert!(looks > 0);
        assert!(watched(Duration::from_millis(1), (), |()| (), || Err::<(), _>(anyhow::anyhow!("no"))).is_err());
    }

    #[test]
    fn panicking_work_ends_sampling() {
        let panicked = std::panic::catch_unwind(|| {
            watched(Duration::from_millis(1), (), |()| (), || -> Result<()> { panic!("as work may") })
        });
        assert!(panicked.is_err());
    }
}
