//! What copies may have of the cores while clients are served: a share of them at most.
//!
//! A niceness only says who comes first of those that want a core. It keeps none free for a reader who is about to wake, and ends no
//! system call for him; time in which copies rest does.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, Sleep};

use crate::load::Load;

/// Clients are being served when one was within that.
const RECENTLY: Duration = Duration::from_millis(20);

/// Time that copies have left unused is theirs for so long. It also makes up for rests that end late.
const SAVED: Duration = Duration::from_millis(5);

/// No shorter rest is worth it: what a timer can tell apart.
const REST_MIN: Duration = Duration::from_millis(1);

/// And none is longer, whatever they have used.
const REST_MAX: Duration = Duration::from_millis(200);

/// Of all copies of a datanode together.
pub struct Pace {
    load: Arc<Load>,
    /// How many cores they may keep busy.
    cores: f64,
    state: Mutex<State>,
}

struct State {
    /// How often clients had been served when that was looked at last.
    served: u64,
    served_at: Option<Instant>,
    /// When the time that they have used is earned.
    earned: Instant,
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
    /// `share`: of this machine's cores. From 1 on there is no limit.
    pub fn new(load: Arc<Load>, share: f64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let cores = if share < 1.0 { cores * share } else { f64::INFINITY };
        let state = State { served: load.clients_served(), served_at: None, earned: Instant::now() };
        Self { load, cores, state: Mutex::new(state) }
    }

    fn turn(&self, now: Instant) -> Turn {
        if self.cores.is_infinite() {
            return Turn::Free;
        }
        let served = self.load.clients_served();
        let mut state = self.state.lock();
        if state.served != served {
            state.served = served;
            state.served_at = Some(now);
        }
        match state.served_at {
            Some(at) if now.saturating_duration_since(at) <= RECENTLY => {}
            _ => return Turn::Free,
        }
        if state.earned >= now + REST_MIN { Turn::RestUntil(state.earned) } else { Turn::Counted }
    }

    /// A copy has used `time` of a core, up to `now`.
    fn used(&self, time: Duration, now: Instant) {
        let mut state = self.state.lock();
        let from = now.checked_sub(SAVED).map_or(state.earned, |saved| state.earned.max(saved));
        let cost = Duration::try_from_secs_f64(time.as_secs_f64() / self.cores).unwrap_or(REST_MAX);
        state.earned = (from + cost.min(REST_MAX)).min(now + REST_MAX);
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
            match self.pace.turn(Instant::now()) {
                Turn::Free => return self.copy.as_mut().poll(context),
                Turn::Counted => {
                    let before = thread_time();
                    let polled = self.copy.as_mut().poll(context);
                    self.pace.used(thread_time().saturating_sub(before), Instant::now());
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

/// What the calling thread has had of a core since it began.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// With half a core.
    fn pace() -> (Pace, Arc<Load>, Instant) {
        let load = Arc::new(Load::default());
        let pace = Pace { cores: 0.5, ..Pace::new(load.clone(), 0.1) };
        (pace, load, Instant::now())
    }

    #[test]
    fn copies_have_all_cores_while_nobody_is_served() {
        let (pace, load, now) = pace();
        pace.used(1000 * MS, now);
        assert_eq!(pace.turn(now), Turn::Free);
        load.client_served();
        assert_ne!(pace.turn(now), Turn::Free);
        assert_ne!(pace.turn(now + RECENTLY), Turn::Free);
        assert_eq!(pace.turn(now + RECENTLY + MS), Turn::Free);
        let unbounded = Pace::new(load.clone(), 1.0);
        load.client_served();
        assert_eq!(unbounded.turn(now), Turn::Free);
    }

    #[test]
    fn they_rest_until_what_they_used_is_their_share() {
        let (pace, load, start) = pace();
        let mut now = start + 1000 * MS;
        let (mut used, mut rested) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..1000 {
            load.client_served();
            match pace.turn(now) {
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
    fn a_rest_has_an_end_whatever_was_used() {
        let (pace, load, now) = pace();
        load.client_served();
        for _ in 0..10 {
            pace.used(Duration::MAX, now);
        }
        assert_eq!(pace.turn(now), Turn::RestUntil(now + REST_MAX));
    }

    #[tokio::test]
    async fn a_copy_comes_to_its_end_and_has_rested() {
        let (pace, load, _) = pace();
        let (pace, served) = (Arc::new(pace), load.clone());
        let copy = async move {
            for _ in 0..20 {
                served.client_served();
                let until = thread_time() + 2 * MS;
                while thread_time() < until {}
                tokio::task::yield_now().await;
            }
            "done"
        };
        let started = Instant::now();
        assert_eq!(Paced::new(&pace, copy).await, "done");
        // 40 ms of half a core, without what was saved and the last turn's.
        assert!(started.elapsed() >= 80 * MS - SAVED - 8 * MS, "{:?}", started.elapsed());
        assert!(load.copies_rested() > Duration::ZERO);
    }
}
