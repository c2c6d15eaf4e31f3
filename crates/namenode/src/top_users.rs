//! Which users made the most calls in the last minutes, by operation. For `/jmx` and the user interface.
//!
//! Calls are counted in steps of six seconds, as Apache's NameNode does for its shortest window.
//! Bounds, for each of the few parts of the table: `STEPS_MAX` steps of `USERS_MAX` users each, with one count for each
//! operation. Usually that is less than 1 MB; fifty users who call every operation in every step take about 30 MB in each
//! part. Further users of a step share one name, because clients choose their names.
//!
//! Every call takes the lock to add to the last step. Former steps no longer change, so readers add them up without it.
//!
//! Source: Hadoop's `TopMetrics` and `RollingWindowManager`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hearth_types::Sharded;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Length of a step.
const STEP: Duration = Duration::from_secs(6);
/// Windows that are reported, in minutes: the default of `dfs.namenode.top.windows.minutes`.
pub const WINDOWS_MINUTES: [u64; 3] = [1, 5, 25];
/// Number of steps that are kept: those of the longest window.
const STEPS_MAX: usize = 25 * 60 / 6;
/// Maximum number of users that are counted apart in a step of one part.
const USERS_MAX: usize = 50;
/// Length of the longest name that is kept.
const NAME_BYTES_MAX: usize = 256;
/// Name under which the others are counted. No user has it: names have no spaces.
const OTHERS: &str = "all other users";
/// Maximum number of users that are reported for an operation: the default of `dfs.namenode.top.num.users`.
const REPORTED_MAX: usize = 10;
/// Operation that stands for all.
const ALL: &str = "*";

/// Counts of recent calls.
pub struct TopUsers {
    is_enabled: bool,
    /// Steps are counted from here.
    zero: Instant,
    /// Split by thread: every call takes this lock.
    steps: Sharded<Mutex<Steps>>,
}

#[derive(Default)]
struct Steps {
    /// The step that calls are added to; `None` before the first call.
    last: Option<Step>,
    /// Those before it, oldest first: `STEPS_MAX - 1` at most.
    former: VecDeque<Arc<Step>>,
}

#[derive(Clone)]
struct Step {
    /// Time since the zero, in steps.
    number: u64,
    users: HashMap<Arc<str>, Vec<(&'static str, u64)>>,
}

/// Calls of one operation in a window.
#[derive(Clone, PartialEq, Eq, Debug)]
struct OperationCount {
    /// Method of ClientProtocol; `*` for all together.
    operation: &'static str,
    total: u64,
    /// The users with the most calls, in this order.
    users: Vec<(Arc<str>, u64)>,
}

impl TopUsers {
    pub fn new(is_enabled: bool) -> Self {
        Self { is_enabled, zero: Instant::now(), steps: Sharded::default() }
    }

    /// Counts a call that began at `began`.
    pub fn record(&self, user: &Arc<str>, operation: &'static str, began: Instant) {
        self.record_at(user, operation, began.saturating_duration_since(self.zero));
    }

    fn record_at(&self, user: &Arc<str>, operation: &'static str, now: Duration) {
        if !self.is_enabled {
            return;
        }
        let number = step_of(now);
        let mut steps = self.steps.of_thread().lock();
        // Threads may come here in another order than they read the clock.
        if steps.last.as_ref().is_some_and(|last| last.number < number)
            && let Some(mut ended) = steps.last.take()
        {
            ended.users.values_mut().for_each(Vec::shrink_to_fit);
            if steps.former.len() >= STEPS_MAX - 1 {
                steps.former.pop_front();
            }
            steps.former.push_back(Arc::new(ended));
        }
        let step = steps.last.get_or_insert_with(|| Step { number, users: HashMap::new() });
        if let Some(counts) = step.users.get_mut(user) {
            return add(counts, operation);
        }
        let has_room = step.users.len() < USERS_MAX && user.len() <= NAME_BYTES_MAX;
        let name: Arc<str> = if has_room { user.clone() } else { OTHERS.into() };
        add(step.users.entry(name).or_default(), operation);
    }

    #[cfg(test)]
    fn window(&self, minutes: u64, now: Duration) -> Vec<OperationCount> {
        window(&self.steps(), minutes, now)
    }

    /// Returns all steps. They are added up without the lock, on which every call waits.
    fn steps(&self) -> Vec<Arc<Step>> {
        let of_part = |part: &Mutex<Steps>| {
            let steps = part.lock();
            let last = steps.last.clone().map(Arc::new);
            steps.former.iter().cloned().chain(last).collect::<Vec<_>>()
        };
        self.steps.parts().flat_map(of_part).collect()
    }

    /// Returns the windows as Apache's NameNode reports them in `TopUserOpCounts`.
    pub fn json(&self) -> Vec<Value> {
        self.json_at(self.zero.elapsed())
    }

