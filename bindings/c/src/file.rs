//! What a `hdfsFile` stands for: a file that is open for reading or for writing.

use std::sync::Arc;

use hearth_client::{PositionedReader, Reader, Writer, process};
use libc::c_int;
use parking_lot::Mutex;

use crate::failure::{EINTERNAL, Failure, call};
use crate::file_system::{Connection, wait_for};
use crate::memory::{Handle, Owned};

/// What a `hdfsFile` points to.
#[derive(Debug)]
pub struct File {
    /// The process that opened it.
    process: u32,
    /// `None` only while it is dropped.
    stream: Option<Arc<Stream>>,
}

#[derive(Debug)]
pub enum Stream {
    Input(Input),
    /// `None` after it was closed.
    Output(Mutex<Option<Box<Writer>>>),
}

#[derive(Debug)]
pub struct Input {
    /// For reads at a position, which do not wait for the lock.
    pub positioned: PositionedReader,
    pub reader: Mutex<Reader>,
}

impl From<Reader> for Stream {
    fn from(reader: Reader) -> Self {
        Self::Input(Input { positioned: reader.positioned(), reader: Mutex::new(reader) })
    }
}

impl From<Writer> for Stream {
    fn from(writer: Writer) -> Self {
        Self::Output(Mutex::new(Some(Box::new(writer))))
    }
}

impl File {
    pub fn new(stream: Arc<Stream>) -> Self {
        Self { process: std::process::id(), stream: Some(stream) }
    }

    /// Returns the stream of a handle.
    ///
    /// Errors: `EBADF` for NULL, and in the child of a fork for a file that its parent had open.
    pub fn stream<'a>(handle: Handle<Self>) -> Result<&'a Arc<Stream>, Failure> {
        let file = handle.get().ok_or_else(|| Failure::bad_handle("the hdfsFile is NULL"))?;
        if file.process != std::process::id() {
            return Err(Failure::bad_handle("the file was opened before the fork of this process: open it again"));
        }
        file.stream.as_ref().ok_or_else(|| Failure::bad_handle("the file is closed"))
    }

    /// Errors: `otherwise` if the file is open for writing.
    pub fn input<'a>(handle: Handle<Self>, otherwise: c_int) -> Result<&'a Input, Failure> {
        match &**Self::stream(handle)? {
            Stream::Input(input) => Ok(input),
            Stream::Output(_) => Err(Failure::new(otherwise, "java.io.IOException", "the file is open for writing")),
        }
    }

    /// Calls `use_writer` with the writer of a handle.
    ///
    /// Errors: `otherwise` if the file is open for reading.
    pub fn output<T>(
        handle: Handle<Self>,
        otherwise: c_int,
        use_writer: impl FnOnce(&mut Writer) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match &**Self::stream(handle)? {
            Stream::Input(_) => Err(Failure::new(otherwise, "java.io.IOException", "the file is open for reading")),
            Stream::Output(writer) => match &mut *writer.lock() {
                Some(writer) => use_writer(writer),
                None => Err(Failure::bad_handle("the file is closed")),
            },
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let stream = self.stream.take();
        if self.process != std::process::id() {
            // Its sockets are the parent's: see `hearth_client::process`.
            std::mem::forget(stream);
        } else if let Ok(runtime) = process::runtime() {
            let _runtime = runtime.enter();
            drop(stream);
        }
    }
}

/// Closes and frees the file. A file that was written is complete when this returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsCloseFile(_fs: Handle<Connection>, file: Owned<File>) -> c_int {
    call(-1, || {
        let file = file.take().ok_or_else(|| Failure::bad_handle("the hdfsFile is NULL"))?;
        if file.process == std::process::id()
            && let Some(Stream::Output(writer)) = file.stream.as_deref()
            && let Some(writer) = writer.lock().take()
        {
            // A task of its own: an interrupted call must not leave the file without its last bytes.
            let closing = process::runtime()?.spawn(async move { writer.close().await });
            wait_for(closing)?
                .map_err(|_| Failure::new(EINTERNAL, "java.io.IOException", "closing the file panicked"))??;
        }
        Ok(0)
    })
}

fn is(handle: Handle<File>, wanted: impl FnOnce(&Stream) -> bool) -> c_int {
    let stream = handle.get().and_then(|file| file.stream.as_deref());
    c_int::from(stream.is_some_and(wanted))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFileIsOpenForRead(file: Handle<File>) -> c_int {
    is(file, |stream| matches!(stream, Stream::Input(_)))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFileIsOpenForWrite(file: Handle<File>) -> c_int {
    is(file, |stream| matches!(stream, Stream::Output(_)))
}
