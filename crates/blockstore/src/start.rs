//! Start of a store: locks, identities, and the replicas found in memory and on disk. Drawn in docs/design/0001,
//! "Start".

mod attach;
mod find;
mod open;

pub use open::cgroup_limit;
pub(crate) use open::memory_limit;