    fn json_at(&self, now: Duration) -> Vec<Value> {
        let steps = self.steps();
        let windows = WINDOWS_MINUTES.iter().map(|minutes| {
            let operations = window(&steps, *minutes, now).into_iter().map(|count| {
                let users: Vec<Value> =
                    count.users.iter().map(|(user, count)| json!({ "user": &**user, "count": count })).collect();
                json!({ "opType": count.operation, "topUsers": users, "totalCount": count.total })
            });
            json!({ "windowLenMs": minutes * 60_000, "ops": operations.collect::<Vec<_>>() })
        });
        windows.collect()
    }
}

/// Returns the counts of the last `minutes`: first those of all operations together, then the most frequent operation.
fn window(steps: &[Arc<Step>], minutes: u64, now: Duration) -> Vec<OperationCount> {
    let length = minutes * 60 / STEP.as_secs();
    let oldest = (step_of(now) + 1).saturating_sub(length);
    let mut by_user = HashMap::<&Arc<str>, HashMap<&'static str, u64>>::new();
    for step in steps.iter().filter(|step| step.number >= oldest) {
        for (user, of_step) in &step.users {
            let of_user = by_user.entry(user).or_default();
            for (operation, count) in of_step {
                *of_user.entry(*operation).or_default() += count;
            }
        }
    }
    let mut by_operation = HashMap::<&'static str, Vec<(Arc<str>, u64)>>::new();
    for (user, of_user) in by_user {
        let all: u64 = of_user.values().sum();
        for (operation, count) in of_user.into_iter().chain([(ALL, all)]) {
            by_operation.entry(operation).or_default().push((user.clone(), count));
        }
    }
    let mut counts: Vec<OperationCount> = by_operation
        .into_iter()
        .map(|(operation, mut users)| {
            let total: u64 = users.iter().map(|(_, count)| count).sum();
            users.sort_by(|(one, first), (other, second)| second.cmp(first).then_with(|| one.cmp(other)));
            users.truncate(REPORTED_MAX);
            OperationCount { operation, total, users }
        })
        .collect();
    counts.sort_by_key(|count| (count.operation != ALL, std::cmp::Reverse(count.total), count.operation));
    counts
}

/// Counts one call of an operation.
fn add(counts: &mut Vec<(&'static str, u64)>, operation: &'static str) {
    match counts.iter_mut().find(|(known, _)| *known == operation) {
        Some((_, count)) => *count += 1,
        None => counts.push((operation, 1)),
    }
}

fn step_of(now: Duration) -> u64 {
    now.as_secs() / STEP.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn calls_leave_a_window_with_its_length() {
        let top = TopUsers::new(true);
        let (ann, bob) = (Arc::<str>::from("ann"), Arc::<str>::from("bob"));
        for _ in 0..3 {
            top.record_at(&ann, "create", at(100));
        }
        top.record_at(&bob, "create", at(130));
        top.record_at(&bob, "getListing", at(131));
        let now = at(150);
        let window = top.window(1, now);
        assert_eq!(
            window[0],
            OperationCount { operation: "*", total: 5, users: vec![(ann.clone(), 3), (bob.clone(), 2)] }
        );
        assert_eq!((window[1].operation, window[1].total), ("create", 4));
        assert_eq!(window[2], OperationCount { operation: "getListing", total: 1, users: vec![(bob.clone(), 1)] });
        // Ann's calls are more than a minute ago.
        assert_eq!(top.window(1, at(175))[0].users, [(bob.clone(), 2)]);
        assert_eq!(top.window(5, at(175))[0].total, 5);
        assert!(top.window(25, at(10_000)).is_empty());
        let json = top.json_at(now);
        assert_eq!(json[0]["windowLenMs"], 60_000);
        assert_eq!(json[0]["ops"][0]["topUsers"][0], json!({ "user": "ann", "count": 3 }));
    }

    #[test]
    fn invented_names_take_no_more_memory() {
        let top = TopUsers::new(true);
        for number in 0..10 * USERS_MAX {
            top.record_at(&format!("user-{number}").into(), "create", at(1));
        }
        assert_eq!(top.steps()[0].users.len(), USERS_MAX + 1);
        let window = top.window(1, at(1));
        assert_eq!(window[0].total, 10 * USERS_MAX as u64);
        assert_eq!(window[0].users[0], (OTHERS.into(), 9 * USERS_MAX as u64));
        let long = TopUsers::new(true);
        long.record_at(&"x".repeat(NAME_BYTES_MAX + 1).into(), "create", at(1));
        assert_eq!(long.window(1, at(1))[0].users, [(OTHERS.into(), 1)]);
        for step in 0..2 * STEPS_MAX as u64 {
            top.record_at(&"ann".into(), "create", at(step * STEP.as_secs()));
        }
        assert_eq!(top.steps().len(), STEPS_MAX);
    }

    #[test]
    fn readers_share_former_steps() {
        let top = TopUsers::new(true);
        let ann = Arc::<str>::from("ann");
        for step in 0..3 {
            top.record_at(&ann, "create", at(step * STEP.as_secs()));
        }
        let (seen, again) = (top.steps(), top.steps());
        assert!(Arc::ptr_eq(&seen[0], &again[0]) && Arc::ptr_eq(&seen[1], &again[1]));
        // A call that reads the clock before another one is added to the same step; what a reader has stays.
        top.record_at(&ann, "create", at(0));
        assert_eq!(seen[2].users[&ann], [("create", 1)]);
        assert_eq!(top.steps()[2].users[&ann], [("create", 2)]);
        assert_eq!(top.window(1, at(12))[0].total, 4);
    }

    #[test]
    fn nothing_is_counted_if_it_is_disabled() {
        let top = TopUsers::new(false);
        top.record_at(&"ann".into(), "create", at(1));
        assert!(top.window(1, at(1)).is_empty());
    }
}
