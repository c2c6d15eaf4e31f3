//! The memory tier: files on a tmpfs that outlive the process.

pub mod budget;
pub mod copy;
pub mod file;
pub mod header;
pub mod incarnation;
pub mod slab;
