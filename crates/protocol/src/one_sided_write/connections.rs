//! Pool of one-sided connections that have finished a block, shared by all writers.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use hearth_fabric::one_sided::Connection;
use hearth_types::DatanodeId;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Maximum number of idle connections kept per datanode, for its next blocks.
const IDLE_PER_DATANODE_MAX: usize = 4;
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of datanodes in the pool. Beyond it, datanodes are dropped.
const DATANODES_MAX: usize = 1024;

/// A connection, and the time since it is idle.
type IdleConnection = (Arc<dyn Connection>, Instant);

/// Connections of writers between two blocks. Each connection costs both ends a queue pair and pinned memory. An idle
/// one is therefore closed after a timeout, even if no other block is written.
#[derive(Debug)]
pub struct WriterConnectionPool {
    idle_timeout: Duration,
    idle: Mutex<IdleConnections>,
}

#[derive(Debug, Default)]
struct IdleConnections {
    connections: HashMap<DatanodeId, Vec<IdleConnection>>,
    /// True while an expiry task is running.
    is_watched: bool,
}

impl Default for WriterConnectionPool {
    fn default() -> Self {
        Self { idle_timeout: IDLE_TIMEOUT, idle: Mutex::default() }
    }
}

impl WriterConnectionPool {
    /// Takes a connection that is open as far as this end knows.
    pub fn take(&self, datanode: &DatanodeId) -> Option<Arc<dyn Connection>> {
        let mut idle = self.idle.lock();
        let connections = idle.connections.get_mut(datanode)?;
        connections.retain(|(_, since)| since.elapsed() < self.idle_timeout);
        while let Some((connection, _)) = connections.pop() {
            if is_open(&connection) {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps the connection of a finished block.
    pub fn keep(self: &Arc<Self>, datanode: DatanodeId, connection: Arc<dyn Connection>) {
        let mut idle = self.idle.lock();
        let mut gone = Vec::new();
        if idle.connections.len() >= DATANODES_MAX && !idle.connections.contains_key(&datanode) {
            gone.extend(idle.connections.drain().flat_map(|(_, connections)| connections));
        }
        let connections = idle.connections.entry(datanode).or_default();
        if connections.len() >= IDLE_PER_DATANODE_MAX {
            // The connection that was idle for longest.
            gone.push(connections.remove(0));
        }
        connections.push((connection, Instant::now()));
        // Without a runtime, the next caller that uses the pool expires idle connections.
        let runtime = if idle.is_watched { None } else { Handle::try_current().ok() };
        idle.is_watched |= runtime.is_some();
        // Outside the lock: dropping the last reference closes a connection, and a runtime that is shutting down drops
        // the task at once.
        drop(idle);
        drop(gone);
        if let Some(runtime) = runtime {
            let watch = ExpiryTask { pool: Arc::downgrade(self), is_over: false };
            runtime.spawn(watch.run(self.idle_timeout / 2));
        }
    }

    /// Drops connections that were idle for too long or have closed. Returns false if none are left and the expiry task
    /// should end.
    fn expire(&self) -> bool {
        let mut idle = self.idle.lock();
        let mut gone = Vec::new();
        idle.connections.retain(|_, connections| {
            let is_over =
                |(connection, since): &mut IdleConnection| since.elapsed() >= self.idle_timeout || !is_open(connection);
            gone.extend(connections.extract_if(.., is_over));
            !connections.is_empty()
        });
        idle.is_watched = !idle.connections.is_empty();
        let goes_on = idle.is_watched;
        drop(idle);
        // Outside the lock: dropping the last reference closes a connection.
        drop(gone);
        goes_on
    }
}

fn is_open(connection: &Arc<dyn Connection>) -> bool {
    connection.closed().now_or_never().is_none()
}

/// Task that expires idle connections until the pool is empty.
struct ExpiryTask {
    pool: Weak<WriterConnectionPool>,
    is_over: bool,
}

impl ExpiryTask {
    async fn run(mut self, every: Duration) {
        while !self.is_over {
            tokio::time::sleep(every).await;
            self.is_over = !self.pool.upgrade().is_some_and(|kept| kept.expire());
        }
    }
}

impl Drop for ExpiryTask {
    fn drop(&mut self) {
        // This task's runtime is shutting down: a task on another runtime may take over.
        if !self.is_over
            && let Some(kept) = self.pool.upgrade()
        {
            kept.idle.lock().is_watched = false;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use hearth_fabric::one_sided::{Limits, Transport};
    use hearth_fabric::sim::Sim;
    use hearth_testkit::until;
    use hearth_types::DatanodeUuid;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    pub(crate) fn datanode() -> DatanodeId {
        DatanodeId {
            ip: "127.0.0.1".to_owned(),
            host_name: "localhost".to_owned(),
            uuid: DatanodeUuid("one".into()),
            transfer_port: 1,
            info_port: 2,
            ipc_port: 3,
            info_secure_port: 0,
        }
    }

    pub(crate) async fn pair(sim: &Sim) -> (Arc<dyn Connection>, Arc<dyn Connection>) {
        let domain = sim.domain().unwrap();
        let listener = sim.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let limits = Limits::default();
        let accepting = async { listener.accept().await.unwrap().accept(&domain, b"", limits, LONG).await.unwrap() };
        let connecting = sim.connect(&domain, listener.address(), b"", limits, LONG);
        let (near, far) = tokio::join!(connecting, accepting);
        (near.unwrap(), far)
    }

    fn keeping_for(idle_timeout: Duration) -> Arc<WriterConnectionPool> {
        Arc::new(WriterConnectionPool { idle_timeout, idle: Mutex::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_expires() {
        let (sim, kept) = (Sim::new(), keeping_for(IDLE_TIMEOUT));
        // Runs a second time after the first expiry task has ended.
        for _ in 0..2 {
            let (near, far) = pair(&sim).await;
            let (other, other_far) = pair(&sim).await;
            let began = Instant::now();
            kept.keep(datanode(), near);
            kept.keep(datanode(), other);
            let taken = kept.take(&datanode()).unwrap();
            tokio::time::timeout(2 * IDLE_TIMEOUT, far.closed()).await.expect("it goes");
            assert_eq!(began.elapsed(), IDLE_TIMEOUT);
            assert!(is_open(&taken), "a taken connection stays open");
            assert!(is_open(&other_far), "a taken connection stays open");
            let is_watched = || kept.idle.lock().is_watched;
            until("the end of the expiry task", async || !is_watched()).await;
        }
    }

    #[tokio::test]
    async fn longest_idle_connection_is_evicted() {
        let (sim, kept) = (Sim::new(), keeping_for(LONG));
        let mut ends = Vec::new();
        for _ in 0..IDLE_PER_DATANODE_MAX + 1 {
            let (near, far) = pair(&sim).await;
            kept.keep(datanode(), near);
            ends.push(far);
        }
        tokio::time::timeout(LONG, ends[0].closed()).await.expect("it goes");
        assert!(ends[1..].iter().all(is_open));
    }

    struct KeptAtTheEnd(Arc<WriterConnectionPool>, Arc<dyn Connection>);

    impl Drop for KeptAtTheEnd {
        fn drop(&mut self) {
            self.0.keep(datanode(), self.1.clone());
        }
    }

    #[test]
    fn expiry_task_moves_to_another_runtime() {
        let (sim, kept) = (Sim::new(), keeping_for(IDLE_TIMEOUT));
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime().block_on(async { kept.keep(datanode(), pair(&sim).await.0) });
        assert!(!kept.idle.lock().is_watched);
        // A block that ends together with its runtime.
        let ending = runtime();
        let (near, _far) = ending.block_on(pair(&sim));
        let kept_at_the_end = KeptAtTheEnd(kept.clone(), near);
        ending.spawn(async move {
            let _kept = kept_at_the_end;
            std::future::pending::<()>().await
        });
        ending.block_on(tokio::task::yield_now());
        drop(ending);
        assert!(!kept.idle.lock().is_watched);
        runtime().block_on(async {
            let (near, far) = pair(&sim).await;
            kept.keep(datanode(), near);
            tokio::time::timeout(2 * IDLE_TIMEOUT, far.closed()).await.expect("it goes");
        });
    }
}
