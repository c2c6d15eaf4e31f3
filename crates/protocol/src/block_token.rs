//! Block tokens: signed statements by a namenode of which operations a user may do on a block. Datanodes check them
//! with keys that they share with the namenode.
//!
//! [`BlockKeyMaster`] (namenode) creates, distributes and retires keys; [`BlockKeys`] (datanode, one per pool) imports
//! them. Both can mint tokens. If tokens are switched off, checks pass and minted tokens are empty.
//!
//! The signature is HmacSHA1 over the identifier's bytes as they arrived. Source: `BlockTokenSecretManager` of Hadoop
//! 3.

mod keys;
mod master;

pub use hearth_wire::block_token::{AccessMode, BlockTokenEncoding, BlockTokenIdentifier};
pub use keys::{BlockAccess, BlockKey, BlockKeys, BlockTokenError, ExportedKeys};
pub use master::{BlockKeyMaster, BlockKeyMasterOptions};
