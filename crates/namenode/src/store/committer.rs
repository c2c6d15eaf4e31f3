//! The two writing threads: one writes the journal, for which operations wait, the other the tables.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use hearth_types::{Clock, Histogram, HistogramSnapshot};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot, watch};

use super::directory::{LAYOUT, begin_journal};
use super::group::Group;
use super::journal::{self, Heads, Journal, Marks};
use super::tables::{JournalRows, Loaded, Tables, ViewSource};
use super::{Directory, StoreError};
use crate::changes::Changes;
use crate::namespace::Limits;

/// Maximum number of times that the journal thread yields before it takes a group, while the group keeps growing.
const YIELDS_MAX: usize = 8;

/// Idle time after which the journal's changes are moved to the tables.
const IDLE: Duration = Duration::from_secs(1);

/// Interval at which the journal thread checks whether the table thread is idle, if a caller waits for the tables.
const TABLES_POLL: Duration = Duration::from_millis(10);

/// Error of a store that accepts no more changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the namespace store has failed: {reason}")]
pub struct StoreFailed {
    pub reason: String,
}

/// Resolves when the given changes are on disk.
#[must_use = "an answer may not go out before its change is durable"]
pub struct Durable(Option<oneshot::Receiver<Result<(), StoreFailed>>>);

impl Durable {
    /// Returns a value that resolves at once.
    pub fn already() -> Self {
        Self(None)
    }

    pub async fn wait(self) -> Result<(), StoreFailed> {
        let Some(receiver) = self.0 else { return Ok(()) };
        // The thread answers all waiters before it ends. If it died instead, the outcome is unknown.
        receiver.await.unwrap_or_else(|_| Err(StoreFailed { reason: "the journal thread has ended".into() }))
    }
}

#[derive(Default)]
struct Queue {
    /// The next group, already encoded.
    waiting: Group,
    answers: Vec<Responder>,
    /// Callers that wait until the journal's changes are in the tables.
    flushes: Vec<Responder>,
    /// True if a group has been taken and is not on disk yet.
    writing: bool,
    closed: bool,
    failed: Option<StoreFailed>,
}

struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
    failure: watch::Sender<Option<StoreFailed>>,
    /// Measures syncs of the journal, once it is set.
    clock: OnceLock<Arc<dyn Clock>>,
    syncs: Histogram,
    operations: AtomicU64,
}

/// Figures of the journal since it is measured.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct JournalFigures {
    /// Time to write a group to the journal and to sync it to the disk.
    pub syncs: HistogramSnapshot,
    /// Operations that waited for these syncs.
    pub operations: u64,
}

impl Shared {
    /// Stops the store: reports the failure to all current and future waiters.
    fn fail(&self, error: &StoreError) {
        tracing::error!(%error, "cannot write the namespace; the NameNode must stop");
        let failed = StoreFailed { reason: error.to_string() };
        let late = {
            let mut queue = self.queue.lock();
            queue.failed.get_or_insert_with(|| failed.clone());
            queue.waiting = Group::default();
            self.arrived.notify_one();
            let flushes = std::mem::take(&mut queue.flushes);
            std::mem::take(&mut queue.answers).into_iter().chain(flushes).collect::<Vec<_>>()
        };
        self.failure.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert_with(|| failed.clone());
            first
        });
        for answer in late {
            let _ = answer.send(Err(failed.clone()));
        }
    }
}

/// The open store. Dropping it writes all queued changes, to the tables too.
///
/// The queue has at most one entry per running operation. Admission of calls limits the number of running operations.
pub struct Store {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    failure: watch::Receiver<Option<StoreFailed>>,
    views: ViewSource,
    /// Keeps the directory locked while the store is open.
    directory: Directory,
}

impl Store {
    /// Opens a formatted directory and loads the namespace. `journal_bytes`: see `Journal::begin`.
    ///
    /// Errors: `Missing` and `Damaged` if a file of the directory is not in the expected state; `Io` for a system
    /// error.
    pub fn open(directory: Directory, limits: Limits, journal_bytes: u64) -> Result<(Self, Loaded), StoreError> {
        let (journal, tables, loaded) = catch_panics(&directory, || read_back(&directory, limits, journal_bytes))?;
        Ok((Self::start(directory, journal, tables)?, loaded))
    }

