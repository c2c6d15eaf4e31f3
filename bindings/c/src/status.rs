//! `hdfsFileInfo`: status of files and directories.

use hearth_client::{Error, ErrorKind, FileFlags, FileKind, FileStatus};
use libc::{c_char, c_int, c_short, time_t};

use crate::failure::{Failure, call};
use crate::file_system::Connection;
use crate::memory::{Allocated, Handle, Place, Text, allocate_array, allocate_text, allocate_text_with};
use crate::memory::{number_behind_text, set_errno};

/// Values of `tObjectKind`.
const FILE: c_int = b'F' as c_int;
const DIRECTORY: c_int = b'D' as c_int;

/// Bit of the number behind the owner's name: the file is encrypted. Source: `hdfsExtendedFileInfo` of hdfs.c.
const ENCRYPTED: c_int = 1;

/// `hdfsFileInfo`. Behind `owner` there is a number with further bits, because the structure cannot grow: programs use
/// arrays of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FileInfo {
    kind: c_int,
    name: *mut c_char,
    /// Seconds since 1970.
    modified: time_t,
    length: i64,
    replication: c_short,
    block_size: i64,
    owner: *mut c_char,
    group: *mut c_char,
    permissions: c_short,
    /// Seconds since 1970.
    accessed: time_t,
}

impl FileInfo {
    /// `path`: name in the answer.
    fn new(status: &FileStatus, path: &str) -> Result<Self, Failure> {
        let seconds = |ms: u64| time_t::try_from(ms / 1000).unwrap_or(time_t::MAX);
        let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let flags = if status.flags.contains(FileFlags::ENCRYPTED) { ENCRYPTED } else { 0 };
        let is_directory = status.kind == FileKind::Directory;
        let mut info = Self {
            kind: if is_directory { DIRECTORY } else { FILE },
            name: std::ptr::null_mut(),
            modified: seconds(status.modification_time_ms),
            length: if is_directory { 0 } else { bytes(status.length) },
            replication: c_short::try_from(status.replication).unwrap_or(c_short::MAX),
            block_size: bytes(status.block_size),
            owner: std::ptr::null_mut(),
            group: std::ptr::null_mut(),
            permissions: status.permission.0 as c_short,
            accessed: seconds(status.access_time_ms),
        };
        let texts: Result<(), Failure> = (|| {
            info.name = allocate_text(path)?;
            info.owner = allocate_text_with(&status.owner, &flags.to_ne_bytes())?;
            info.group = allocate_text(&status.group)?;
            Ok(())
        })();
        match texts {
            Ok(()) => Ok(info),
            Err(failure) => {
                info.free();
                Err(failure)
            }
        }
    }

    /// Frees its strings.
    fn free(self) {
        [self.name, self.owner, self.group].into_iter().for_each(|text| Allocated::own(text).free());
    }
}

