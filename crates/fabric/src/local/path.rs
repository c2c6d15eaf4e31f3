//! Checks that a socket's path is safe: only this process's user and root can put another socket there.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum length of a socket's path in the kernel, without the terminating byte. Source: unix(7).
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Reasons for rejecting a socket's path.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    #[error("the socket path {} is not absolute", path.display())]
    NotAbsolute { path: PathBuf },
    #[error("the socket path {} is longer than {SOCKET_PATH_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("cannot access {}, a part of the socket path", part.display())]
    Part { part: PathBuf, source: io::Error },
    #[error("the part {} of the socket path {who}, with mode {mode:04o}: another user could replace the socket", part.display())]
    Writable { part: PathBuf, who: &'static str, mode: u32 },
    #[error("the part {} of the socket path belongs to user {owner}, which is neither root nor this process's user", part.display())]
    Owner { part: PathBuf, owner: u32 },
}

/// Checks every directory above `path` as Java's DataNodes do: it must belong to root or to this process's user, and
/// must not be writable by others, nor by a group other than root's.
///
/// One exception: a directory with the sticky bit, such as /tmp, may be an ancestor, but must not hold the socket
/// itself. Entries of such a directory can be replaced only by their owner, and the check covers the owner.
pub fn check_path(path: &Path) -> Result<(), PathError> {
    if !path.is_absolute() {
        return Err(PathError::NotAbsolute { path: path.to_owned() });
    }
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(PathError::TooLong { path: path.to_owned() });
    }
    let me = rustix::process::geteuid().as_raw();
    for (distance, part) in path.ancestors().skip(1).enumerate() {
        let found = std::fs::metadata(part).map_err(|source| PathError::Part { part: part.to_owned(), source })?;
        let mode = found.mode() & 0o7777;
        if found.uid() != 0 && found.uid() != me {
            return Err(PathError::Owner { part: part.to_owned(), owner: found.uid() });
        }
        let sticky = mode & 0o1000 != 0 && distance > 0;
        if mode & 0o002 != 0 && !sticky {
            return Err(PathError::Writable { part: part.to_owned(), who: "may be written by everybody", mode });
        }
        if mode & 0o020 != 0 && found.gid() != 0 && !sticky {
            return Err(PathError::Writable { part: part.to_owned(), who: "may be written by its group", mode });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directories_writable_by_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let socket = inner.join("socket");
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(dir.path(), 0o755);
        mode(&inner, 0o755);
        check_path(&socket).unwrap();
        for wrong in [0o777, 0o757, 0o1777] {
            mode(&inner, wrong);
            assert!(matches!(check_path(&socket), Err(PathError::Writable { .. })), "{wrong:o}");
        }
        mode(&inner, 0o755);
        mode(dir.path(), 0o777);
        assert!(matches!(check_path(&socket), Err(PathError::Writable { .. })));
        // The mode of /tmp.
        mode(dir.path(), 0o1777);
        check_path(&socket).unwrap();

        assert!(matches!(check_path(Path::new("socket")), Err(PathError::NotAbsolute { .. })));
        assert!(matches!(check_path(&inner.join("x".repeat(108))), Err(PathError::TooLong { .. })));
        assert!(matches!(check_path(&inner.join("missing/socket")), Err(PathError::Part { .. })));
    }
}
