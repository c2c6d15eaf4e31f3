//! Reading: `hdfsRead`, `hdfsPread`, positions, and statistics.

use hearth_client::{DataPath, ReadStatistics, Reader};
use libc::c_int;

use crate::failure::{EINTERNAL, Failure, call, call_for_errno};
use crate::file::{File, Input};
use crate::file_system::Connection;
use crate::memory::{Allocated, Handle, Place, Space, allocate_array};

fn length_of(length: i32) -> Result<usize, Failure> {
    usize::try_from(length).map_err(|_| Failure::invalid(format!("the length {length} is negative")))
}

/// Errors: `EINTERNAL` for a negative position, as for Java's EOFException.
fn position_of(position: i64) -> Result<u64, Failure> {
    let negative = |_| Failure::new(EINTERNAL, "java.io.EOFException", format!("the position {position} is negative"));
    u64::try_from(position).map_err(negative)
}

/// Fills `buffer` from the file's position on, fewer bytes only at its end. Returns their number.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsRead(_fs: Handle<Connection>, file: Handle<File>, buffer: Space, length: i32) -> i32 {
    call(-1, || {
        let input = File::input(file, libc::EINVAL)?;
        let buffer = buffer.slice(length_of(length)?)?;
        let mut reader = input.reader.lock();
        let start = reader.position();
        let outcome = input.waiter.wait(reader.read(buffer));
        if outcome.is_err() {
            // A caller that reads again must not miss the bytes that had arrived.
            reader.set_position(start)?;
        }
        Ok(i32::try_from(outcome?).unwrap_or(length))
    })
}

/// Like [`hdfsRead`], from `position` on, and without moving the file's position.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsPread(
    _fs: Handle<Connection>,
    file: Handle<File>,
    position: i64,
    buffer: Space,
    length: i32,
) -> i32 {
    call(-1, || {
        let count = read_at(File::input(file, libc::EINVAL)?, position, buffer, length)?;
        Ok(i32::try_from(count).unwrap_or(length))
    })
}

/// Like [`hdfsPread`], but fills all of `buffer`. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsPreadFully(
    _fs: Handle<Connection>,
    file: Handle<File>,
    position: i64,
    buffer: Space,
    length: i32,
) -> c_int {
    call(-1, || {
        let count = read_at(File::input(file, libc::EINVAL)?, position, buffer, length)?;
        if count < length_of(length)? {
            let message = format!("End of file reached before reading fully: {count} of {length} bytes at {position}");
            return Err(Failure::new(EINTERNAL, "java.io.EOFException", message));
        }
        Ok(0)
    })
}

fn read_at(input: &Input, position: i64, buffer: Space, length: i32) -> Result<usize, Failure> {
    let buffer = buffer.slice(length_of(length)?)?;
    if buffer.is_empty() {
        return Ok(0);
    }
    let position = position_of(position)?;
    // Bytes that are mapped already are copied in less time than a runtime takes to begin. They count as read, so only
    // the rest is read again.
    let done = input.positioned.try_read_at(position, buffer);
    let rest = position + done as u64;
    if done == buffer.len() || (done > 0 && rest >= input.positioned.length()) {
        return Ok(done);
    }
    Ok(done + input.waiter.wait(input.positioned.read_at(rest, &mut buffer[done..]))?)
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsSeek(_fs: Handle<Connection>, file: Handle<File>, position: i64) -> c_int {
    call(-1, || {
        let input = File::input(file, libc::EBADF)?;
        input.waiter.wait(input.reader.lock().seek(position_of(position)?))?;
        Ok(0)
    })
}

/// Returns the file's position: of the next byte to read, or to write.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsTell(_fs: Handle<Connection>, file: Handle<File>) -> i64 {
    call(-1, || Ok(i64::try_from(File::stream(file)?.position()?).unwrap_or(i64::MAX)))
}

/// Returns the number of bytes from the position to the file's end.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsAvailable(_fs: Handle<Connection>, file: Handle<File>) -> c_int {
    call(-1, || {
        let reader = File::input(file, libc::EBADF)?.reader.lock();
        let left = reader.length().saturating_sub(reader.position());
        Ok(c_int::try_from(left).unwrap_or(c_int::MAX))
    })
}

/// Gives up connection and buffers of a file that stays open.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsUnbufferFile(file: Handle<File>) -> c_int {
    let errno = call_for_errno(|| {
        let mut reader = File::input(file, libc::ENOTSUP)?.reader.lock();
        let _runtime = hearth_client::process::runtime()?.enter();
        Reader::unbuffer(&mut reader);
        Ok(())
    });
    // As Apache's: also after a success.
    crate::memory::set_errno(errno);
    errno
}

/// `struct hdfsReadStatistics`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    total: u64,
    local: u64,
    short_circuit: u64,
    zero_copy: u64,
}

impl From<ReadStatistics> for Statistics {
    fn from(statistics: ReadStatistics) -> Self {
        // Bytes that come over TCP from this machine's DataNode count as remote: the client does not tell them apart.
        let local = statistics.read_bytes(DataPath::Local);
        Self { total: statistics.total_bytes(), local, short_circuit: local, zero_copy: statistics.shown_bytes() }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFileGetReadStatistics(file: Handle<File>, place: Place<*mut Statistics>) -> c_int {
    call(-1, || {
        let statistics = File::input(file, libc::EINVAL)?.positioned.statistics();
        place.put(allocate_array(&[Statistics::from(statistics)])?).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsReadStatisticsGetRemoteBytesRead(statistics: Allocated<Statistics>) -> i64 {
    if statistics.is_null() {
        return 0;
    }
    let Statistics { total, local, .. } = statistics.element(0);
    total.saturating_sub(local) as i64
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFileClearReadStatistics(file: Handle<File>) -> c_int {
    call_for_errno(|| {
        File::input(file, libc::EINVAL)?.positioned.clear_statistics();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFileFreeReadStatistics(statistics: Allocated<Statistics>) {
    statistics.free();
}

/// `struct hdfsHedgedReadMetrics`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HedgedReadMetrics {
    operations: u64,
    won: u64,
    in_current_thread: u64,
}

/// Returns the number of hedged reads. This client makes none, so all are 0.
#[unsafe(no_mangle)]
pub extern "C" fn hdfsGetHedgedReadMetrics(fs: Handle<Connection>, place: Place<*mut HedgedReadMetrics>) -> c_int {
    call(-1, || {
        Connection::of(fs)?;
        place.put(allocate_array(&[HedgedReadMetrics::default()])?).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn hdfsFreeHedgedReadMetrics(metrics: Allocated<HedgedReadMetrics>) {
    metrics.free();
}
