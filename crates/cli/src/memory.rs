//! Giving free memory back to the system: mimalloc does so only when it comes by.

unsafe extern "C" {
    /// Frees what the calling thread and ended threads keep, and with `force` returns free memory to the system. Source: mimalloc.h.
    fn mi_collect(force: bool);
}

/// Gives free memory back to the system.
pub fn release() {
    // SAFETY: mimalloc is the allocator of this program (`main.rs`), and any thread may call this at any time.
    unsafe { mi_collect(true) }
}
