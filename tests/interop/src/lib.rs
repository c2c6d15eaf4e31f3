//! Suites that hold Hearth against real Apache Hadoop and hdfs-native, as processes on this machine.
//!
//! Run by `cargo xtask test --interop`, which fetches what they need first.
