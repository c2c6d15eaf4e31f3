//! Connecting: `hdfsNewBuilder` to `hdfsDisconnect`.

use std::sync::Arc;

use hearth_client::{FileSystem, from_env, process};
use hearth_config::keys;
use libc::c_int;
use parking_lot::Mutex;

use crate::configuration;
use crate::failure::{Failure, call, call_for_errno};
use crate::file_system::{Client, Connection, shared};
use crate::memory::{Handle, Owned, Text, give};

/// Key that names a Kerberos ticket cache. Source: hdfs.c.
const TICKET_CACHE: &str = "hadoop.security.kerberos.ticket.cache.path";

/// What a `struct hdfsBuilder *` points to.
#[derive(Debug, Default)]
pub struct Builder(Mutex<Settings>);

#[derive(Debug, Default)]
struct Settings {
    force_new: bool,
    namenode: Option<String>,
    port: u16,
    user: Option<String>,
    /// Keys in the order in which they were set; `None` removes a value.
    set: Vec<(String, Option<String>)>,
    /// First error of a function that cannot return one.
    failed: Option<Failure>,
}

impl Settings {
    /// Returns the file system's URI; `None` for that of the configuration.
    ///
    /// Source: `calcEffectiveURI` of hdfs.c.
    fn uri(&self) -> Result<Option<String>, Failure> {
        let Some(namenode) = self.namenode.as_deref() else {
            return Err(Failure::unsupported(
                "a local file system was asked for (NameNode NULL): this library only has hdfs",
            ));
        };
        if namenode == "default" {
            return Ok(None);
        }
        let mut uri = if namenode.contains("://") { namenode.to_owned() } else { format!("hdfs://{namenode}") };
        if self.port != 0 {
            let has_port = |(_, port): (&str, &str)| port.bytes().all(|byte| byte.is_ascii_digit());
            if namenode.rsplit_once(':').is_some_and(has_port) {
                return Err(Failure::invalid(format!(
                    "port {} was given, but URI {namenode:?} already contains a port",
                    self.port
                )));
            }
            uri = format!("{uri}:{}", self.port);
        }
        Ok(Some(uri))
    }

    fn connect(self) -> Result<Connection, Failure> {
        let uri = self.uri()?;
        let Self { force_new, user, set, failed, .. } = self;
        if let Some(failure) = failed {
            return Err(failure);
        }
        let connect = || {
            let mut configuration = configuration::load()?;
            for (key, value) in &set {
                match value {
                    Some(value) => configuration.set(key, value),
                    None => configuration.unset(key),
                }
            }
            let block_size = configuration.get(keys::DFS_BLOCKSIZE).map_err(hearth_client::Error::from)?;
            let uri = match &uri {
                Some(uri) => uri.clone(),
                None => configuration.get(keys::FS_DEFAULT_FS).map_err(hearth_client::Error::from)?,
            };
            if let Some((scheme, _)) = uri.split_once(':')
                && !scheme.eq_ignore_ascii_case("hdfs")
            {
                return Err(Failure::unsupported(format!("no file system for {uri:?}: this library only has hdfs")));
            }
            let builder = FileSystem::builder().configuration(configuration).url(uri);
            let builder = match &user {
                Some(user) => builder.user(user),
                None => {
                    let identity = from_env::Identity::of_process()?;
                    let builder = builder.user(identity.user);
                    identity.real_user.into_iter().fold(builder, |builder, real| builder.real_user(real))
                }
            };
            Client::new(builder, block_size)
        };
        let client = match force_new {
            true => Arc::new(connect()?),
            false => shared((uri.clone(), user.clone(), set.clone()), connect)?,
        };
        Ok(Connection::new(client))
    }
}

fn connect(settings: Settings) -> *mut Connection {
    call(std::ptr::null_mut(), || Ok(give(settings.connect()?)))
}

fn settings(namenode: Text, port: u16, user: Option<Text>, force_new: bool) -> Settings {
    let mut settings = Settings { port, force_new, ..Settings::default() };
    settings.namenode = settings.keep(namenode);
    settings.user = user.and_then(|user| settings.keep(user));
    settings
}

