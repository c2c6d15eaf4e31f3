//! What a `hdfsFS` stands for: a client of this process, and a working directory.

use std::cell::Cell;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hearth_client::process::{self, PerProcess};
use hearth_client::{Error, FileSystem, FileSystemBuilder};
use libc::c_int;
use parking_lot::{Mutex, RwLock};

use crate::failure::Failure;
use crate::memory::{Handle, Text};

/// Port of a NameNode whose address names none. Source: `HdfsClientConfigKeys.DFS_NAMENODE_RPC_PORT_DEFAULT`.
const NAMENODE_PORT: &str = "8020";

/// Time after which a call that waits asks whether it is interrupted, again and again.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

type Check = extern "C" fn() -> c_int;

/// The program's function that says whether a call is interrupted.
static INTERRUPTED: RwLock<Option<Check>> = RwLock::new(None);

thread_local! {
    /// The check runs, and makes this call.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a call of the client to its end.
///
/// Errors: `EINTR` if it waits and the program's check says so.
pub fn wait<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
    Ok(wait_for(future)??)
}

/// Like [`wait`], for calls without an error of their own.
pub fn wait_for<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = process::runtime()?;
    let check = *INTERRUPTED.read();
    let Some(check) = check.filter(|_| is_main_thread() && !ASKING.get()) else { return Ok(runtime.block_on(future)) };
    let mut future = pin!(future);
    loop {
        // The check runs outside of the runtime, so that it can make calls of its own.
        let waited = runtime.block_on(async { tokio::time::timeout(INTERRUPT_CHECK, future.as_mut()).await });
        if let Ok(value) = waited {
            return Ok(value);
        }
        if is_interrupted(check) {
            return Err(Failure::new(libc::EINTR, "java.io.InterruptedIOException", "the call was interrupted"));
        }
    }
}

fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Asks the program. Calls that it makes do not ask in turn.
fn is_interrupted(check: Check) -> bool {
    ASKING.set(true);
    let answer = check();
    ASKING.set(false);
    answer != 0
}

/// Sets the function that calls ask while they wait; NULL for none.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_set_interrupt_check(check: Option<Check>) {
    *INTERRUPTED.write() = check;
}

/// A client, which several `hdfsFS` may share.
#[derive(Debug)]
pub struct Client {
    builder: FileSystemBuilder,
    file_system: PerProcess<FileSystem>,
    /// Block size of new files in bytes.
    pub block_size: u64,
}

impl Client {
    pub fn new(builder: FileSystemBuilder, block_size: u64) -> Result<Self, Failure> {
        let client = Self { builder, file_system: PerProcess::new(), block_size };
        client.get()?;
        Ok(client)
    }

    /// Returns the client of this process. A child of a fork gets one of its own.
    pub fn get(&self) -> Result<&FileSystem, Failure> {
        let connect = || {
            let _runtime = process::runtime()?.enter();
            self.builder.clone().build()
        };
        Ok(self.file_system.get_or_try(connect)?)
    }
}

/// Address, user and settings: two connections with the same ones share a client.
pub type ClientKey = (Option<String>, Option<String>, Vec<(String, Option<String>)>);

/// Returns a client with this key that is still in use, or the one that `connect` makes.
pub fn shared(key: ClientKey, connect: impl FnOnce() -> Result<Client, Failure>) -> Result<Arc<Client>, Failure> {
    static CLIENTS: Mutex<Option<HashMap<ClientKey, Weak<Client>>>> = Mutex::new(None);
    let mut clients = CLIENTS.lock();
    let clients = clients.get_or_insert_default();
    if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
        return Ok(client);
    }
    clients.retain(|_, client| client.strong_count() > 0);
    let client = Arc::new(connect()?);
    clients.insert(key, Arc::downgrade(&client));
    Ok(client)
}

/// What a `hdfsFS` points to.
#[derive(Debug)]
pub struct Connection {
    pub client: Arc<Client>,
    /// Absolute; `None` for the user's home directory.
    working_directory: Mutex<Option<String>>,
}

