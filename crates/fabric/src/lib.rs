//! Moves bytes between machines and processes. There is one module per transport: [`tcp`] and [`local`] (one machine:
//! Unix sockets, descriptors, shared memory), both on the connections of [`stream`]. The one-sided transports implement
//! [`one_sided`]'s traits: [`rdma`] uses a card; [`soft`] (over TCP) and [`sim`] (for tests) need none.
//!
//! Nothing here knows about blocks: callers pass buffers, descriptors and timeouts.

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
