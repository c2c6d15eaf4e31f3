//! Reads without a copy: `hadoopReadZero`.

use std::sync::atomic::{AtomicBool, Ordering};

use hearth_client::{Reader, View};
use libc::{c_int, c_void};

use crate::failure::{Failure, call};
use crate::file::File;
use crate::file_system::wait;
use crate::memory::{Handle, Owned, Text, give};

/// Class of the one pool. Java's other pools need a JVM.
const POOL: &str = "org/apache/hadoop/io/ElasticByteBufferPool";

/// What a `struct hadoopRzOptions *` points to.
#[derive(Debug, Default)]
pub struct Options {
    skip_checksums: AtomicBool,
    /// Bytes that cannot be shown may be copied.
    copies: AtomicBool,
}

/// What a `struct hadoopRzBuffer *` points to.
#[derive(Debug)]
pub enum Buffer {
    End,
    Shown(View),
    Copied(Vec<u8>),
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::End => &[],
            Self::Shown(view) => view,
            Self::Copied(bytes) => bytes,
        }
    }
}

fn options<'a>(handle: Handle<Options>) -> Result<&'a Options, Failure> {
    handle.get().ok_or_else(|| Failure::invalid("the hadoopRzOptions are NULL"))
}

#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzOptionsAlloc() -> *mut Options {
    give(Options::default())
}

#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzOptionsSetSkipChecksum(handle: Handle<Options>, skip: c_int) -> c_int {
    call(-1, || {
        options(handle)?.skip_checksums.store(skip != 0, Ordering::Relaxed);
        Ok(0)
    })
}

/// Allows copies if `class` is [`POOL`]; NULL forbids them.
#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzOptionsSetByteBufferPool(handle: Handle<Options>, class: Text) -> c_int {
    call(-1, || {
        let copies = match class.optional()? {
            None => false,
            Some(class) if class.replace('.', "/") == POOL => true,
            Some(class) => return Err(Failure::invalid(format!("there is no ByteBufferPool {class:?}; use {POOL:?}"))),
        };
        options(handle)?.copies.store(copies, Ordering::Relaxed);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzOptionsFree(options: Owned<Options>) {
    drop(options.take());
}

/// Returns at most `length` bytes from the file's position on, in the DataNode's own memory if they are on this
/// machine, and moves the position. They are verified unless the options say otherwise.
///
/// Errors: `EPROTONOSUPPORT` if the bytes can only be copied, and the options have no pool.
#[unsafe(no_mangle)]
pub extern "C" fn hadoopReadZero(file: Handle<File>, handle: Handle<Options>, length: i32) -> *mut Buffer {
    call(std::ptr::null_mut(), || {
        let input = File::input(file, libc::EINVAL)?;
        let options = options(handle)?;
        let length =
            usize::try_from(length).map_err(|_| Failure::invalid(format!("the length {length} is negative")))?;
        let mut reader = input.reader.lock();
        let buffer = read(&mut reader, options, length)?;
        crate::memory::set_errno(0);
        Ok(give(buffer))
    })
}

fn read(reader: &mut Reader, options: &Options, length: usize) -> Result<Buffer, Failure> {
    let position = reader.position();
    let left = reader.length().saturating_sub(position);
    if left == 0 {
        return Ok(Buffer::End);
    }
    let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
    if let Some(view) = wait(reader.view_in_place(position, length))? {
        // The DataNode has verified anchored bytes. A mismatch is left to the copy, which finds another replica.
        let is_good = options.skip_checksums.load(Ordering::Relaxed) || view.is_anchored() || view.verify().is_ok();
        if is_good {
            wait(reader.seek(position + view.len() as u64))?;
            return Ok(Buffer::Shown(view));
        }
    }
    if !options.copies.load(Ordering::Relaxed) {
        let message =
            "zero-copy reads were not available, and the ByteBufferPool did not provide us with a direct buffer.";
        return Err(Failure::new(libc::EPROTONOSUPPORT, "java.lang.UnsupportedOperationException", message));
    }
    let mut bytes = vec![0; length];
    let count = wait(reader.read(&mut bytes))?;
    bytes.truncate(count);
    Ok(Buffer::Copied(bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzBufferLength(buffer: Handle<Buffer>) -> i32 {
    buffer.get().map_or(0, |buffer| i32::try_from(buffer.bytes().len()).unwrap_or(i32::MAX))
}

/// Returns the first byte, or NULL at the end of the file.
#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzBufferGet(buffer: Handle<Buffer>) -> *const c_void {
    match buffer.get() {
        None | Some(Buffer::End) => std::ptr::null(),
        Some(buffer) => buffer.bytes().as_ptr().cast(),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzBufferFree(_file: Handle<File>, buffer: Owned<Buffer>) {
    drop(buffer.take());
}
