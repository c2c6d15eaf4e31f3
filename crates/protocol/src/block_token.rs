//! Block tokens: a namenode says with a signature who may do what with a block; datanodes check it with keys that they
//! share with the namenode.
//!
//! [`BlockKeyMaster`] (namenode) makes keys, hands them out and retires them; [`BlockKeys`] (datanode, one per pool)
//! takes them over. Both mint. With tokens switched off, checks pass and minted tokens are empty.
//!
//! The signature is HmacSHA1 over the identifier's bytes as they arrived. Source: `BlockTokenSecretManager` of Hadoop 3.

mod keys;
mod master;

pub use hearth_wire::block_token::{AccessMode, BlockTokenEncoding, BlockTokenIdentifier};
pub use keys::{BlockAccess, BlockKey, BlockKeys, BlockTokenError, ExportedKeys};
pub use master::{BlockKeyMaster, BlockKeyMasterOptions};
