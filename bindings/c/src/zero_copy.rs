//! Reads without a copy: `hadoopReadZero`.

use std::sync::atomic::{AtomicBool, Ordering};

use hearth_client::process::OfProcess;
use hearth_client::{View, ViewChecks};
use libc::{c_int, c_void};

use crate::failure::{Failure, call};
use crate::file::{File, Input};
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
pub struct Buffer(OfProcess<Contents>);

#[derive(Debug)]
enum Contents {
    End,
    Shown(View),
    Copied(Vec<u8>),
}

/// Bytes by which a copy grows, so that bytes that no DataNode delivers take no memory.
const COPY_BYTES: usize = 4 << 20;

impl Buffer {
    /// Returns the bytes. A child of a fork may read them: it has inherited the memory.
    fn bytes(&self) -> &[u8] {
        self.0.inherited().bytes()
    }
}

impl Contents {
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
        let buffer = Buffer(OfProcess::new(read(input, options, length)?));
        crate::memory::set_errno(0);
        Ok(give(buffer))
    })
}

/// Reads from the position on. Moves it once, when the bytes are there, and not after an error.
fn read(input: &Input, options: &Options, length: usize) -> Result<Contents, Failure> {
    let mut reader = input.reader.lock();
    let position = reader.position();
    let left = reader.length().saturating_sub(position);
    if left == 0 {
        return Ok(Contents::End);
    }
    let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
    let checks = match options.skip_checksums.load(Ordering::Relaxed) {
        true => ViewChecks::Unverified,
        false => ViewChecks::Verified,
    };
    if let Some(view) = input.waiter.wait(input.positioned.view_in_place_with(position, length, checks))? {
        reader.set_position(position + view.len() as u64)?;
        return Ok(Contents::Shown(view));
    }
    if !options.copies.load(Ordering::Relaxed) {
        let message =
            "zero-copy reads were not available, and the ByteBufferPool did not provide us with a direct buffer.";
        return Err(Failure::new(libc::EPROTONOSUPPORT, "java.lang.UnsupportedOperationException", message));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Failure::out_of_memory())?;
    while bytes.len() < length {
        let start = bytes.len();
        bytes.resize(length.min(start + COPY_BYTES), 0);
        match input.waiter.wait(reader.read(&mut bytes[start..])) {
            Ok(0) => {
                bytes.truncate(start);
                break;
            }
            Ok(count) => bytes.truncate(start + count),
            Err(failure) => {
                reader.set_position(position)?;
                return Err(failure);
            }
        }
    }
    Ok(Contents::Copied(bytes))
}

#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzBufferLength(buffer: Handle<Buffer>) -> i32 {
    buffer.get().map_or(0, |buffer| i32::try_from(buffer.bytes().len()).unwrap_or(i32::MAX))
}

/// Returns the first byte, or NULL at the end of the file.
#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzBufferGet(buffer: Handle<Buffer>) -> *const c_void {
    match buffer.get() {
        Some(buffer) if !matches!(buffer.0.inherited(), Contents::End) => buffer.bytes().as_ptr().cast(),
        _ => std::ptr::null(),
    }
}

/// In a child of a fork, a buffer of the parent is only given up.
#[unsafe(no_mangle)]
pub extern "C" fn hadoopRzBufferFree(_file: Handle<File>, buffer: Owned<Buffer>) {
    drop(buffer.take());
}
