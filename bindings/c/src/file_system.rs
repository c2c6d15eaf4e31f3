//! What a `hdfsFS` stands for: a client of this process, and a working directory.

use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hearth_client::process::{self, PerProcess};
use hearth_client::{Error, FileSystem, FileSystemBuilder};
use libc::c_int;
use parking_lot::Mutex;

use crate::failure::{Failure, call};
use crate::memory::{Handle, InterruptCheck, InterruptCheckPlace, Text};

/// Port of a NameNode whose address names none. Source: `HdfsClientConfigKeys.DFS_NAMENODE_RPC_PORT_DEFAULT`.
const NAMENODE_PORT: &str = "8020";

/// Time after which a call that waits asks whether it is interrupted, again and again.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

/// The program's function that says whether a call is interrupted.
static INTERRUPTED: InterruptCheckPlace = InterruptCheckPlace::empty();

thread_local! {
    /// The check runs, and makes this call.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// How calls of a handle wait.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// They ask the program's check. Only the program that set it makes its handles ask: another library in the process
    /// may call from a place in which the check must not run, for example while it holds a lock of an interpreter.
    asks: bool,
}

impl Waiter {
    /// Calls cannot be interrupted.
    #[cfg(test)]
    pub const PATIENT: Self = Self { asks: false };

    /// Runs a call of the client to its end.
    ///
    /// Errors: `EINTR` if it waits and the program's check says so.
    pub fn wait<T>(self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        Ok(self.wait_for(future)??)
    }

    /// Like [`Waiter::wait`], for calls without an error of their own.
    pub fn wait_for<T>(self, future: impl Future<Output = T>) -> Result<T, Failure> {
        let runtime = process::runtime()?;
        if self.check(is_main_thread).is_none() {
            return Ok(runtime.block_on(future));
        }
        process::block_on_checked(runtime, future, INTERRUPT_CHECK, || {
            // The program may have removed it in the meantime, before it becomes unusable.
            if self.check(is_main_thread).is_some_and(is_interrupted) {
                return Err(Failure::new(libc::EINTR, "java.io.InterruptedIOException", "the call was interrupted"));
            }
            Ok(())
        })
    }

    /// Returns the check, if this call asks it.
    fn check(self, is_main_thread: impl FnOnce() -> bool) -> Option<InterruptCheck> {
        INTERRUPTED.get().filter(|_| self.asks && !ASKING.get() && is_main_thread())
    }
}

fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Asks the program. Calls that it makes do not ask in turn.
fn is_interrupted(check: InterruptCheck) -> bool {
    ASKING.set(true);
    let answer = check();
    ASKING.set(false);
    answer != 0
}

/// Sets the function that calls of interruptible handles ask while they wait; NULL for none.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_set_interrupt_check(check: Option<InterruptCheck>) {
    INTERRUPTED.set(check);
}

