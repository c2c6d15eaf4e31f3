//! Moves bytes between machines. Siblings, one per way: [`tcp`] streams, and the one-sided transports behind
//! [`one_sided`]'s traits: [`soft`] over TCP, and [`sim`] for tests, both without a card.
//!
//! Nothing here knows what a block is: callers hand in buffers, descriptors and time-outs.

pub mod conformance;
mod memory;
pub mod one_sided;
pub mod sim;
pub mod soft;
pub mod tcp;

pub use memory::Memory;
