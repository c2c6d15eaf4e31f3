//! Verbs: everything of RDMA that needs `unsafe`, behind an interface that does not.
//!
//! What makes it sound is ownership. A memory region holds the mapping that it registers; what is posted on a queue pair
//! holds its regions, in a table of the queue pair, until its completion was polled or the queue pair is destroyed, after
//! which the device touches nothing of it any more; and everything holds what it was made from.

mod address;
mod completion;
mod connection_manager;
mod device;
mod library;
mod queue_pair;
mod region;
#[allow(non_camel_case_types)]
mod sys;

pub use completion::{CompletionChannel, CompletionQueue};
pub use connection_manager::{ConnectParameters, Event, EventChannel, EventKind, Id};
pub use device::Device;
pub use queue_pair::{Opcode, QueuePair, QueuePairSize, WorkRequest};
pub use region::{MemoryRegion, ProtectionDomain};

/// The result of a C function that returns 0 or -1 and sets errno.
fn check(result: std::ffi::c_int) -> std::io::Result<()> {
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The result of a C function that returns 0 or an error number (some return its negative).
fn check_number(result: std::ffi::c_int) -> std::io::Result<()> {
    if result == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(result.abs())) }
}
