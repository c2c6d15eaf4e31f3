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

use crate::load::Load;

/// Clients are being served when one was within that.
const RECENTLY: Duration = Duration::from_millis(20);

/// Time that copies have left unused is theirs for so long. It also makes up for rests that end late.
const SAVED: Duration = Duration::from_millis(5);

/// What a turn is taken to use until that is known: else all that rest would go on at once.
const TURN: Duration = Duration::from_micros(500);

/// No shorter rest is worth it: what a timer can tell apart.
const REST_MIN: Duration = Duration::from_millis(1);

/// And none is longer, whatever they have used.
const REST_MAX: Duration = Duration::from_millis(200);

thread_local! {
    /// Of the time that this thread has had of a core, what has been counted; none while nothing is.
    static COUNTED: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Of all copies of a datanode together.
pub struct Pace {
    load: Arc<Load>,
    /// How many cores they may keep busy.
    cores: f64,
    /// When the time that they have used is earned.
    earned: Mutex<Instant>,
}

#[derive(PartialEq, Eq, Debug)]
enum Turn {
    /// Nobody else wants anything.
    Free,
    /// What it takes is counted.
    Counted,
    RestUntil(Instant),
}

impl Pace {
    /// `share`: of this machine's cores, more than 0. From 1 on there is no limit.
    pub fn new(load: Arc<Load>, share: f64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let cores = if share < 1.0 { cores * share } else { f64::INFINITY };
        Self { load, cores, earned: Mutex::new(Instant::now()) }
    }

    /// `served`: so long ago a client was.
    fn turn(&self, now: Instant, served: Duration) -> Turn {
        if self.cores.is_infinite() || served > RECENTLY {
            return Turn::Free;
        }
        let mut earned = self.earned.lock();
        if *earned >= now + REST_MIN {
            return Turn::RestUntil(*earned);
        }
        *earned = now.checked_sub(SAVED).map_or(*earned, |saved| saved.max(*earned)) + self.cost(TURN);
        Turn::Counted
    }

    /// A turn has used `time` of a core, up to `now`.
    fn used(&self, time: Duration, now: Instant) {
        let mut earned = self.earned.lock();
        let before = earned.checked_sub(self.cost(TURN)).unwrap_or(*earned);
        *earned = (before + self.cost(time)).min(now + REST_MAX);
    }

    /// How long it takes to earn that.
    fn cost(&self, time: Duration) -> Duration {
        Duration::try_from_secs_f64(time.as_secs_f64() / self.cores).map_or(REST_MAX, |cost| cost.min(REST_MAX))
    }
}

/// A copy, or a connection of copies, that keeps to the pace. It rests between polls of the future that it is.
pub struct Paced<F> {
    pace: Arc<Pace>,
    copy: Pin<Box<F>>,
    rest: Option<Pin<Box<Sleep>>>,
}

impl<F> Paced<F> {
    pub fn new(pace: &Arc<Pace>, copy: F) -> Self {
        Self { pace: pace.clone(), copy: Box::pin(copy), rest: None }
    }
}

impl<F: Future> Future for Paced<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        loop {
            if let Some(rest) = &mut self.rest {
                // Whatever wakes it meanwhile is looked at behind the rest.
                ready!(rest.as_mut().poll(context));
                self.rest = None;
            }
            match self.pace.turn(Instant::now(), self.pace.load.client_served_ago()) {
                Turn::Free => {
                    COUNTED.set(None);
                    return self.copy.as_mut().poll(context);
                }
                Turn::Counted => {
                    // With what others of this thread have done since the last one.
                    let before = COUNTED.get().unwrap_or_else(thread_cpu_time);
                    let polled = self.copy.as_mut().poll(context);
                    let after = thread_cpu_time();
                    COUNTED.set(Some(after));
                    self.pace.used(after.saturating_sub(before), Instant::now());
                    return polled;
                }
                Turn::RestUntil(earned) => {
                    self.pace.load.copies_rest(earned - Instant::now());
                    self.rest = Some(Box::pin(tokio::time::sleep_until(earned)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace(cores: f64) -> (Pace, Arc<Load>) {
        let load = Arc::new(Load::default());
        (Pace { cores, ..Pace::new(load.clone(), 0.1) }, load)
    }

    #[test]
    fn copies_have_all_cores_while_nobody_is_served() {
        let ((pace, load), now) = (pace(0.5), Instant::now());
        assert_eq!(pace.turn(now, load.client_served_ago()), Turn::Free, "nobody ever was");
        pace.used(1000 * MS, now);
        assert_eq!(pace.turn(now, RECENTLY + MS), Turn::Free);
        assert_ne!(pace.turn(now, RECENTLY), Turn::Free);
        assert_eq!(Pace::new(load, 1.0).turn(now, Duration::ZERO), Turn::Free);
    }

    #[test]
    fn they_rest_until_what_they_used_is_their_share() {
        let (pace, _) = pace(0.5);
        let start = Instant::now();
        let mut now = start + 1000 * MS;
        let (mut used, mut rested) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..1000 {
            match pace.turn(now, Duration::ZERO) {
                Turn::Counted => {
                    now += 3 * MS;
                    used += 3 * MS;
                    pace.used(3 * MS, now);
                }
                Turn::RestUntil(earned) => {
                    // A timer is late.
                    rested += earned - now + MS / 2;
                    now = earned + MS / 2;
                }
                Turn::Free => panic!("clients are served"),
            }
        }
        let share = used.as_secs_f64() / (used + rested).as_secs_f64();
        assert!((0.49..0.51).contains(&share), "{share}");
    }

    #[test]
    fn those_that_have_rested_do_not_all_go_on_at_once() {
        let (pace, _) = pace(0.5);
        let now = Instant::now() + 1000 * MS;
        let going = (0..100).take_while(|_| pace.turn(now, Duration::ZERO) == Turn::Counted).count();
        // What was saved, and one more.
        assert!((2..=(SAVED.as_secs_f64() / TURN.as_secs_f64()) as usize).contains(&going), "{going}");
        for _ in 0..going {
            pace.used(Duration::ZERO, now);
        }
        assert_eq!(pace.turn(now, Duration::ZERO), Turn::Counted, "they have used nothing");
    }

    #[test]
    fn a_rest_has_an_end_whatever_was_used() {
        let (pace, _) = pace(0.5);
        let now = Instant::now();
        for _ in 0..10 {
            pace.used(Duration::MAX, now);
        }
        assert_eq!(pace.turn(now, Duration::ZERO), Turn::RestUntil(now + REST_MAX));
    }

    /// In one thread: what another task of it does is the copies', too.
    #[tokio::test]
    async fn a_copy_rests_for_all_that_its_thread_has_done_and_comes_to_its_end() {
        // So little that a machine which is busy with other things gives the thread more.
        let (pace, load) = pace(0.02);
        let (pace, served) = (Arc::new(pace), load.clone());
        let busy = tokio::spawn(async move {
            loop {
                let until = thread_cpu_time() + MS;
                while thread_cpu_time() < until {}
                // Last: on a busy machine a millisecond of a core takes longer than a client counts as served.
                served.client_served();
                tokio::task::yield_now().await;
            }
        });
        let copy = async {
            for _ in 0..6 {
                tokio::task::yield_now().await;
            }
            "done"
        };
        load.client_served();
        assert_eq!(Paced::new(&pace, copy).await, "done");
        busy.abort();
        // What six turns are taken to use in advance makes 150 ms.
        assert!(load.copies_rested() > 250 * MS, "{:?}", load.copies_rested());
    }
}
