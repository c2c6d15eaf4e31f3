//! Times of a NameNode's last answers, for status pages.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Times of a NameNode's last answers.
#[derive(Default)]
pub struct LastContact(Mutex<Times>);

#[derive(Default)]
struct Times {
    heartbeat: Option<Instant>,
    full_report: Option<Instant>,
    /// The last answer said that other DataNodes report this one as slow.
    is_slow: bool,
}

impl LastContact {
    /// Records that it has just answered a heartbeat or the registration.
    pub fn heartbeat_answered(&self) {
        self.0.lock().heartbeat = Some(Instant::now());
    }

    /// Records that it has just accepted a full block report.
    pub fn full_report_accepted(&self) {
        self.0.lock().full_report = Some(Instant::now());
    }

    pub fn note_slow(&self, is_slow: bool) {
        self.0.lock().is_slow = is_slow;
    }

    /// Returns true if this NameNode considers this DataNode slow.
    pub fn is_slow(&self) -> bool {
        self.0.lock().is_slow
    }

    pub fn since_heartbeat(&self) -> Option<Duration> {
        self.0.lock().heartbeat.map(|at| at.elapsed())
    }

    pub fn since_full_report(&self) -> Option<Duration> {
        self.0.lock().full_report.map(|at| at.elapsed())
    }
}
