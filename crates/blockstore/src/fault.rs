//! Classification of errors of file operations on a storage directory. `volume_check.rs` reacts to them.
//!
//! `docs/compatibility/volume-errors.md` has the table for operators; a test checks that it matches [`of`].

use std::io;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultScope {
    /// No space: another storage directory may have some. The volume stays in use.
    NoSpace,
    /// This process or machine lacks a resource, or the call was interrupted. Says nothing about the volume.
    Process,
    /// The disk or its file system is broken: the volume fails at once.
    Volume,
    /// One file or the whole volume: the volume is checked, and fails if it cannot be used.
    Unclear,
}

/// Errors of a disk, of a file system, or of the connection to it.
const BROKEN: &[i32] = &[
    libc::EIO,
    libc::EROFS,
    libc::ENODEV,
    libc::ENXIO,
    libc::ENOMEDIUM,
    libc::EREMOTEIO,
    libc::EUCLEAN,
    libc::EBADMSG,
    libc::ESTALE,
    libc::ENOTCONN,
    libc::ESHUTDOWN,
    libc::EHOSTDOWN,
    libc::ENOLINK,
];

/// Errors that say nothing about the disk.
const OF_PROCESS: &[i32] =
    &[libc::EMFILE, libc::ENFILE, libc::EINTR, libc::EAGAIN, libc::ENOMEM, libc::EBADF, libc::EINVAL, libc::EFAULT];

/// Classifies an error from creating, writing, syncing, renaming or truncating a file. A read error may come from one
/// bad sector, so the replica is checked instead; see `suspects.rs`.
pub fn of(error: &io::Error) -> FaultScope {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => FaultScope::NoSpace,
        // A file that ended early or has bad content: content is judged by its CRCs.
        None => FaultScope::Process,
        Some(code) if OF_PROCESS.contains(&code) => FaultScope::Process,
        Some(code) if BROKEN.contains(&code) => FaultScope::Volume,
        Some(_) => FaultScope::Unclear,
    }
}

#[cfg(test)]
mod tests;
