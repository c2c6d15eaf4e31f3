//! Moves bytes between machines. Siblings, one per way: [`tcp`] now; shared memory and RDMA beside it later.
//!
//! Nothing here knows what a block is: callers hand in buffers, descriptors and time-outs.

pub mod tcp;