impl Connection {
    pub fn new(client: Arc<Client>) -> Self {
        Self { client, working_directory: Mutex::new(None) }
    }

    /// Returns what the handle stands for.
    ///
    /// Errors: `EBADF` for NULL.
    pub fn of<'a>(handle: Handle<Self>) -> Result<&'a Self, Failure> {
        handle.get().ok_or_else(|| Failure::bad_handle("the hdfsFS is NULL"))
    }

    pub fn file_system(&self) -> Result<&FileSystem, Failure> {
        self.client.get()
    }

    pub fn working_directory(&self) -> Result<String, Failure> {
        match &*self.working_directory.lock() {
            Some(directory) => Ok(directory.clone()),
            None => Ok(self.file_system()?.home().to_owned()),
        }
    }

    pub fn set_working_directory(&self, directory: String) {
        *self.working_directory.lock() = Some(directory);
    }

    /// Returns the absolute path that `path` means: a path, relative to the working directory, or a URI of this file
    /// system.
    ///
    /// Errors: `EINVAL` for NULL, text that is no path, and a URI of another file system.
    pub fn path(&self, path: Text) -> Result<String, Failure> {
        let text = path.required("the path")?;
        let file_system = self.file_system()?;
        let path = path_in(file_system.uri(), text)?;
        let path =
            if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", self.working_directory()?) };
        Ok(file_system.absolute(&path)?)
    }

    /// Returns the name of `path` in answers, as Java's `Path` has it: a URI that is not escaped.
    pub fn uri(&self, path: &str) -> Result<String, Failure> {
        Ok(format!("{}{path}", self.file_system()?.uri()))
    }
}

/// Returns the path in `text`, which may be a URI of the file system at `uri`.
fn path_in<'a>(uri: &str, text: &'a str) -> Result<&'a str, Failure> {
    if text.is_empty() {
        return Err(Failure::invalid("Can not create a Path from an empty string"));
    }
    let Some((scheme, rest)) = text.split_once(':').filter(|(scheme, _)| !scheme.contains('/')) else {
        return Ok(text);
    };
    let wrong = || Failure::invalid(format!("Wrong FS: {text}, expected: {uri}"));
    let after_authority = match rest.strip_prefix("//") {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let ours = uri.split_once("://").map_or(uri, |(_, authority)| authority);
            if !authority.is_empty() && !same_authority(authority, ours) {
                return Err(wrong());
            }
            path
        }
        // `hdfs:/path` means the file system at hand; `a:b` is a relative path with a colon.
        None if rest.starts_with('/') => rest,
        None => return Ok(text),
    };
    if !scheme.eq_ignore_ascii_case("hdfs") {
        return Err(wrong());
    }
    Ok(if after_authority.is_empty() { "/" } else { after_authority })
}

fn same_authority(one: &str, other: &str) -> bool {
    let with_port = |authority: &str| match authority.rsplit_once(':') {
        Some((host, port)) => (host.to_ascii_lowercase(), port.to_owned()),
        None => (authority.to_ascii_lowercase(), NAMENODE_PORT.to_owned()),
    };
    with_port(one) == with_port(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_the_file_system_are_paths() {
        let at = |text| path_in("hdfs://nn:8020", text).map_err(|failure| failure.errno);
        for (text, path) in [
            ("/a/b", "/a/b"),
            ("a", "a"),
            ("a:b", "a:b"),
            ("/a:b", "/a:b"),
            ("hdfs://nn:8020/a", "/a"),
            ("HDFS://NN/a", "/a"),
            ("hdfs:///a", "/a"),
            ("hdfs:/a", "/a"),
            ("hdfs://nn", "/"),
        ] {
            assert_eq!(at(text), Ok(path), "{text}");
        }
        for wrong in ["", "hdfs://other/a", "hdfs://nn:9000/a", "file:///a", "s3://nn:8020/a"] {
            assert_eq!(at(wrong), Err(libc::EINVAL), "{wrong}");
        }
        assert_eq!(path_in("hdfs://ns", "hdfs://ns/a").unwrap(), "/a");
    }
}
