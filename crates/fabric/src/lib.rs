//! Moves bytes between machines and processes. Siblings, one per way: [`tcp`] and [`local`] (one machine: Unix sockets,
//! descriptors, shared memory), both over the connections of [`stream`]; and the one-sided transports behind [`one_sided`]'s
//! traits: [`rdma`] through a card, [`soft`] over TCP and [`sim`] for tests, both without one.
//!
//! Nothing here knows what a block is: callers hand in buffers, descriptors and time-outs.

pub mod conformance;
mod connection_limit;
mod descriptors;
pub mod local;
mod memory;
mod message_memory;
pub mod one_sided;
pub mod rdma;
pub mod sim;
pub mod soft;
pub mod stream;
pub mod tcp;
mod transport_name;

pub use connection_limit::{ConnectionLimit, ConnectionLimitOptions, ConnectionPermit, ShedSignal};
pub use descriptors::raise_descriptor_limit;
pub use memory::Memory;
pub use message_memory::{Claim, MessageMemory, SlowPeerLimits};
pub use stream::Party;
pub use transport_name::TransportName;

/// Says aloud what a test leaves out, and why.
#[cfg(test)]
fn left_out(what: &str) {
    use std::io::Write;
    // Past libtest's capture of print!, so that `cargo xtask test` can report it.
    let _ = writeln!(std::io::stdout(), "\nSKIPPED {what}");
}
