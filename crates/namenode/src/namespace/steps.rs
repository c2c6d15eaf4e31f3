//! For tests: how much is looked at under the namespace's lock.

use std::cell::Cell;

thread_local! {
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// Called for each inode that is looked at in a walk which could be one of many, or of all.
pub fn count() {
    COUNTED.set(COUNTED.get() + 1);
}

/// By this thread, so far.
pub fn counted() -> u64 {
    COUNTED.get()
}
