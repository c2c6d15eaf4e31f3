use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// When a namenode last answered.
#[derive(Default)]
pub(crate) struct LastContact(Mutex<Times>);

#[derive(Default)]
struct Times {
    heartbeat: Option<Instant>,
    full_report: Option<Instant>,
}

impl LastContact {
    /// It answered a heartbeat, or the registration, just now.
    pub fn heartbeat_answered(&self) {
        self.0.lock().heartbeat = Some(Instant::now());
    }

    /// It took a full block report just now.
    pub fn full_report_accepted(&self) {
        self.0.lock().full_report = Some(Instant::now());
    }

    pub fn since_heartbeat(&self) -> Option<Duration> {
        self.0.lock().heartbeat.map(|at| at.elapsed())
    }

    pub fn since_full_report(&self) -> Option<Duration> {
        self.0.lock().full_report.map(|at| at.elapsed())
    }
}
