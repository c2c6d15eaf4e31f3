//! Number of connections to one datanode. While connections are congested, the controller adds some, measures the bytes
//! per second before and after, and closes them again if they brought no gain.

use std::time::Duration;

use tokio::time::Instant;

/// Period between two throughput measurements: several round trips, and long enough to count bytes.
const PERIOD_MIN: Duration = Duration::from_millis(100);
const PERIOD_ROUND_TRIPS: u32 = 8;

/// Warm-up of new connections before they are measured: they must be opened and used, and their congestion windows must
/// grow.
const WARM_UP_ROUND_TRIPS: u32 = 6;

/// Factor by which the number of connections grows. Large, so that few steps are needed: each takes fourteen round
/// trips, and a pass over thousands of files takes a hundred.
const GROWTH_FACTOR: usize = 4;

/// Growth factor for a distant datanode. A step takes at least a fifth of a second, and one connection brings least
/// (its window, or what losses leave of it, once per round trip).
const GROWTH_FACTOR_WAN: usize = 16;
const WAN_ROUND_TRIP_MIN: Duration = Duration::from_millis(5);

/// Gain in bytes per second above which the additional connections helped, so that more are tried. If losses or windows
/// are the limit, the gain is the factor in connections; if the network or a processor is, the gain is 1.
const GAIN_TO_GROW: f64 = 1.25;

/// Gain below which the additional connections are closed again.
const GAIN_TO_KEEP: f64 = 1.05;

/// Time for which no more connections are tried when the last ones did not help. Doubles each time, because one bad
/// measurement may be chance.
const COOLDOWN_MIN: Duration = Duration::from_millis(500);
const COOLDOWN_MAX: Duration = Duration::from_secs(10);

/// Time for which the useful number of connections is remembered. Idle connections expire much earlier. When a
/// connection is congested later, the same number is opened without new measurements.
const USEFUL_COUNT_TTL: Duration = Duration::from_secs(300);

/// Connections opened within this time have either failed or exist. Shorter than the expiry of an idle connection.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

/// Controller of the number of connections. Called only while connections are congested.
#[derive(Debug, Default)]
pub(super) struct Scaling {
    /// Start of the current period, and the bytes received until then.
    period: Option<(Instant, u64)>,
    /// End of the warm-up of new connections.
    warm_up_until: Option<Instant>,
    baseline: Option<Baseline>,
    cooldown_until: Option<Instant>,
    /// Length of the last cooldown.
    cooldown: Duration,
    /// Number of connections when one was last congested and no more were being tried, with the time.
    useful: Option<(usize, Instant)>,
    /// Time when the remembered number of connections was last opened again.
    reopened_at: Option<Instant>,
}

/// Measurement before the last connections were added.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    connections: usize,
    bytes_per_second: f64,
}

/// Current and maximum number of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolSize {
    pub count: usize,
    pub most: usize,
}

/// Decision of the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScalingDecision {
    Keep,
    /// Open more connections, up to this total, which is more than the current number.
    GrowTo(usize),
    /// Close all but the first connections up to this number, which is less than the current number.
    ShrinkTo(usize),
}

impl Scaling {
    /// Decides on the number of `connections`, over which `bytes` have arrived in total. `round_trip`: the best known
    /// value.
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
            // Connections were opened just now and are missing, so that many cannot be opened.
            let failed = self.reopened_at.is_some_and(|when| is_fresh(when, REOPEN_INTERVAL));
            if useful > count && !failed {
                self.reopened_at = Some(now);
                return self.add(now, useful.min(most), round_trip);
            }
            self.useful = Some((count, now));
            // The maximum is reached, and the last connections have been measured.
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
        // There was a pause, so the bytes in this period are not comparable.
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

    /// Calls the controller every ten milliseconds. The bytes per second are `rate` of the number of connections.
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

        /// Runs until `until_ms`. Returns the time of each decision and the number of connections after it.
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
    fn connections_grow_while_throughput_gains() {
        let mut fed = Fed::new();
        let done = fed.run(300, |_, connections| 1_000_000 * connections.min(4) as u64);
        assert_eq!(done, [(100, 4), (230, 16)]);
        assert_eq!(fed.run(370, |_, _| 4_000_000), [(360, 4)], "sixteen brought nothing");
    }

    #[test]
    fn distant_datanode_reaches_maximum_in_two_steps() {
        let mut fed = Fed { round_trip: Duration::from_millis(20), most: 64, ..Fed::new() };
        let done = fed.run(1000, |_, connections| 1_000_000 * connections as u64);
        assert_eq!(done, [(160, 16), (440, 64)]);
    }

    #[test]
    fn last_connections_are_measured() {
        let mut fed = Fed::new();
        let done = fed.run(60_000, |_, connections| 1_000_000 * connections as u64);
        assert_eq!(done.last(), Some(&(230, 16)), "they help, and there are no more");
    }

    #[test]
    fn small_gain_keeps_count() {
        let mut fed = Fed::new();
        let done = fed.run(700, |_, connections| if connections == 1 { 1_000_000 } else { 1_150_000 });
        assert_eq!(done, [(100, 4)]);
    }

    #[test]
    fn cooldown_grows_without_gain() {
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
    fn growth_resumes_after_stalled_measurement() {
        let mut fed = Fed::new();
        // The network stalls while the first additional connections are measured.
        let rate = |at: u64, connections: usize| {
            if (130..240).contains(&at) { 0 } else { 1_000_000 * connections as u64 }
        };
        let done = fed.run(2000, rate);
        assert_eq!(done[..2], [(100, 4), (230, 1)]);
        assert!(fed.connections >= 4, "{done:?}");
    }

    #[test]
    fn useful_count_is_reopened_at_once() {
        let mut fed = Fed::new();
        let rate = |_: u64, connections: usize| 1_000_000 * connections.min(4) as u64;
        assert_eq!(fed.run(2000, rate)[..3], [(100, 4), (230, 16), (360, 4)]);
        // No reads for a minute: all connections have expired, and a new one is opened.
        (fed.now_ms, fed.connections) = (62_000, 1);
        assert_eq!(fed.run(62_100, rate), [(62_000, 4)]);
        // That time was too short to measure them, but the number is remembered. Now not all can be opened: growth
        // continues from the existing ones.
        (fed.now_ms, fed.connections) = (70_000, 1);
        assert_eq!(fed.run(70_010, rate), [(70_000, 4)]);
        fed.connections = 2;
        assert_eq!(fed.run(70_200, rate), [(70_130, 8)]);
    }

    #[test]
    fn useful_count_expires() {
        let mut fed = Fed::new();
        let rate = |_: u64, connections: usize| 1_000_000 * connections as u64;
        assert_eq!(fed.run(1000, rate).last(), Some(&(230, 16)));
        (fed.now_ms, fed.connections) = (301_000, 1);
        assert_eq!(fed.run(301_100, rate), []);
    }

    #[test]
    fn pause_resets_measurement() {
        let mut fed = Fed::new();
        fed.run(140, |_, connections| 1_000_000 * connections as u64);
        // No reads for five seconds.
        fed.now_ms = 5300;
        assert_eq!(fed.run(5390, |_, _| 100), [], "what came before it is not compared");
        assert_eq!(fed.run(5500, |_, _| 100).len(), 1, "a new beginning");
    }
}
