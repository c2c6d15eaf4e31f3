//! Whoever has shown a replica's bytes to others is told before they change or leave: readers on this machine (`slots`), readers
//! over a network card.

use std::sync::Arc;

use hearth_blockstore::{WithdrawHook, WithdrawReason, WithdrawReply};
use hearth_types::ExtendedBlock;
use parking_lot::RwLock;

/// All who show bytes, as the store knows them.
#[derive(Default)]
pub struct WithdrawHooks {
    hooks: RwLock<Vec<Arc<dyn WithdrawHook>>>,
}

impl WithdrawHooks {
    /// From here on `hook` is told too.
    pub fn add(&self, hook: Arc<dyn WithdrawHook>) {
        self.hooks.write().push(hook);
    }
}

impl WithdrawHook for WithdrawHooks {
    /// Everybody is told; one who needs time is enough for an eviction to wait.
    fn withdraw(&self, block: &ExtendedBlock, what: WithdrawReason) -> WithdrawReply {
        let mut answer = WithdrawReply::Done;
        for hook in self.hooks.read().iter() {
            if hook.withdraw(block, what) == WithdrawReply::Later {
                answer = WithdrawReply::Later;
            }
        }
        answer
    }
}
