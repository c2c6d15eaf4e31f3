//! The Rust client of HDFS. It works with Hearth's own servers and with Apache Hadoop's.
//!
//! ```no_run
//! # async fn example() -> Result<(), hearth_client::Error> {
//! use hearth_client::{CreateOptions, FileSystem};
//! let configuration = hearth_config::Configuration::empty().with("fs.defaultFS", "hdfs://localhost:8020");
//! let fs = FileSystem::connect(&configuration, None, "ada")?;
//! let mut writer = fs.create("notes.txt", CreateOptions::default()).await?;
//! writer.write(b"in memory").await?;
//! writer.close().await?;
//! let reader = fs.open("notes.txt").await?;
//! let mut bytes = [0; 9];
//! reader.read_at(0, &mut bytes).await?;
//! # Ok(()) }
//! ```
//!
//! A read starts in [`read`]: it locates the blocks, chooses a replica of each, and fetches the bytes by one of the
//! paths ([`DataPath`]).
//! A write starts in [`write`]: writer, block stream, block, pipeline, packets.
//! [`namenode`] holds the calls to the namenode, and [`datanode`] the connections to datanodes.

mod arguments;
mod backoff;
mod checksum;
mod data_path;
mod datanode;
mod error;
mod file_system;
pub mod from_env;
mod lease;
mod multiplexed;
mod namenode;
mod one_sided;
mod options;
mod path;
mod read;
mod short_circuit;
mod single_flight;
mod statistics;
mod user;
mod webhdfs;
mod write;

pub use arguments::MkdirsOptions;
pub use checksum::{ChecksumCombine, FileChecksum};
pub use data_path::DataPath;
pub(crate) use error::DatanodeError;
pub use error::{Error, ErrorKind};
pub use file_system::{CreateOptions, FileSystem, RenameOptions};
pub use namenode::{BlockStatistics, DatanodeReportKind, Exception, FsUsage, Listing, QuotaUsage, SafeModeAction};
pub use read::{PositionedReader, Reader, View};
pub use statistics::Statistics;
pub use user::os_user_name;
pub use webhdfs::{WebFileSystem, WebReader, WebWriter};
pub use write::Writer;
