//! Opening in the background: `hdfsOpenFileBuilder` and `hdfsOpenFileFuture`.

use std::sync::Arc;
use std::time::Duration;

use hearth_client::process::{self, OfProcess};
use hearth_client::{Error, ErrorKind};
use libc::c_int;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::failure::{Failure, call};
use crate::file::{File, Stream};
use crate::file_system::{Client, Connection, Waiter};
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
    waiter: Waiter,
    path: String,
    /// Mandatory options that this client does not know.
    unknown: Mutex<Vec<String>>,
}

/// What a `hdfsOpenFileFuture *` points to. The task that opens the file runs in this process only.
#[derive(Debug)]
pub struct OpenFileFuture(OfProcess<Opening>);

#[derive(Debug)]
struct Opening {
    outcome: Arc<OutcomePlace>,
    task: AbortHandle,
    waiter: Waiter,
}

type Opened = Result<Arc<Stream>, Error>;

/// `None` until the file is open, has failed to open, or was cancelled.
#[derive(Debug)]
struct OutcomePlace(watch::Sender<Option<Opened>>);

impl OutcomePlace {
    /// Sets the outcome, unless there is one. Returns true if it was set.
    fn set(&self, outcome: Opened) -> bool {
        self.0.send_if_modified(|slot| {
            let is_first = slot.is_none();
            slot.get_or_insert(outcome);
            is_first
        })
    }
}

/// Sets the outcome of a task when it is dropped: an error, if the task has panicked or was ended by its runtime.
struct OutcomeGuard(Arc<OutcomePlace>);

impl Drop for OutcomeGuard {
    fn drop(&mut self) {
        let message = "opening the file ended without an outcome: the library panicked";
        // Has no effect after a regular end.
        self.0.set(Err(Error::new(ErrorKind::Other, message)));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileBuilderAlloc(fs: Handle<Connection>, path: Text) -> *mut OpenFileBuilder {
    call(std::ptr::null_mut(), || {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        let (client, waiter) = (Arc::clone(&connection.client), connection.waiter());
        Ok(give(OpenFileBuilder { client, waiter, path, unknown: Mutex::default() }))
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
    // It may hold the last reference to its client.
    process::drop_inside(builder.take());
}

/// Starts to open the file, and frees the builder.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileBuilderBuild(builder: Owned<OpenFileBuilder>) -> *mut OpenFileFuture {
    call(std::ptr::null_mut(), || {
        let builder = builder.take().ok_or_else(|| Failure::invalid("the builder is NULL"))?;
        let opening = open(&builder);
        process::drop_inside(builder);
        Ok(give(opening?))
    })
}

fn open(builder: &OpenFileBuilder) -> Result<OpenFileFuture, Failure> {
    let (path, waiter) = (builder.path.clone(), builder.waiter);
    if let Some(key) = builder.unknown.lock().first() {
        return Err(Failure::invalid(format!("for {path}: unknown mandatory key {key:?}")));
    }
    let fs = builder.client.get()?.clone();
    let opening = async move { fs.open(&path).await.map(|reader| Arc::new(Stream::input(reader, waiter))) };
    OpenFileFuture::start(opening, waiter)
}

impl OpenFileFuture {
    /// Starts a task that opens a file.
    fn start(opening: impl Future<Output = Opened> + Send + 'static, waiter: Waiter) -> Result<Self, Failure> {
        let outcome = Arc::new(OutcomePlace(watch::Sender::new(None)));
        let guard = OutcomeGuard(Arc::clone(&outcome));
        let task = async move {
            let guard = guard;
            guard.0.set(opening.await);
        };
        let task = process::runtime()?.spawn(task).abort_handle();
        Ok(Self(OfProcess::new(Opening { outcome, task, waiter })))
    }
}

impl Opening {
    /// Returns the file once it is open.
    ///
    /// Errors: `ETIMEDOUT` if it is not open after `timeout`. It can be asked for again.
    fn get(&self, timeout: Option<Duration>) -> Result<File, Failure> {
        let mut opened = self.outcome.0.subscribe();
        let outcome = self.waiter.wait_for(async {
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

/// Errors: `EINVAL` for NULL, and `EBADF` in a child of a fork for a future of its parent.
fn future<'a>(handle: Handle<OpenFileFuture>) -> Result<&'a Opening, Failure> {
    of_this_process(handle.get().ok_or_else(|| Failure::invalid("the future is NULL"))?)
}

fn of_this_process(future: &OpenFileFuture) -> Result<&Opening, Failure> {
    future.0.get().ok_or_else(|| Failure::of_parent("the file was being opened", "open it again"))
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
        if !future.outcome.set(Err(Error::new(ErrorKind::Other, "opening the file was cancelled"))) {
            return Err(Failure::refused("the file was opened already"));
        }
        future.task.abort();
        Ok(0)
    })
}

/// In a child of a fork, a future of the parent is only given up.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFileFutureFree(handle: Owned<OpenFileFuture>) {
    drop(handle.take());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_while_a_file_is_opened_is_an_error() {
        let future = OpenFileFuture::start(async { panic!("broken") }, Waiter::PATIENT).unwrap();
        let opening = of_this_process(&future).unwrap();
        let failure = opening.get(Some(Duration::from_secs(60))).unwrap_err();
        assert_eq!(failure.errno, crate::failure::EINTERNAL, "{failure:?}");
        assert!(failure.message().contains("panicked"), "{failure:?}");
    }

    #[test]
    fn timeouts_have_units() {
        assert_eq!(duration(3, 3).unwrap(), Duration::from_secs(3));
        assert_eq!(duration(1, 6).unwrap(), Duration::from_secs(86_400));
        assert_eq!(duration(-5, 0).unwrap(), Duration::ZERO);
        assert_eq!(duration(i64::MAX, 6).unwrap(), Duration::from_nanos(u64::MAX));
        assert_eq!(duration(1, 7).unwrap_err().errno, libc::EINVAL);
    }
}
