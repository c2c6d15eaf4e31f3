//! Hadoop's configuration: `core-site.xml` and `hdfs-site.xml`, the same keys with the same meaning and defaults;
//! Hearth's own start with `hearth.`.
//!
//! A [`Configuration`] is loaded once by the command line and handed down. Nothing here reads the process's
//! environment: variables for `${env.NAME}` come in an [`Environment`]. A value is asked for by a typed key of
//! [`keys`]: `conf.get(keys::DFS_REPLICATION)?`; the error names key, value and the file that it stands in.

mod configuration;
mod deprecated;
mod environment;
mod error;
mod expand;
mod hadoop_keys;
mod key;
pub mod keys;
mod namenode_specific;
mod namenodes;
pub mod parse;
mod protection;
mod proxy_users;
mod xml;

pub use configuration::{Configuration, Entry, Source};
pub use environment::Environment;
pub use error::ConfigError;
pub use hadoop_keys::{HadoopKey, Handling, IneffectiveSetting, Program, hadoop_keys};
pub use key::{ConfigKey, Key, KeyInfo, OptionalKey};
pub use namenodes::{DEFAULT_RPC_PORT, NamenodeAddress, Nameservice, ServedNamenodes};
pub use parse::{Engine, HostPort, StorageDirectory};
pub use proxy_users::ProxyUsers;
pub use xml::{Property, to_xml};
