//! The thread that writes.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{oneshot, watch};

use super::tables::{Loaded, Tables};
use super::{Directory, StoreError};
use crate::changes::Changes;
use crate::namespace::Limits;

/// Operations in one transaction at most; keeps a commit, and so everybody's wait, short.
const GROUP_MAX: usize = 4096;

/// The store will accept nothing more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the namespace store has failed: {reason}")]
pub struct StoreFailed {
    pub reason: String,
}

/// Resolves when the changes it was given for are on disk.
#[must_use = "an answer may not go out before its change is durable"]
pub struct Durable(Option<oneshot::Receiver<Result<(), StoreFailed>>>);

impl Durable {
    /// Of an operation that changed nothing.
    pub fn already() -> Self {
        Self(None)
    }

    pub async fn wait(self) -> Result<(), StoreFailed> {
        let Some(receiver) = self.0 else { return Ok(()) };
        // The thread answers everybody before it ends; if it died instead, nobody knows.
        receiver.await.unwrap_or_else(|_| Err(StoreFailed { reason: "the committing thread is gone".into() }))
    }
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Changes>,
    answers: Vec<oneshot::Sender<Result<(), StoreFailed>>>,
    closed: bool,
    failed: Option<StoreFailed>,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

/// The open store. Dropping it commits what is waiting.
///
/// The queue holds at most one entry a running operation; the number of those is bounded where calls are admitted.
pub struct Store {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    failure: watch::Receiver<Option<StoreFailed>>,
    /// Held as long as the store is open.
    directory: Directory,
}

impl Store {
    /// Opens a formatted directory and reads the namespace back.
    pub fn open(directory: Directory, limits: Limits) -> Result<(Self, Loaded), StoreError> {
        let tables = Tables::open(&directory.database())?;
        let loaded = tables.load(limits)?;
        Ok((Self::start(directory, tables)?, loaded))
    }

    fn start(directory: Directory, tables: Tables) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared { queue: Mutex::default(), arrived: Condvar::new() });
        let (tell, failure) = watch::channel(None);
        let thread = std::thread::Builder::new().name("namespace-store".into()).spawn({
            let shared = shared.clone();
            move || run(&shared, &tables, &tell)
        });
        let thread = thread.map_err(|source| StoreError::Io {
            action: "starting the writing thread of",
            path: directory.path().to_owned(),
            source,
        })?;
        Ok(Self { shared, thread: Some(thread), failure, directory })
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Queues the changes of one operation. Called with the NameNode's lock held: order is order.
    pub fn submit(&self, changes: Changes) -> Durable {
        if changes.is_empty() {
            return Durable::already();
        }
        let (answer, receiver) = oneshot::channel();
        let mut queue = self.shared.queue.lock();
        match &queue.failed {
            Some(failed) => drop(answer.send(Err(failed.clone()))),
            None => {
                queue.waiting.push(changes);
                queue.answers.push(answer);
                self.shared.arrived.notify_one();
            }
        }
        Durable(Some(receiver))
    }

    /// Why the store stopped, once it has.
    pub fn failure(&self) -> Option<StoreFailed> {
        self.failure.borrow().clone()
    }

    /// Resolves when the store fails.
    pub async fn failed(&self) -> StoreFailed {
        let mut failure = self.failure.clone();
        let gone = || StoreFailed { reason: "the committing thread is gone".into() };
        match failure.wait_for(Option::is_some).await {
            Ok(failed) => failed.clone().unwrap_or_else(gone),
            Err(_) => gone(),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by its own hook.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, tables: &Tables, tell: &watch::Sender<Option<StoreFailed>>) {
    loop {
        let (run, answers) = {
            let mut queue = shared.queue.lock();
            while queue.waiting.is_empty() {
                if queue.closed {
                    return;
                }
                shared.arrived.wait(&mut queue);
            }
            let count = queue.waiting.len().min(GROUP_MAX);
            let run: Vec<Changes> = queue.waiting.drain(..count).collect();
            let answers: Vec<_> = queue.answers.drain(..count).collect();
            (run, answers)
        };
        match tables.apply(&run) {
            Ok(()) => answers.into_iter().for_each(|answer| drop(answer.send(Ok(())))),
            Err(error) => {
                let failed = StoreFailed { reason: error.to_string() };
                tracing::error!(%error, "the namespace cannot be written any more; the NameNode must stop");
                let late = {
                    let mut queue = shared.queue.lock();
                    queue.failed = Some(failed.clone());
                    queue.waiting.clear();
                    std::mem::take(&mut queue.answers)
                };
                let _ = tell.send(Some(failed.clone()));
                for answer in answers.into_iter().chain(late) {
                    let _ = answer.send(Err(failed.clone()));
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::{BlockPoolId, FsPermission};

    use super::*;
    use crate::namespace::{Caller, Namespace};
    use crate::store::{Version, format};

    fn caller() -> Caller {
        Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() }
    }

    fn formatted(place: &std::path::Path) -> Directory {
        let directory = Directory::lock(place).unwrap();
        let version = Version {
            pool: BlockPoolId::new("BP-1-127.0.0.1-2"),
            namespace_id: 1,
            cluster_id: "CID".into(),
            created_ms: 2,
        };
        let first = Namespace::format(Limits::default(), "root", "supergroup", 5).take_changes();
        format(&directory, &version, &first, false).unwrap();
        directory
    }

    #[tokio::test]
    async fn what_was_acknowledged_is_there_after_reopening() {
        let place = tempfile::tempdir().unwrap();
        let (store, Loaded { mut namespace, .. }) = Store::open(formatted(place.path()), Limits::default()).unwrap();
        let mut waits = Vec::new();
        for i in 0..100 {
            namespace.mkdirs(&caller(), &format!("/a/b{i}"), FsPermission(0o755), true, 7).unwrap();
            waits.push(store.submit(namespace.take_changes()));
        }
        namespace.delete(&caller(), "/a/b7", true, 8).unwrap();
        waits.push(store.submit(namespace.take_changes()));
        for wait in waits {
            wait.wait().await.unwrap();
        }
        drop(store);
        let (_store, Loaded { namespace: again, .. }) =
            Store::open(Directory::lock(place.path()).unwrap(), Limits::default()).unwrap();
        assert_eq!(again.inode_count(), namespace.inode_count());
        assert_eq!(again.counters(), namespace.counters());
        assert!(again.lookup("/a/b6").is_some());
        assert!(again.lookup("/a/b7").is_none());
        let root = again.inode(again.root());
        assert_eq!(&**again.names.text(root.group), "supergroup");
    }

    #[test]
    fn a_damaged_file_is_said_to_be_damaged() {
        let place = tempfile::tempdir().unwrap();
        drop(formatted(place.path()));
        std::fs::write(place.path().join("current/namespace.redb"), b"not a database at all").unwrap();
        let opened = Store::open(Directory::lock(place.path()).unwrap(), Limits::default());
        assert!(matches!(opened.err(), Some(StoreError::Damaged { .. })));
    }
}
