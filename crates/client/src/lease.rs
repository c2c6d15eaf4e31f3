//! Leases of the files that this client writes. One task renews them while any file is open.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::namenode::Namenode;

/// Half of the soft limit of 60 s, after which other clients may take a file over.
const RENEW_INTERVAL: Duration = Duration::from_secs(30);
/// Interval at which the task checks whether a renewal is due, and at which a failed renewal is retried.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time that the task keeps running after the last file was closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Leases of one client. The namenode knows one lease per client, whatever the number of its open files.
#[derive(Debug)]
pub(crate) struct Leases {
    namenode: Arc<Namenode>,
    state: Arc<LeaseState>,
}

#[derive(Debug)]
struct LeaseState {
    /// Holder of the leases.
    client_name: String,
    hard_limit: Duration,
    /// Number of files open for writing.
    open: AtomicUsize,
    /// Number of times that the lease was lost. Files opened before a loss are given up; later ones are not.
    losses: AtomicU64,
    /// True while the renewing task runs.
    renewing: Mutex<bool>,
}

/// Guard that marks the renewing task as running. It is dropped with the task, also when the runtime ends the task; the
/// next file then starts another.
struct RenewalGuard(Option<Arc<LeaseState>>);

impl RenewalGuard {
    /// Marks a regular end of the task. Called under the lock, so that a task started afterwards is not confused with
    /// this one.
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

/// A file open for writing. Dropping it stops keeping the lease alive.
#[derive(Debug)]
pub(crate) struct OpenFile {
    state: Arc<LeaseState>,
    /// Number of losses when the file was opened.
    losses: u64,
}

impl Leases {
    pub(crate) fn new(namenode: Arc<Namenode>, client_name: String, hard_limit: Duration) -> Self {
        Self { namenode, state: LeaseState::new(client_name, hard_limit) }
    }

    /// Registers a file that is about to be created or appended to.
    pub(crate) fn open(&self) -> OpenFile {
        let state = &self.state;
        state.open.fetch_add(1, Ordering::AcqRel);
        self.resume_renewal();
        OpenFile { state: Arc::clone(state), losses: state.losses.load(Ordering::Acquire) }
    }

    /// Restarts the renewing task if the runtime that it ran in has ended. Must be called within a runtime.
    pub(crate) fn resume_renewal(&self) {
        self.state.start_renewal(|| Arc::downgrade(&self.namenode));
    }
}

impl LeaseState {
    fn new(client_name: String, hard_limit: Duration) -> Arc<Self> {
        Arc::new(Self {
            client_name,
            hard_limit,
            open: AtomicUsize::new(0),
            losses: AtomicU64::new(0),
            renewing: Mutex::new(false),
        })
    }

    fn start_renewal(self: &Arc<Self>, namenode: impl FnOnce() -> Weak<Namenode>) {
        let runs = std::mem::replace(&mut *self.renewing.lock(), true);
        if !runs {
            // Spawn without the lock: a runtime that is shutting down drops the task, and with it the guard, at once.
            let sign = RenewalGuard(Some(Arc::clone(self)));
            tokio::spawn(renew(namenode(), Arc::clone(self), sign));
        }
    }
}

impl OpenFile {
    /// Returns true if the lease could not be renewed for so long that the namenode may have given the file to another
    /// client.
    pub(crate) fn lost(&self) -> bool {
        self.state.losses.load(Ordering::Acquire) != self.losses
    }

    /// Ends the registration of a file that was closed properly.
    pub(crate) fn closed(self) {}
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.state.open.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Renews the lease while files are open. Holds the namenode only during calls, so that dropping the file system ends
/// the task.
async fn renew(namenode: Weak<Namenode>, state: Arc<LeaseState>, sign: RenewalGuard) {
    let mut renewed = Instant::now();
    let mut used = Instant::now();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(namenode) = namenode.upgrade() else { return };
        if state.open.load(Ordering::Acquire) > 0 {
            used = Instant::now();
        } else if used.elapsed() > IDLE_TIMEOUT {
            let mut renewing = state.renewing.lock();
            // Under the lock, so that a file opened at this moment starts another task.
            if state.open.load(Ordering::Acquire) == 0 {
                sign.end(&mut renewing);
                return;
            }
        } else {
            // Creating and appending also renew the lease.
            renewed = Instant::now();
            continue;
        }
        if renewed.elapsed() < RENEW_INTERVAL {
            continue;
        }
        match namenode.renew_lease(&state.client_name).await {
            Ok(()) => renewed = Instant::now(),
            Err(error) if renewed.elapsed() > state.hard_limit => {
                tracing::error!(%error, "lease lost; giving up the files open for writing");
                state.losses.fetch_add(1, Ordering::AcqRel);
                renewed = Instant::now();
            }
            Err(error) => tracing::warn!(%error, "lease renewal failed; retrying"),
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_testkit::until;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
    }

    #[test]
    fn renewal_restarts_after_its_runtime_ended() {
        let state = LeaseState::new("test".to_owned(), Duration::from_secs(1200));
        let renew = |runtime: &Runtime| {
            let _entered = runtime.enter();
            state.start_renewal(Weak::new);
            *state.renewing.lock()
        };
        let first = runtime();
        assert!(renew(&first));
        drop(first);
        assert!(!*state.renewing.lock());
        let second = runtime();
        assert!(renew(&second));
        // The client is gone.
        second.block_on(async {
            until("the end of the renewal", async || !*state.renewing.lock()).await;
        });
        // A runtime that accepts no more tasks.
        let handle = second.handle().clone();
        drop(second);
        let _entered = handle.enter();
        state.start_renewal(Weak::new);
        assert!(!*state.renewing.lock());
    }
}
