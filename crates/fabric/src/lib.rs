//! Moves bytes between machines. Siblings, one per way: [`tcp`] streams, and the one-sided transports behind
//! [`one_sided`]'s traits.
//!
//! Nothing here knows what a block is: callers hand in buffers, descriptors and time-outs.

mod memory;
pub mod one_sided;
pub mod tcp;

pub use memory::Memory;
