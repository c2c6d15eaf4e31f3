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
mod message_memory;
pub mod one_sided;
mod places;
pub mod rdma;
pub mod sim;
pub mod soft;
pub mod stream;
pub mod tcp;

pub use choice::TransportName;
pub use descriptors::raise_descriptor_limit;
pub use memory::Memory;
pub use message_memory::{Claim, MessageMemory, Patience};
pub use places::{GivesWay, Place, Places, PlacesOptions};
pub use stream::Party;

/// Says aloud what a test leaves out, and why.
#[cfg(test)]
fn left_out(what: &str) {
    use std::io::Write;
    // Past libtest's capture of print!, so that `cargo xtask test` can report it.
    let _ = writeln!(std::io::stdout(), "\nSKIPPED {what}");
}
