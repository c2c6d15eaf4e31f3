//! Calls that change names and attributes, and those about the whole file system.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hearth_client::{FileSystem, FsPermission, FsUsage};
use libc::{c_char, c_int, c_short, time_t};

use crate::failure::{Failure, call};
use crate::file_system::{Connection, Waiter};
use crate::memory::{Handle, Space, Text};

/// Runs a call about one path. Returns 0 after a success.
fn with_path(
    fs: Handle<Connection>,
    path: Text,
    change: impl FnOnce(&FileSystem, &str, Waiter) -> Result<(), Failure>,
) -> c_int {
    call(-1, || {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        change(connection.file_system()?, &path, connection.waiter()).map(|()| 0)
    })
}

/// Errors: `EIO` if there is nothing at the path, as Apache's.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsDelete(fs: Handle<Connection>, path: Text, recursive: c_int) -> c_int {
    with_path(fs, path, |fs, path, waiter| match waiter.wait(fs.delete(path, recursive != 0))? {
        true => Ok(()),
        false => Err(Failure::refused(format!("{path} does not exist"))),
    })
}

/// Errors: `EIO` if the NameNode refuses without a reason, for example because the target exists.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsRename(fs: Handle<Connection>, from: Text, to: Text) -> c_int {
    call(-1, || {
        let connection = Connection::of(fs)?;
        let (from, to) = (connection.path(from)?, connection.path(to)?);
        match connection.waiter().wait(connection.file_system()?.rename(&from, &to))? {
            true => Ok(0),
            false => Err(Failure::refused(format!(
                "cannot rename {from} to {to}: the source is missing, or the target exists"
            ))),
        }
    })
}

/// Copies a file or a directory tree. The bytes pass through this process.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsCopy(from_fs: Handle<Connection>, from: Text, to_fs: Handle<Connection>, to: Text) -> c_int {
    call(-1, || copy(from_fs, from, to_fs, to).map(|_| 0))
}

/// Like [`hdfsCopy`], and removes the source.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsMove(from_fs: Handle<Connection>, from: Text, to_fs: Handle<Connection>, to: Text) -> c_int {
    call(-1, || {
        let (connection, from) = copy(from_fs, from, to_fs, to)?;
        match connection.waiter().wait(connection.file_system()?.delete(&from, true))? {
            true => Ok(0),
            false => Err(Failure::refused(format!("{from} was copied, but is no longer there to be removed"))),
        }
    })
}

/// Returns the source's connection and path.
fn copy<'a>(
    from_fs: Handle<Connection>,
    from: Text,
    to_fs: Handle<Connection>,
    to: Text,
) -> Result<(&'a Connection, String), Failure> {
    let (from_connection, to_connection) = (Connection::of(from_fs)?, Connection::of(to_fs)?);
    let (from, to) = (from_connection.path(from)?, to_connection.path(to)?);
    let copying = from_connection.file_system()?.copy(&from, to_connection.file_system()?, &to);
    from_connection.waiter().wait(copying)?;
    Ok((from_connection, from))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsCreateDirectory(fs: Handle<Connection>, path: Text) -> c_int {
    with_path(fs, path, |fs, path, waiter| waiter.wait(fs.mkdirs(path)))
}

/// Errors: `ENOENT` if the path does not exist or is a directory.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsSetReplication(fs: Handle<Connection>, path: Text, replication: i16) -> c_int {
    with_path(fs, path, |fs, path, waiter| {
        let replicas = u16::try_from(replication).map_err(|_| Failure::invalid("the replication is negative"))?;
        match waiter.wait(fs.set_replication(path, replicas))? {
            true => Ok(()),
            false => Err(Failure::not_found(path)),
        }
    })
}

