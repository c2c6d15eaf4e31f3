//! Clusters of real processes, of Apache Hadoop and of Hearth, and real clients for them.
//!
//! [`ClusterSpec`] starts a NameNode and DataNodes of either implementation on free ports in their own directory.
//! Dropping the [`Cluster`] kills them. [`Driver`] is a client process (a JVM with Apache's FileSystem, or Python with
//! hdfs-native) that carries out many operations. [`Apache`] runs Apache's command-line tools. File content comes from
//! [`Content`], which Rust and Java compute alike, so that large data need not be passed between test and client.
//!
//! Nearly everything here blocks; an async test calls it from `spawn_blocking` or before its runtime starts.
//! [`eventually`] and [`until`] are for async tests.
//!
//! A test that cannot run says so by [`skip_or_fail`], or by [`skip`]; docs/testing.md lists these tests.

#![expect(clippy::disallowed_methods, reason = "tests wait for other processes, in real time")]

mod apache;
mod cluster;
mod content;
mod driver;
mod engine;
mod hbase;
mod http;
mod huge_pages;
mod java_path;
mod loop_disk;
mod nameservices;
mod ports;
mod prerequisites;
mod process;
mod proxy;
mod read_only;
mod reconfigurable;
mod reconfigured;
mod scratch;
mod settings;
#[cfg(feature = "stopped-clock")]
mod stopped_clock;
mod usage;
mod wait;

pub use apache::{Apache, ToolOutput};
pub use cluster::{Cluster, ClusterSpec, Implementation, NamenodePorts, NodeProcess};
pub use content::{Content, sha256_hex};
pub use driver::{Driver, DriverError};
pub use engine::Engine;
pub use hbase::{HBase, HBaseSpec};
pub use http::{HttpAnswer, HttpBody, HttpRequest, get_text, get_text_at, jmx_bean};
pub use huge_pages::HugePages;
pub use java_path::{JavaPath, packet_bytes};
pub use loop_disk::{Frozen, LoopDisk};
pub use nameservices::{Nameservices, NameservicesSpec};
pub use ports::free_port;
pub use prerequisites::{
    Missing, apache_libhdfs, apache_libhdfs_headers, files_below, hearth_jar, hearth_program, in_virtual_machine,
    left_to_virtual_machine, libhdfs, logrotate, prometheus, python_wheel, python_with_hdfs_native,
    python_with_libraries, python_with_torch, skip, skip_or_fail, unshared_directory, use_program, workspace_root,
};
pub use process::{Process, wait_until};
pub use proxy::{Direction, Recorded, RecordingProxy};
pub use read_only::ReadOnly;
pub use reconfigurable::{KeyRow, reconfigurable_rows, unread_reconfigurable_keys};
pub use reconfigured::{Effect, Reconfigured, WriteFile};
pub use scratch::Scratch;
pub use settings::Settings;
#[cfg(feature = "stopped-clock")]
pub use stopped_clock::StoppedClock;
pub use usage::{Usage, threads_cpu, usage};
pub use wait::{eventually, until};
