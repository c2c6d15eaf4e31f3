//! Leases under which replicas are read one-sidedly, by block and datanode.

use std::collections::HashMap;
use std::sync::Arc;

use hearth_types::LocatedBlock;
use parking_lot::Mutex;

use super::advertised_replica::{AdvertisedReplica, Key, OTHER_REPLICA, ReceivedAdvertisement};
use super::rdma_context::RdmaContext;
use super::read_connection::ReadConnection;

/// Maximum number of leases kept.
const LEASES_MAX: usize = 16384;

/// Leases that one client holds.
#[derive(Debug, Default)]
pub(super) struct ReadLeases(Mutex<HashMap<Key, Arc<AdvertisedReplica>>>);

impl ReadLeases {
    /// Returns the replica if there is a lease of it under which reads may be posted now.
    pub(super) fn usable(&self, key: &Key) -> Option<Arc<AdvertisedReplica>> {
        self.0.lock().get(key).filter(|replica| replica.is_usable()).cloned()
    }

    /// Creates a lease from an advertisement. Errors: the reason why it is not the requested replica, as text.
    pub(super) fn add(
        &self,
        rdma: &RdmaContext,
        key: Key,
        read_connection: Arc<ReadConnection>,
        received: ReceivedAdvertisement,
        block: &LocatedBlock,
    ) -> Result<Arc<AdvertisedReplica>, &'static str> {
        let shown = &received.advertisement.block;
        let other = shown.pool != block.block.pool || shown.id() != block.block.id();
        if other || shown.stamp() < block.block.stamp() || shown.length() < block.block.length() {
            return Err(OTHER_REPLICA);
        }
        let buffers = rdma.buffers.clone();
        let mut leases = self.0.lock();
        let table = leases.get(&key).and_then(|earlier| earlier.table_of(&received.advertisement));
        let table = table.unwrap_or_else(|| rdma.tables.new_table());
        let replica = Arc::new(AdvertisedReplica::new(read_connection, buffers, table, received, rdma.timeout));
        if leases.len() >= LEASES_MAX {
            leases.retain(|_, kept| kept.is_usable());
            if leases.len() >= LEASES_MAX {
                leases.clear();
            }
        }
        leases.insert(key, replica.clone());
        Ok(replica)
    }

    pub(super) fn remove(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// Removes the lease unless there is a newer one.
    pub(super) fn forget(&self, key: &Key, replica: &Arc<AdvertisedReplica>) {
        let mut leases = self.0.lock();
        if leases.get(key).is_some_and(|kept| Arc::ptr_eq(kept, replica)) {
            leases.remove(key);
        }
    }
}