    fn start(directory: Directory, journal: Journal, tables: Tables) -> Result<Self, StoreError> {
        let (tell, failure) = watch::channel(None);
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            failure: tell,
            clock: OnceLock::new(),
            syncs: Histogram::default(),
            operations: AtomicU64::default(),
        });
        let starting = |source| StoreError::Io {
            action: "starting a writing thread of",
            path: directory.path().to_owned(),
            source,
        };
        let views = tables.views();
        let table_writer = TableWriter::start(tables, shared.clone()).map_err(starting)?;
        let thread = std::thread::Builder::new().name("namespace-store".into()).spawn({
            let shared = shared.clone();
            let responder = spawn_responder();
            move || JournalWriter { shared: &shared, journal, table_writer, backlog: Vec::new(), responder }.run()
        });
        let thread = thread.map_err(starting)?;
        Ok(Self { shared, thread: Some(thread), failure, views, directory })
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Measures all further syncs of the journal by this clock. Only the first call counts.
    pub fn measure(&self, clock: Arc<dyn Clock>) {
        let _ = self.shared.clock.set(clock);
    }

    pub fn journal_figures(&self) -> JournalFigures {
        let Shared { syncs, operations, .. } = &*self.shared;
        JournalFigures { syncs: syncs.snapshot(), operations: operations.load(Ordering::Relaxed) }
    }

    /// Queues the changes of one operation. Must be called with the NameNode's lock held, to keep the order.
    ///
    /// An operation without changes waits for everything queued before it. It may have seen the change of another call
    /// that is not on disk yet, perhaps that of its own first attempt.
    pub fn submit(&self, changes: Changes) -> Durable {
        if changes.is_empty() {
            return self.flushed();
        }
        let (answer, receiver) = oneshot::channel();
        let mut queue = self.shared.queue.lock();
        match &queue.failed {
            Some(failed) => drop(answer.send(Err(failed.clone()))),
            None => {
                queue.waiting.push(&changes);
                queue.answers.push(answer);
                self.shared.arrived.notify_one();
            }
        }
        Durable(Some(receiver))
    }

    /// Resolves when everything queued before is on disk. Used before sending out state that cannot be taken back.
    pub fn flushed(&self) -> Durable {
        let (answer, receiver) = oneshot::channel();
        let mut queue = self.shared.queue.lock();
        match &queue.failed {
            Some(failed) => drop(answer.send(Err(failed.clone()))),
            None if queue.waiting.is_empty() && !queue.writing => return Durable::already(),
            None => {
                // An empty entry is answered after those queued before it.
                queue.waiting.push(&Changes::default());
                queue.answers.push(answer);
                self.shared.arrived.notify_one();
            }
        }
        Durable(Some(receiver))
    }

    /// Waits until all changes that are durable now are in the tables. Then [`Self::views`] shows them. Operations do
    /// not wait for this.
    pub async fn flush_to_tables(&self) -> Result<(), StoreFailed> {
        let (answer, receiver) = oneshot::channel();
        {
            let mut queue = self.shared.queue.lock();
            if let Some(failed) = &queue.failed {
                return Err(failed.clone());
            }
            queue.flushes.push(answer);
            self.shared.arrived.notify_one();
        }
        receiver.await.unwrap_or_else(|_| Err(StoreFailed { reason: "the table thread has ended".into() }))
    }

    /// Returns a source of views of the tables. A view lacks the changes that are only in the journal.
    pub fn views(&self) -> ViewSource {
        self.views.clone()
    }

    /// Returns the reason of the failure, if the store has failed.
    pub fn failure(&self) -> Option<StoreFailed> {
        self.failure.borrow().clone()
    }

    /// Resolves when the store fails.
    pub async fn failed(&self) -> StoreFailed {
        let mut failure = self.failure.clone();
        let gone = || StoreFailed { reason: "the journal thread has ended".into() };
        match failure.wait_for(Option::is_some).await {
            Ok(failed) => failed.clone().unwrap_or_else(gone),
            Err(_) => gone(),
        }
    }
}

