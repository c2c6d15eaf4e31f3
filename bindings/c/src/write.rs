//! Writing: `hdfsWrite` and the flushes.

use libc::c_int;

use crate::failure::{Failure, call};
use crate::file::File;
use crate::file_system::Connection;
use crate::memory::{Bytes, Handle};

/// Appends all `length` bytes. Returns their number, and a smaller one only if the call was interrupted: those bytes are taken.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsWrite(_fs: Handle<Connection>, file: Handle<File>, bytes: Bytes, length: i32) -> i32 {
    call(-1, || {
        let count =
            usize::try_from(length).map_err(|_| Failure::invalid(format!("the length {length} is negative")))?;
        let bytes = bytes.slice(count)?;
        File::output(file, libc::EINVAL, |writer, waiter| {
            let start = writer.position();
            match waiter.wait(writer.write(bytes)) {
                Ok(()) => Ok(length),
                Err(failure) if failure.errno == libc::EINTR && writer.position() > start => {
                    Ok(i32::try_from(writer.position() - start).unwrap_or(length))
                }
                Err(failure) => Err(failure),
            }
        })
    })
}

/// Does nothing but find out whether the file is open for writing. As in Apache's client, readers see the bytes only
/// after [`hdfsHFlush`]; here, full packets have been sent already.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsFlush(_fs: Handle<Connection>, file: Handle<File>) -> c_int {
    call(-1, || File::output(file, libc::EBADF, |_, _| Ok(0)))
}

/// Waits until every byte is in the memory of each DataNode. New readers see them.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsHFlush(_fs: Handle<Connection>, file: Handle<File>) -> c_int {
    call(-1, || File::output(file, libc::EBADF, |writer, waiter| waiter.wait(writer.hflush()).map(|()| 0)))
}

/// Like [`hdfsHFlush`], and waits until the bytes are on the disks.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsHSync(_fs: Handle<Connection>, file: Handle<File>) -> c_int {
    call(-1, || File::output(file, libc::EBADF, |writer, waiter| waiter.wait(writer.hsync()).map(|()| 0)))
}
