//! Leases of the files that this client writes: renewed by one task while any is open.

use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::file_system::Shared;

/// Half of the soft limit of 60 s, after which others may take a file over.
const RENEW_EVERY: Duration = Duration::from_secs(30);
/// How often the task looks whether it is time, or a failed renewal is tried again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the task stays after the last file was closed.
const LINGER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Leases {
    hard_limit: Duration,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    open: AtomicUsize,
    /// How often the lease was lost: files opened before are given up, later ones are not.
    losses: AtomicU64,
    /// Whether the renewing task runs.
    renewing: Mutex<bool>,
}

/// A file open for writing. Dropped, it no longer keeps the lease alive.
#[derive(Debug)]
pub(crate) struct OpenFile {
    state: Arc<State>,
    /// Losses when it was opened.
    losses: u64,
}

impl Leases {
    pub(crate) fn new(hard_limit: Duration) -> Self {
        Self {
            hard_limit,
            state: Arc::new(State {
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
        let mut renewing = state.renewing.lock();
        if !*renewing {
            *renewing = true;
            tokio::spawn(renew(Arc::downgrade(shared), Arc::clone(state), shared.leases.hard_limit));
        }
        OpenFile { state: Arc::clone(state), losses: state.losses.load(Ordering::Acquire) }
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
async fn renew(shared: Weak<Shared>, state: Arc<State>, hard_limit: Duration) {
    let mut renewed = Instant::now();
    let mut used = Instant::now();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        if state.open.load(Ordering::Acquire) > 0 {
            used = Instant::now();
        } else if used.elapsed() > LINGER {
            let mut renewing = state.renewing.lock();
            // Under the lock, so that a file opened just now starts another task.
            if state.open.load(Ordering::Acquire) == 0 {
                *renewing = false;
                return;
            }
        } else {
            // Creating and appending renew, too.
            renewed = Instant::now();
            continue;
        }
        if renewed.elapsed() < RENEW_EVERY {
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
