//! What `hearth.h` adds to Apache's interface: many files in one call, views, and reads in the background.

use hearth_client::{ByteRange, View, process};
use libc::{c_char, c_int, c_void};

use crate::failure::{Failure, call};
use crate::file::File;
use crate::file_system::{Connection, wait, wait_for};
use crate::memory::{Allocated, Argument, Array, Done, Handle, Owned, Places, Space, SpaceInBackground, Text};
use crate::memory::{allocate_text, give};

/// `struct hearth_range`: bytes of a file to be read.
#[repr(C)]
pub struct Range {
    path: Text,
    offset: i64,
    /// -1: to the end of the file.
    length: i64,
}

/// `struct hearth_bytes`: what was read of one range.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RangeBytes {
    data: *const c_void,
    length: i64,
    /// 0, or the error number.
    error: c_int,
    /// Text of the error, or NULL.
    message: *mut c_char,
    /// What `data` points into.
    owner: *mut Vec<u8>,
}

impl RangeBytes {
    const NONE: Self = Self {
        data: std::ptr::null(),
        length: 0,
        error: 0,
        message: std::ptr::null_mut(),
        owner: std::ptr::null_mut(),
    };

    fn read(bytes: Vec<u8>) -> Self {
        let (data, length) = (bytes.as_ptr().cast(), bytes.len() as i64);
        Self { data, length, owner: give(bytes), ..Self::NONE }
    }

    fn failed(failure: &Failure) -> Self {
        let message = allocate_text(failure.message()).unwrap_or(std::ptr::null_mut());
        Self { error: failure.errno, message, ..Self::NONE }
    }
}

/// Reads `count` ranges of files, all at once, into memory of the library. Returns the number of ranges that failed, or
/// -1 if none was read.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_read_many(
    fs: Handle<Connection>,
    ranges: Array<Range>,
    count: usize,
    results: Places<RangeBytes>,
) -> i64 {
    call(-1, || {
        let connection = Connection::of(fs)?;
        let ranges = ranges.slice(count)?;
        let mut paths = Vec::with_capacity(count);
        for Range { path, offset, length } in ranges {
            paths.push((connection.path(*path)?, byte_range(*offset, *length)?));
        }
        let wanted: Vec<(&str, ByteRange)> = paths.iter().map(|(path, range)| (path.as_str(), *range)).collect();
        let mut read = wait_for(connection.file_system()?.read_many(&wanted))?.into_iter();
        let mut failed = 0;
        results.fill(count, |_| match read.next() {
            Some(Ok(bytes)) => RangeBytes::read(bytes),
            Some(Err(error)) => {
                failed += 1;
                RangeBytes::failed(&error.into())
            }
            None => RangeBytes::NONE,
        })?;
        Ok(failed)
    })
}

fn byte_range(offset: i64, length: i64) -> Result<ByteRange, Failure> {
    let start = u64::try_from(offset).ok();
    let range = start.and_then(|start| match length {
        -1 => ByteRange::new(start, u64::MAX),
        _ => ByteRange::with_length(start, u64::try_from(length).ok()?),
    });
    range.ok_or_else(|| Failure::invalid(format!("offset {offset} and length {length} are not a range")))
}

/// Frees what [`hearth_read_many`] has put into `results`.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_free_bytes(results: Places<RangeBytes>, count: usize) {
    results.clear(count, RangeBytes::NONE, |bytes| {
        drop(Owned::returned(bytes.owner).take());
        Allocated::own(bytes.message).free();
    });
}

/// Bits of `flags` of [`hearth_view_open`].
const IN_PLACE: c_int = 1;
const VERIFY: c_int = 2;

/// Returns at most `length` bytes of a file from `offset` on, up to the end of a block, in the DataNode's own memory if
/// they are on this machine, else a copy. They do not change while the view is open.
///
/// Errors: `ENOTSUP` if `flags` has [`IN_PLACE`] and the bytes can only be copied. `EIO` if it has [`VERIFY`] and they
/// do not match their checksums.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_open(file: Handle<File>, offset: i64, length: i64, flags: c_int) -> *mut View {
    call(std::ptr::null_mut(), || {
        if flags & !(IN_PLACE | VERIFY) != 0 {
            return Err(Failure::invalid(format!("flags {flags:#x} has unknown bits")));
        }
        let input = File::input(file, libc::EINVAL)?;
        let range = byte_range(offset, length)?;
        let length = usize::try_from(range.length()).unwrap_or(usize::MAX);
        let view = match flags & IN_PLACE {
            0 => wait(input.positioned.view(range.start(), length))?,
            _ => wait(input.positioned.view_in_place(range.start(), length))?
                .ok_or_else(|| Failure::unsupported("the bytes are not in memory that this process can map"))?,
        };
        if flags & VERIFY != 0 {
            view.verify().map_err(|error| {
                Failure::new(libc::EIO, "org.apache.hadoop.fs.ChecksumException", error.to_string())
            })?;
        }
        Ok(give(view))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_data(view: Handle<View>) -> *const c_void {
    view.get().map_or(std::ptr::null(), |view| view.as_ptr().cast())
}

#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_length(view: Handle<View>) -> i64 {
    view.get().map_or(0, |view| view.len() as i64)
}

/// Returns 1 if these are the DataNode's bytes, 0 if they are a copy.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_is_in_place(view: Handle<View>) -> c_int {
    c_int::from(view.get().is_some_and(View::is_shown))
}

#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_close(view: Owned<View>) {
    drop(view.take());
}

/// Starts to read like `hdfsPread`, into memory that the caller keeps until `done` is called. Returns 0, or -1 if
/// nothing was started. `done` runs on a thread of the library, and must not block.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_pread_async(
    file: Handle<File>,
    offset: i64,
    buffer: Space,
    length: usize,
    done: Option<Done>,
    argument: Argument,
) -> c_int {
    call(-1, || {
        let positioned = File::input(file, libc::EINVAL)?.positioned.clone();
        let done = done.ok_or_else(|| Failure::invalid("the function to call at the end is NULL"))?;
        let offset = byte_range(offset, 0)?.start();
        let mut space = SpaceInBackground::new(buffer, length)?;
        process::runtime()?.spawn(async move {
            match positioned.read_at(offset, space.slice()).await {
                Ok(count) => done(argument, count as i64, 0),
                Err(error) => {
                    let failure = Failure::from(error);
                    let errno = failure.errno;
                    failure.report();
                    done(argument, -1, errno);
                }
            }
        });
        Ok(0)
    })
}

/// Returns the version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn hearth_version() -> *const c_char {
    const VERSION: &std::ffi::CStr =
        match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL"),
        };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let range = |offset, length| byte_range(offset, length).ok().map(|range| (range.start(), range.end()));
        assert_eq!(range(3, 4), Some((3, 7)));
        assert_eq!(range(3, -1), Some((3, u64::MAX)));
        assert_eq!([range(-1, 4), range(0, -2)], [None, None]);
        assert_eq!((size_of::<Range>(), size_of::<RangeBytes>()), (24, 40));
    }
}
