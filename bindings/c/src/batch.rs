//! What `hearth.h` adds to Apache's interface: many files in one call, views, and reads in the background.

use hearth_client::process::{self, OfProcess};
use hearth_client::{ByteRange, Error, ErrorKind, View, ViewChecks};
use libc::{c_char, c_int, c_void};

use crate::failure::{EINTERNAL, Failure, call};
use crate::file::File;
use crate::file_system::Connection;
use crate::memory::{Allocated, Argument, Array, Done, Handle, Owned, Places, Space, SpaceInBackground, Text};
use crate::memory::{allocate_text, give};

/// `struct hearth_range`: bytes of a file to be read.
#[repr(C)]
pub struct Range {
    /// NULL for a range of an open file.
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
        let mut paths = Vec::new();
        for Range { path, offset, length } in ranges.slice(count)? {
            paths.push((connection.path(*path)?, byte_range(*offset, *length)?));
        }
        let wanted: Vec<(&str, ByteRange)> = paths.iter().map(|(path, range)| (path.as_str(), *range)).collect();
        put(connection.waiter().wait_for(connection.file_system()?.read_many(&wanted))?, results)
    })
}

/// Like [`hearth_read_many`], but all ranges are of one open file, whatever is at its path by now. Their paths are NULL.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_read_ranges(
    file: Handle<File>,
    ranges: Array<Range>,
    count: usize,
    results: Places<RangeBytes>,
) -> i64 {
    call(-1, || {
        let input = File::input(file, libc::EINVAL)?;
        let mut wanted = Vec::new();
        for Range { path, offset, length } in ranges.slice(count)? {
            if path.optional()?.is_some() {
                return Err(Failure::invalid("a range of an open file has a path: NULL is expected"));
            }
            wanted.push(byte_range(*offset, *length)?);
        }
        put(input.waiter.wait_for(input.positioned.read_ranges(&wanted))?, results)
    })
}

/// Puts the bytes or the error of each range into its place. Returns the number of errors.
fn put(read: Vec<Result<Vec<u8>, Error>>, results: Places<RangeBytes>) -> Result<i64, Failure> {
    let (count, mut read, mut failed) = (read.len(), read.into_iter(), 0);
    results.fill(count, |_| match read.next() {
        Some(Ok(bytes)) => RangeBytes::read(bytes),
        Some(Err(error)) => {
            failed += 1;
            RangeBytes::failed(&error.into())
        }
        None => RangeBytes::NONE,
    })?;
    Ok(failed)
}

/// Returns the length of a file that is open for reading, when it was opened.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_file_length(file: Handle<File>) -> i64 {
    call(-1, || Ok(i64::try_from(File::input(file, libc::EINVAL)?.positioned.length()).unwrap_or(i64::MAX)))
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
const UNVERIFIED: c_int = 4;

/// Returns the checks that `flags` asks for.
fn checks(flags: c_int) -> Result<ViewChecks, Failure> {
    if flags & !(IN_PLACE | VERIFY | UNVERIFIED) != 0 {
        return Err(Failure::invalid(format!("flags {flags:#x} has unknown bits")));
    }
    match flags & (VERIFY | UNVERIFIED) {
        0 => Ok(ViewChecks::Verified),
        VERIFY => Ok(ViewChecks::VerifiedHere),
        UNVERIFIED => Ok(ViewChecks::Unverified),
        _ => Err(Failure::invalid("HEARTH_VIEW_VERIFY and HEARTH_VIEW_UNVERIFIED exclude each other")),
    }
}

/// What a `struct hearth_view *` points to. A child of a fork may read its bytes, because it has inherited the memory.
#[derive(Debug)]
pub struct OpenView(OfProcess<View>);

/// Returns at most `length` bytes of a file from `offset` on, up to the end of a block, in the DataNode's own memory if
/// they are on this machine, else a copy. They do not change while the view is open. A replica that does not match its
/// checksums is reported, and another one is used.
///
/// Errors: `ENOTSUP` if `flags` has [`IN_PLACE`] and the bytes can only be copied. `EIO` if no replica can be read, or
/// none matches its checksums.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_open(file: Handle<File>, offset: i64, length: i64, flags: c_int) -> *mut OpenView {
    call(std::ptr::null_mut(), || {
        let checks = checks(flags)?;
        let input = File::input(file, libc::EINVAL)?;
        let range = byte_range(offset, length)?;
        let length = usize::try_from(range.length()).unwrap_or(usize::MAX);
        let (positioned, waiter) = (&input.positioned, input.waiter);
        let view = match flags & IN_PLACE {
            0 => waiter.wait_for(positioned.view_with(range.start(), length, checks))?.map_err(view_failure)?,
            _ => {
                let view = waiter.wait_for(positioned.view_in_place_with(range.start(), length, checks))?;
                view.map_err(view_failure)?.ok_or_else(|| {
                    Failure::unsupported("no good replica of the bytes is in memory that this process can map")
                })?
            }
        };
        Ok(give(OpenView(OfProcess::new(view))))
    })
}

