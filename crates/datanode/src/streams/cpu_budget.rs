//! What copies over streams and into other datanodes' memory may have of the cores while clients are served: a share of them at most.
//!
//! A niceness only says who comes first of those that want a core. It keeps none free for a reader who is about to wake, and ends no
//! system call for him; time in which copies rest does.
//!
//! Counted is all that the threads of copies do (`threads`), what waits for disks in other threads is not.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hearth_blockstore::thread_cpu_time;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use crate::metrics::Metrics;

/// Clients are being served when one was within that.
const CLIENT_ACTIVE_WINDOW: Duration = Duration::from_millis(20);

/// Time that copies have left unused is theirs for so long. It also makes up for rests that end late.
const UNUSED_TIME_MAX: Duration = Duration::from_millis(5);

/// What a turn is taken to use until that is known: else all that rest would go on at once.
const POLL_COST_ESTIMATE: Duration = Duration::from_micros(500);

/// No shorter rest is worth it: what a timer can tell apart.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// And none is longer, whatever they have used.
const PAUSE_MAX: Duration = Duration::from_millis(200);

thread_local! {
    /// Of the time that this thread has had of a core, what has been counted; none while nothing is.
    static COUNTED: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Of all copies of a datanode together.
pub struct CpuBudget {
    metrics: Arc<Metrics>,
    /// How many cores they may keep busy.
    cores: f64,
    /// When the time that they have used is earned.
    paid_until: Mutex<Instant>,
}

#[derive(PartialEq, Eq, Debug)]
enum Admission {
    /// Nobody else wants anything.
    Unlimited,
    /// What it takes is counted.
    Counted,
    PauseUntil(Instant),
}

impl CpuBudget {
    /// `share`: of this machine's cores, more than 0. From 1 on there is no limit.
    pub fn new(metrics: Arc<Metrics>, share: f64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let cores = if share < 1.0 { cores * share } else { f64::INFINITY };
        Self { metrics, cores, paid_until: Mutex::new(Instant::now()) }
    }

    /// `served`: so long ago a client was.
    fn admit(&self, now: Instant, served: Duration) -> Admission {
        if self.cores.is_infinite() || served > CLIENT_ACTIVE_WINDOW {
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

    /// A turn has used `time` of a core, up to `now`.
    fn record_used(&self, time: Duration, now: Instant) {
        let mut paid_until = self.paid_until.lock();
        let before = paid_until.checked_sub(self.cost(POLL_COST_ESTIMATE)).unwrap_or(*paid_until);
        *paid_until = (before + self.cost(time)).min(now + PAUSE_MAX);
    }

    /// How long it takes to earn that.
    fn cost(&self, time: Duration) -> Duration {
        Duration::try_from_secs_f64(time.as_secs_f64() / self.cores).map_or(PAUSE_MAX, |cost| cost.min(PAUSE_MAX))
    }
}

/// A copy, or a connection of copies, that keeps to the pace. It rests between polls of the future that it is.
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
                // Whatever wakes it meanwhile is looked at behind the rest.
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match self.budget.admit(Instant::now(), self.budget.metrics.since_client_activity()) {
                Admission::Unlimited => {
                    COUNTED.set(None);
                    return self.copy.as_mut().poll(context);
                }
                Admission::Counted => {
                    // With what others of this thread have done since the last one.
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
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn budget(cores: f64) -> (CpuBudget, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        (CpuBudget { cores, ..CpuBudget::new(metrics.clone(), 0.1) }, metrics)
    }

    #[test]
    fn copies_have_all_cores_while_nobody_is_served() {
        let ((budget, metrics), now) = (budget(0.5), Instant::now());
        assert_eq!(budget.admit(now, metrics.since_client_activity()), Admission::Unlimited, "nobody ever was");
        budget.record_used(1000 * MS, now);
        assert_eq!(budget.admit(now, CLIENT_ACTIVE_WINDOW + MS), Admission::Unlimited);
        assert_ne!(budget.admit(now, CLIENT_ACTIVE_WINDOW), Admission::Unlimited);
        assert_eq!(CpuBudget::new(metrics, 1.0).admit(now, Duration::ZERO), Admission::Unlimited);
    }

    #[test]
    fn they_rest_until_what_they_used_is_their_share() {
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
    fn those_that_have_rested_do_not_all_go_on_at_once() {
        let (budget, _) = budget(0.5);
        let now = Instant::now() + 1000 * MS;
        let going = (0..100).take_while(|_| budget.admit(now, Duration::ZERO) == Admission::Counted).count();
        // What was saved, and one more.
        assert!(
            (2..=(UNUSED_TIME_MAX.as_secs_f64() / POLL_COST_ESTIMATE.as_secs_f64()) as usize).contains(&going),
            "{going}"
        );
        for _ in 0..going {
            budget.record_used(Duration::ZERO, now);
        }
        assert_eq!(budget.admit(now, Duration::ZERO), Admission::Counted, "they have used nothing");
    }

    #[test]
    fn a_rest_has_an_end_whatever_was_used() {
        let (budget, _) = budget(0.5);
        let now = Instant::now();
        for _ in 0..10 {
            budget.record_used(Duration::MAX, now);
        }
        assert_eq!(budget.admit(now, Duration::ZERO), Admission::PauseUntil(now + PAUSE_MAX));
    }

    /// In one thread: what another task of it does is the copies', too.
    #[tokio::test]
    async fn a_copy_rests_for_all_that_its_thread_has_done_and_comes_to_its_end() {
        // So little that a machine which is busy with other things gives the thread more.
        let (budget, metrics) = budget(0.02);
        let (budget, served) = (Arc::new(budget), metrics.clone());
        let busy = tokio::spawn(async move {
            loop {
                let until = thread_cpu_time() + MS;
                while thread_cpu_time() < until {}
                // Last: on a busy machine a millisecond of a core takes longer than a client counts as served.
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
        // What six turns are taken to use in advance makes 150 ms.
        assert!(metrics.copy_pause_time() > 250 * MS, "{:?}", metrics.copy_pause_time());
    }
}
