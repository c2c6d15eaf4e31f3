use std::time::{Duration, Instant};

/// Between two looks at what connections bring: several round trips, and long enough to count bytes.
const PERIOD_LEAST: Duration = Duration::from_millis(100);
const PERIOD_ROUND_TRIPS: u32 = 8;

/// New connections are not looked at before they have found their speed: opened, asked, and their congestion windows grown.
const START_ROUND_TRIPS: u32 = 6;

/// How many times as many connections there are when some are added: few steps, for each takes fourteen round trips and a pass over
/// thousands of files a hundred.
const FACTOR: usize = 4;

/// The same where the other end is far: a step takes a fifth of a second and more, and what one connection brings is least (its window, or
/// what losses leave of it, once a round trip).
const FACTOR_FAR: usize = 16;
const FAR: Duration = Duration::from_millis(5);

/// Further connections helped when so many times the bytes came in a second: as many times as there are connections where losses or windows
/// are the limit, as many as before where the network or a processor is.
const HELPED: f64 = 1.25;

/// With less than this they are given up again.
const WORTH_KEEPING: f64 = 1.05;

/// How long no further ones are tried when the last did not help: twice as long each time, for that may have been the chance of a moment.
const SETTLED_FIRST: Duration = Duration::from_millis(500);
const SETTLED_MOST: Duration = Duration::from_secs(10);

/// How long it is remembered how many were worth having. Connections that nobody uses end much earlier; the next that is held up then needs
/// no looks to have as many beside it.
const REMEMBERED: Duration = Duration::from_secs(300);

/// Connections opened within this time have either failed or are there: less than one that is idle lives.
const REOPENED: Duration = Duration::from_secs(1);

/// Decides how many connections are worth having. Fed only while connections are held up.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// When the present period began, and how many bytes had come by then.
    period: Option<(Instant, u64)>,
    /// Not yet: the new connections are still starting.
    starting_until: Option<Instant>,
    before: Option<Before>,
    settled_until: Option<Instant>,
    /// How long the last of these took.
    settled: Duration,
    /// How many there were when last a connection was held up and none were being tried, and when that was.
    worth: Option<(usize, Instant)>,
    /// When last as many were opened again.
    reopened: Option<Instant>,
}

/// What was before the last connections were added.
#[derive(Clone, Copy, Debug)]
struct Before {
    connections: usize,
    bytes_per_second: f64,
}

/// How many there are, and may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connections {
    pub count: usize,
    pub most: usize,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Stay,
    /// Open further connections: there are to be so many, which is more than there are.
    Add(usize),
    /// Give up all but the first so many, fewer than there are.
    Return(usize),
}

impl Growth {
    /// What to do with `connections`, over which so many `bytes` have come so far. `round_trip`: as far as it is known.
    pub(super) fn next(&mut self, now: Instant, connections: Connections, bytes: u64, round_trip: Duration) -> Next {
        let Connections { count, most } = connections;
        if self.starting_until.is_some_and(|until| now < until) {
            return Next::Stay;
        }
        if self.before.is_none() {
            let is_fresh = |when: Instant, length| now.saturating_duration_since(when) < length;
            let worth = self.worth.filter(|(_, when)| is_fresh(*when, REMEMBERED)).map_or(0, |(worth, _)| worth);
            // Opened just now and not there: so many cannot be had.
            let failed = self.reopened.is_some_and(|when| is_fresh(when, REOPENED));
            if worth > count && !failed {
                self.reopened = Some(now);
                return self.add(now, worth.min(most), round_trip);
            }
            self.worth = Some((count, now));
            // All are there, and the last of them have been looked at.
            if count >= most {
                return Next::Stay;
            }
        }
        if self.settled_until.is_some_and(|until| now < until) {
            return Next::Stay;
        }
        let length = PERIOD_LEAST.max(round_trip * PERIOD_ROUND_TRIPS);
        let Some((since, had)) = self.period else {
            self.period = Some((now, bytes));
            return Next::Stay;
        };
        let elapsed = now.saturating_duration_since(since);
        if elapsed < length {
            return Next::Stay;
        }
        self.period = Some((now, bytes));
        // There was a pause: what came in it says nothing.
        if elapsed > 4 * length {
            self.before = None;
            return Next::Stay;
        }
        let bytes_per_second = bytes.saturating_sub(had) as f64 / elapsed.as_secs_f64();
        if let Some(before) = self.before
            && bytes_per_second < HELPED * before.bytes_per_second
        {
            (self.before, self.period) = (None, None);
            self.settled = (2 * self.settled).clamp(SETTLED_FIRST, SETTLED_MOST);
            self.settled_until = Some(now + self.settled);
            let is_worse = bytes_per_second < WORTH_KEEPING * before.bytes_per_second;
            return if is_worse && before.connections < count { Next::Return(before.connections) } else { Next::Stay };
        }
        if self.before.take().is_some() {
            self.settled = Duration::ZERO;
        }
        if count >= most {
            self.period = None;
            return Next::Stay;
        }
        self.before = Some(Before { connections: count, bytes_per_second });
        let factor = if round_trip < FAR { FACTOR } else { FACTOR_FAR };
        self.add(now, (factor * count.max(1)).min(most), round_trip)
    }

