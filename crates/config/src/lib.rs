//! Hadoop's configuration: `core-site.xml` and `hdfs-site.xml`, the same keys with the same meaning and defaults. The
//! names of Hearth's own keys start with `hearth.`.
//!
//! A [`Configuration`] is loaded once by the command line and passed down. This crate never reads the process's
//! environment: variables for `${env.NAME}` are passed in as an [`Environment`]. Values are read by the typed keys of
//! [`keys`]: `conf.get(keys::DFS_REPLICATION)?`. An error names the key, the value and its file. Programs call
//! [`Configuration::check`] at start, so that all faults are reported together and before they matter.

mod allowed;
mod check;
mod configuration;
mod contradictions;
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
mod reconfiguration;
mod unknown;
mod xml;

pub use allowed::{Allowed, NameForm};
pub use check::{CheckReport, Finding};
pub use configuration::{Configuration, Entry, Source};
pub use deprecated::current_name;
pub use environment::Environment;
pub use error::ConfigError;
pub use hadoop_keys::{HadoopKey, Handling, IneffectiveSetting, Program, hadoop_keys};
pub use key::{ConfigKey, Key, KeyInfo, OptionalKey};
pub use namenodes::{DEFAULT_RPC_PORT, NamenodeAddress, Nameservice, ServedNamenodes};
pub use parse::{CollectorUrl, Engine, HostPort, StorageDirectory};
pub use proxy_users::ProxyUsers;
pub use reconfiguration::{ChangedKey, ReconfigurableKey, Reconfiguration, ReconfigurationError, ReconfigurationTask};
pub use unknown::suggestion;
pub use xml::{Property, to_xml};