/// Turns a panic into an error: redb may panic on damaged tables.
pub(super) fn catch_panics<T>(
    directory: &Directory,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let problem = "reading it caused a panic; see the log".to_owned();
        Err(StoreError::Damaged { path: directory.database(), problem })
    })
}

pub(super) fn read_back(
    directory: &Directory,
    limits: Limits,
    journal_bytes: u64,
) -> Result<(Journal, Tables, Loaded), StoreError> {
    let (version, layout) = directory.stored_version()?;
    let mut tables = Tables::open(&directory.database())?;
    directory.make_private()?;
    if let Some(known) = tables.identity()?.filter(|known| *known != version) {
        let problem = format!(
            "it has cluster {} and pool {}, but namespace.redb has cluster {} and pool {}: one of them is damaged or from another copy",
            version.cluster_id, version.pool, known.cluster_id, known.pool
        );
        return Err(StoreError::BadVersion { path: directory.version_file(), problem });
    }
    let marks = marks(&tables.journal_rows()?, layout);
    let unapplied = journal::read(&directory.current(), &marks, tables.applied()?)?;
    if !unapplied.run.is_empty() {
        let operations: u64 = unapplied.run.iter().map(|group| u64::from(group.operations())).sum();
        tracing::info!(operations, "applying the remaining journal to the tables");
        tables.apply(&unapplied.run, unapplied.number)?;
        tables.recount_retries()?;
    }
    let loaded = tables.load(limits)?;
    // Only after everything was read. Until here the version that wrote the directory can still open it.
    directory.claim_layout()?;
    journal::create_files(&directory.current())?;
    let journal = begin_journal(&directory.current(), &mut tables, &version, unapplied.number, journal_bytes)?;
    Ok((journal, tables, loaded))
}

/// Returns the marks by which the journal's files and groups are recognized. `layout` is the one in VERSION.
pub(super) fn marks(rows: &JournalRows, layout: u32) -> Marks {
    let heads = match (rows.has_heads, rows.is_being_marked) {
        (false, _) => Heads::None,
        (true, _) if layout < LAYOUT => Heads::Mixed,
        (true, true) => Heads::BeingWritten,
        (true, false) => Heads::Required,
    };
    // A version before layout 3 ignores the mark, even if there is one: an operator may have downgraded the layout.
    let headless = if heads == Heads::BeingWritten { rows.before } else { rows.mark.filter(|_| layout > 2) };
    Marks { mark: rows.mark, headless, heads }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of that thread.
            let _ = thread.join();
        }
    }
}

/// The journal thread's state: it appends groups and answers their operations.
struct JournalWriter<'a> {
    shared: &'a Shared,
    journal: Journal,
    table_writer: TableWriter,
    /// Groups in the journal's current file.
    backlog: Vec<Group>,
    /// Sends responders to the task that notifies operations. `None` if this thread notifies them itself.
    responder: Option<mpsc::UnboundedSender<Vec<Responder>>>,
}

type Responder = oneshot::Sender<Result<(), StoreFailed>>;

/// Spawns a task that wakes operations from inside their runtime. From another thread, each wake-up would be a separate
/// hand-over. Returns `None` without a runtime. The channel is bounded by the same limit as the queue.
fn spawn_responder() -> Option<mpsc::UnboundedSender<Vec<Responder>>> {
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    let (told, mut groups) = mpsc::unbounded_channel::<Vec<Responder>>();
    runtime.spawn(async move {
        while let Some(group) = groups.recv().await {
            group.into_iter().for_each(|answer| drop(answer.send(Ok(()))));
        }
    });
    Some(told)
}

/// Next task of the journal thread.
enum JournalTask {
    Group(Group, Vec<Responder>),
    Idle,
    End,
}

