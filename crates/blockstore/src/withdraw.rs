//! Bytes that others were shown are withdrawn before they change or leave.
//!
//! What "shown" amounts to (a descriptor passed, a slot, a remote key) is the owner's affair: he is told here, once for each
//! change, whether or not he has shown anything.

use std::sync::Arc;

use hearth_types::ExtendedBlock;

use crate::replica::{Core, Replica};
use crate::store::Store;

/// What is about to happen to a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithdrawReason {
    /// It is opened again: there will be more bytes, under a new stamp.
    Append,
    /// It gets another stamp, and perhaps fewer bytes.
    Recovery,
    /// It is deleted, replaced, or moved to another storage.
    Deletion,
    /// Its copy in memory goes, to make room; the one on disk stays.
    Eviction,
    /// Its copy in memory or all of it is bad.
    Corruption,
}

/// What the owner says to a withdrawal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WithdrawReply {
    /// Nobody relies on it any more who was not told.
    Done,
    /// Somebody does, and will be given some time. Regarded for an eviction only, which is tried again later.
    Later,
}

/// The owner of a store, who shows its bytes to others.
pub trait WithdrawHook: Send + Sync {
    /// Called with locks of the store held: returns at once, and calls nothing of the store.
    ///
    /// What was shown stays as it is for whoever holds it (a descriptor, a mapping, a [`crate::ReplicaReader`]): bytes are
    /// never changed under them. The call is there so that nobody takes them for the replica any longer.
    fn withdraw(&self, block: &ExtendedBlock, what: WithdrawReason) -> WithdrawReply;
}

/// Nothing of the replica is shown while this lives: it is changing.
pub struct ChangeGuard<'a>(&'a Replica);

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        let mut core = self.0.core();
        core.changing = false;
        // What was opened meanwhile shows what was before.
        core.withdrawals = core.withdrawals.wrapping_add(1);
    }
}

impl Store {
    /// Tells the owner. What was opened for reading before cannot be shown any more.
    pub fn withdraw(&self, replica: &Replica, core: &mut Core, what: WithdrawReason) -> WithdrawReply {
        core.withdrawals = core.withdrawals.wrapping_add(1);
        match self.withdraw_hook.get() {
            Some(hook) => hook.withdraw(&replica.block(core), what),
            None => WithdrawReply::Done,
        }
    }

    /// The same before a change that takes a while. Under `change`; drop it with `core` free.
    #[must_use]
    pub fn begin_change<'a>(&self, replica: &'a Replica, what: WithdrawReason) -> ChangeGuard<'a> {
        let mut core = replica.core();
        core.changing = true;
        core.cached_files = None;
        self.withdraw(replica, &mut core, what);
        ChangeGuard(replica)
    }

    pub fn set_withdraw_hook(&self, hook: Arc<dyn WithdrawHook>) {
        assert!(self.withdraw_hook.set(hook).is_ok(), "a store has one owner");
    }
}
