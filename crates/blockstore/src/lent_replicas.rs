//! Replicas whose memory another process may write to: how much of the tmpfs they take is looked at until it has let go.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use hearth_types::ReplicaState;
use parking_lot::Mutex;

use crate::memory::file::{LentState, Settled};
use crate::replica::{Core, MemoryCopy, Replica};
use crate::store::Store;

/// Replicas that were lent and have not come back. A replica is in it while another process can write to its file, so the
/// number of descriptors of other processes bounds it.
#[derive(Default)]
pub struct LentReplicas {
    entries: Mutex<Vec<Weak<Replica>>>,
}

impl LentReplicas {
    pub fn add(&self, replica: &Arc<Replica>) {
        self.entries.lock().push(Arc::downgrade(replica));
    }
}

impl Store {
    /// Looks at every lent replica: see [`FileCopy::settle_lent`](crate::memory::file::FileCopy::settle_lent). Waits for no lock.
    pub fn sweep_lent(&self) {
        let mut entries = std::mem::take(&mut *self.lent.entries.lock());
        let mut seen = HashSet::new();
        entries.retain(|entry| {
            let is_first = seen.insert(entry.as_ptr());
            is_first && entry.upgrade().is_some_and(|replica| self.is_still_lent(&replica))
        });
        self.lent.entries.lock().append(&mut entries);
    }

    fn is_still_lent(&self, replica: &Replica) -> bool {
        // A change in progress is looked at the next time.
        let Some(_change) = replica.change.try_lock() else { return true };
        let core = replica.core();
        self.settle_lent(replica, &core)
    }

    /// Accounts of one replica. Under `change`. False: no other process can take memory by it.
    pub fn settle_lent(&self, replica: &Replica, core: &Core) -> bool {
        let Some(MemoryCopy::File(copy)) = &core.memory else { return false };
        if !copy.may_be_written_outside() {
            return false;
        }
        let state = match core.state {
            _ if core.writer.is_some() => LentState::Written,
            ReplicaState::Finalized => LentState::Finalized { length: core.received },
            _ => LentState::Abandoned { received: core.received },
        };
        match copy.settle_lent(state) {
            Ok(settled) => settled == Settled::StillLent,
            Err(error) => {
                let dir = replica.slice.memory_dir.display();
                tracing::warn!(%error, block = %replica.block(core), %dir, "cannot look at the memory of a lent replica; will retry");
                true
            }
        }
    }
}