impl JournalWriter<'_> {
    fn run(mut self) {
        loop {
            match self.next() {
                JournalTask::Group(mut group, answers) => {
                    let began = self.shared.clock.get().map(|clock| (clock, clock.monotonic()));
                    let appended = self.journal.append(&mut group);
                    if let Some((clock, began)) = began {
                        self.shared.syncs.observe(clock.monotonic().saturating_sub(began));
                        self.shared.operations.fetch_add(u64::from(group.operations()), Ordering::Relaxed);
                    }
                    if let Err(error) = appended {
                        self.shared.queue.lock().answers.extend(answers);
                        return self.shared.fail(&error);
                    }
                    self.shared.queue.lock().writing = false;
                    let left = match &self.responder {
                        // If the runtime has ended, so have the operations.
                        Some(told) => told.send(answers).err().map(|unsent| unsent.0).unwrap_or_default(),
                        None => answers,
                    };
                    left.into_iter().for_each(|answer| drop(answer.send(Ok(()))));
                    self.backlog.push(group);
                    if self.journal.is_full() {
                        self.flush_to_tables();
                    }
                }
                JournalTask::Idle => self.flush_to_tables(),
                JournalTask::End => {
                    self.flush_to_tables();
                    return;
                }
            }
        }
    }

    fn next(&self) -> JournalTask {
        let mut queue = self.shared.queue.lock();
        while queue.waiting.is_empty() {
            if queue.closed || queue.failed.is_some() {
                return JournalTask::End;
            }
            if !queue.flushes.is_empty() {
                if self.table_writer.is_idle() {
                    return JournalTask::Idle;
                }
                let _ = self.shared.arrived.wait_for(&mut queue, TABLES_POLL);
                continue;
            }
            if self.backlog.is_empty() {
                self.shared.arrived.wait(&mut queue);
            } else if self.shared.arrived.wait_for(&mut queue, IDLE).timed_out() && queue.waiting.is_empty() {
                return JournalTask::Idle;
            }
        }
        if !queue.flushes.is_empty() && queue.failed.is_none() && self.table_writer.is_idle() {
            return JournalTask::Idle;
        }
        // If the processors are busy, other operations run during the yield and add changes, which then need no sync of
        // their own. That saves about a tenth of a change's processor time. If the processors are idle, the call
        // returns at once.
        for _ in 0..YIELDS_MAX {
            let before = queue.answers.len();
            MutexGuard::unlocked(&mut queue, std::thread::yield_now);
            if queue.answers.len() == before {
                break;
            }
        }
        if queue.failed.is_some() {
            return JournalTask::End;
        }
        // The next group will most likely have a similar size.
        let (waiting, answers) = (Group::with_capacity_of(&queue.waiting), Vec::with_capacity(queue.answers.len()));
        queue.writing = true;
        JournalTask::Group(
            std::mem::replace(&mut queue.waiting, waiting),
            std::mem::replace(&mut queue.answers, answers),
        )
    }

    /// Hands the groups of the journal's current file to the table thread, and switches to the other file. The other
    /// file's groups must be in the tables first; until they are, all operations wait.
    fn flush_to_tables(&mut self) {
        self.table_writer.wait();
        let (flushes, has_failed) = {
            let mut queue = self.shared.queue.lock();
            (std::mem::take(&mut queue.flushes), queue.failed.is_some())
        };
        if has_failed {
            // Dropping the responders tells their callers.
            return;
        }
        if self.backlog.is_empty() {
            // All changes are in the tables.
            flushes.into_iter().for_each(|answer| drop(answer.send(Ok(()))));
        } else {
            if let Err(error) = self.journal.sync_progress() {
                return self.shared.fail(&error);
            }
            self.table_writer.submit_run(std::mem::take(&mut self.backlog), self.journal.number(), flushes);
            if let Err(error) = self.journal.switch() {
                self.shared.fail(&error);
            }
        }
    }
}

