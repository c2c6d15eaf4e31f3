//! Failures of calls: error numbers as Apache's library sets them, and the text of the last one on each thread.
//!
//! Source: `exception.c` of libhdfs, which maps the classes of exceptions. Other exceptions are `EINTERNAL`.

use std::cell::RefCell;
use std::error::Error as _;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hearth_client::{Error, ErrorKind, Exception};
use libc::{c_char, c_int};

use crate::memory;

/// Any failure without an error number of its own. Source: hdfs.h.
pub const EINTERNAL: c_int = 255;

/// Reason why a call failed.
#[derive(Debug)]
pub struct Failure {
    pub errno: c_int,
    /// Class and message of the deepest cause.
    root_cause: String,
    /// The error and its causes, in the format of Java.
    trace: String,
}

impl Failure {
    /// A failure that the library found itself. `class`: the Java exception that Apache's library would report.
    pub fn new(errno: c_int, class: &str, message: impl AsRef<str>) -> Self {
        let message = message.as_ref();
        let root_cause = format!("{}: {message}", short(class));
        Self { errno, root_cause, trace: format!("{class}: {message}\n") }
    }

    pub fn invalid(message: impl AsRef<str>) -> Self {
        Self::new(libc::EINVAL, "java.lang.IllegalArgumentException", message)
    }

    pub fn unsupported(message: impl AsRef<str>) -> Self {
        Self::new(libc::ENOTSUP, "java.lang.UnsupportedOperationException", message)
    }

    /// A null or unusable handle.
    pub fn bad_handle(message: impl AsRef<str>) -> Self {
        Self::new(libc::EBADF, "java.io.IOException", message)
    }

    /// A handle that is used in a child of a fork, and that only the parent can use. `what` happened before the fork;
    /// `cure`: what the child can do.
    pub fn of_parent(what: &str, cure: &str) -> Self {
        Self::bad_handle(format!("{what} before the fork of this process, by its parent: {cure}"))
    }

    pub fn out_of_memory() -> Self {
        Self::new(libc::ENOMEM, "java.lang.OutOfMemoryError", "out of memory")
    }

    pub fn not_found(path: &str) -> Self {
        Self::new(libc::ENOENT, "java.io.FileNotFoundException", format!("File does not exist: {path}"))
    }

    /// Class and message.
    pub fn message(&self) -> &str {
        self.trace.lines().next().unwrap_or_default()
    }

    /// A call that the file system answered with `false`, without a reason.
    pub fn refused(message: impl AsRef<str>) -> Self {
        Self::new(libc::EIO, "java.io.IOException", message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let class = class_of(&error);
        let (mut root_cause, mut trace) = (format!("{}: {error}", short(class)), format!("{class}: {error}\n"));
        let mut source = error.source();
        while let Some(cause) = source {
            root_cause = format!("IOException: {cause}");
            trace.push_str(&format!("Caused by: java.io.IOException: {cause}\n"));
            source = cause.source();
        }
        Self { errno: errno_of(&error), root_cause, trace }
    }
}

/// Returns the class without its package.
fn short(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

/// Returns the class of the exception that Apache's client throws for this error.
fn class_of(error: &Error) -> &str {
    if let Some(class) = error.exception_class() {
        return class;
    }
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::IsADirectory => "java.io.FileNotFoundException",
        ErrorKind::AlreadyExists => "org.apache.hadoop.fs.FileAlreadyExistsException",
        ErrorKind::PermissionDenied => "org.apache.hadoop.security.AccessControlException",
        ErrorKind::NotADirectory => "org.apache.hadoop.fs.ParentNotDirectoryException",
        ErrorKind::SafeMode => "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
        ErrorKind::QuotaExceeded => "org.apache.hadoop.hdfs.protocol.QuotaExceededException",
        ErrorKind::InvalidConfiguration | ErrorKind::InvalidPath | ErrorKind::InvalidInput => {
            "java.lang.IllegalArgumentException"
        }
        ErrorKind::BeyondEnd => "java.io.EOFException",
        ErrorKind::LeaseLost => "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException",
        ErrorKind::Unsupported => "java.lang.UnsupportedOperationException",
        ErrorKind::OutOfMemory => "java.lang.OutOfMemoryError",
        ErrorKind::Unreachable => "java.net.ConnectException",
        _ => "java.io.IOException",
    }
}

fn errno_of(error: &Error) -> c_int {
    match error.exception() {
        Some(Exception::LeaseExpired) => return libc::ESTALE,
        Some(Exception::UnresolvedPath) => return libc::ENOLINK,
        Some(Exception::PathIsNotDirectory | Exception::Authorization | Exception::InvalidToken) => return EINTERNAL,
        _ => {}
    }
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::IsADirectory => libc::ENOENT,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::NotADirectory => libc::ENOTDIR,
        ErrorKind::SafeMode => libc::EROFS,
        ErrorKind::QuotaExceeded => libc::EDQUOT,
        ErrorKind::InvalidConfiguration | ErrorKind::InvalidPath | ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::LeaseLost => libc::ESTALE,
        ErrorKind::Unsupported => libc::ENOTSUP,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => EINTERNAL,
    }
}

