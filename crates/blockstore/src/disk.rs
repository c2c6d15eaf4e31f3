//! The disk tier: Apache HDFS's own directory layout, so that directories can be handed over between its DataNode and
//! Hearth.

pub mod copy;
pub mod files;
pub mod layout;
pub mod lock;
pub mod scan;
pub mod stream;
pub mod version;