/// Says whether calls with this handle, and with the files that are opened with it from now on, ask the function of
/// [`hearth_set_interrupt_check`].
#[unsafe(no_mangle)]
pub extern "C" fn hearth_set_interruptible(fs: Handle<Connection>, interruptible: c_int) -> c_int {
    call(-1, || {
        Connection::of(fs)?.asks.store(interruptible != 0, Ordering::Relaxed);
        Ok(0)
    })
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

type Clients = Mutex<HashMap<ClientKey, Weak<Client>>>;

/// Returns a client with this key that is still in use, or the one that `connect` makes. Each process has its own table,
/// because a lock that another thread of the parent held at the fork stays locked in the child. `connect` may read files,
/// so it runs outside of the lock.
pub fn shared(key: ClientKey, connect: impl FnOnce() -> Result<Client, Failure>) -> Result<Arc<Client>, Failure> {
    static CLIENTS: PerProcess<Clients> = PerProcess::new();
    let Ok(clients) = CLIENTS.get_or_try(|| Ok::<_, Infallible>(Clients::default()));
    let find = |clients: &HashMap<ClientKey, Weak<Client>>| clients.get(&key).and_then(Weak::upgrade);
    let found = find(&clients.lock());
    if let Some(client) = found {
        return Ok(client);
    }
    let made = Arc::new(connect()?);
    let mut table = clients.lock();
    if let Some(first) = find(&table) {
        // Another thread was faster. This client is dropped outside of the lock.
        drop(table);
        process::drop_inside(made);
        return Ok(first);
    }
    table.retain(|_, client| client.strong_count() > 0);
    table.insert(key, Arc::downgrade(&made));
    Ok(made)
}

/// What a `hdfsFS` points to.
#[derive(Debug)]
pub struct Connection {
    pub client: Arc<Client>,
    /// Absolute; `None` for the user's home directory. Locked for a copy only.
    working_directory: Mutex<Option<Arc<str>>>,
    /// Calls ask the program's check: see [`Waiter`].
    asks: AtomicBool,
}

impl Connection {
    pub fn new(client: Arc<Client>) -> Self {
        Self { client, working_directory: Mutex::new(None), asks: AtomicBool::new(false) }
    }

    /// Returns how calls of this handle wait.
    pub fn waiter(&self) -> Waiter {
        Waiter { asks: self.asks.load(Ordering::Relaxed) }
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
        let directory = self.working_directory.lock().clone();
        match directory {
            Some(directory) => Ok(directory.to_string()),
            None => Ok(self.file_system()?.home().to_owned()),
        }
    }

    pub fn set_working_directory(&self, directory: String) {
        let directory = Some(directory.into());
        // What was there is dropped outside of the lock.
        let _before = std::mem::replace(&mut *self.working_directory.lock(), directory);
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
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn client(port: u16) -> Result<Client, Failure> {
        Client::new(FileSystem::builder().url(format!("hdfs://127.0.0.1:{port}")).user("ada"), 1 << 20)
    }

    fn key(name: &str) -> ClientKey {
        (Some(name.to_owned()), None, Vec::new())
    }

    /// A thread that connects holds no lock, which a child of a fork would find locked for ever.
    #[test]
    fn clients_are_found_while_another_thread_connects() {
        let (entered, connecting) = mpsc::channel();
        let (finish, finished) = mpsc::channel();
        let slow = thread::spawn(move || {
            let made = shared(key("slow"), || {
                entered.send(()).unwrap();
                finished.recv().unwrap();
                client(1)
            });
            made.unwrap()
        });
        connecting.recv().unwrap();
        let (answer, answered) = mpsc::channel();
        thread::spawn(move || {
            let one = shared(key("other"), || client(2)).unwrap();
            let same = shared(key("other"), || panic!("there is one")).unwrap();
            // Also with the same key, for which the slow thread then finds this client.
            answer.send((Arc::ptr_eq(&one, &same), shared(key("slow"), || client(3)).unwrap())).unwrap();
        });
        let answered = answered.recv_timeout(Duration::from_secs(60));
        finish.send(()).unwrap();
        let (is_shared, first) = answered.expect("no call waits for the slow one");
        assert!(is_shared && Arc::ptr_eq(&first, &slow.join().unwrap()));
        assert!(Arc::ptr_eq(&first, &shared(key("slow"), || panic!("there is one")).unwrap()));
    }

    #[test]
    fn failed_connection_is_not_kept() {
        shared(key("failed"), || Err(Failure::invalid("no"))).unwrap_err();
        shared(key("failed"), || client(1)).unwrap();
    }

    extern "C" fn never() -> c_int {
        0
    }

    #[test]
    fn only_interruptible_handles_ask() {
        let connection = Connection::new(Arc::new(client(1).unwrap()));
        let asks = |is_main: bool| connection.waiter().check(|| is_main).is_some();
        INTERRUPTED.set(Some(never));
        assert!(!asks(true), "the handle of another library");
        connection.asks.store(true, Ordering::Relaxed);
        assert!(asks(true) && !asks(false));
        ASKING.set(true);
        assert!(!asks(true), "a call that the check itself makes");
        ASKING.set(false);
        INTERRUPTED.set(None);
        assert!(!asks(true));
    }

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