/// Handle of the table thread.
struct TableWriter {
    slot: Arc<TaskSlot>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct TaskSlot {
    work: Mutex<TableTask>,
    changed: Condvar,
}

#[derive(Default)]
enum TableTask {
    #[default]
    None,
    /// Groups to write into the tables, the number of the last one, and callers that wait for them. Empty lists while
    /// they are being written.
    Run(Vec<Group>, u64, Vec<Responder>),
    End,
}

impl TableWriter {
    fn start(mut tables: Tables, shared: Arc<Shared>) -> std::io::Result<Self> {
        let slot = Arc::new(TaskSlot::default());
        let thread = std::thread::Builder::new().name("namespace-table".into()).spawn({
            let slot = slot.clone();
            move || {
                loop {
                    let (run, number, flushes) = {
                        let mut work = slot.work.lock();
                        loop {
                            match &mut *work {
                                TableTask::None => slot.changed.wait(&mut work),
                                TableTask::Run(run, number, flushes) => {
                                    break (std::mem::take(run), *number, std::mem::take(flushes));
                                }
                                TableTask::End => return,
                            }
                        }
                    };
                    // A panic must not leave callers waiting for this thread.
                    let applied = std::panic::catch_unwind(AssertUnwindSafe(|| tables.apply(&run, number)));
                    drop(run);
                    crate::memory::release();
                    match applied.unwrap_or_else(|_| Err(tables.panicked())) {
                        Ok(()) => flushes.into_iter().for_each(|answer| drop(answer.send(Ok(())))),
                        // Dropping the responders tells their callers.
                        Err(error) => shared.fail(&error),
                    }
                    *slot.work.lock() = TableTask::None;
                    slot.changed.notify_all();
                }
            }
        })?;
        Ok(Self { slot, thread: Some(thread) })
    }

    fn is_idle(&self) -> bool {
        matches!(*self.slot.work.lock(), TableTask::None)
    }

    /// Waits until the thread is idle.
    fn wait(&self) {
        let mut work = self.slot.work.lock();
        while !matches!(*work, TableTask::None) {
            self.slot.changed.wait(&mut work);
        }
    }

    /// Submits a run. The caller must have called [`Self::wait`] just before.
    fn submit_run(&self, run: Vec<Group>, number: u64, flushes: Vec<Responder>) {
        *self.slot.work.lock() = TableTask::Run(run, number, flushes);
        self.slot.changed.notify_all();
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        self.wait();
        *self.slot.work.lock() = TableTask::End;
        self.slot.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of that thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use hearth_types::{BlockPoolId, FsPermission};

    use super::*;
    use crate::changes::RetryEntry;
    use crate::namespace::{Caller, Namespace};
    use crate::store::group::tests::group;
    use crate::store::journal::Mark;
    use crate::store::journal::tests::unmarked;
    use crate::store::{Version, format};

    /// Small, so that the files alternate often.
    const JOURNAL: u64 = 2000;

    pub fn caller() -> Caller {
        Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() }
    }

