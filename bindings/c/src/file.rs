//! What a `hdfsFile` stands for: a file that is open for reading or for writing.

use std::sync::Arc;

use hearth_client::process::{self, OfProcess};
use hearth_client::{PositionedReader, Reader, Writer};
use libc::c_int;
use parking_lot::Mutex;

use crate::failure::{EINTERNAL, Failure, call};
use crate::file_system::{Connection, Waiter};
use crate::memory::{Handle, Owned};

/// What a `hdfsFile` points to.
#[derive(Debug)]
pub struct File(OfProcess<Arc<Stream>>);

#[derive(Debug)]
pub enum Stream {
    Input(Input),
    Output(Output),
}

#[derive(Debug)]
pub struct Input {
    /// For reads at a position, which do not wait for the lock.
    pub positioned: PositionedReader,
    pub reader: Mutex<Reader>,
    pub waiter: Waiter,
}

#[derive(Debug)]
pub struct Output {
    /// `None` after it was closed.
    writer: Mutex<Option<Box<Writer>>>,
    waiter: Waiter,
}

impl Stream {
    pub fn input(reader: Reader, waiter: Waiter) -> Self {
        Self::Input(Input { positioned: reader.positioned(), reader: Mutex::new(reader), waiter })
    }

    pub fn output(writer: Writer, waiter: Waiter) -> Self {
        Self::Output(Output { writer: Mutex::new(Some(Box::new(writer))), waiter })
    }

    /// Returns the offset of the next byte to read or to write.
    ///
    /// Errors: `EBADF` if the file is closed.
    pub fn position(&self) -> Result<u64, Failure> {
        match self {
            Self::Input(input) => Ok(input.reader.lock().position()),
            Self::Output(output) => match &*output.writer.lock() {
                Some(writer) => Ok(writer.position()),
                None => Err(Failure::bad_handle("the file is closed")),
            },
        }
    }
}

impl File {
    pub fn new(stream: Arc<Stream>) -> Self {
        Self(OfProcess::new(stream))
    }

    /// Returns the stream of a handle.
    ///
    /// Errors: `EBADF` for NULL, and in the child of a fork for a file that its parent had open.
    pub fn stream<'a>(handle: Handle<Self>) -> Result<&'a Arc<Stream>, Failure> {
        let file = handle.get().ok_or_else(|| Failure::bad_handle("the hdfsFile is NULL"))?;
        file.0.get().ok_or_else(|| Failure::of_parent("the file was opened", "open it again"))
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
        use_writer: impl FnOnce(&mut Writer, Waiter) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match &**Self::stream(handle)? {
            Stream::Input(_) => Err(Failure::new(otherwise, "java.io.IOException", "the file is open for reading")),
            Stream::Output(output) => match &mut *output.writer.lock() {
                Some(writer) => use_writer(writer, output.waiter),
                None => Err(Failure::bad_handle("the file is closed")),
            },
        }
    }
}

/// Closes and frees the file. A file that was written is complete when this returns 0. In a child of a fork, a file of
/// the parent is only given up.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsCloseFile(_fs: Handle<Connection>, file: Owned<File>) -> c_int {
    call(-1, || {
        let file = file.take().ok_or_else(|| Failure::bad_handle("the hdfsFile is NULL"))?;
        let Some(Stream::Output(output)) = file.0.get().map(|stream| &**stream) else { return Ok(0) };
        let writer = output.writer.lock().take();
        if let Some(writer) = writer {
            // A task of its own: an interrupted call must not leave the file without its last bytes.
            let closing = process::runtime()?.spawn(async move { writer.close().await });
            let closed = output.waiter.wait_for(closing)?;
            closed.map_err(|_| Failure::new(EINTERNAL, "java.io.IOException", "closing the file panicked"))??;
        }
        Ok(0)
    })
}

fn is(handle: Handle<File>, wanted: impl FnOnce(&Stream) -> bool) -> c_int {
    let stream = handle.get().map(|file| &**file.0.inherited());
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
