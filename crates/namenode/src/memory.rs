//! Returning free memory to the system.
//!
//! An allocator returns memory only while it is used, which in an idle NameNode may be never. So it is asked explicitly
//! after much has been freed: when the namespace has been read, and when the journal's changes have been moved into the
//! tables.

use std::sync::OnceLock;

static RELEASE: OnceLock<fn()> = OnceLock::new();

/// Sets the function by which the process's allocator returns free memory. Only the first call has an effect; without a
/// call nothing is returned.
pub fn release_with(release: fn()) {
    RELEASE.get_or_init(|| release);
}

/// Returns free memory to the system.
pub(crate) fn release() {
    if let Some(release) = RELEASE.get() {
        release();
    }
}
