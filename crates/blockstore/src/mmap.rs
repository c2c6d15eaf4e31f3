//! Mapped memory. All raw access to memory is in this module, behind safe functions: only it and `sys.rs` have `unsafe`
//! blocks.
//!
//! - `region.rs`: maps and unmaps.
//! - `shared_map.rs`: the store's own files in memory, for reading and writing by offset.
//! - `write_once.rs`: a part of such a file whose bytes are lent to readers.
//! - `mapping.rs`: files that others may truncate.
//! - `aligned_buffer.rs`: buffers for direct I/O.

pub mod aligned_buffer;
pub mod mapped_bytes;
pub mod mapping;
mod region;
pub mod shared_map;
pub mod write_once;
