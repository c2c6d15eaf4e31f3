//! Threads for copies, with a lower kernel priority than the others: background copies must not delay operations that a
//! client waits for, neither in a queue of this process nor at a core.
//!
//! Niceness gives a share and does not exclude. Next to threads that always want the cores, copies still get their
//! share: at 6, about a quarter of one other thread's. If no other thread wants the cores, they get all of them. Pauses
//! (`cpu_budget`) do for readers what niceness cannot.
//!
//! Each connection of replicas has a single-threaded event loop, possibly shared. In a multi-threaded runtime one
//! thread would wait for all sockets, and be woken for nothing with each segment of a connection that another thread is
//! handling.

use std::io;
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use rustix::process::{getpid, getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::cpu_budget::{CpuBudget, CpuLimited};
use super::error::CopyError;

/// Maximum niceness.
const NICE_MAX: i32 = 19;

/// Maximum number of loops. More than cores, because a connection that waits for a disk blocks those that share its
/// loop.
const LOOPS_MAX: usize = 32;

/// Started when the first connection needs them; an idle DataNode has none.
pub struct CopyThreads {
    nice: i32,
    budget: Arc<CpuBudget>,
    runtime: Mutex<Option<Runtime>>,
    loops: Mutex<Vec<EventLoop>>,
}

/// A thread with a runtime of its own, which ends when this is dropped.
struct EventLoop {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl CopyThreads {
    /// `nice`: niceness relative to the process's own. 0: threads like the others.
    pub fn new(nice: i32, budget: CpuBudget) -> Self {
        Self { nice, budget: Arc::new(budget), runtime: Mutex::default(), loops: Mutex::default() }
    }

    /// Returns the runtime for copies that are not connections of replicas, and starts it if necessary.
    ///
    /// Errors: the system has no threads left.
    pub fn start(&self) -> Result<Handle, CopyError> {
        let mut runtime = self.runtime.lock();
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let started = self.builder(Builder::new_multi_thread()).and_then(|mut builder| builder.build());
        Ok(runtime.insert(started.map_err(CopyError::Threads)?).handle().clone())
    }

    /// Changes the share of the cores that copies take while clients are served.
    pub fn set_cores_share(&self, share: f64) {
        self.budget.set_share(share);
    }

    /// Limits `copy` to the CPU budget of copies.
    pub fn cpu_limited<F>(&self, copy: F) -> CpuLimited<F> {
        CpuLimited::new(&self.budget, copy)
    }

    /// Runs a copy that is not a connection of replicas, limited to the CPU budget.
    ///
    /// Errors: those of [`Self::start`].
    pub fn spawn<F>(&self, copy: F) -> Result<JoinHandle<F::Output>, CopyError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        Ok(self.start()?.spawn(self.cpu_limited(copy)))
    }

    /// Runs a connection: in an idle loop, in a new one while the maximum is not reached, or in the least loaded one.
    ///
    /// Errors: the system has no threads left, and there is no loop.
    pub fn start_connection<F>(&self, connection: F) -> Result<JoinHandle<F::Output>, CopyError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // Held until the connection is one of the loop's tasks.
        let mut loops = self.loops.lock();
        let tasks = |one: &EventLoop| one.handle.metrics().num_alive_tasks();
        let least = loops.iter().min_by_key(|one| tasks(one)).map(|one| (tasks(one), one.handle.clone()));
        let handle = match least {
            Some((0, handle)) => handle,
            Some((_, handle)) if loops.len() >= LOOPS_MAX => handle,
            least => match (self.start_loop(), least) {
                (Ok(started), _) => {
                    let handle = started.handle.clone();
                    loops.push(started);
                    handle
                }
                (Err(_), Some((_, handle))) => handle,
                (Err(error), None) => return Err(CopyError::Threads(error)),
            },
        };
        Ok(handle.spawn(self.cpu_limited(connection)))
    }

    fn start_loop(&self) -> io::Result<EventLoop> {
        let nice = self.target_nice()?;
        let (bring, brought) = mpsc::sync_channel::<Runtime>(1);
        let (end, ended) = oneshot::channel::<()>();
        // The thread is started first: dropping a runtime here, for lack of a thread, would block until its end.
        std::thread::Builder::new().name("replica-streams".to_owned()).spawn(move || {
            lower_priority(nice);
            let Ok(runtime) = brought.recv() else { return };
            // Runs until the other half is dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        let runtime = self.builder(Builder::new_current_thread())?.build()?;
        let handle = runtime.handle().clone();
        // The thread exists and waits for the runtime.
        let _ = bring.send(runtime);
        Ok(EventLoop { handle, _end: end })
    }

    /// Configures a builder with one thread per core if it is multi-threaded: without readers, copies may use all
    /// cores.
    fn builder(&self, mut builder: Builder) -> io::Result<Builder> {
        builder.thread_name("replica-streams").enable_all();
        let nice = self.target_nice()?;
        builder.on_thread_start(move || lower_priority(nice));
        Ok(builder)
    }

    /// Returns the niceness to set, if any: relative to that of the process's first thread. A new thread inherits the
    /// niceness of its creator, which may be one of these threads.
    fn target_nice(&self) -> io::Result<Option<i32>> {
        if self.nice <= 0 {
            return Ok(None);
        }
        Ok(Some((getpriority_process(Some(getpid()))? + self.nice).min(NICE_MAX)))
    }
}

fn lower_priority(nice: Option<i32>) {
    // For Linux this "process" is one thread, the calling one. Raising its niceness needs no privilege.
    if let Some(Err(error)) = nice.map(|nice| setpriority_process(None, nice)) {
        tracing::warn!(%error, "cannot lower the priority of a replica stream thread");
    }
}

impl Drop for CopyThreads {
    fn drop(&mut self) {
        // This may run on one of these threads, so it must not block.
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use hearth_types::SystemClock;

    use super::*;
    use crate::metrics::Metrics;

    fn threads(nice: i32) -> CopyThreads {
        CopyThreads::new(nice, CpuBudget::new(Arc::new(Metrics::new(Arc::new(SystemClock::new()))), 0.5))
    }

    #[tokio::test]
    async fn only_stream_threads_have_lower_priority() {
        let own = getpriority_process(None).unwrap();
        let threads = threads(4);
        let handle = threads.start().unwrap();
        let worker = handle.spawn(async {
            let blocking = tokio::task::spawn_blocking(|| getpriority_process(None).unwrap()).await.unwrap();
            (getpriority_process(None).unwrap(), blocking)
        });
        let nice = (own + 4).min(NICE_MAX);
        assert_eq!(worker.await.unwrap(), (nice, nice));
        assert_eq!(getpriority_process(None).unwrap(), own);
        let connection = threads.start_connection(async {
            let blocking = tokio::task::spawn_blocking(|| getpriority_process(None).unwrap()).await.unwrap();
            (getpriority_process(None).unwrap(), blocking)
        });
        assert_eq!(connection.unwrap().await.unwrap(), (nice, nice));
        // A thread created by one of these threads is not lowered twice.
        let threads = Arc::new(threads);
        let shared = threads.clone();
        let made = handle.spawn(async move { shared.start_loop().unwrap() }).await.unwrap();
        assert_eq!(made.handle.spawn(async { getpriority_process(None).unwrap() }).await.unwrap(), nice);
        // In a runtime's own thread, where blocking would panic.
        drop(threads);
    }

    #[tokio::test]
    async fn connections_share_loops_only_at_limit() {
        let threads = threads(0);
        let (over, _) = tokio::sync::broadcast::channel::<()>(1);
        let mut connections = Vec::new();
        let mut started = async || {
            let (mut over, (tell, told)) = (over.subscribe(), oneshot::channel());
            let connection = threads.start_connection(async move {
                tell.send(Handle::current().id()).unwrap();
                over.recv().await
            });
            connections.push(connection.unwrap());
            told.await.unwrap()
        };
        let (mut first, mut second) = (HashSet::new(), HashSet::new());
        for _ in 0..LOOPS_MAX {
            first.insert(started().await);
        }
        for _ in 0..LOOPS_MAX {
            second.insert(started().await);
        }
        assert!(first.len() == LOOPS_MAX && second == first, "{first:?} {second:?}");
        assert_eq!(threads.loops.lock().len(), LOOPS_MAX);
        over.send(()).unwrap();
        for connection in connections {
            connection.await.unwrap().unwrap();
        }
        let again = threads.start_connection(async { Handle::current().id() }).unwrap();
        assert!(first.contains(&again.await.unwrap()), "an idle loop exists");
        // Tasks that are still running at the end are dropped.
        let (dropped, seen) = oneshot::channel::<()>();
        let pending = threads.start_connection(async move {
            let _dropped = dropped;
            std::future::pending::<()>().await
        });
        pending.unwrap();
        drop(threads);
        assert!(seen.await.is_err());
    }
}
