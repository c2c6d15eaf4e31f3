use std::sync::{Arc, Once};

use hearth_config::{Configuration, IneffectiveSetting, Program, keys};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions};
use parking_lot::Mutex;

use crate::datanode::{Datanodes, FailedPaths};
use crate::error::Failure;
use crate::lease::Leases;
use crate::multiplexed::Multiplexed;
use crate::namenode::{Namenode, Observers};
use crate::one_sided::OneSided;
use crate::options::ClientOptions;
use crate::session::{Session, individual_reads};
use crate::short_circuit::ShortCircuit;
use crate::statistics::{Counters, Statistics};
use crate::{Error, backoff, path};

/// An HDFS file system: the entry point of this crate. Cheap to clone. Clones share connections, leases, and the
/// knowledge of which datanodes fail.
///
/// Paths are absolute (`/a/b`) or relative to the user's home directory. Names are UTF-8.
#[derive(Clone, Debug)]
pub struct FileSystem {
    pub(crate) session: Arc<Session>,
}

impl FileSystem {
    /// Connects to the file system at `uri` (`hdfs://host:port`, `hdfs://nameservice`), or at `fs.defaultFS` when
    /// `None`, as `user`.
    /// Nothing is sent yet: an unreachable namenode is detected by the first call. Needs a tokio runtime.
    ///
    /// Errors: kind `InvalidConfiguration`, for example if the client is configured for Kerberos.
    pub fn connect(configuration: &Configuration, uri: Option<&str>, user: &str) -> Result<Self, Error> {
        Self::connect_for(configuration, uri, user, None)
    }

    /// Like `connect`, but as a proxy user: `real_user` makes the calls on behalf of `user`. The namenode must allow
    /// this (`hadoop.proxyuser.*`).
    pub fn connect_for(
        configuration: &Configuration,
        uri: Option<&str>,
        user: &str,
        real_user: Option<&str>,
    ) -> Result<Self, Error> {
        configuration.refuse_client_authentication()?;
        let uri = match uri {
            Some(uri) => uri.to_owned(),
            None => configuration.get(keys::FS_DEFAULT_FS)?,
        };
        warn_of_values_without_effect(configuration)?;
        let authority = authority(&uri)?;
        let service = configuration.client_nameservice(authority)?;
        let options = ClientOptions::read(configuration)?;
        let observers = match &service.id {
            Some(nameservice) => Observers::read(configuration, nameservice)?,
            None => None,
        };
        let rpc_options = RpcClientOptions { real_user: real_user.map(Arc::from), ..rpc_options(configuration)? };
        let user: Arc<str> = user.into();
        let rpc = RpcClient::new(rpc_options.clone());
        let namenode = Arc::new(Namenode::new(rpc, service, observers, Arc::clone(&user), options.namenode.clone()));
        let client_name = format!("DFSClient_NONMAPREDUCE_{}_{}", backoff::random_u32() as i32, std::process::id());
        let datanodes = Arc::new(Datanodes::new(options.datanode.clone(), rpc_options, client_name.clone()));
        let session = Session {
            failed_write_paths: FailedPaths::default(),
            leases: Leases::new(Arc::clone(&namenode), client_name.clone(), options.lease_hard_limit),
            counters: Counters::default(),
            short_circuit: Arc::new(ShortCircuit::new(options.short_circuit.clone(), Arc::clone(&datanodes))),
            one_sided: OneSided::new(&options.one_sided, options.write.packets, Arc::clone(&datanodes)),
            multiplexed: Multiplexed::new(options.multiplex.clone(), Arc::clone(&datanodes)),
            individual_reads: individual_reads(),
            home: format!("{}/{user}", options.home_prefix.trim_end_matches('/')),
            uri: format!("hdfs://{authority}"),
            server_defaults: Mutex::new(None),
            options,
            namenode,
            datanodes,
            user,
        };
        Ok(Self { session: Arc::new(session) })
    }

    /// Returns `hdfs://` and the authority given to `connect`.
    pub fn uri(&self) -> &str {
        &self.session.uri
    }

    /// Returns true if `other` is a clone of this file system.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.session, &other.session)
    }

    /// Returns the user on whose behalf calls are made.
    pub fn user(&self) -> &str {
        &self.session.user
    }

    /// Returns `host:port` of the namenode that calls currently go to.
    pub fn namenode_address(&self) -> String {
        self.session.namenode.address().to_string()
    }

    /// Returns the number of bytes that this file system and its clones have moved so far.
    pub fn statistics(&self) -> Statistics {
        self.session.counters.statistics().with(self.session.one_sided.counts())
    }

    /// Returns the directory that relative paths start at.
    pub fn home(&self) -> &str {
        &self.session.home
    }

    /// Returns `path` as it is sent to the namenode: absolute and canonical.
    pub fn absolute(&self, path: &str) -> Result<String, Error> {
        path::absolute(path, &self.session.home)
    }
}

/// Logs each value of Hadoop's keys that has no effect in this client, once per process.
///
/// Errors: the value of a key that promises a protection this client does not provide.
fn warn_of_values_without_effect(configuration: &Configuration) -> Result<(), Error> {
    static WARNED: Once = Once::new();
    let found = configuration.ineffective_settings(Program::Client)?;
    WARNED.call_once(|| found.iter().for_each(IneffectiveSetting::warn));
    Ok(())
}

/// Returns the `host:port` or nameservice of an `hdfs://` URI. A path that follows is ignored.
fn authority(uri: &str) -> Result<&str, Error> {
    let wrong = |why: &str| Failure::InvalidUri { uri: uri.to_owned(), why: why.to_owned() }.into();
    let (scheme, rest) = uri.split_once("://").ok_or_else(|| wrong("wanted hdfs://host:port"))?;
    if !scheme.eq_ignore_ascii_case("hdfs") {
        return Err(wrong("the scheme is not hdfs"));
    }
    let authority = rest.split_once('/').map_or(rest, |(authority, _)| authority);
    if authority.is_empty() { Err(wrong("it names no host")) } else { Ok(authority) }
}

pub(crate) fn rpc_options(configuration: &Configuration) -> Result<RpcClientOptions, Error> {
    Ok(RpcClientOptions {
        connect_timeout: configuration.timeout(keys::IPC_CLIENT_CONNECT_TIMEOUT)?,
        rpc_timeout: configuration.timeout(keys::IPC_CLIENT_RPC_TIMEOUT)?,
        ping_interval: configuration.get(keys::IPC_PING_INTERVAL)?,
        idle_timeout: configuration.get(keys::IPC_CLIENT_CONNECTION_MAXIDLETIME)?,
        response_bytes_max: configuration.get(keys::IPC_MAXIMUM_RESPONSE_LENGTH)? as usize,
        bind: None,
        real_user: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        assert_eq!(authority("hdfs://h:1/a/b").unwrap(), "h:1");
        assert_eq!(authority("HDFS://ns").unwrap(), "ns");
        for wrong in ["file:///", "hdfs:///a", "h:1", "s3://b"] {
            assert!(authority(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn relative_paths_start_at_home() {
        let conf = Configuration::empty().with("fs.defaultFS", "hdfs://h:1");
        let fs = FileSystem::connect(&conf, None, "ada").unwrap();
        assert_eq!(fs.absolute("x").unwrap(), "/user/ada/x");
        assert_eq!((fs.uri(), fs.user(), fs.home()), ("hdfs://h:1", "ada", "/user/ada"));
        assert!(FileSystem::connect(&Configuration::empty(), None, "ada").is_err());
    }
}
