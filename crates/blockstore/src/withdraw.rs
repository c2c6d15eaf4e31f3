//! Withdrawal of shown bytes before they change or are freed.
//!
//! The store's owner decides how bytes are shown (a passed descriptor, a slot, a remote key). The store calls its hook
//! once for each change, whether or not anything was shown.

use std::sync::Arc;

use hearth_types::ExtendedBlock;

use crate::blockstore::Blockstore;
use crate::replica::{Core, Replica};

/// Reason for a withdrawal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithdrawReason {
    /// The replica is reopened: it will get more bytes, under a new stamp.
    Append,
    /// The replica gets another stamp, and perhaps fewer bytes.
    Recovery,
    /// The replica is deleted, replaced, or moved to another storage.
    Deletion,
    /// The copy in memory is freed to make room; the one on disk stays.
    Eviction,
    /// The copy in memory or the whole replica is bad.
    Corruption,
}

/// The owner's response to a withdrawal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithdrawReply {
    /// Everyone that relies on the bytes has been notified.
    Done,
    /// A reader still relies on the bytes and will be given some time. Considered only for an eviction, which is
    /// retried later.
    Later,
}

/// Callback to the owner of a store, which shows its bytes to other processes.
pub trait WithdrawHook: Send + Sync {
    /// Called with locks of the store held: returns at once, and calls nothing of the store.
    ///
    /// Holders of shown bytes (a descriptor, a mapping, a [`crate::ReplicaReader`]) keep them unchanged: bytes are
    /// never changed under them. The call ensures that the holders no longer take them for the replica.
    fn withdraw(&self, block: &ExtendedBlock, what: WithdrawReason) -> WithdrawReply;
}

/// Guard that keeps the replica from being shown while it changes.
pub struct ChangeGuard<'a>(&'a Replica);

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        let mut core = self.0.core();
        core.showing.end_change();
    }
}

impl Blockstore {
    /// Notifies the owner. Readers opened before this call can no longer show the replica.
    pub(crate) fn withdraw(&self, replica: &Replica, core: &mut Core, what: WithdrawReason) -> WithdrawReply {
        core.showing.withdraw();
        match self.withdraw_hook.get() {
            Some(hook) => hook.withdraw(&replica.block(core), what),
            None => WithdrawReply::Done,
        }
    }

    /// Like [`Self::withdraw`], before a change that takes a while. The caller holds `change`, and drops the guard
    /// without holding `core`.
    #[must_use]
    pub(crate) fn begin_change<'a>(&self, replica: &'a Replica, what: WithdrawReason) -> ChangeGuard<'a> {
        let mut core = replica.core();
        core.showing.begin_change();
        core.copies.take_cached_files();
        self.withdraw(replica, &mut core, what);
        ChangeGuard(replica)
    }

    /// Registers `hook`, which is called from now on before shown bytes of a replica become invalid. Call it once,
    /// before the first pool is attached.
    pub fn on_withdraw(&self, hook: Arc<dyn WithdrawHook>) {
        assert!(self.withdraw_hook.set(hook).is_ok(), "a store has one owner");
    }
}
