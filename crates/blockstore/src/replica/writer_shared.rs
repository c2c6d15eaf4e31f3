//! State that a writer shares with operations that may stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::disk::copy::DiskWriter;
use crate::disk::stream::DiskStream;
use crate::memory::file::FileWriter;
use crate::memory::slab::Slot;

pub type StopHook = Box<dyn FnMut() -> bool + Send>;

/// State that a writer shares with operations that may stop it.
pub struct WriterShared {
    stopped: AtomicBool,
    hook: Mutex<Option<StopHook>>,
    pub target: Mutex<WriteTarget>,
}

/// Destination of a writer's bytes.
pub enum WriteTarget {
    Slot(Arc<Slot>),
    File(FileWriter),
    Disk(DiskWriter),
    /// Also on disk, for a copy that is not read before its end: see `Blockstore::end_stream`.
    Stream(Box<DiskStream>),
    /// The writer was stopped.
    Detached,
}

impl WriterShared {
    pub fn new(target: WriteTarget) -> Arc<Self> {
        Arc::new(Self { stopped: AtomicBool::new(false), hook: Mutex::new(None), target: Mutex::new(target) })
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Sets the stop hook. `Some` returns the hook: the writer was stopped already.
    pub fn set_hook(&self, hook: StopHook) -> Option<StopHook> {
        let mut place = self.hook.lock();
        if self.is_stopped() {
            return Some(hook);
        }
        *place = Some(hook);
        None
    }

    /// Called by the writer itself to revoke all other write access, as `stop` would. A hook that succeeds is removed.
    pub fn shut_out(&self) {
        // Held during the call: a thread that stops the writer has to wait for the same.
        let mut place = self.hook.lock();
        if place.as_mut().is_some_and(|hook| hook()) {
            *place = None;
        }
    }

    /// Returns whether a stop hook is set.
    pub fn has_hook(&self) -> bool {
        self.hook.lock().is_some()
    }

    /// Stops the writer: its calls fail from now on. If true is returned, none of them is running.
    pub fn stop(&self, timeout: Duration) -> bool {
        self.stopped.store(true, Ordering::Release);
        let hook = self.hook.lock().take();
        if let Some(mut hook) = hook
            && !hook()
        {
            *self.hook.lock() = Some(hook);
            return false;
        }
        let Some(mut target) = self.target.try_lock_for(timeout) else { return false };
        *target = WriteTarget::Detached;
        true
    }

    /// Called by the writer itself when it is done.
    pub fn finish(&self, target: &mut WriteTarget) {
        self.stopped.store(true, Ordering::Release);
        *target = WriteTarget::Detached;
        self.hook.lock().take();
    }
}
