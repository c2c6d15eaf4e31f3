//! Signals that wake and end the background threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Signals that wake and end the background threads.
#[derive(Default)]
pub struct ThreadSignals {
    stopping: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl ThreadSignals {
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Tells all threads to end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes the threads that `pause`.
    pub fn wake(&self) {
        let _guard = self.lock.lock();
        self.wake.notify_all();
    }

    /// Waits for a wake-up, `duration` at most. False: the store is being closed.
    pub fn pause(&self, duration: Duration) -> bool {
        let mut guard = self.lock.lock();
        if !self.is_stopping() {
            self.wake.wait_for(&mut guard, duration);
        }
        !self.is_stopping()
    }

    /// Sleeps for `duration`. Returns false at once when the store is being closed.
    pub fn sleep(&self, duration: Duration) -> bool {
        let mut guard = self.lock.lock();
        self.wake.wait_while_for(&mut guard, |()| !self.is_stopping(), duration);
        !self.is_stopping()
    }
}
