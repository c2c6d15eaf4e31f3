//! Opening in the background: `hdfsOpenFileBuilder` and `hdfsOpenFileFuture`.

use std::sync::Arc;
use std::time::Duration;

use hearth_client::{Error, ErrorKind, process};
use libc::c_int;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::failure::{Failure, call};
use crate::file::{File, Stream};
use crate::file_system::{Client, Connection, wait_for};
use crate::memory::{Handle, Owned, Text, give};

/// Options that every file system knows, so that they may be mandatory. Source: `OpenFileOptions`.
const STANDARD_OPTIONS: [&str; 6] = [
    "fs.option.openfile.buffer.size",
    "fs.option.openfile.footer.cache",
    "fs.option.openfile.length",
    "fs.option.openfile.read.policy",
    "fs.option.openfile.split.end",
    "fs.option.openfile.split.start",
];

/// What a `hdfsOpenFileBuilder *` points to.
#[derive(Debug)]
pub struct OpenFileBuilder {
    client: Arc<Client>,
    path: String,
    /// Mandatory options that this client does not know.
    unknown: Mutex<Vec<String>>,
}

/// What a `hdfsOpenFileFuture *` points to.
#[derive(Debug)]
pub struct OpenFileFuture {
    /// `None` until the file is open, has failed to open, or was cancelled.
    opened: Arc<watch::Sender<Option<Opened>>>,
    task: AbortHandle,
}

type Opened = Result<Arc<Stream>, Error>;

/// Sets the outcome, unless there is one. Returns true if it was set.
fn finish(opened: &watch::Sender<Option<Opened>>, outcome: Opened) -> bool {
    opened.send_if_modified(|slot| {
        let is_first = slot.is_none();
        slot.get_or_insert(outcome);
        is_first
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileBuilderAlloc(fs: Handle<Connection>, path: Text) -> *mut OpenFileBuilder {
    call(std::ptr::null_mut(), || {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        Ok(give(OpenFileBuilder { client: Arc::clone(&connection.client), path, unknown: Mutex::default() }))
    })
}

/// Sets an option without which the file must not be opened. Returns the builder.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileBuilderMust(
    builder: Handle<OpenFileBuilder>,
    key: Text,
    value: Text,
) -> *const OpenFileBuilder {
    option(builder, key, value, true)
}

/// Sets an option that may be ignored. Returns the builder.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileBuilderOpt(
    builder: Handle<OpenFileBuilder>,
    key: Text,
    value: Text,
) -> *const OpenFileBuilder {
    option(builder, key, value, false)
}

fn option(builder: Handle<OpenFileBuilder>, key: Text, value: Text, mandatory: bool) -> *const OpenFileBuilder {
    call(std::ptr::null(), || {
        let builder = builder.get().ok_or_else(|| Failure::invalid("the builder is NULL"))?;
        let key = key.required("the key")?;
        value.required("the value")?;
        if mandatory && !STANDARD_OPTIONS.contains(&key) {
            builder.unknown.lock().push(key.to_owned());
        }
        Ok(std::ptr::from_ref(builder))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileBuilderFree(builder: Owned<OpenFileBuilder>) {
    drop(builder.take());
}

/// Starts to open the file, and frees the builder.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileBuilderBuild(builder: Owned<OpenFileBuilder>) -> *mut OpenFileFuture {
    call(std::ptr::null_mut(), || {
        let builder = builder.take().ok_or_else(|| Failure::invalid("the builder is NULL"))?;
        let OpenFileBuilder { client, path, unknown } = *builder;
        if let Some(key) = unknown.into_inner().first() {
            return Err(Failure::invalid(format!("for {path}: unknown mandatory key {key:?}")));
        }
        let fs = client.get()?.clone();
        let opened = Arc::new(watch::Sender::new(None));
        let finished = Arc::clone(&opened);
        let opening = async move {
            let outcome = fs.open(&path).await.map(|reader| Arc::new(reader.into()));
            finish(&finished, outcome);
        };
        let task = process::runtime()?.spawn(opening).abort_handle();
        Ok(give(OpenFileFuture { opened, task }))
    })
}

impl OpenFileFuture {
    /// Returns the file once it is open.
    ///
    /// Errors: `ETIMEDOUT` if it is not open after `timeout`. It can be asked for again.
    fn get(&self, timeout: Option<Duration>) -> Result<File, Failure> {
        let mut opened = self.opened.subscribe();
        let outcome = wait_for(async {
            let outcome = async { opened.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone()) };
            match timeout {
                Some(timeout) => tokio::time::timeout(timeout, outcome).await.ok().flatten(),
                None => outcome.await,
            }
        })?;
        match outcome {
            Some(outcome) => Ok(File::new(outcome?)),
            None => {
                let class = "java.util.concurrent.TimeoutException";
                Err(Failure::new(libc::ETIMEDOUT, class, "the file is not open yet"))
            }
        }
    }
}

fn future<'a>(handle: Handle<OpenFileFuture>) -> Result<&'a OpenFileFuture, Failure> {
    handle.get().ok_or_else(|| Failure::invalid("the future is NULL"))
}

/// Waits until the file is open. Each call returns another handle of the same stream.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileFutureGet(handle: Handle<OpenFileFuture>) -> *mut File {
    call(std::ptr::null_mut(), || Ok(give(future(handle)?.get(None)?)))
}

/// Like [`hdfsOpenFileFutureGet`], but fails with `ETIMEDOUT` after `timeout`. `unit`: a `javaConcurrentTimeUnit`.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileFutureGetWithTimeout(
    handle: Handle<OpenFileFuture>,
    timeout: i64,
    unit: c_int,
) -> *mut File {
    call(std::ptr::null_mut(), || Ok(give(future(handle)?.get(Some(duration(timeout, unit)?))?)))
}

/// Nanoseconds of each `javaConcurrentTimeUnit`, from nanoseconds to days.
const UNIT_NS: [u64; 7] = [1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000, 86_400_000_000_000];

fn duration(timeout: i64, unit: c_int) -> Result<Duration, Failure> {
    let unit_ns = usize::try_from(unit).ok().and_then(|unit| UNIT_NS.get(unit));
    let unit_ns = unit_ns.ok_or_else(|| Failure::invalid(format!("{unit} is not a unit of time")))?;
    Ok(Duration::from_nanos(u64::try_from(timeout).unwrap_or(0).saturating_mul(*unit_ns)))
}

/// Stops opening the file. Returns 0, or -1 if it is open already or has failed.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileFutureCancel(handle: Handle<OpenFileFuture>, _may_interrupt: c_int) -> c_int {
    call(-1, || {
        let future = future(handle)?;
        if !finish(&future.opened, Err(Error::new(ErrorKind::Other, "opening the file was cancelled"))) {
            return Err(Failure::refused("the file was opened already"));
        }
        future.task.abort();
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileFutureFree(handle: Owned<OpenFileFuture>) {
    let Some(future) = handle.take() else { return };
    if let Ok(runtime) = process::runtime() {
        let _runtime = runtime.enter();
        drop(future);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_units() {
        assert_eq!(duration(3, 3).unwrap(), Duration::from_secs(3));
        assert_eq!(duration(1, 6).unwrap(), Duration::from_secs(86_400));
        assert_eq!(duration(-5, 0).unwrap(), Duration::ZERO);
        assert_eq!(duration(i64::MAX, 6).unwrap(), Duration::from_nanos(u64::MAX));
        assert_eq!(duration(1, 7).unwrap_err().errno, libc::EINVAL);
    }
}
