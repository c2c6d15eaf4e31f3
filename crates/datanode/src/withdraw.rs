//! Whoever has shown a replica's bytes to others is told before they change or leave: readers on this machine (`slots`), readers
//! over a network card.

use std::sync::Arc;

use hearth_blockstore::{WithdrawHook, Withdrawal, Withdrawn};
use hearth_types::ExtendedBlock;
use parking_lot::RwLock;

/// All who show bytes, as the store knows them.
#[derive(Default)]
pub struct Withdrawals {
    showing: RwLock<Vec<Arc<dyn WithdrawHook>>>,
}

impl Withdrawals {
    /// From here on `showing` is told too.
    pub fn add(&self, showing: Arc<dyn WithdrawHook>) {
        self.showing.write().push(showing);
    }
}

impl WithdrawHook for Withdrawals {
    /// Everybody is told; one who needs time is enough for an eviction to wait.
    fn withdraw(&self, block: &ExtendedBlock, what: Withdrawal) -> Withdrawn {
        let mut answer = Withdrawn::Done;
        for showing in self.showing.read().iter() {
            if showing.withdraw(block, what) == Withdrawn::Later {
                answer = Withdrawn::Later;
            }
        }
        answer
    }
}
