//! Events for the store's owner, such as replicas that were found corrupt.

use hearth_types::BlockPoolId;

use crate::blockstore::Blockstore;
use crate::counters::count;
use crate::error::StoreError;
use crate::replica::{Core, Replica};
use crate::{StoreEvent, WithdrawReason};

/// Maximum number of events that wait for `take_events`; further events replace the oldest.
const EVENTS_MAX: usize = 10_000;

impl Blockstore {
    /// Returns the events since the last call, oldest first. At most 10,000 are kept.
    pub fn take_events(&self) -> Vec<StoreEvent> {
        self.events.lock().drain(..).collect()
    }

    pub(crate) fn event(&self, event: StoreEvent) {
        let mut events = self.events.lock();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
    }

    /// Marks the replica corrupt: no good copy is left.
    pub(crate) fn mark_corrupt(&self, replica: &Replica, core: &mut Core, reason: &str) -> StoreError {
        let block = replica.block(core);
        if !core.lifecycle.is_corrupt() {
            self.withdraw(replica, core, WithdrawReason::Corruption);
            core.lifecycle.mark_corrupt(reason);
            core.copies.take_cached_files();
            self.clear_dirty(core);
            count(&self.counters.corruptions, 1);
            tracing::error!(%block, reason, storage = %replica.slice.volume.id, "replica is corrupt");
            self.event(self.corrupt_event(replica, core));
        }
        StoreError::Corrupt { block, reason: reason.to_owned() }
    }

    pub(crate) fn corrupt_event(&self, replica: &Replica, core: &Core) -> StoreEvent {
        let volume = &replica.slice.volume;
        StoreEvent::Corrupt {
            block: replica.block(core),
            storage: volume.id.clone(),
            storage_type: volume.storage_type,
        }
    }

    /// Reports every corrupt replica of a pool as an event again. A NameNode that receives a full block report, which
    /// lists corrupt replicas too, may not know that they are corrupt.
    pub fn say_corrupt_again(&self, pool: &BlockPoolId) {
        let Some(pool) = self.pools.read().get(pool).cloned() else { return };
        pool.replicas.for_each(|replica| {
            let core = replica.core();
            if core.lifecycle.is_corrupt() && !core.lifecycle.is_gone() {
                self.event(self.corrupt_event(replica, &core));
            }
        });
    }
}
