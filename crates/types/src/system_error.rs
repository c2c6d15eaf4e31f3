//! Advice for operators about operating system errors, so that such an error is never mistaken for damaged data.

use std::io;

/// Returns the next step after a system error, as the end of a message: "free space on its file system".
///
/// The text never says that data is damaged: a system error only means that the data cannot be read or written now.
pub fn suggested_fix(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "free space or raise the quota on its file system, then start again",
        Some(libc::EACCES | libc::EPERM) => "run the server as the owner of the path, or give its user access",
        Some(libc::EROFS) => "mount its file system writable; the kernel's log says why it is read-only",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n, fs.file-max), then start again",
        Some(libc::ENOMEM) => "free memory or raise the memory limit, then start again",
        Some(libc::EFBIG) => "raise the limit of file sizes (ulimit -f), then start again",
        Some(libc::EIO | libc::ENXIO | libc::ENODEV) => "check the disk: the kernel's log describes the fault",
        Some(libc::ESTALE | libc::ENOTCONN) => "mount its file system again, then start again",
        Some(libc::ENOENT | libc::ENOTDIR) => "check that its file system is mounted and the path is right",
        Some(libc::EISDIR) => "move the directory at this path away",
        _ => match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file is truncated: restore a good copy",
            _ => "fix the cause, then start again",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_error_has_a_suggested_fix() {
        let step = |number| suggested_fix(&io::Error::from_raw_os_error(number));
        assert!(step(libc::ENOSPC).starts_with("free space"));
        assert!(step(libc::EACCES).contains("owner"));
        assert!(step(libc::EROFS).contains("writable"));
        assert!(step(libc::EMFILE).contains("ulimit -n"));
        assert!(step(libc::EIO).contains("check the disk"));
        assert!(step(0).contains("fix the cause"));
        // The error numbers are those of this operating system.
        assert_eq!(io::Error::from_raw_os_error(libc::ENOSPC).kind(), io::ErrorKind::StorageFull);
        assert_eq!(io::Error::from_raw_os_error(libc::EACCES).kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(io::Error::from_raw_os_error(libc::EROFS).kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(io::Error::from_raw_os_error(libc::ENOENT).kind(), io::ErrorKind::NotFound);
    }
}
