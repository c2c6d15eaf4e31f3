//! Stages of this process: serving, about to restart, stopping.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Stage of the process, and the requests to leave it.
pub struct Lifecycle {
    started: Instant,
    stop: watch::Sender<bool>,
    /// True when this DataNode is about to stop and to be started again soon.
    restarting: watch::Sender<bool>,
    /// True when an administrator requested the end of the process.
    shutdown_requested: watch::Sender<bool>,
    /// True when too many storage directories have failed.
    volumes_failed: AtomicBool,
}

impl Lifecycle {
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            stop: watch::Sender::new(false),
            restarting: watch::Sender::new(false),
            shutdown_requested: watch::Sender::new(false),
            volumes_failed: AtomicBool::new(false),
        }
    }

    /// Returns the time since the start.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Makes all tasks stop.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Resolves when the DataNode stops.
    pub async fn stopping(&self) {
        let mut stop = self.stop.subscribe();
        // The sender is a field of `self`, so it outlives this future.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Records that this DataNode is about to restart.
    pub fn note_restarting(&self) {
        self.restarting.send_replace(true);
    }

    /// Returns a receiver that becomes true when this DataNode is about to restart.
    pub fn restarting(&self) -> watch::Receiver<bool> {
        self.restarting.subscribe()
    }

    pub fn is_restarting(&self) -> bool {
        *self.restarting.borrow()
    }

    /// Records that an administrator requested a shutdown; the owner of the handle carries it out.
    pub fn request_shutdown(&self) {
        self.shutdown_requested.send_replace(true);
    }

    /// Resolves when a shutdown was requested.
    pub async fn shutdown_requested(&self) {
        let mut asked = self.shutdown_requested.subscribe();
        // The sender is a field of `self`, so it outlives this future.
        let _ = asked.wait_for(|asked| *asked).await;
    }

    /// Records that too many storage directories have failed. Returns true if that was already known.
    pub fn note_volumes_failed(&self) -> bool {
        self.volumes_failed.swap(true, Ordering::Relaxed)
    }

    pub fn have_volumes_failed(&self) -> bool {
        self.volumes_failed.load(Ordering::Relaxed)
    }
}
