//! Whether a replica's bytes may be shown to other processes, and since when.

/// Guards against showing bytes that are about to change.
#[derive(Default)]
pub struct Showing {
    /// Number of times that the replica's shown bytes were withdrawn.
    withdrawals: u32,
    /// A change is in progress: nothing of the replica may be shown.
    changing: bool,
}

impl Showing {
    /// Number to be given to [`Self::is_allowed`] later.
    pub fn withdrawals(&self) -> u32 {
        self.withdrawals
    }

    pub fn is_changing(&self) -> bool {
        self.changing
    }

    /// Returns whether bytes that were opened at `withdrawals` may be shown: nothing was withdrawn since, and no change
    /// is in progress.
    pub fn is_allowed(&self, withdrawals: u32) -> bool {
        self.withdrawals == withdrawals && !self.changing
    }

    /// Shown bytes are withdrawn: bytes that were opened before can no longer be shown.
    pub fn withdraw(&mut self) {
        self.withdrawals = self.withdrawals.wrapping_add(1);
    }

    pub fn begin_change(&mut self) {
        self.changing = true;
    }

    /// Ends a change. Readers that were opened during it show the bytes before it, so they may not be shown either.
    pub fn end_change(&mut self) {
        self.changing = false;
        self.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_opened_before_or_during_a_change_are_not_shown() {
        let mut showing = Showing::default();
        let before = showing.withdrawals();
        assert!(showing.is_allowed(before));
        showing.begin_change();
        showing.withdraw();
        let during = showing.withdrawals();
        assert!(!showing.is_allowed(before) && !showing.is_allowed(during));
        showing.end_change();
        assert!(!showing.is_allowed(before) && !showing.is_allowed(during));
        assert!(showing.is_allowed(showing.withdrawals()));
    }
}
