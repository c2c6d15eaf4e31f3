//! Threads of their own for the copies, below the others in the kernel's eyes: what is copied behind everybody's back must not stand
//! before what somebody waits for, neither in a queue of this process nor at a core.
//!
//! Niceness is a share, not a ban: beside threads that always want the cores the copies still get theirs (at 6, about a quarter of
//! what one of the others gets), and where nobody else wants the cores, all of them. What it cannot do for readers, rests do (`cpu_budget`).
//!
//! Connections of replicas have a loop of events in one thread each, or share it: of several threads one waits for all sockets, and is
//! woken with each segment of a connection that another one is busy with, for nothing.

use std::io;
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;
use rustix::process::{getpid, getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::cpu_budget::{CpuBudget, CpuLimited};
use crate::ops::OpError;

/// The greatest niceness there is.
const NICE_MAX: i32 = 19;

/// Loops at most. More than cores: a connection that waits for a disk holds up those that share its loop.
const LOOPS_MAX: usize = 32;

/// Made when the first connection wants them; an idle datanode has none.
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
    /// `nice`: above the process's own. 0: threads like the others.
    pub fn new(nice: i32, budget: CpuBudget) -> Self {
        Self { nice, budget: Arc::new(budget), runtime: Mutex::default(), loops: Mutex::default() }
    }

    /// Where to spawn what is no connection of replicas.
    ///
    /// Errors: the system has no threads left.
    pub fn start(&self) -> Result<Handle, OpError> {
        let mut runtime = self.runtime.lock();
        if let Some(runtime) = &*runtime {
            return Ok(runtime.handle().clone());
        }
        let started = self.builder(Builder::new_multi_thread()).and_then(|mut builder| builder.build());
        Ok(runtime.insert(started.map_err(OpError::Threads)?).handle().clone())
    }

    /// `copy`, so that it takes no more than copies may.
    pub fn cpu_limited<F>(&self, copy: F) -> CpuLimited<F> {
        CpuLimited::new(&self.budget, copy)
    }

    /// Runs a copy that is no connection of replicas, at that pace.
    ///
    /// Errors: those of [`Self::start`].
    pub fn spawn<F>(&self, copy: F) -> Result<JoinHandle<F::Output>, OpError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        Ok(self.start()?.spawn(self.cpu_limited(copy)))
    }

    /// Runs a connection: in a loop with nothing to do, or a new one while they are few, or the one that has least.
    ///
    /// Errors: the system has no threads left, and there is no loop.
    pub fn start_connection<F>(&self, connection: F) -> Result<JoinHandle<F::Output>, OpError>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        // Held until it is one of the loop's tasks.
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
                (Err(error), None) => return Err(OpError::Threads(error)),
            },
        };
        Ok(handle.spawn(self.cpu_limited(connection)))
    }

    fn start_loop(&self) -> io::Result<EventLoop> {
        let nice = self.target_nice()?;
        let (bring, brought) = mpsc::sync_channel::<Runtime>(1);
        let (end, ended) = oneshot::channel::<()>();
        // The thread first: a runtime that is dropped here, because there is none for it, would wait for its end.
        std::thread::Builder::new().name("replica-streams".to_owned()).spawn(move || {
            lower_priority(nice);
            let Ok(runtime) = brought.recv() else { return };
            // Until the other half is dropped.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        })?;
        let runtime = self.builder(Builder::new_current_thread())?.build()?;
        let handle = runtime.handle().clone();
        // It is there, and waits for this.
        let _ = bring.send(runtime);
        Ok(EventLoop { handle, _end: end })
    }

    /// As many threads as there are cores, where it is not one: without readers the copies may have them all.
    fn builder(&self, mut builder: Builder) -> io::Result<Builder> {
        builder.thread_name("replica-streams").enable_all();
        let nice = self.target_nice()?;
        builder.on_thread_start(move || lower_priority(nice));
        Ok(builder)
    }

    /// The niceness that is to be set, if any: above that of the process's first thread. New threads begin as the one that makes them, and that
    /// may be one of these.
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
        tracing::warn!(%error, "a thread of replica streams has the priority of the others");
    }
}

impl Drop for CopyThreads {
    fn drop(&mut self) {
        // Perhaps on one of them: nothing is waited for.
        if let Some(runtime) = self.runtime.get_mut().take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::metrics::Metrics;

    fn threads(nice: i32) -> CopyThreads {
        CopyThreads::new(nice, CpuBudget::new(Arc::new(Metrics::default()), 0.5))
    }

    #[tokio::test]
    async fn they_give_way_their_own_threads_too_and_others_do_not() {
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
        // Made by one of them, another is no lower.
        let threads = Arc::new(threads);
        let shared = threads.clone();
        let made = handle.spawn(async move { shared.start_loop().unwrap() }).await.unwrap();
        assert_eq!(made.handle.spawn(async { getpriority_process(None).unwrap() }).await.unwrap(), nice);
        // In a runtime's own thread, where waiting would panic.
        drop(threads);
    }

    #[tokio::test]
    async fn connections_share_no_loop_while_there_can_be_another() {
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
        assert!(first.contains(&again.await.unwrap()), "a loop with nothing to do is there");
        // What is under way when all ends is dropped.
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
