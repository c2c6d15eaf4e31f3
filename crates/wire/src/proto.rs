//! The protobuf messages of Hadoop's protocols and of Hearth's additions, generated from `proto/*/*.proto` (`tests/generated.rs`).
//!
//! A module for each package, of which Hadoop has two:
//! - [`common`]: RPC frames, tokens, high availability;
//! - [`hearth`]: operations that only Hearth's own ends know;
//! - [`hdfs`]: everything else. Message names are those of Hadoop's own schema (`CreateRequestProto`); field names are
//!   plain snake case (`storageIDs` → `storage_ids`).
//!
//! Things to know:
//! - Enum fields are `i32`; the accessor (`message.state()`) maps unknown numbers to the default. Assign with
//!   `Enum::Variant as i32`.
//! - `required` is not enforced on decoding: a missing one reads as its default, as far as prost is concerned. Where
//!   it matters the conversion to `hearth_types` (see [`crate::convert`]) refuses an empty value.
//! - Block ids and other signed longs travel as `uint64`: cast with `as i64` / `as u64`.
//! - `bytes` fields are [`bytes::Bytes`] that share the memory of the frame they were decoded from. Copy what is kept
//!   for long, or the whole frame stays in memory.

// Generated code: names and shapes are the schema's.
#![allow(missing_docs, clippy::all, rustdoc::all)]

/// Package `hadoop.common`.
pub mod common {
    include!("proto/hadoop.common.rs");
}

/// Package `hadoop.hdfs`.
pub mod hdfs {
    include!("proto/hadoop.hdfs.rs");
}

/// Package `hearth`.
pub mod hearth {
    include!("proto/hearth.rs");
}

/// By this path the generated code of one package finds what it uses of another.
mod hadoop {
    pub use super::{common, hdfs};
}
