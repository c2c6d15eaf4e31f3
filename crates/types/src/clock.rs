use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Source of time, injected so that leases, timeouts and intervals can be tested without waiting.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970-01-01T00:00:00Z, as used in files and tokens.
    fn wall_ms(&self) -> u64;

    /// Time since an arbitrary start; never goes back. For intervals.
    fn monotonic(&self) -> Duration;
}

/// The machine's own clocks.
pub struct SystemClock {
    start: Instant,
}

#[expect(clippy::disallowed_methods, reason = "the place where the machine's clocks are read")]
impl SystemClock {
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "the place where the machine's clocks are read")]
impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves only when it is advanced; both times advance together.
pub struct ManualClock {
    now: Mutex<(u64, Duration)>,
}

impl ManualClock {
    pub fn at(wall_ms: u64) -> Self {
        Self { now: Mutex::new((wall_ms, Duration::ZERO)) }
    }

    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        now.0 += by.as_millis() as u64;
        now.1 += by;
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        self.now.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }

    fn monotonic(&self) -> Duration {
        self.now.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).1
    }
}
