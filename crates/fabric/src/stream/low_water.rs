//! Minimum amount of received data that wakes the reader of a socket (`SO_RCVLOWAT`, tcp(7)).
//!
//! A reader that is faster than its peer sleeps before each segment, and on one machine the sender pays for each
//! wake-up. If more data is known to follow, the reader sleeps until a large piece has arrived.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes gathered per wake-up while at least that many are announced. The kernel wakes the reader earlier if its window
/// is full.
const GATHERED_BYTES: u64 = 256 << 10;

/// Announced bytes of a connection, and the value set in the kernel. Changed only by the task that reads.
#[derive(Debug)]
pub(super) struct LowWater {
    /// Bytes.
    expected: AtomicU64,
    /// The current value of the socket option.
    set: AtomicU32,
}

impl Default for LowWater {
    fn default() -> Self {
        Self { expected: AtomicU64::new(0), set: AtomicU32::new(1) }
    }
}

impl LowWater {
    /// Announces at least `bytes` further bytes.
    pub fn expect(&self, bytes: u64) {
        self.expected.store(bytes, Ordering::Relaxed);
    }

    pub fn came(&self, bytes: usize) {
        // Usually nothing is announced; then nothing is written.
        let expected = self.expected.load(Ordering::Relaxed);
        if expected > 0 {
            self.expected.store(expected.saturating_sub(bytes as u64), Ordering::Relaxed);
        }
    }

    /// Sets the option. Must be called before a wait.
    pub fn set_on(&self, socket: &impl AsFd) {
        self.set_to(socket, self.expected.load(Ordering::Relaxed).clamp(1, GATHERED_BYTES) as u32);
    }

    /// Resets the option to one byte, after a wait ended with less than announced. Returns false if one byte would
    /// already have been enough.
    pub fn give_up(&self, socket: &impl AsFd) -> bool {
        self.expect(0);
        let gathered = self.set.load(Ordering::Relaxed) > 1;
        self.set_to(socket, 1);
        gathered
    }

    fn set_to(&self, socket: &impl AsFd, bytes: u32) {
        // If the socket rejects the option, it wakes its reader as before, which is harmless.
        if self.set.load(Ordering::Relaxed) != bytes && set_low_water(socket, bytes).is_ok() {
            self.set.store(bytes, Ordering::Relaxed);
        }
    }
}

fn set_low_water(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let value = bytes as libc::c_int;
    // SAFETY: the descriptor is open while it is borrowed; the kernel reads an int from `value`, whose size is passed,
    // and keeps no reference to it.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
