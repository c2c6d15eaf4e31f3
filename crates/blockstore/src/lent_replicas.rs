//! Replicas whose memory another process may write to: their use of the tmpfs is checked until that process has closed
//! it.

use std::collections::HashSet;

use hearth_types::ReplicaState;

use crate::blockstore::Blockstore;
use crate::memory::copy::MemoryCopy;
use crate::memory::file::{LentState, Settled};
use crate::replica::{CORE_LOCK_TIMEOUT, Core, Replica};

impl Blockstore {
    /// Frees the memory of deleted replicas that other processes have released since, and settles the accounts of lent
    /// memory. The store's own threads do this; tests without threads call it.
    pub fn sweep(&self) {
        self.budget.sweep();
        self.sweep_lent();
    }

    /// Checks every lent replica: see [`FileCopy::settle_lent`](crate::memory::file::FileCopy::settle_lent). Waits for
    /// no disk.
    pub(crate) fn sweep_lent(&self) {
        let mut entries = self.lent.take();
        let mut seen = HashSet::new();
        entries.retain(|entry| {
            let is_first = seen.insert(entry.as_ptr());
            is_first && entry.upgrade().is_some_and(|replica| self.is_still_lent(&replica))
        });
        self.lent.put_back(entries);
    }

    fn is_still_lent(&self, replica: &Replica) -> bool {
        // A replica with a change in progress, or whose files are being opened, is checked the next time.
        let Some(_change) = replica.change.try_lock() else { return true };
        let Some(core) = replica.core_within(CORE_LOCK_TIMEOUT) else { return true };
        self.settle_lent(replica, &core)
    }

    /// Settles the account of one replica. The caller holds `change`. False: no other process can take memory through
    /// it.
    pub(crate) fn settle_lent(&self, replica: &Replica, core: &Core) -> bool {
        let Some(MemoryCopy::File(copy)) = core.copies.memory() else { return false };
        if !copy.may_be_written_outside() {
            return false;
        }
        let state = match core.lifecycle.state() {
            _ if core.copies.writer().is_some() => LentState::Written,
            ReplicaState::Finalized => LentState::Finalized { length: core.lifecycle.received() },
            _ => LentState::Abandoned { received: core.lifecycle.received() },
        };
        match copy.settle_lent(state) {
            Ok(settled) => settled == Settled::StillLent,
            Err(error) => {
                let dir = replica.slice.memory_dir.display();
                tracing::warn!(%error, block = %replica.block(core), %dir, "cannot check the memory of a lent replica; will retry");
                true
            }
        }
    }
}
