//! Moves bytes between machines and processes. Siblings, one per way: [`tcp`] and [`local`] (one machine: Unix sockets,
//! descriptors, shared memory), both over the connections of [`stream`]; and the one-sided transports behind [`one_sided`]'s
//! traits: [`rdma`] through a card, [`soft`] over TCP and [`sim`] for tests, both without one.
//!
//! Nothing here knows what a block is: callers hand in buffers, descriptors and time-outs.

mod choice;
pub mod conformance;
mod descriptors;
pub mod local;
mod memory;
pub mod one_sided;
pub mod rdma;
pub mod sim;
pub mod soft;
mod strangers;
pub mod stream;
pub mod tcp;

pub use choice::TransportName;
pub use descriptors::raise_descriptor_limit;
pub use memory::Memory;
pub use strangers::{Stranger, Strangers};

/// Says aloud what a test leaves out, and why.
#[cfg(test)]
fn left_out(what: &str) {
    use std::io::Write;
    // Past libtest's capture of print!, so that `cargo xtask test` can report it.
    let _ = writeln!(std::io::stdout(), "\nSKIPPED {what}");
}
