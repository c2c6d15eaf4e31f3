//! Leases of the files that this client writes: renewed by one task while any is open.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::file_system::Shared;

/// Half of the soft limit of 60 s, after which others may take a file over.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);
/// How often the task looks whether it is time, or a failed renewal is tried again.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the task stays after the last file was closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Leases {
    hard_limit: Duration,
    state: Arc<LeaseState>,
}

#[derive(Debug)]
struct LeaseState {
    open: AtomicUsize,
    /// How often the lease was lost: files opened before are given up, later ones are not.
    losses: AtomicU64,
    /// Whether the renewing task runs.
    renewing: Mutex<bool>,
}

/// The renewing task's sign that it runs. With the task it goes, also when the runtime ends it, and then the next file starts another.
struct RenewalGuard(Option<Arc<LeaseState>>);

impl RenewalGuard {
    /// The task ends by itself. Under the lock, so that what is started from then on is not taken for it.
    fn end(mut self, renewing: &mut bool) {
        *renewing = false;
        self.0 = None;
    }
}

impl Drop for RenewalGuard {
    fn drop(&mut self) {
        if let Some(state) = &self.0 {
            *state.renewing.lock() = false;
        }
    }
}

/// A file open for writing. Dropped, it no longer keeps the lease alive.
#[derive(Debug)]
pub(crate) struct OpenFile {
    state: Arc<LeaseState>,
    /// Losses when it was opened.
    losses: u64,
}

impl Leases {
    pub(crate) fn new(hard_limit: Duration) -> Self {
        Self {
            hard_limit,
            state: Arc::new(LeaseState {
                open: AtomicUsize::new(0),
                losses: AtomicU64::new(0),
                renewing: Mutex::new(false),
            }),
        }
    }

    /// Counts a file that is about to be created or appended to.
    pub(crate) fn open(shared: &Arc<Shared>) -> OpenFile {
        let state = &shared.leases.state;
        state.open.fetch_add(1, Ordering::AcqRel);
        Self::resume_renewal(shared);
        OpenFile { state: Arc::clone(state), losses: state.losses.load(Ordering::Acquire) }
    }

    /// Sees to it that the task that renews still runs: the runtime that it ran in may have ended. Within a runtime.
    pub(crate) fn resume_renewal(shared: &Arc<Shared>) {
        shared.leases.start_renewal(|| Arc::downgrade(shared));
    }

    fn start_renewal(&self, shared: impl FnOnce() -> Weak<Shared>) {
        let runs = std::mem::replace(&mut *self.state.renewing.lock(), true);
        if !runs {
            // Without the lock: a runtime that is about to end drops the task at once.
            let sign = RenewalGuard(Some(Arc::clone(&self.state)));
            tokio::spawn(renew(shared(), Arc::clone(&self.state), self.hard_limit, sign));
        }
    }
}

impl OpenFile {
    /// The lease could not be renewed until the namenode gave the file to somebody else, as far as we can tell.
    pub(crate) fn lost(&self) -> bool {
        self.state.losses.load(Ordering::Acquire) != self.losses
    }

    /// The file was closed properly.
    pub(crate) fn closed(self) {}
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.state.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Renews while files are open. Holds the file system only while it calls, so that dropping it ends the task.
async fn renew(shared: Weak<Shared>, state: Arc<LeaseState>, hard_limit: Duration, sign: RenewalGuard) {
    let mut renewed = Instant::now();
    let mut used = Instant::now();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(shared) = shared.upgrade() else { return };
        if state.open.load(Ordering::Acquire) > 0 {
            used = Instant::now();
        } else if used.elapsed() > IDLE_TIMEOUT {
            let mut renewing = state.renewing.lock();
            // Under the lock, so that a file opened just now starts another task.
            if state.open.load(Ordering::Acquire) == 0 {
                sign.end(&mut renewing);
                return;
            }
        } else {
            // Creating and appending renew, too.
            renewed = Instant::now();
            continue;
        }
        if renewed.elapsed() < RENEW_INTERVAL {
            continue;
        }
        match shared.namenode.renew_lease(&shared.client_name).await {
            Ok(()) => renewed = Instant::now(),
            Err(error) if renewed.elapsed() > hard_limit => {
                tracing::error!(%error, "the lease was lost; files open for writing are given up");
                state.losses.fetch_add(1, Ordering::AcqRel);
                renewed = Instant::now();
            }
            Err(error) => tracing::warn!(%error, "the lease could not be renewed; trying again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn who_opens_a_file_when_the_runtime_of_the_renewing_task_has_ended_starts_another() {
        let leases = Leases::new(Duration::from_secs(1200));
        let renew = |runtime: &Runtime| {
            let _entered = runtime.enter();
            leases.start_renewal(Weak::new);
            *leases.state.renewing.lock()
        };
        let first = runtime();
        assert!(renew(&first));
        drop(first);
        assert!(!*leases.state.renewing.lock());
        let second = runtime();
        assert!(renew(&second));
        // The client has gone.
        second.block_on(async {
            while *leases.state.renewing.lock() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        // One that takes no more tasks.
        let handle = second.handle().clone();
        drop(second);
        let _entered = handle.enter();
        leases.start_renewal(Weak::new);
        assert!(!*leases.state.renewing.lock());
    }
}
