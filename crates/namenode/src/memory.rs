//! Giving free memory back to the system.
//!
//! An allocator does so when it comes by, which in an idle NameNode may be never. So it is asked to where much has just been freed:
//! when the namespace was read, and when what the journal held has gone into the tables.

use std::sync::OnceLock;

static RELEASE: OnceLock<fn()> = OnceLock::new();

/// Sets how the process's allocator gives free memory back. The first call counts; without one nothing is done.
pub fn release_with(release: fn()) {
    RELEASE.get_or_init(|| release);
}

/// Gives free memory back to the system.
pub(crate) fn release() {
    if let Some(release) = RELEASE.get() {
        release();
    }
}
