//! CPU budget of copies over streams and into other DataNodes' memory: a maximum share of the cores while clients are
//! served.
//!
//! Niceness alone is not enough: it only orders the threads that want a core. It keeps no core idle for a reader that
//! is about to wake, and preempts no running system call. Pauses between copies do both.
//!
//! All CPU time of the copies' threads (`threads`) counts; time of other threads that wait for disks does not.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hearth_blockstore::thread_cpu_time;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, Sleep};

use crate::metrics::Metrics;

/// Clients are considered served if one was active within this time.
const CLIENT_ACTIVE_WINDOW: Duration = Duration::from_millis(20);

/// Maximum unused CPU time that copies may save up. It also compensates for pauses that end late.
const UNUSED_TIME_MAX: Duration = Duration::from_millis(5);

/// Estimated cost of a poll until the actual cost is known: without it, all paused copies would continue at once.
const POLL_COST_ESTIMATE: Duration = Duration::from_micros(500);

/// Minimum pause: the resolution of the timer.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// Maximum pause, regardless of the time used.
const PAUSE_MAX: Duration = Duration::from_millis(200);

thread_local! {
    /// CPU time of this thread that has been counted; `None` while nothing is counted.
    static COUNTED: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Shared by all copies of a DataNode.
pub struct CpuBudget {
    metrics: Arc<Metrics>,
    /// Number of cores that copies may keep busy.
    cores: RwLock<f64>,
    /// Time at which the CPU time used so far is paid off.
    paid_until: Mutex<Instant>,
}

#[derive(PartialEq, Eq, Debug)]
enum Admission {
    /// No client is active, so there is no limit.
    Unlimited,
    /// The CPU time is counted.
    Counted,
    PauseUntil(Instant),
}

impl CpuBudget {
    /// `share`: share of this machine's cores, greater than 0. No limit from 1 on.
    pub fn new(metrics: Arc<Metrics>, share: f64) -> Self {
        Self { metrics, cores: RwLock::new(cores_of(share)), paid_until: Mutex::new(Instant::now()) }
    }

    /// Changes the share for the next polls.
    pub fn set_share(&self, share: f64) {
        *self.cores.write() = cores_of(share);
    }

    /// `served`: time since a client was last active.
    fn admit(&self, now: Instant, served: Duration) -> Admission {
        if self.cores.read().is_infinite() || served > CLIENT_ACTIVE_WINDOW {
            return Admission::Unlimited;
        }
        let mut paid_until = self.paid_until.lock();
        if *paid_until >= now + PAUSE_MIN {
            return Admission::PauseUntil(*paid_until);
        }
        *paid_until = now.checked_sub(UNUSED_TIME_MAX).map_or(*paid_until, |saved| saved.max(*paid_until))
            + self.cost(POLL_COST_ESTIMATE);
        Admission::Counted
    }

    /// Records that a poll used `time` of a core, up to `now`.
    fn record_used(&self, time: Duration, now: Instant) {
        let mut paid_until = self.paid_until.lock();
        let before = paid_until.checked_sub(self.cost(POLL_COST_ESTIMATE)).unwrap_or(*paid_until);
        *paid_until = (before + self.cost(time)).min(now + PAUSE_MAX);
    }

    /// Returns how long it takes to pay off `time`.
    fn cost(&self, time: Duration) -> Duration {
        Duration::try_from_secs_f64(time.as_secs_f64() / *self.cores.read())
            .map_or(PAUSE_MAX, |cost| cost.min(PAUSE_MAX))
    }
}

/// Returns the number of cores that is a share of this machine's; infinite from 1 on.
fn cores_of(share: f64) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    if share < 1.0 { cores * share } else { f64::INFINITY }
}

