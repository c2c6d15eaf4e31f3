//! List of the clients' active writers, so that an administrator can disconnect them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_fabric::tcp::Connection;
use hearth_types::ExtendedBlock;
use parking_lot::Mutex;

/// List of the clients' active writers, so that an administrator can disconnect them.
#[derive(Default)]
pub(crate) struct Writers {
    next: AtomicU64,
    active: Mutex<HashMap<u64, (ExtendedBlock, Arc<Connection>)>>,
}

/// Removes a writer from the list when dropped.
pub(crate) struct WriterGuard {
    writers: Arc<Writers>,
    key: u64,
}

impl Writers {
    pub fn add(self: &Arc<Self>, block: ExtendedBlock, connection: Arc<Connection>) -> WriterGuard {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        self.active.lock().insert(key, (block, connection));
        WriterGuard { writers: self.clone(), key }
    }

    pub fn is_empty(&self) -> bool {
        self.active.lock().is_empty()
    }

    /// Closes the connections of all writers. Returns their number.
    pub fn disconnect_all(&self) -> usize {
        let active = self.active.lock();
        for (block, connection) in active.values() {
            tracing::info!(%block, writer = %connection.peer(), "disconnecting a writer");
            connection.shutdown();
        }
        active.len()
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        self.writers.active.lock().remove(&self.key);
    }
}
