//! Objects that are being written: a temporary file beside the object, renamed when it is complete.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::path::Path;
use super::{Error, MultipartUpload, PutPayload, PutResult, Result, STORE, UploadPart, entity_tag, write_error};
use crate::{CreateOptions, FileSystem, Writer, backoff};

/// Start of the names of temporary files. `#` cannot appear in a path that object_store makes from text.
const TEMPORARY: &str = ".hearth-put#";

/// Returns true if `name` is that of a temporary file.
pub(super) fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY)
}

/// Returns a new path in the directory of `file`.
pub(super) fn temporary_beside(file: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory);
    let (process, random) = (std::process::id(), u64::from(backoff::random_u32()) << 32);
    let number = random | u64::from(backoff::random_u32());
    format!("{directory}/{TEMPORARY}{process:x}-{:x}-{number:016x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A temporary file. It is deleted when it is dropped before it was renamed.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    fs: FileSystem,
    /// `None` after the file was renamed or deleted.
    path: Option<String>,
    /// Runtime on which to delete the file: it may be dropped outside any runtime.
    runtime: Handle,
}

impl TemporaryFile {
    /// Creates a temporary file beside `file`.
    pub(super) async fn create(fs: &FileSystem, location: &Path, file: &str) -> Result<(Self, Writer)> {
        let path = temporary_beside(file);
        // The guard exists before the call: the file may be created although the call is dropped.
        let temporary = Self { fs: fs.clone(), path: Some(path.clone()), runtime: Handle::current() };
        let created = fs.create(&path, CreateOptions::default()).await;
        Ok((temporary, created.map_err(|error| write_error(location, error))?))
    }

    /// Closes the file and renames it to `file`. `replace`: an existing object is replaced.
    pub(super) async fn publish(
        mut self,
        writer: Writer,
        location: &Path,
        file: &str,
        replace: bool,
    ) -> Result<PutResult> {
        let failed = |error| write_error(location, error);
        writer.close().await.map_err(failed)?;
        let path = self.path.as_deref().unwrap_or_default();
        // The tag contains the time at which the file was closed. Renaming does not change it.
        let status = self.fs.status(path).await.map_err(failed)?;
        let options = crate::RenameOptions { overwrite: replace, to_trash: false };
        self.fs.rename_to(path, file, options).await.map_err(failed)?;
        self.path = None;
        Ok(PutResult { e_tag: Some(entity_tag(&status)), version: None, extensions: Default::default() })
    }

    /// Deletes the file.
    async fn delete(mut self, location: &Path) -> Result<()> {
        let Some(path) = self.path.take() else { return Ok(()) };
        self.fs.delete(&path, false).await.map(drop).map_err(|error| write_error(location, error))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let Some(path) = self.path.take() else { return };
        let fs = self.fs.clone();
        self.runtime.spawn(async move {
            if let Err(error) = fs.delete(&path, false).await {
                tracing::warn!(%error, path, "cannot delete a temporary file; delete it by hand");
            }
        });
    }
}

/// Request to the task that writes the file.
#[derive(Debug)]
enum Request {
    Part(PutPayload, oneshot::Sender<Result<()>>),
    Complete(oneshot::Sender<Result<PutResult>>),
    Abort(oneshot::Sender<Result<()>>),
}

/// Multipart upload. A task writes the parts in the order of the calls of `put_part`, whatever the order in which their
/// futures are awaited. If the upload is dropped, its temporary file is deleted.
#[derive(Debug)]
pub(super) struct Upload {
    /// `None` after the upload was completed or aborted. The queue needs no bound: the caller holds a future for each
    /// part, and bounds their number.
    requests: Option<mpsc::UnboundedSender<Request>>,
    _task: JoinHandle<()>,
}

impl Upload {
    pub(super) fn start(temporary: TemporaryFile, writer: Writer, location: Path, file: String) -> Self {
        let (requests, queue) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(queue, temporary, writer, location, file));
        Self { requests: Some(requests), _task: task }
    }

    /// Sends a request. Returns a receiver of its result.
    fn send<T>(&self, request: impl FnOnce(oneshot::Sender<Result<T>>) -> Request) -> oneshot::Receiver<Result<T>> {
        let (sender, receiver) = oneshot::channel();
        if let Some(requests) = &self.requests {
            // A task that has ended drops the sender, which the receiver notices.
            drop(requests.send(request(sender)));
        }
        receiver
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let written = self.send(|result| Request::Part(data, result));
        Box::pin(async move { written.await.unwrap_or_else(|_| Err(ended())) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let completed = self.send(Request::Complete);
        self.requests = None;
        completed.await.unwrap_or_else(|_| Err(ended()))
    }

    async fn abort(&mut self) -> Result<()> {
        let aborted = self.send(Request::Abort);
        self.requests = None;
        aborted.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// Writes the parts until the upload is completed, aborted or dropped. A part that cannot be written is reported by its
/// future, and again by `complete`.
async fn run(
    mut queue: mpsc::UnboundedReceiver<Request>,
    temporary: TemporaryFile,
    writer: Writer,
    location: Path,
    file: String,
) {
    let mut writer = Ok(writer);
    while let Some(request) = queue.recv().await {
        match request {
            Request::Part(data, result) => {
                let outcome = match &mut writer {
                    Ok(open) => write(open, &data).await,
                    Err(error) => Err(crate::Error::clone(error)),
                };
                if let Err(error) = &outcome {
                    writer = Err(error.clone());
                }
                // The caller may have dropped the future of the part.
                drop(result.send(outcome.map_err(|error| write_error(&location, error))));
            }
            Request::Complete(result) => {
                let outcome = match writer {
                    Ok(writer) => temporary.publish(writer, &location, &file, true).await,
                    Err(error) => Err(write_error(&location, error)),
                };
                return drop(result.send(outcome));
            }
            Request::Abort(result) => {
                drop(writer);
                return drop(result.send(temporary.delete(&location).await));
            }
        }
    }
}

async fn write(writer: &mut Writer, data: &PutPayload) -> std::result::Result<(), crate::Error> {
    for piece in data {
        writer.write(piece).await?;
    }
    Ok(())
}

fn ended() -> Error {
    Error::Generic { store: STORE, source: "the upload was completed, aborted or interrupted before".into() }
}
