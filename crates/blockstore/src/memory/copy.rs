//! A replica's copy in memory: a slot of a slab or files of its own.

use std::sync::Arc;

use super::file::{FileCopy, OpenFiles};
use super::slab::Slot;

/// A copy in memory.
#[derive(Clone)]
pub enum MemoryCopy {
    Slot(Arc<Slot>),
    File(Arc<FileCopy>),
}

impl MemoryCopy {
    pub fn retire(&self) {
        match self {
            Self::Slot(slot) => slot.retire(),
            Self::File(copy) => copy.retire(),
        }
    }

    /// Returns whether it is held outside the replica.
    pub fn is_pinned(&self) -> bool {
        self.is_pinned_beside(None)
    }

    /// Returns whether it is held by anything but the replica and `own`, the store's cache of open files.
    pub fn is_pinned_beside(&self, own: Option<&Arc<OpenFiles>>) -> bool {
        match self {
            Self::Slot(slot) => Arc::strong_count(slot) > 1,
            Self::File(copy) => copy.is_open_beside(own) || Arc::strong_count(copy) > 1,
        }
    }

    /// Returns whether other processes may hold it or have held it.
    pub fn is_shown(&self) -> bool {
        match self {
            Self::Slot(_) => false,
            Self::File(copy) => copy.is_shown(),
        }
    }

    /// Returns whether another process may have it open for writing.
    pub fn may_be_written_outside(&self) -> bool {
        match self {
            Self::Slot(_) => false,
            Self::File(copy) => copy.may_be_written_outside(),
        }
    }

    /// Returns whether a process that the copy was shown to still has it open. If not, the shown mark is cleared.
    /// Called under the core lock: a caller that is about to show the copy has it open itself.
    pub fn is_still_shown(&self) -> bool {
        if !self.is_shown() {
            return false;
        }
        let held = self.is_pinned() || self.is_held_outside();
        if let (Self::File(copy), false) = (self, held) {
            copy.clear_shown();
        }
        held
    }

    /// Returns whether other processes hold it, as far as the kernel knows.
    pub fn is_held_outside(&self) -> bool {
        match self {
            Self::Slot(_) => false,
            Self::File(copy) => copy.is_held(),
        }
    }

    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Slot(a), Self::Slot(b)) => Arc::ptr_eq(a, b),
            (Self::File(a), Self::File(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}