/// Text of the last failure on a thread.
struct Last {
    root_cause: CString,
    trace: CString,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

impl Failure {
    /// Makes this the last failure of the thread, and sets `errno`.
    pub fn report(self) {
        let text = |text: String| CString::new(text.replace('\0', " ")).unwrap_or_default();
        let last = Last { root_cause: text(self.root_cause), trace: text(self.trace) };
        // A thread that ends may no longer have the place.
        let _ = LAST.try_with(|place| place.replace(Some(last)));
        memory::set_errno(self.errno);
    }
}

/// Runs the body of a function of C. Returns `failed` after an error or a panic, which it reports.
pub fn call<T>(failed: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    // The locks of this library do not poison, and a file whose state a panic left behind is closed by its owner.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            failure.report();
            failed
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            Failure::new(EINTERNAL, "java.lang.Error", format!("the library panicked: {text}")).report();
            // The payload's own drop may panic, too.
            std::mem::forget(panic);
            failed
        }
    }
}

/// Like [`call`], for functions that return an error number instead of -1. They also set `errno`.
pub fn call_for_errno(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let mut errno = EINTERNAL;
    call(None, || body().inspect_err(|failure| errno = failure.errno).map(Some)).map_or(errno, |()| 0)
}

fn last(choose: impl FnOnce(&Last) -> &CString) -> *mut c_char {
    let text = LAST.try_with(|place| place.borrow().as_ref().map(|last| choose(last).as_ptr().cast_mut()));
    text.ok().flatten().unwrap_or(std::ptr::null_mut())
}

/// Returns class and message of the cause of the last failure on this thread, or NULL. The text belongs to the library,
/// and is valid until the next failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetLastExceptionRootCause() -> *mut c_char {
    last(|last| &last.root_cause)
}

/// Like [`hdfsGetLastExceptionRootCause`], with all causes.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetLastExceptionStackTrace() -> *mut c_char {
    last(|last| &last.trace)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn errors_have_the_numbers_of_apaches_library() {
        let exceptions = [
            ("java.io.FileNotFoundException", libc::ENOENT),
            ("org.apache.hadoop.security.AccessControlException", libc::EACCES),
            ("org.apache.hadoop.fs.ParentNotDirectoryException", libc::ENOTDIR),
            ("java.lang.IllegalArgumentException", libc::EINVAL),
            ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", libc::EROFS),
            ("org.apache.hadoop.fs.FileAlreadyExistsException", libc::EEXIST),
            ("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", libc::EDQUOT),
            ("java.lang.UnsupportedOperationException", libc::ENOTSUP),
            ("org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", libc::ESTALE),
            ("org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", EINTERNAL),
            ("java.io.IOException", EINTERNAL),
        ];
        for (class, errno) in exceptions {
            assert_eq!(Failure::from(Error::from_exception(class, "why")).errno, errno, "{class}");
        }
        let beyond = Error::new(ErrorKind::BeyondEnd, "cannot seek");
        assert_eq!(Failure::from(beyond).errno, EINTERNAL);
        let huge = Error::new(ErrorKind::OutOfMemory, "cannot allocate");
        assert_eq!(Failure::from(huge).errno, libc::ENOMEM);
    }

    #[test]
    fn text_of_the_last_failure_belongs_to_the_thread() {
        let text = |pointer: *mut c_char| {
            // SAFETY: the pointer is that of a string of this thread, which fails no call in between.
            (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap().to_owned())
        };
        assert_eq!(call(-1, || Err(Failure::not_found("/x\0y"))), -1);
        assert_eq!(text(hdfsGetLastExceptionRootCause()).unwrap(), "FileNotFoundException: File does not exist: /x y");
        assert!(text(hdfsGetLastExceptionStackTrace()).unwrap().starts_with("java.io.FileNotFoundException: "));
        std::thread::spawn(move || assert_eq!(text(hdfsGetLastExceptionRootCause()), None)).join().unwrap();
    }

    #[test]
    fn panic_is_an_error() {
        assert_eq!(call(-1, || panic!("{}", "broken")), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(EINTERNAL));
        assert_eq!(call_for_errno(|| Err(Failure::invalid("x"))), libc::EINVAL);
        assert_eq!(call_for_errno(|| Ok(())), 0);
    }
}