/// Returns an array of the entries in a directory, which may be empty: NULL with `errno` 0.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsListDirectory(fs: Handle<Connection>, path: Text, count: Place<c_int>) -> *mut FileInfo {
    call(std::ptr::null_mut(), || {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        let entries = connection.waiter().wait(connection.file_system()?.list_all(&path))?;
        let uri = connection.uri(path.trim_end_matches('/'))?;
        let mut infos = Vec::with_capacity(entries.len());
        let made: Result<(), Failure> = entries.iter().try_for_each(|entry| {
            // A file is listed as itself, without a name of its own.
            let name = match entry.local_name.as_slice() {
                [] => uri.clone(),
                name => format!("{uri}/{}", String::from_utf8_lossy(name)),
            };
            infos.push(FileInfo::new(entry, &name)?);
            Ok(())
        });
        let listed: Result<*mut FileInfo, Failure> = made.and_then(|()| {
            let number = c_int::try_from(infos.len()).map_err(|_| Failure::out_of_memory())?;
            let array = allocate_array(&infos)?;
            count.put(number).inspect_err(|_| Allocated::own(array).free())?;
            Ok(array)
        });
        match listed {
            Ok(array) => {
                set_errno(0);
                Ok(array)
            }
            Err(failure) => {
                infos.into_iter().for_each(FileInfo::free);
                Err(failure)
            }
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetPathInfo(fs: Handle<Connection>, path: Text) -> *mut FileInfo {
    call(std::ptr::null_mut(), || {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        let status = connection.waiter().wait(connection.file_system()?.status(&path))?;
        let info = FileInfo::new(&status, &connection.uri(&path)?)?;
        allocate_array(&[info]).inspect_err(|_| info.free())
    })
}

/// Frees an array of [`hdfsListDirectory`], or the one structure of [`hdfsGetPathInfo`].
#[unsafe(no_mangle)]
pub extern "C" fn hdfsFreeFileInfo(infos: Allocated<FileInfo>, count: c_int) {
    if infos.is_null() {
        return;
    }
    (0..usize::try_from(count).unwrap_or(0)).for_each(|index| infos.element(index).free());
    infos.free();
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFileIsEncrypted(info: Allocated<FileInfo>) -> c_int {
    call(-1, || {
        if info.is_null() || info.element(0).owner.is_null() {
            return Err(Failure::invalid("the hdfsFileInfo is NULL"));
        }
        Ok(c_int::from(number_behind_text(info.element(0).owner) & ENCRYPTED != 0))
    })
}

/// Returns 0 if the path exists.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsExists(fs: Handle<Connection>, path: Text) -> c_int {
    call(-1, || {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        connection.waiter().wait(connection.file_system()?.status(&path))?;
        Ok(0)
    })
}

/// Returns, for each block in the range, the hosts with a replica. Both levels end with NULL.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetHosts(fs: Handle<Connection>, path: Text, start: i64, length: i64) -> *mut *mut *mut c_char {
    call(std::ptr::null_mut(), || {
        let connection = Connection::of(fs)?;
        let path = connection.path(path)?;
        let not_negative =
            |value: i64| u64::try_from(value).map_err(|_| Failure::invalid("Invalid start or len parameter"));
        let (start, length) = (not_negative(start)?, not_negative(length)?);
        // The NameNode adds the two as signed numbers.
        let length = length.min(i64::MAX as u64 - start);
        let fs = connection.file_system()?;
        let located = connection.waiter().wait(async {
            if fs.status(&path).await?.kind == FileKind::Directory {
                return Err(Error::new(ErrorKind::NotFound, format!("Path is not a file: {path}")));
            }
            fs.locations(&path, start, length).await
        })?;
        let end = start.saturating_add(length);
        let within =
            located.blocks.iter().filter(|block| block.offset < end && block.offset + block.block.length() > start);
        let mut blocks = Vec::new();
        let made: Result<(), Failure> = within.into_iter().try_for_each(|block| {
            let hosts = block.locations.iter().map(|datanode| allocate_text(&datanode.id.host_name));
            blocks.push(terminated(hosts)?);
            Ok(())
        });
        let array = made.and_then(|()| terminated(blocks.iter().map(|block| Ok(*block))));
        array.inspect_err(|_| {
            blocks.iter().for_each(|block| free_terminated(*block, |host| Allocated::own(host).free()))
        })
    })
}

/// Returns an array of the pointers that ends with NULL.
fn terminated<T>(pointers: impl Iterator<Item = Result<*mut T, Failure>>) -> Result<*mut *mut T, Failure> {
    let mut all = pointers.collect::<Result<Vec<_>, _>>()?;
    all.push(std::ptr::null_mut());
    allocate_array(&all)
}

fn free_terminated<T>(array: *mut *mut T, mut free: impl FnMut(*mut T)) {
    let array = Allocated::own(array);
    if array.is_null() {
        return;
    }
    (0..).map(|index| array.element(index)).take_while(|pointer| !pointer.is_null()).for_each(&mut free);
    array.free();
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFreeHosts(hosts: Allocated<*mut *mut c_char>) {
    free_terminated(hosts.pointer(), |block| free_terminated(block, |host| Allocated::own(host).free()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_apaches() {
        let offsets = [
            std::mem::offset_of!(FileInfo, kind),
            std::mem::offset_of!(FileInfo, name),
            std::mem::offset_of!(FileInfo, modified),
            std::mem::offset_of!(FileInfo, length),
            std::mem::offset_of!(FileInfo, replication),
            std::mem::offset_of!(FileInfo, block_size),
            std::mem::offset_of!(FileInfo, owner),
            std::mem::offset_of!(FileInfo, group),
            std::mem::offset_of!(FileInfo, permissions),
            std::mem::offset_of!(FileInfo, accessed),
        ];
        assert_eq!(offsets, [0, 8, 16, 24, 32, 40, 48, 56, 64, 72]);
        assert_eq!(size_of::<FileInfo>(), 80);
    }
}
