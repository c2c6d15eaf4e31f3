//! Verbs: all of RDMA that needs `unsafe`, behind a safe interface.
//!
//! Ownership makes it sound. A memory region holds the mapping that it registers. A table of the queue pair holds the
//! regions of posted operations until their completion was polled or the queue pair is destroyed; after that the device
//! no longer accesses them. Every object holds the objects that it was made from.

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

/// Converts the result of a C function that returns 0 or -1 and sets errno.
fn check(result: std::ffi::c_int) -> std::io::Result<()> {
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Converts the result of a C function that returns 0 or an error number (some return its negative).
fn check_number(result: std::ffi::c_int) -> std::io::Result<()> {
    if result == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(result.abs())) }
}
