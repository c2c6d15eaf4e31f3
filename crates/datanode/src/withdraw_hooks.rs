//! Fan-out of withdrawals: every hook is called before bytes that were shown to readers change or leave memory. Such
//! readers are on this machine (`slots`) or read over a network card.

use std::sync::Arc;

use hearth_blockstore::{WithdrawHook, WithdrawReason, WithdrawReply};
use hearth_types::ExtendedBlock;
use parking_lot::RwLock;

/// All hooks, as one hook for the store.
#[derive(Default)]
pub struct WithdrawHooks {
    hooks: RwLock<Vec<Arc<dyn WithdrawHook>>>,
}

impl WithdrawHooks {
    /// Adds `hook`, which is called from now on.
    pub fn add(&self, hook: Arc<dyn WithdrawHook>) {
        self.hooks.write().push(hook);
    }
}

impl WithdrawHook for WithdrawHooks {
    /// Calls every hook. An eviction waits if at least one hook needs time.
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