/// A future of a copy, or of a connection of copies, limited to the budget. It pauses between polls.
pub struct CpuLimited<F> {
    budget: Arc<CpuBudget>,
    copy: Pin<Box<F>>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<F> CpuLimited<F> {
    pub fn new(budget: &Arc<CpuBudget>, copy: F) -> Self {
        Self { budget: budget.clone(), copy: Box::pin(copy), pause: None }
    }
}

impl<F: Future> Future for CpuLimited<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        loop {
            if let Some(pause) = &mut self.pause {
                // Wake-ups during the pause are handled after it.
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match self.budget.admit(Instant::now(), self.budget.metrics.since_client_activity()) {
                Admission::Unlimited => {
                    COUNTED.set(None);
                    return self.copy.as_mut().poll(context);
                }
                Admission::Counted => {
                    // Includes the time of other tasks of this thread since the last poll.
                    let before = COUNTED.get().unwrap_or_else(thread_cpu_time);
                    let polled = self.copy.as_mut().poll(context);
                    let after = thread_cpu_time();
                    COUNTED.set(Some(after));
                    self.budget.record_used(after.saturating_sub(before), Instant::now());
                    return polled;
                }
                Admission::PauseUntil(paid_until) => {
                    self.budget.metrics.record_copy_pause(paid_until - Instant::now());
                    self.pause = Some(Box::pin(tokio::time::sleep_until(paid_until)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::SystemClock;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn budget(cores: f64) -> (CpuBudget, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::new(Arc::new(SystemClock::new())));
        (CpuBudget { cores: RwLock::new(cores), ..CpuBudget::new(metrics.clone(), 0.1) }, metrics)
    }

    #[test]
    fn copies_are_unlimited_without_clients() {
        let ((budget, metrics), now) = (budget(0.5), Instant::now());
        assert_eq!(
            budget.admit(now, metrics.since_client_activity()),
            Admission::Unlimited,
            "no client was ever served"
        );
        budget.record_used(1000 * MS, now);
        assert_eq!(budget.admit(now, CLIENT_ACTIVE_WINDOW + MS), Admission::Unlimited);
        assert_ne!(budget.admit(now, CLIENT_ACTIVE_WINDOW), Admission::Unlimited);
        budget.set_share(1.0);
        assert_eq!(budget.admit(now, Duration::ZERO), Admission::Unlimited);
        budget.set_share(0.01);
        assert_ne!(budget.admit(now, Duration::ZERO), Admission::Unlimited);
        assert_eq!(CpuBudget::new(metrics, 1.0).admit(now, Duration::ZERO), Admission::Unlimited);
    }

    #[test]
    fn copies_pause_down_to_their_share() {
        let (budget, _) = budget(0.5);
        let start = Instant::now();
        let mut now = start + 1000 * MS;
        let (mut used, mut rested) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..1000 {
            match budget.admit(now, Duration::ZERO) {
                Admission::Counted => {
                    now += 3 * MS;
                    used += 3 * MS;
                    budget.record_used(3 * MS, now);
                }
                Admission::PauseUntil(paid_until) => {
                    // A timer is late.
                    rested += paid_until - now + MS / 2;
                    now = paid_until + MS / 2;
                }
                Admission::Unlimited => panic!("clients are served"),
            }
        }
        let share = used.as_secs_f64() / (used + rested).as_secs_f64();
        assert!((0.49..0.51).contains(&share), "{share}");
    }

    #[test]
    fn paused_copies_do_not_all_resume_at_once() {
        let (budget, _) = budget(0.5);
        let now = Instant::now() + 1000 * MS;
        let going = (0..100).take_while(|_| budget.admit(now, Duration::ZERO) == Admission::Counted).count();
        // The saved time, and one more.
        assert!(
            (2..=(UNUSED_TIME_MAX.as_secs_f64() / POLL_COST_ESTIMATE.as_secs_f64()) as usize).contains(&going),
            "{going}"
        );
        for _ in 0..going {
            budget.record_used(Duration::ZERO, now);
        }
        assert_eq!(budget.admit(now, Duration::ZERO), Admission::Counted, "the copies have used nothing");
    }

    #[test]
    fn pauses_are_bounded() {
        let (budget, _) = budget(0.5);
        let now = Instant::now();
        for _ in 0..10 {
            budget.record_used(Duration::MAX, now);
        }
        assert_eq!(budget.admit(now, Duration::ZERO), Admission::PauseUntil(now + PAUSE_MAX));
    }

    /// A single thread: the time of its other tasks counts as well.
    #[tokio::test]
    async fn copy_pauses_for_whole_threads_cpu_time() {
        // So low that the thread gets more even on a busy machine.
        let (budget, metrics) = budget(0.02);
        let (budget, served) = (Arc::new(budget), metrics.clone());
        let busy = tokio::spawn(async move {
            loop {
                let until = thread_cpu_time() + MS;
                while thread_cpu_time() < until {}
                // Last, because on a busy machine a millisecond of CPU time can take longer than the client counts as
                // active.
                served.note_client_activity();
                tokio::task::yield_now().await;
            }
        });
        let copy = async {
            for _ in 0..6 {
                tokio::task::yield_now().await;
            }
            "done"
        };
        metrics.note_client_activity();
        assert_eq!(CpuLimited::new(&budget, copy).await, "done");
        busy.abort();
        // The estimated cost of six polls is 150 ms.
        assert!(metrics.copy_pause_time() > 250 * MS, "{:?}", metrics.copy_pause_time());
    }
}
