//! What an operator does about an error of the system, so that it is never taken for damaged data.

use std::io;

/// The next step after an error of the system, as the end of a message: "free space on its file system".
///
/// Nothing here says that data is damaged: the error says that it could not be read or written now.
pub fn suggested_fix(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "free space or raise the quota on its file system, then start again",
        Some(libc::EACCES | libc::EPERM) => "run the server as the owner of the path, or give its user access",
        Some(libc::EROFS) => "mount its file system writable; the kernel's log says why it is read-only",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n, fs.file-max), then start again",
        Some(libc::ENOMEM) => "free memory or raise the memory limit, then start again",
        Some(libc::EFBIG) => "raise the limit of file sizes (ulimit -f), then start again",
        Some(libc::EIO | libc::ENXIO | libc::ENODEV) => "check the disk: the kernel's log has the fault",
        Some(libc::ESTALE | libc::ENOTCONN) => "mount its file system again, then start again",
        Some(libc::ENOENT | libc::ENOTDIR) => "check that its file system is mounted and the path is right",
        Some(libc::EISDIR) => "move the directory that lies there out of the way",
        _ => match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file ends too early: put back a good copy",
            _ => "mend the cause, then start again",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_system_has_a_next_step_of_its_own() {
        let step = |number| suggested_fix(&io::Error::from_raw_os_error(number));
        assert!(step(libc::ENOSPC).starts_with("free space"));
        assert!(step(libc::EACCES).contains("owner"));
        assert!(step(libc::EROFS).contains("writable"));
        assert!(step(libc::EMFILE).contains("ulimit -n"));
        assert!(step(libc::EIO).contains("check the disk"));
        assert!(step(0).contains("mend the cause"));
        // The numbers are this system's.
        assert_eq!(io::Error::from_raw_os_error(libc::ENOSPC).kind(), io::ErrorKind::StorageFull);
        assert_eq!(io::Error::from_raw_os_error(libc::EACCES).kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(io::Error::from_raw_os_error(libc::EROFS).kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(io::Error::from_raw_os_error(libc::ENOENT).kind(), io::ErrorKind::NotFound);
    }
}