    pub fn formatted(place: &std::path::Path) -> Directory {
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
    async fn acknowledged_changes_survive_reopening() {
        let place = tempfile::tempdir().unwrap();
        let (store, Loaded { mut namespace, .. }) =
            Store::open(formatted(place.path()), Limits::default(), JOURNAL).unwrap();
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
            Store::open(Directory::lock(place.path()).unwrap(), Limits::default(), JOURNAL).unwrap();
        assert_eq!(again.inode_count(), namespace.inode_count());
        assert_eq!(again.counters(), namespace.counters());
        assert!(again.lookup("/a/b6").is_some());
        assert!(again.lookup("/a/b7").is_none());
        let root = again.inode(again.root());
        assert_eq!(&**again.names.text(root.group()), "supergroup");
    }

    #[test]
    fn damaged_file_is_reported() {
        let place = tempfile::tempdir().unwrap();
        drop(formatted(place.path()));
        std::fs::write(place.path().join("current/namespace.redb"), b"not a database at all").unwrap();
        let opened = Store::open(Directory::lock(place.path()).unwrap(), Limits::default(), JOURNAL);
        assert!(matches!(opened.err(), Some(StoreError::Damaged { .. })));
    }

    /// Copies the directory in its momentary state while the store keeps running.
    pub fn copied(from: &std::path::Path) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        std::fs::create_dir(copy.path().join("current")).unwrap();
        for entry in std::fs::read_dir(from.join("current")).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, copy.path().join("current").join(path.file_name().unwrap())).unwrap();
        }
        copy
    }

    #[tokio::test]
    async fn changes_only_in_journal_are_recovered() {
        let place = tempfile::tempdir().unwrap();
        let opened = Store::open(formatted(place.path()), Limits::default(), 1 << 20).unwrap();
        let (store, Loaded { mut namespace, .. }) = opened;
        for i in 0..50 {
            namespace.mkdirs(&caller(), &format!("/a/b{i}"), FsPermission(0o755), true, 7).unwrap();
            store.submit(namespace.take_changes()).wait().await.unwrap();
        }
        // The tables are written after a second of idle time at the earliest.
        let copy = copied(place.path());
        let directory = Directory::lock(copy.path()).unwrap();
        let applied = Tables::open(&directory.database()).unwrap().applied().unwrap();
        let (_store, Loaded { namespace: again, .. }) = Store::open(directory, Limits::default(), 1 << 20).unwrap();
        assert_eq!(again.inode_count(), namespace.inode_count(), "the tables knew group {applied}");
        assert!(again.lookup("/a/b49").is_some());
        drop(store);
        // After an orderly stop the tables have everything.
        let tables = Tables::open(&place.path().join("current/namespace.redb")).unwrap();
        assert_eq!(tables.applied().unwrap(), 50);
    }

    #[tokio::test]
    async fn flushed_changes_are_on_disk() {
        let place = tempfile::tempdir().unwrap();
        let opened = Store::open(formatted(place.path()), Limits::default(), 1 << 20).unwrap();
        let (store, Loaded { mut namespace, .. }) = opened;
        for i in 0..50 {
            namespace.mkdirs(&caller(), &format!("/b{i}"), FsPermission(0o755), true, 7).unwrap();
            let change = store.submit(namespace.take_changes());
            store.flushed().wait().await.unwrap();
            let copy = copied(place.path());
            let (_copy, Loaded { namespace: again, .. }) =
                Store::open(Directory::lock(copy.path()).unwrap(), Limits::default(), 1 << 20).unwrap();
            assert!(again.lookup(&format!("/b{i}")).is_some());
            change.wait().await.unwrap();
        }
        // Nothing is queued, so nothing is waited for.
        store.flushed().wait().await.unwrap();
        store.shared.queue.lock().failed = Some(StoreFailed { reason: "for this test".into() });
        assert!(store.flushed().wait().await.is_err());
    }

    #[tokio::test]
    async fn view_after_flush_has_all_durable_changes() {
        let place = tempfile::tempdir().unwrap();
        let opened = Store::open(formatted(place.path()), Limits::default(), 1 << 20).unwrap();
        let (store, Loaded { mut namespace, .. }) = opened;
        let count = |store: &Store| store.views().view().unwrap().inodes().unwrap().count().unwrap();
        // Without changes, too.
        store.flush_to_tables().await.unwrap();
        assert_eq!(count(&store), 1);
        for i in 0..20 {
            namespace.mkdirs(&caller(), &format!("/b{i}"), FsPermission(0o755), true, 7).unwrap();
            store.submit(namespace.take_changes()).wait().await.unwrap();
            store.flush_to_tables().await.unwrap();
            assert_eq!(count(&store), i + 2);
        }
        let view = store.views().view().unwrap();
        namespace.mkdirs(&caller(), "/later", FsPermission(0o755), true, 7).unwrap();
        store.submit(namespace.take_changes()).wait().await.unwrap();
        store.flush_to_tables().await.unwrap();
        assert_eq!(view.inodes().unwrap().count().unwrap(), 21, "a view does not change");
        assert_eq!(view.applied().unwrap(), 20);
        store.shared.queue.lock().failed = Some(StoreFailed { reason: "for this test".into() });
        assert!(store.flush_to_tables().await.is_err());
    }

    fn remember(number: u8) -> Changes {
        Changes {
            retry: Some(([number; 20], RetryEntry { expires_ms: u64::from(number), answer: vec![number; 9] })),
            ..Changes::default()
        }
    }

    fn forget(retries_removed: u32) -> Changes {
        Changes { retries_removed, ..Changes::default() }
    }

    /// Returns the calls whose answers are remembered.
    fn known(loaded: Loaded) -> Vec<u8> {
        loaded.retries.iter().map(|(key, _)| key[0]).collect()
    }

    /// Formats a directory as a version from before journal marks did.
    fn formatted_unmarked(place: &std::path::Path) -> Directory {
        let directory = formatted(place);
        for name in ["namespace.redb", "journal.0", "journal.1", "journal.last"] {
            std::fs::remove_file(directory.current().join(name)).unwrap();
        }
        std::fs::write(directory.current().join("journal.1"), []).unwrap();
        let first = Namespace::format(Limits::default(), "root", "supergroup", 5).take_changes();
        Tables::create(&directory.database()).unwrap().apply(&[group(&[first])], 0).unwrap();
        directory
    }

    #[tokio::test]
    async fn unmarked_journal_is_read_and_marked() {
        let place = tempfile::tempdir().unwrap();
        let directory = formatted_unmarked(place.path());
        let before = unmarked(1, &[remember(1), remember(2)]);
        std::fs::write(directory.current().join("journal.0"), before).unwrap();
        let (store, loaded) = Store::open(directory, Limits::default(), 1 << 20).unwrap();
        assert_eq!(known(loaded), [1, 2]);
        store.submit(remember(3)).wait().await.unwrap();
        // The changes that are only in the journal so far.
        let copy = copied(place.path());
        let directory = Directory::lock(copy.path()).unwrap();
        let (_copy, loaded) = Store::open(directory, Limits::default(), 1 << 20).unwrap();
        assert_eq!(known(loaded), [1, 2, 3]);
        drop(store);
        let mark = || mark_of(place.path());
        let given = mark();
        assert!(given.is_some());
        let directory = Directory::lock(place.path()).unwrap();
        let (store, loaded) = Store::open(directory, Limits::default(), 1 << 20).unwrap();
        assert_eq!(known(loaded), [1, 2, 3]);
        drop(store);
        assert!(mark() != given, "each start gives it another mark");
    }

    fn mark_of(place: &std::path::Path) -> Option<Mark> {
        Tables::open(&place.join("current/namespace.redb")).unwrap().journal_rows().unwrap().mark
    }

    /// Returns the layout line of VERSION.
    fn layout(place: &std::path::Path) -> String {
        let text = std::fs::read_to_string(place.join("current/VERSION")).unwrap();
        text.lines().find(|line| line.starts_with("layoutVersion=")).unwrap().to_owned()
    }

    /// Sets the layout in VERSION to the one before journal marks.
    fn set_layout_back(place: &std::path::Path) {
        let path = place.join("current/VERSION");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(&layout(place), "layoutVersion=2")).unwrap();
    }

    #[test]
    fn earlier_layout_is_kept_until_read() {
        let place = tempfile::tempdir().unwrap();
        drop(formatted_unmarked(place.path()));
        let now = layout(place.path());
        set_layout_back(place.path());
        let open = || Store::open(Directory::lock(place.path()).unwrap(), Limits::default(), 1 << 20);
        let current = place.path().join("current");
        let groups = [1u8, 2, 3].map(|number| unmarked(u64::from(number), &[remember(number)]));
        let mut damaged = groups.concat();
        damaged[groups[0].len() + 30] ^= 1;
        std::fs::write(current.join("journal.0"), &damaged).unwrap();
        assert!(matches!(open().err(), Some(StoreError::Damaged { .. })));
        assert_eq!(layout(place.path()), "layoutVersion=2");

        // VERSION cannot be written. An earlier version then continues with unmarked groups.
        std::fs::write(current.join("journal.0"), groups.concat()).unwrap();
        std::fs::create_dir(current.join("VERSION.part")).unwrap();
        assert!(matches!(open().err(), Some(StoreError::Io { .. })));
        assert_eq!(layout(place.path()), "layoutVersion=2");
        assert!(mark_of(place.path()).is_none());
        std::fs::write(current.join("journal.0"), unmarked(4, &[remember(4)])).unwrap();

        std::fs::remove_dir(current.join("VERSION.part")).unwrap();
        let (store, loaded) = open().unwrap();
        assert_eq!(known(loaded), [1, 2, 3, 4]);
        drop(store);
        assert_eq!(layout(place.path()), now);
    }

    #[test]
    fn unreadable_tables_keep_their_layout() {
        let place = tempfile::tempdir().unwrap();
        drop(formatted_unmarked(place.path()));
        set_layout_back(place.path());
        let record = Changes { inodes_put: vec![(99, Vec::new())], ..Changes::default() };
        std::fs::write(place.path().join("current/journal.0"), unmarked(1, &[record])).unwrap();
        let opened = Store::open(Directory::lock(place.path()).unwrap(), Limits::default(), 1 << 20);
        assert!(matches!(opened.err(), Some(StoreError::Record { .. })));
        assert_eq!(layout(place.path()), "layoutVersion=2");
    }

    #[test]
    fn writes_of_earlier_version_are_read() {
        let place = tempfile::tempdir().unwrap();
        let directory = formatted(place.path());
        set_layout_back(place.path());
        let before = mark_of(place.path());
        std::fs::write(directory.current().join("journal.0"), unmarked(1, &[remember(1)])).unwrap();
        let (store, loaded) = Store::open(directory, Limits::default(), 1 << 20).unwrap();
        assert_eq!(known(loaded), [1]);
        drop(store);
        let after = mark_of(place.path());
        assert!(after.is_some() && after != before, "older groups may remain behind the new ones");
    }

    #[test]
    fn each_store_has_its_own_mark() {
        let mark = || {
            let place = tempfile::tempdir().unwrap();
            drop(formatted(place.path()));
            mark_of(place.path())
        };
        let (one, other) = (mark(), mark());
        assert!(one.is_some() && one != other);
    }

    #[tokio::test]
    async fn syncs_are_counted_once_they_are_measured() {
        let place = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(formatted(place.path()), Limits::default(), 1 << 20).unwrap();
        store.submit(remember(1)).wait().await.unwrap();
        assert_eq!(store.journal_figures(), JournalFigures::default());
        store.measure(Arc::new(hearth_types::ManualClock::at(0)));
        store.submit(remember(2)).wait().await.unwrap();
        let figures = store.journal_figures();
        assert_eq!((figures.syncs.count(), figures.operations), (1, 1));
    }

    #[tokio::test]
    async fn replayed_answer_removals_apply_once() {
        let place = tempfile::tempdir().unwrap();
        let directory = formatted(place.path());
        let mut tables = Tables::open(&directory.database()).unwrap();
        tables.apply(&[group(&[remember(1), remember(2), remember(3)])], 0).unwrap();
        let mark = tables.journal_rows().unwrap().mark.unwrap();
        let mut journal = Journal::begin(&directory.current(), mark, 0, 1 << 20).unwrap();
        journal.append(&mut group(&[forget(2)])).unwrap();
        drop((journal, tables));
        let (store, loaded) = Store::open(directory, Limits::default(), 1 << 20).unwrap();
        // Removed answers are loaded again as long as their row exists. The loader removes each of them in turn.
        assert_eq!(known(loaded), [1, 2, 3]);
        for _ in 0..2 {
            store.submit(forget(1)).wait().await.unwrap();
        }
        drop(store);
        let directory = Directory::lock(place.path()).unwrap();
        let (store, loaded) = Store::open(directory, Limits::default(), 1 << 20).unwrap();
        assert!(known(loaded).contains(&3), "it has not expired");
        store.submit(forget(3)).wait().await.unwrap();
        drop(store);
        let directory = Directory::lock(place.path()).unwrap();
        assert!(known(Store::open(directory, Limits::default(), 1 << 20).unwrap().1).is_empty());
    }

    #[test]
    fn row_is_removed_with_its_last_answer() {
        let place = tempfile::tempdir().unwrap();
        let directory = formatted(place.path());
        let mut tables = Tables::open(&directory.database()).unwrap();
        let known = |tables: &Tables| -> Vec<u8> {
            let loaded = tables.load(Limits::default()).unwrap();
            loaded.retries.iter().map(|(key, entry)| key[0].min(entry.answer[0])).collect()
        };
        tables.apply(&[group(&[remember(1), remember(2)])], 1).unwrap();
        tables.apply(&[group(&[remember(3), forget(1)])], 2).unwrap();
        assert_eq!(known(&tables), [1, 2, 3]);
        tables.apply(&[group(&[forget(1)])], 3).unwrap();
        assert_eq!(known(&tables), [3]);
        drop(tables);
        let mut tables = Tables::open(&directory.database()).unwrap();
        tables.apply(&[group(&[remember(4), forget(1)])], 4).unwrap();
        assert_eq!((known(&tables), tables.applied().unwrap()), (vec![4], 4));
    }
}
