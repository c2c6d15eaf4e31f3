//! The disk tier: Apache HDFS's own directory layout, so that its datanode can take a directory over and give it back.

pub mod copy;
pub mod layout;
pub mod lock;
pub mod scan;
pub mod stream;
pub mod version;
