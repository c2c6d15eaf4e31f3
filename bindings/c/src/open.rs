//! Opening files: `hdfsOpenFile` and the stream builder.

use std::sync::Arc;

use hearth_client::{CreateOptions, process};
use libc::{O_ACCMODE, O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_WRONLY, c_int, c_short};
use parking_lot::Mutex;

use crate::failure::{Failure, call};
use crate::file::{File, Stream};
use crate::file_system::{Client, Connection, Waiter};
use crate::memory::{Handle, Owned, Text, give};

/// What a `struct hdfsStreamBuilder *` points to.
#[derive(Debug)]
pub struct StreamBuilder {
    client: Arc<Client>,
    waiter: Waiter,
    path: String,
    flags: c_int,
    options: Mutex<Options>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Options {
    /// 0: as configured.
    replication: i16,
    /// Bytes; 0: as configured.
    block_size: i64,
}

impl StreamBuilder {
    fn new(fs: Handle<Connection>, path: Text, flags: c_int) -> Result<Self, Failure> {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        let (client, waiter) = (Arc::clone(&connection.client), connection.waiter());
        Ok(Self { client, waiter, path, flags, options: Mutex::default() })
    }

    /// Changes an option of files to be written.
    ///
    /// Errors: `EINVAL` if the file is to be read.
    fn change(&self, change: impl FnOnce(&mut Options)) -> Result<(), Failure> {
        if self.flags & O_ACCMODE != O_WRONLY {
            return Err(Failure::invalid("the option concerns only files that are opened with O_WRONLY"));
        }
        change(&mut self.options.lock());
        Ok(())
    }

    fn open(&self) -> Result<File, Failure> {
        let (fs, path, waiter) = (self.client.get()?, &self.path, self.waiter);
        let stream = match self.flags & O_ACCMODE {
            O_RDONLY => Stream::input(waiter.wait(fs.open(path))?, waiter),
            O_WRONLY if self.flags & O_APPEND != 0 => Stream::output(waiter.wait(fs.append(path))?, waiter),
            O_WRONLY => {
                let options = self.options.lock().of_create()?;
                // Apache's library replaces the file in this case as well, with a warning.
                let exclusive = self.flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
                let creating = fs.create(path, CreateOptions { overwrite: !exclusive, ..options });
                Stream::output(waiter.wait(creating)?, waiter)
            }
            O_RDWR => return Err(Failure::unsupported("cannot open an hdfs file in O_RDWR mode")),
            mode => return Err(Failure::invalid(format!("cannot open an hdfs file in mode 0x{mode:x}"))),
        };
        Ok(File::new(Arc::new(stream)))
    }
}

impl Options {
    fn of_create(self) -> Result<CreateOptions, Failure> {
        let wrong = |what: &str| Failure::invalid(format!("{what} is negative"));
        let replication = u16::try_from(self.replication).map_err(|_| wrong("the replication"))?;
        let block_size = u64::try_from(self.block_size).map_err(|_| wrong("the block size"))?;
        Ok(CreateOptions {
            overwrite: true,
            replication: (replication > 0).then_some(replication),
            block_size: (block_size > 0).then_some(block_size),
            ..CreateOptions::default()
        })
    }
}

fn builder<'a>(handle: Handle<StreamBuilder>) -> Result<&'a StreamBuilder, Failure> {
    handle.get().ok_or_else(|| Failure::invalid("the stream builder is NULL"))
}

/// Opens a file. `_buffer_bytes`: this client sizes its buffers itself.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsOpenFile(
    fs: Handle<Connection>,
    path: Text,
    flags: c_int,
    _buffer_bytes: c_int,
    replication: c_short,
    block_size: i32,
) -> *mut File {
    call(std::ptr::null_mut(), || {
        let builder = StreamBuilder::new(fs, path, flags)?;
        // Apache's library ignores the options of files that are read.
        *builder.options.lock() = Options { replication, block_size: block_size.into() };
        Ok(give(builder.open()?))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsStreamBuilderAlloc(fs: Handle<Connection>, path: Text, flags: c_int) -> *mut StreamBuilder {
    call(std::ptr::null_mut(), || Ok(give(StreamBuilder::new(fs, path, flags)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsStreamBuilderFree(builder: Owned<StreamBuilder>) {
    // It may hold the last reference to its client.
    process::drop_inside(builder.take());
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsStreamBuilderSetBufferSize(handle: Handle<StreamBuilder>, _bytes: i32) -> c_int {
    call(-1, || builder(handle)?.change(|_| {}).map(|()| 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsStreamBuilderSetReplication(handle: Handle<StreamBuilder>, replication: i16) -> c_int {
    call(-1, || builder(handle)?.change(|options| options.replication = replication).map(|()| 0))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsStreamBuilderSetDefaultBlockSize(handle: Handle<StreamBuilder>, bytes: i64) -> c_int {
    call(-1, || builder(handle)?.change(|options| options.block_size = bytes).map(|()| 0))
}

/// Opens the file, and frees the builder.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsStreamBuilderBuild(builder: Owned<StreamBuilder>) -> *mut File {
    call(std::ptr::null_mut(), || {
        let builder = builder.take().ok_or_else(|| Failure::invalid("the stream builder is NULL"))?;
        let opened = builder.open();
        process::drop_inside(builder);
        Ok(give(opened?))
    })
}