/// Like the conversion, but `EIO` if no replica has good bytes.
fn view_failure(error: Error) -> Failure {
    let is_lost = error.kind() == ErrorKind::DataUnavailable;
    let mut failure = Failure::from(error);
    if is_lost {
        failure.errno = libc::EIO;
    }
    failure
}

#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_data(view: Handle<OpenView>) -> *const c_void {
    view.get().map_or(std::ptr::null(), |view| view.0.inherited().as_ptr().cast())
}

#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_length(view: Handle<OpenView>) -> i64 {
    view.get().map_or(0, |view| view.0.inherited().len() as i64)
}

/// Returns 1 if these are the DataNode's bytes, 0 if they are a copy.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_is_in_place(view: Handle<OpenView>) -> c_int {
    c_int::from(view.get().is_some_and(|view| view.0.inherited().is_shown()))
}

/// In a child of a fork, a view of the parent is only given up: the DataNode counts it for the parent.
#[unsafe(no_mangle)]
pub extern "C" fn hearth_view_close(view: Owned<OpenView>) {
    drop(view.take());
}

/// The one call of the program's function at the end of a read in the background. If the read panics, or its runtime
/// ends, the function is called with an error.
struct Completion {
    done: Option<Done>,
    argument: Argument,
}

impl Completion {
    fn new(done: Done, argument: Argument) -> Self {
        Self { done: Some(done), argument }
    }

    /// Calls the function.
    fn call(mut self, outcome: Result<usize, Failure>) {
        self.call_once(outcome);
    }

    fn call_once(&mut self, outcome: Result<usize, Failure>) {
        let Some(done) = self.done.take() else { return };
        match outcome {
            Ok(count) => done(self.argument, count as i64, 0),
            Err(failure) => {
                let errno = failure.errno;
                failure.report();
                done(self.argument, -1, errno);
            }
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.done.is_some() {
            let message = "the read ended without an outcome: the library panicked";
            self.call_once(Err(Failure::new(EINTERNAL, "java.lang.Error", message)));
        }
    }
}

/// Starts to read like `hdfsPread`, into memory that the caller keeps until `done` is called. Returns 0, or -1 if
/// nothing was started. `done` is called once, on a thread of the library, and must not block.
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
        let space = SpaceInBackground::new(buffer, length)?;
        // Nothing fails from here on: a completion that is dropped calls the function.
        let runtime = process::runtime()?;
        let completion = Completion::new(done, argument);
        runtime.spawn(async move {
            // Dropped in reverse order, so the function is called when the read uses the memory no more.
            let completion = completion;
            let mut space = space;
            let outcome = positioned.read_at(offset, space.slice()).await;
            completion.call(outcome.map_err(Failure::from));
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

    #[test]
    fn views_are_verified_unless_the_caller_refuses() {
        let of = |flags| checks(flags).map_err(|failure| failure.errno);
        assert_eq!([of(0), of(IN_PLACE)], [Ok(ViewChecks::Verified); 2]);
        assert_eq!([of(2), of(IN_PLACE | 2)], [Ok(ViewChecks::VerifiedHere); 2]);
        assert_eq!(of(4), Ok(ViewChecks::Unverified));
        assert_eq!([of(2 | 4), of(8), of(-1)], [Err(libc::EINVAL); 3]);
    }

    /// Outcomes that `done` got.
    static OUTCOMES: parking_lot::Mutex<Vec<(i64, c_int)>> = parking_lot::Mutex::new(Vec::new());

    extern "C" fn done(_argument: Argument, count: i64, errno: c_int) {
        OUTCOMES.lock().push((count, errno));
    }

    #[test]
    fn function_is_called_once_also_after_a_panic() {
        let completion = || Completion::new(done, Argument::NULL);
        completion().call(Ok(7));
        completion().call(Err(Failure::invalid("no")));
        let panicking = completion();
        let task = async move {
            let _completion = panicking;
            panic!("broken");
        };
        let runtime = process::runtime().unwrap();
        let ended: Result<(), _> = runtime.block_on(runtime.spawn(task));
        assert!(ended.unwrap_err().is_panic());
        assert_eq!(*OUTCOMES.lock(), [(7, 0), (-1, libc::EINVAL), (-1, EINTERNAL)]);
        // A task that its runtime ends.
        drop(completion());
        assert_eq!(OUTCOMES.lock().len(), 4);
    }
}
