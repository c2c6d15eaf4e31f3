use std::time::{Duration, Instant};

/// Between two looks at what connections bring: several round trips, and long enough to count bytes.
const PERIOD_MIN: Duration = Duration::from_millis(100);
const PERIOD_ROUND_TRIPS: u32 = 8;

/// New connections are not looked at before they have found their speed: opened, asked, and their congestion windows grown.
const WARM_UP_ROUND_TRIPS: u32 = 6;

/// How many times as many connections there are when some are added: few steps, for each takes fourteen round trips and a pass over
/// thousands of files a hundred.
const GROWTH_FACTOR: usize = 4;

/// The same where the other end is far: a step takes a fifth of a second and more, and what one connection brings is least (its window, or
/// what losses leave of it, once a round trip).
const GROWTH_FACTOR_WAN: usize = 16;
const WAN_ROUND_TRIP_MIN: Duration = Duration::from_millis(5);

/// Further connections helped when so many times the bytes came in a second: as many times as there are connections where losses or windows
/// are the limit, as many as before where the network or a processor is.
const GAIN_TO_GROW: f64 = 1.25;

/// With less than this they are given up again.
const GAIN_TO_KEEP: f64 = 1.05;

/// How long no further ones are tried when the last did not help: twice as long each time, for that may have been the chance of a moment.
const COOLDOWN_MIN: Duration = Duration::from_millis(500);
const COOLDOWN_MAX: Duration = Duration::from_secs(10);

/// How long it is remembered how many were worth having. Connections that nobody uses end much earlier; the next that is held up then needs
/// no looks to have as many beside it.
const USEFUL_COUNT_TTL: Duration = Duration::from_secs(300);

/// Connections opened within this time have either failed or are there: less than one that is idle lives.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Decides how many connections are worth having. Fed only while connections are held up.
#[derive(Debug, Default)]
pub(super) struct Scaling {
    /// When the present period began, and how many bytes had come by then.
    period: Option<(Instant, u64)>,
    /// Not yet: the new connections are still starting.
    warm_up_until: Option<Instant>,
    baseline: Option<Baseline>,
    cooldown_until: Option<Instant>,
    /// How long the last of these took.
    cooldown: Duration,
    /// How many there were when last a connection was held up and none were being tried, and when that was.
    useful: Option<(usize, Instant)>,
    /// When last as many were opened again.
    reopened_at: Option<Instant>,
}

/// What was before the last connections were added.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    connections: usize,
    bytes_per_second: f64,
}

/// How many there are, and may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolSize {
    pub count: usize,
    pub most: usize,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScalingDecision {
    Keep,
    /// Open further connections: there are to be so many, which is more than there are.
    GrowTo(usize),
    /// Give up all but the first so many, fewer than there are.
    ShrinkTo(usize),
}

impl Scaling {
    /// What to do with `connections`, over which so many `bytes` have come so far. `round_trip`: as far as it is known.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        connections: PoolSize,
        bytes: u64,
        round_trip: Duration,
    ) -> ScalingDecision {
        let PoolSize { count, most } = connections;
        if self.warm_up_until.is_some_and(|until| now < until) {
            return ScalingDecision::Keep;
        }
        if self.baseline.is_none() {
            let is_fresh = |when: Instant, length| now.saturating_duration_since(when) < length;
            let useful =
                self.useful.filter(|(_, when)| is_fresh(*when, USEFUL_COUNT_TTL)).map_or(0, |(useful, _)| useful);
            // Opened just now and not there: so many cannot be had.
            let failed = self.reopened_at.is_some_and(|when| is_fresh(when, REOPEN_INTERVAL));
            if useful > count && !failed {
                self.reopened_at = Some(now);
                return self.add(now, useful.min(most), round_trip);
            }
            self.useful = Some((count, now));
            // All are there, and the last of them have been looked at.
            if count >= most {
                return ScalingDecision::Keep;
            }
        }
        if self.cooldown_until.is_some_and(|until| now < until) {
            return ScalingDecision::Keep;
        }
        let length = PERIOD_MIN.max(round_trip * PERIOD_ROUND_TRIPS);
        let Some((since, had)) = self.period else {
            self.period = Some((now, bytes));
            return ScalingDecision::Keep;
        };
        let elapsed = now.saturating_duration_since(since);
        if elapsed < length {
            return ScalingDecision::Keep;
        }
        self.period = Some((now, bytes));
        // There was a pause: what came in it says nothing.
        if elapsed > 4 * length {
            self.baseline = None;
            return ScalingDecision::Keep;
        }
        let bytes_per_second = bytes.saturating_sub(had) as f64 / elapsed.as_secs_f64();
        if let Some(baseline) = self.baseline
            && bytes_per_second < GAIN_TO_GROW * baseline.bytes_per_second
        {
            (self.baseline, self.period) = (None, None);
            self.cooldown = (2 * self.cooldown).clamp(COOLDOWN_MIN, COOLDOWN_MAX);
            self.cooldown_until = Some(now + self.cooldown);
            let is_worse = bytes_per_second < GAIN_TO_KEEP * baseline.bytes_per_second;
            return if is_worse && baseline.connections < count {
                ScalingDecision::ShrinkTo(baseline.connections)
            } else {
                ScalingDecision::Keep
            };
        }
        if self.baseline.take().is_some() {
            self.cooldown = Duration::ZERO;
        }
        if count >= most {
            self.period = None;
            return ScalingDecision::Keep;
        }
        self.baseline = Some(Baseline { connections: count, bytes_per_second });
        let factor = if round_trip < WAN_ROUND_TRIP_MIN { GROWTH_FACTOR } else { GROWTH_FACTOR_WAN };
        self.add(now, (factor * count.max(1)).min(most), round_trip)
    }

    fn add(&mut self, now: Instant, connections: usize, round_trip: Duration) -> ScalingDecision {
        self.period = None;
        self.warm_up_until = Some(now + round_trip * WARM_UP_ROUND_TRIPS);
        ScalingDecision::GrowTo(connections)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Duration = Duration::from_millis(4);

    /// Feeds a growth once in ten milliseconds. What comes in a second: `rate` of the number of connections.
    struct Fed {
        scaling: Scaling,
        round_trip: Duration,
        most: usize,
        start: Instant,
        now_ms: u64,
        connections: usize,
        bytes: u64,
    }

    impl Fed {
        fn new() -> Self {
            let (scaling, start) = (Scaling::default(), Instant::now());
            Self { scaling, round_trip: NEAR, most: 16, start, now_ms: 0, connections: 1, bytes: 0 }
        }

        /// Until `until_ms`; what was done, when, and how many connections there are after it.
        fn run(&mut self, until_ms: u64, rate: impl Fn(u64, usize) -> u64) -> Vec<(u64, usize)> {
            let mut done = Vec::new();
            while self.now_ms < until_ms {
                let now = self.start + Duration::from_millis(self.now_ms);
                let connections = PoolSize { count: self.connections, most: self.most };
                match self.scaling.decide(now, connections, self.bytes, self.round_trip) {
                    ScalingDecision::Keep => {}
                    ScalingDecision::GrowTo(connections) | ScalingDecision::ShrinkTo(connections) => {
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
