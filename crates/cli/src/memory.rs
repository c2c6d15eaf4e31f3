//! Returning free memory to the system, because mimalloc does it only occasionally.

unsafe extern "C" {
    /// Frees memory that the calling thread and ended threads cache. With `force`, returns free memory to the system.
    /// Source: mimalloc.h.
    fn mi_collect(force: bool);
}

/// Returns free memory to the system.
pub fn release() {
    // SAFETY: mimalloc is the allocator of this program (`main.rs`), and any thread may call this at any time.
    unsafe { mi_collect(true) }
}