impl Settings {
    /// Copies a string. An error is kept for [`Settings::connect`].
    fn keep(&mut self, text: Text) -> Option<String> {
        match text.optional() {
            Ok(text) => text.map(str::to_owned),
            Err(failure) => {
                self.failed.get_or_insert(failure);
                None
            }
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsNewBuilder() -> *mut Builder {
    give(Builder::default())
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFreeBuilder(builder: Owned<Builder>) {
    drop(builder.take());
}

fn change(builder: Handle<Builder>, change: impl FnOnce(&mut Settings)) {
    if let Some(builder) = builder.get() {
        change(&mut builder.0.lock());
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsBuilderSetForceNewInstance(builder: Handle<Builder>) {
    change(builder, |settings| settings.force_new = true);
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsBuilderSetNameNode(builder: Handle<Builder>, namenode: Text) {
    change(builder, |settings| settings.namenode = settings.keep(namenode));
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsBuilderSetNameNodePort(builder: Handle<Builder>, port: u16) {
    change(builder, |settings| settings.port = port);
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsBuilderSetUserName(builder: Handle<Builder>, user: Text) {
    change(builder, |settings| settings.user = settings.keep(user));
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsBuilderSetKerbTicketCachePath(builder: Handle<Builder>, path: Text) {
    change(builder, |settings| {
        if let Some(path) = settings.keep(path) {
            settings.set.push((TICKET_CACHE.to_owned(), Some(path)));
        }
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsBuilderConfSetStr(builder: Handle<Builder>, key: Text, value: Text) -> c_int {
    call_for_errno(|| {
        let builder = builder.get().ok_or_else(|| Failure::invalid("the builder is NULL"))?;
        let (key, value) = (key.required("the key")?.to_owned(), value.optional()?.map(str::to_owned));
        builder.0.lock().set.push((key, value));
        Ok(())
    })
}

/// Connects, and frees the builder. Nothing is sent yet: an unreachable NameNode is an error of the first call.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsBuilderConnect(builder: Owned<Builder>) -> *mut Connection {
    match builder.take() {
        Some(builder) => connect(builder.0.into_inner()),
        None => call(std::ptr::null_mut(), || Err(Failure::invalid("the builder is NULL"))),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsConnect(namenode: Text, port: u16) -> *mut Connection {
    connect(settings(namenode, port, None, false))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsConnectNewInstance(namenode: Text, port: u16) -> *mut Connection {
    connect(settings(namenode, port, None, true))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsConnectAsUser(namenode: Text, port: u16, user: Text) -> *mut Connection {
    connect(settings(namenode, port, Some(user), false))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsConnectAsUserNewInstance(namenode: Text, port: u16, user: Text) -> *mut Connection {
    connect(settings(namenode, port, Some(user), true))
}

/// Frees the handle. Files that are open stay usable.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsDisconnect(connection: Owned<Connection>) -> c_int {
    call(-1, || {
        let connection = connection.take().ok_or_else(|| Failure::bad_handle("the hdfsFS is NULL"))?;
        process::drop_inside(connection);
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(namenode: Option<&str>, port: u16) -> Result<Option<String>, c_int> {
        let namenode = namenode.map(str::to_owned);
        Settings { namenode, port, ..Settings::default() }.uri().map_err(|failure| failure.errno)
    }

    #[test]
    fn uri_of_name_and_port() {
        let some = |uri: &str| Ok(Some(uri.to_owned()));
        assert_eq!(uri(Some("nn"), 0), some("hdfs://nn"));
        assert_eq!(uri(Some("nn"), 8020), some("hdfs://nn:8020"));
        assert_eq!(uri(Some("nn:9000"), 0), some("hdfs://nn:9000"));
        assert_eq!(uri(Some("hdfs://nn"), 8020), some("hdfs://nn:8020"));
        assert_eq!(uri(Some("default"), 8020), Ok(None));
        assert_eq!(uri(Some("nn:9000"), 8020), Err(libc::EINVAL));
        assert_eq!(uri(None, 0), Err(libc::ENOTSUP));
    }
}