/// Changes owner and group; NULL leaves one as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsChown(fs: Handle<Connection>, path: Text, owner: Text, group: Text) -> c_int {
    with_path(fs, path, |fs, path, waiter| match (owner.optional()?, group.optional()?) {
        (None, None) => Ok(()),
        (owner, group) => waiter.wait(fs.set_owner(path, owner, group)),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsChmod(fs: Handle<Connection>, path: Text, mode: c_short) -> c_int {
    let permission = FsPermission(mode as u16 & FsPermission::MASK);
    with_path(fs, path, |fs, path, waiter| waiter.wait(fs.set_permission(path, permission)))
}

/// Sets the times of last modification and access, in seconds since 1970; -1 leaves one as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsUtime(fs: Handle<Connection>, path: Text, modified: time_t, accessed: time_t) -> c_int {
    with_path(fs, path, |fs, path, waiter| waiter.wait(fs.set_times(path, time(modified)?, time(accessed)?)))
}

fn time(seconds: time_t) -> Result<Option<SystemTime>, Failure> {
    if seconds == -1 {
        return Ok(None);
    }
    let since = u64::try_from(seconds).ok().map(Duration::from_secs);
    let time = since.and_then(|since| UNIX_EPOCH.checked_add(since));
    time.map(Some).ok_or_else(|| Failure::invalid(format!("{seconds} is not a time that HDFS can store")))
}

/// Cuts a file. Returns 1 if it can be written at once, 0 if the last block is still being cut.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsTruncateFile(fs: Handle<Connection>, path: Text, length: i64) -> c_int {
    call(-1, || {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        let length = u64::try_from(length).map_err(|_| Failure::invalid("Cannot truncate to a negative file size"))?;
        Ok(c_int::from(connection.waiter().wait(connection.file_system()?.truncate(&path, length))?))
    })
}

/// Copies the URI of the working directory to `buffer`. Returns `buffer`.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetWorkingDirectory(fs: Handle<Connection>, buffer: Space, size: usize) -> *mut c_char {
    call(std::ptr::null_mut(), || {
        let connection = Connection::of(fs)?;
        let uri = connection.uri(&connection.working_directory()?)?;
        let buffer = buffer.slice(size)?;
        let Some(room) = buffer.get_mut(..=uri.len()) else {
            let message = format!("{uri} has {} bytes with its NUL, and the buffer {size}", uri.len() + 1);
            return Err(Failure::new(libc::ENAMETOOLONG, "java.io.IOException", message));
        };
        let (text, nul) = room.split_at_mut(uri.len());
        text.copy_from_slice(uri.as_bytes());
        nul[0] = 0;
        Ok(buffer.as_mut_ptr().cast())
    })
}

/// Sets the directory of relative paths. It need not exist.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsSetWorkingDirectory(fs: Handle<Connection>, path: Text) -> c_int {
    call(-1, || {
        let connection = Connection::of(fs)?;
        connection.set_working_directory(connection.path(path)?);
        Ok(0)
    })
}

fn bytes(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetDefaultBlockSize(fs: Handle<Connection>) -> i64 {
    call(-1, || Ok(bytes(Connection::of(fs)?.client.block_size)))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetDefaultBlockSizeAtPath(fs: Handle<Connection>, path: Text) -> i64 {
    call(-1, || {
        let connection = Connection::of(fs)?;
        connection.path(path)?;
        Ok(bytes(connection.client.block_size))
    })
}

fn usage(fs: Handle<Connection>) -> Result<FsUsage, Failure> {
    let connection = Connection::of(fs)?;
    connection.waiter().wait(connection.file_system()?.usage())
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetCapacity(fs: Handle<Connection>) -> i64 {
    call(-1, || Ok(bytes(usage(fs)?.capacity)))
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetUsed(fs: Handle<Connection>) -> i64 {
    call(-1, || Ok(bytes(usage(fs)?.used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_refused() {
        assert_eq!(time(-1).unwrap(), None);
        assert_eq!(time(7).unwrap(), Some(UNIX_EPOCH + Duration::from_secs(7)));
        assert_eq!(time(-2).unwrap_err().errno, libc::EINVAL);
    }
}
