//! How much must have come before a socket wakes its reader (`SO_RCVLOWAT`, tcp(7)).
//!
//! A reader that is faster than its peer sleeps before each segment, and on one machine it is the sender that pays for waking it. Where
//! more is known to come, it sleeps until a good piece of that is there.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes that are gathered while so many are sure to come. The kernel wakes the reader before if its window is full.
const GATHERED_BYTES: u64 = 256 << 10;

/// What is sure to come on a connection, and what the kernel was told of it. Changed by the one task that reads.
#[derive(Debug)]
pub(super) struct LowWater {
    /// Bytes.
    expected: AtomicU64,
    /// As the socket has it.
    set: AtomicU32,
}

impl Default for LowWater {
    fn default() -> Self {
        Self { expected: AtomicU64::new(0), set: AtomicU32::new(1) }
    }
}

impl LowWater {
    /// At least so many bytes come from here on.
    pub fn expect(&self, bytes: u64) {
        self.expected.store(bytes, Ordering::Relaxed);
    }

    pub fn came(&self, bytes: usize) {
        // Mostly nothing is expected: then there is nothing to write.
        let expected = self.expected.load(Ordering::Relaxed);
        if expected > 0 {
            self.expected.store(expected.saturating_sub(bytes as u64), Ordering::Relaxed);
        }
    }

    /// To be called before a wait.
    pub fn set_on(&self, socket: &impl AsFd) {
        self.set_to(socket, self.expected.load(Ordering::Relaxed).clamp(1, GATHERED_BYTES) as u32);
    }

    /// A wait came to its end with less than was gathered for: any byte will do. False: any would have done before.
    pub fn give_up(&self, socket: &impl AsFd) -> bool {
        self.expect(0);
        let gathered = self.set.load(Ordering::Relaxed) > 1;
        self.set_to(socket, 1);
        gathered
    }

    fn set_to(&self, socket: &impl AsFd, bytes: u32) {
        // A socket that will not have it wakes its reader as before: no harm.
        if self.set.load(Ordering::Relaxed) != bytes && set_low_water(socket, bytes).is_ok() {
            self.set.store(bytes, Ordering::Relaxed);
        }
    }
}

fn set_low_water(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let value = bytes as libc::c_int;
    // SAFETY: the descriptor is open while it is borrowed; the kernel reads an int from `value`, of whose size it is told, and keeps no
    // reference to it.
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
