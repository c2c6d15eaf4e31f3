//! The protobuf messages of Hadoop's protocols and of Hearth's additions, generated from `proto/*/*.proto`
//! (`tests/generated.rs`).
//!
//! A module for each package:
//! - [`common`]: RPC frames, tokens, high availability;
//! - [`hearth`]: operations that only Hearth's clients and servers know;
//! - [`hdfs::fsimage`]: the image of a namespace. Its message names are ours, because Hadoop's are nested;
//! - [`hdfs`]: everything else. Message names are those of Hadoop's own schema (`CreateRequestProto`); field names are
//!   plain snake case (`storageIDs` → `storage_ids`).
//!
//! Notes:
//! - Enum fields are `i32`; the accessor (`message.state()`) maps unknown numbers to the default. Assign with
//!   `Enum::Variant as i32`.
//! - `required` is not enforced by prost: a missing field decodes to its default value. Where it matters, the
//!   conversion to `hearth_types` (see [`crate::convert`]) rejects an empty value.
//! - Block ids and other signed longs have the wire type `uint64`: cast with `as i64` / `as u64`.
//! - `bytes` fields are [`bytes::Bytes`] that share the memory of the frame they were decoded from. Copy data that is
//!   kept for long, otherwise the whole frame stays in memory.

// Generated code: names and shapes come from the schema.
#![allow(missing_docs, clippy::all, rustdoc::all)]

/// Package `hadoop.common`.
pub mod common {
    include!("proto/hadoop.common.rs");
}

/// Package `hadoop.hdfs`.
pub mod hdfs {
    include!("proto/hadoop.hdfs.rs");

    /// Package `hadoop.hdfs.fsimage`.
    pub mod fsimage {
        include!("proto/hadoop.hdfs.fsimage.rs");
    }
}

/// Package `hearth`.
pub mod hearth {
    include!("proto/hearth.rs");
}

/// Path by which the generated code of one package refers to another package.
mod hadoop {
    pub use super::{common, hdfs};
}
