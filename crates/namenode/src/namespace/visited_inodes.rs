//! Test counter of inodes that are visited under the namespace's lock.

use std::cell::Cell;

thread_local! {
    static COUNTED: Cell<u64> = const { Cell::new(0) };
}

/// Counts a visited inode. Called in walks that might visit many or all inodes.
pub fn count() {
    COUNTED.set(COUNTED.get() + 1);
}

/// Returns the count of this thread so far.
pub fn counted() -> u64 {
    COUNTED.get()
}