    fn add(&mut self, now: Instant, connections: usize, round_trip: Duration) -> Next {
        self.period = None;
        self.starting_until = Some(now + round_trip * START_ROUND_TRIPS);
        Next::Add(connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Duration = Duration::from_millis(4);

    /// Feeds a growth once in ten milliseconds. What comes in a second: `rate` of the number of connections.
    struct Fed {
        growth: Growth,
        round_trip: Duration,
        most: usize,
        start: Instant,
        now_ms: u64,
        connections: usize,
        bytes: u64,
    }

    impl Fed {
        fn new() -> Self {
            let (growth, start) = (Growth::default(), Instant::now());
            Self { growth, round_trip: NEAR, most: 16, start, now_ms: 0, connections: 1, bytes: 0 }
        }

        /// Until `until_ms`; what was done, when, and how many connections there are after it.
        fn run(&mut self, until_ms: u64, rate: impl Fn(u64, usize) -> u64) -> Vec<(u64, usize)> {
            let mut done = Vec::new();
            while self.now_ms < until_ms {
                let now = self.start + Duration::from_millis(self.now_ms);
                let connections = Connections { count: self.connections, most: self.most };
                match self.growth.next(now, connections, self.bytes, self.round_trip) {
                    Next::Stay => {}
                    Next::Add(connections) | Next::Return(connections) => {
                        self.connections = connections;
                        done.push((self.now_ms, self.connections));
                    }
                }
                self.now_ms += 10;
                self.bytes += rate(self.now_ms, self.connections) / 100;
            }
            done
        }
    }

    #[test]
    fn connections_are_added_as_long_as_each_helps() {
        let mut fed = Fed::new();
        let done = fed.run(300, |_, connections| 1_000_000 * connections.min(4) as u64);
        assert_eq!(done, [(100, 4), (230, 16)]);
        assert_eq!(fed.run(370, |_, _| 4_000_000), [(360, 4)], "sixteen brought nothing");
    }

    #[test]
    fn to_a_far_end_there_are_many_in_two_steps() {
        let mut fed = Fed { round_trip: Duration::from_millis(20), most: 64, ..Fed::new() };
        let done = fed.run(1000, |_, connections| 1_000_000 * connections as u64);
        assert_eq!(done, [(160, 16), (440, 64)]);
    }

    #[test]
    fn the_last_ones_are_looked_at_too() {
        let mut fed = Fed::new();
        let done = fed.run(60_000, |_, connections| 1_000_000 * connections as u64);
        assert_eq!(done.last(), Some(&(230, 16)), "they help, and there are no more");
    }

    #[test]
    fn what_brings_a_little_is_kept_and_not_added_to() {
        let mut fed = Fed::new();
        let done = fed.run(700, |_, connections| if connections == 1 { 1_000_000 } else { 1_150_000 });
        assert_eq!(done, [(100, 4)]);
    }

    #[test]
    fn where_nothing_helps_it_is_tried_more_and_more_rarely() {
        let mut fed = Fed::new();
        let done = fed.run(120_000, |_, _| 1_000_000);
        let tried: Vec<u64> = done.iter().filter(|(_, connections)| *connections > 1).map(|(at, _)| *at).collect();
        let pauses: Vec<u64> = tried.windows(2).map(|two| two[1] - two[0]).collect();
        assert_eq!(fed.connections, 1, "each was given up again");
        assert!(pauses[0] < 1100, "{pauses:?}");
        assert!(pauses.windows(2).all(|two| two[0] <= two[1]), "{pauses:?}");
        assert!((10_000..10_500).contains(pauses.last().unwrap()), "{pauses:?}");
    }

    #[test]
    fn one_bad_moment_does_not_settle_it_for_long() {
        let mut fed = Fed::new();
        // While the first further connections are looked at, the network stands still.
        let rate = |at: u64, connections: usize| {
            if (130..240).contains(&at) { 0 } else { 1_000_000 * connections as u64 }
        };
        let done = fed.run(2000, rate);
        assert_eq!(done[..2], [(100, 4), (230, 1)]);
        assert!(fed.connections >= 4, "{done:?}");
    }

    #[test]
    fn as_many_as_were_worth_having_are_there_at_once_the_next_time() {
        let mut fed = Fed::new();
        let rate = |_: u64, connections: usize| 1_000_000 * connections.min(4) as u64;
        assert_eq!(fed.run(2000, rate)[..3], [(100, 4), (230, 16), (360, 4)]);
        // Nobody reads for a minute: all have ended but a new one.
        (fed.now_ms, fed.connections) = (62_000, 1);
        assert_eq!(fed.run(62_100, rate), [(62_000, 4)]);
        // That was too short to look at them, and is no reason to forget. Now not all can be had: what is there is gone on from.
        (fed.now_ms, fed.connections) = (70_000, 1);
        assert_eq!(fed.run(70_010, rate), [(70_000, 4)]);
        fed.connections = 2;
        assert_eq!(fed.run(70_200, rate), [(70_130, 8)]);
    }

    #[test]
    fn what_was_worth_having_long_ago_is_forgotten() {
        let mut fed = Fed::new();
        let rate = |_: u64, connections: usize| 1_000_000 * connections as u64;
        assert_eq!(fed.run(1000, rate).last(), Some(&(230, 16)));
        (fed.now_ms, fed.connections) = (301_000, 1);
        assert_eq!(fed.run(301_100, rate), []);
    }

    #[test]
    fn after_a_pause_nothing_is_known() {
        let mut fed = Fed::new();
        fed.run(140, |_, connections| 1_000_000 * connections as u64);
        // Nobody reads for five seconds.
        fed.now_ms = 5300;
        assert_eq!(fed.run(5390, |_, _| 100), [], "what came before it is not compared");
        assert_eq!(fed.run(5500, |_, _| 100).len(), 1, "a new beginning");
    }
}
