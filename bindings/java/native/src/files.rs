//! Native half of the Java class `io.hearth.hdfs.NativeFiles`, which documents each function: conversion between Java's
//! types and [`hearth_client::FileSystem`].
//!
//! [`located`] decodes the blocks of a file, which Java has located. [`target`] is memory of Java that reads fill.
//! [`writer`] is the native half of `io.hearth.hdfs.NativeWriter`.

mod located;
mod target;
mod writer;

use std::borrow::Cow;
use std::time::Duration;

use hearth_client::{
    ByteRange, DataPath, Error, ErrorKind, FileSystem, PositionedReader, Reader, View, ViewChecks, process,
};
use jni_sys::{JNIEnv, jboolean, jbyteArray, jclass, jint, jintArray, jlong, jlongArray, jobject, jobjectArray};
use parking_lot::Mutex;

use crate::jvm::{Jvm, Thrown};
use crate::{NativeCall, configuration, guarded, handed, runtime, take_back};
use target::{Array, Direct, Target};

/// Time after which a thread that waits looks whether it was interrupted, again and again.
const INTERRUPT_CHECK: Duration = Duration::from_millis(100);

/// Bytes that are copied from mapped memory at a time: the limit of [`PositionedReader::try_read_at`].
const MAPPED_BYTES: usize = 1 << 20;

/// Bytes that are read over the network at a time, into memory of this library.
const COPIED_BYTES: usize = 4 << 20;

/// Most bytes of ranges that are read together over the network, into memory of this library. A longer range is read
/// alone, into the memory of Java if the JVM does not move that.
const TOGETHER_BYTES: usize = 32 << 20;

/// A file that is open for reading.
struct OpenFile {
    positioned: PositionedReader,
    in_order: Mutex<InOrder>,
    /// Number of bytes from other machines that Java has counted.
    told: Mutex<u64>,
}

/// State of reads in order.
struct InOrder {
    /// For bytes that arrive over a network.
    reader: Reader,
    /// The rest of a block in the memory of a DataNode on this machine, and where it begins in the file. It stays readable
    /// when the file is changed or deleted, or the DataNode ends.
    shown: Option<(u64, View)>,
}

impl InOrder {
    /// Returns the shown bytes that hold the byte at `position`, and the offset of that byte in them.
    fn shown_at(&self, position: u64) -> Option<(&View, usize)> {
        let (start, view) = self.shown.as_ref()?;
        let offset = usize::try_from(position.checked_sub(*start)?).ok()?;
        (offset < view.len()).then_some((view, offset))
    }

    /// Fills the part of `target` from `done` on with shown bytes, as far as they reach and are not corrupt. Returns the
    /// number of bytes filled in all.
    fn copy_shown(&mut self, position: u64, target: &mut impl Target, mut done: usize) -> Result<usize, Thrown> {
        while done < target.length()
            && let Some((view, offset)) = self.shown_at(position + done as u64)
        {
            let piece = (target.length() - done).min(view.len() - offset).min(MAPPED_BYTES);
            let copied =
                target.with(done, piece, |into| if view.copy(offset, into).is_ok() { into.len() } else { 0 })?;
            if copied == 0 {
                self.shown = None;
            }
            done += copied;
        }
        Ok(done)
    }
}

impl OpenFile {
    /// Returns how many more bytes came from elsewhere than this machine's memory since the last call. Other threads'
    /// bytes are counted for the thread that asks first.
    fn elsewhere(&self) -> i32 {
        let mut told = self.told.lock();
        let statistics = self.positioned.statistics();
        let all = statistics.read_bytes(DataPath::OneSided) + statistics.read_bytes(DataPath::Packets);
        let more = i32::try_from(all.saturating_sub(*told)).unwrap_or(i32::MAX);
        *told += more as u64;
        more
    }

    /// Packs an answer for Java: the number of bytes, and above it how many came from elsewhere.
    fn answer(&self, read: Read) -> jlong {
        let elsewhere = if read.waited { self.elsewhere() } else { 0 };
        (jlong::from(elsewhere) << 32) | read.count as jlong
    }
}

/// Outcome of a read.
struct Read {
    /// At most the length of an array or a buffer of Java.
    count: usize,
    /// Some bytes may have come from elsewhere than mapped memory.
    waited: bool,
}

/// Runs a call of the client to its end.
///
/// Errors: `Interrupted`.
fn wait<T>(jvm: &Jvm, future: impl Future<Output = T>) -> Result<T, Thrown> {
    wait_patiently(jvm, 0, future)
}

/// Like [`wait`], but the first `patience` checks for interrupts are left out. One is due each [`INTERRUPT_CHECK`].
fn wait_patiently<T>(jvm: &Jvm, patience: u32, future: impl Future<Output = T>) -> Result<T, Thrown> {
    let runtime = runtime::runtime()?;
    let mut left_out = 0;
    process::block_on_checked(&runtime, future, INTERRUPT_CHECK, || {
        if left_out < patience {
            left_out += 1;
            return Ok(());
        }
        if jvm.is_interrupted() { Err(Thrown::Interrupted) } else { Ok(()) }
    })
}

/// Fills the part of `target` from `done` on from mapped memory, as far as possible. Maps replicas if necessary. Returns
/// the number of bytes filled in all, and whether anything was waited for.
fn read_mapped(
    jvm: &Jvm,
    file: &OpenFile,
    position: u64,
    target: &mut impl Target,
    mut done: usize,
) -> Result<(usize, bool), Thrown> {
    let (length, mut waited, mut mapped_for) = (target.length(), false, None);
    while done < length {
        let at = position + done as u64;
        let piece = (length - done).min(MAPPED_BYTES);
        let copied = target.with(done, piece, |into| file.positioned.try_read_at(at, into))?;
        done += copied;
        if copied == piece {
            continue;
        }
        // Mapped, but not readable: its bytes are corrupt, or it was withdrawn. The client's usual path finds out.
        if mapped_for == Some(done) {
            break;
        }
        mapped_for = Some(done);
        waited = true;
        if !wait(jvm, file.positioned.map_at(at + copied as u64))?.unwrap_or(false) {
            break;
        }
    }
    Ok((done, waited))
}

/// Turns a failure after `done` bytes into a shorter read: the next read meets it again.
fn or_shorter<T>(done: usize, result: Result<T, Error>) -> Result<Option<T>, Thrown> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(_) if done > 0 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Fills `target` from `position` on, fewer bytes only at the end of the file or before a failure. Bytes behind are
/// requested in advance.
fn read_in_order(jvm: &Jvm, file: &OpenFile, position: u64, target: &mut impl Target) -> Result<Read, Thrown> {
    let mut in_order = file.in_order.lock();
    let (mut done, mut tried) = (0, None);
    loop {
        done = in_order.copy_shown(position, target, done)?;
        let at = position + done as u64;
        if done == target.length() {
            return Ok(Read { count: done, waited: tried.is_some() });
        }
        // Tried already: the shown bytes are corrupt. The client's usual path finds out and reports it.
        if tried == Some(at) {
            break;
        }
        tried = Some(at);
        match show(jvm, file, at)? {
            Some(view) => in_order.shown = Some((at, view)),
            None => break,
        }
    }
    let reader = &mut in_order.reader;
    let sought = wait(jvm, reader.seek(position + done as u64))?;
    if or_shorter(done, sought)?.is_none() {
        return Ok(Read { count: done, waited: true });
    }
    while done < target.length() {
        let arrived = wait(jvm, reader.next())?;
        let Some(bytes) = or_shorter(done, arrived)? else { break };
        let count = bytes.len().min(target.length() - done);
        if count == 0 {
            break;
        }
        target.store(done, &bytes[..count])?;
        reader.consume(count);
        done += count;
    }
    Ok(Read { count: done, waited: true })
}

/// Shows the rest of the block from `position` on in the memory of a DataNode on this machine, if it is there. Its bytes are
/// verified when they are copied, and not before: a program may read a few of them only.
fn show(jvm: &Jvm, file: &OpenFile, position: u64) -> Result<Option<View>, Thrown> {
    if !wait(jvm, file.positioned.map_at(position))?.unwrap_or(false) {
        return Ok(None);
    }
    let rest = usize::try_from(file.positioned.length().saturating_sub(position)).unwrap_or(usize::MAX);
    let showing = file.positioned.view_in_place_with(position, rest, ViewChecks::Unverified);
    let view = wait(jvm, showing)?.unwrap_or(None);
    Ok(view.filter(|view| view.is_shown() && !view.is_empty()))
}

/// Fills `target` from `position` on, fewer bytes only at the end of the file or before a failure.
fn read_at(jvm: &Jvm, file: &OpenFile, position: u64, target: &mut impl Target) -> Result<Read, Thrown> {
    let (done, waited) = read_mapped(jvm, file, position, target, 0)?;
    if done == target.length() {
        return Ok(Read { count: done, waited });
    }
    read_rest(jvm, file, position, target, done)
}

/// Fills the part of `target` from `done` on by the client's usual path, fewer bytes only at the end of the file or before
/// a failure. `position`: that of the first byte of `target`.
fn read_rest(
    jvm: &Jvm,
    file: &OpenFile,
    position: u64,
    target: &mut impl Target,
    mut done: usize,
) -> Result<Read, Thrown> {
    let length = target.length();
    if let Some(all) = target.direct() {
        let read = wait(jvm, file.positioned.read_at(position + done as u64, &mut all[done..]))?;
        done += or_shorter(done, read)?.unwrap_or(0);
        return Ok(Read { count: done, waited: true });
    }
    let mut copy = vec![0; (length - done).min(COPIED_BYTES)];
    while done < length {
        let piece = (length - done).min(COPIED_BYTES);
        let read = wait(jvm, file.positioned.read_at(position + done as u64, &mut copy[..piece]))?;
        let Some(count) = or_shorter(done, read)? else { break };
        if count == 0 {
            break;
        }
        target.store(done, &copy[..count])?;
        done += count;
    }
    Ok(Read { count: done, waited: true })
}

/// Memory of Java that one range of several is read into: an array, or a direct buffer.
#[derive(Clone, Copy)]
struct Place {
    position: u64,
    length: jint,
    /// Offset of the first byte in an array. For a direct buffer with that offset it is `-1 - offset`.
    offset: jint,
}

impl Place {
    /// Calls `fill` with the memory, which is element `index` of `targets`.
    fn with<T>(
        &self,
        jvm: &Jvm,
        targets: jobjectArray,
        index: usize,
        fill: impl FnOnce(&mut AnyTarget<'_>) -> Result<T, Thrown>,
    ) -> Result<T, Thrown> {
        jvm.with_element(targets, index, |element| {
            let mut target = if self.offset < 0 {
                // SAFETY: the element stays referenced during this call.
                AnyTarget::Direct(Direct(unsafe { jvm.direct_range(element, -1 - self.offset, self.length)? }))
            } else {
                AnyTarget::Array(Array::new(jvm, element, self.offset, self.length)?)
            };
            fill(&mut target)
        })
    }
}

/// Memory of either kind.
enum AnyTarget<'a> {
    Array(Array<'a>),
    Direct(Direct<'a>),
}

impl Target for AnyTarget<'_> {
    fn length(&self) -> usize {
        match self {
            Self::Array(array) => array.length(),
            Self::Direct(direct) => direct.length(),
        }
    }

    fn with(&mut self, start: usize, count: usize, copy: impl FnOnce(&mut [u8]) -> usize) -> Result<usize, Thrown> {
        match self {
            Self::Array(array) => array.with(start, count, copy),
            Self::Direct(direct) => direct.with(start, count, copy),
        }
    }

    fn store(&mut self, start: usize, bytes: &[u8]) -> Result<(), Thrown> {
        match self {
            Self::Array(array) => array.store(start, bytes),
            Self::Direct(direct) => direct.store(start, bytes),
        }
    }

    fn direct(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Array(array) => array.direct(),
            Self::Direct(direct) => direct.direct(),
        }
    }
}

/// Fills each of `places` from the file. Ranges that are not mapped are requested together, as far as [`TOGETHER_BYTES`]
/// permit. Returns 1 for each range that was filled, and 0 for each that failed or ends behind the end of the file.
fn read_ranges(jvm: &Jvm, file: &OpenFile, places: &[Place], targets: jobjectArray) -> Result<Vec<u8>, Thrown> {
    let mut filled = vec![0; places.len()];
    let mut left = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let length = place.length as usize;
        let done = place.with(jvm, targets, index, |target| {
            let (done, _) = read_mapped(jvm, file, place.position, target, 0)?;
            if done == length || length <= TOGETHER_BYTES {
                return Ok(done);
            }
            match read_rest(jvm, file, place.position, target, done) {
                Ok(read) => Ok(read.count),
                // The caller reads the range again, and finds the error.
                Err(Thrown::Io(_) | Thrown::Unreachable(_) | Thrown::Refused { .. }) => Ok(done),
                Err(thrown) => Err(thrown),
            }
        })?;
        if done == length {
            filled[index] = 1;
        } else if length <= TOGETHER_BYTES {
            left.push(index);
        }
    }
    let mut rest = left.as_slice();
    while !rest.is_empty() {
        let (together, behind) = rest.split_at(fitting(places, rest));
        let wanted: Option<Vec<_>> = together
            .iter()
            .map(|index| ByteRange::with_length(places[*index].position, places[*index].length as u64))
            .collect();
        let wanted = wanted.ok_or(Thrown::Argument("a range beyond the largest offset"))?;
        let read = wait(jvm, file.positioned.read_ranges(&wanted))?;
        for (index, bytes) in together.iter().zip(read) {
            let place = places[*index];
            // The caller reads the others one by one, and finds the error.
            if let Ok(bytes) = bytes
                && bytes.len() == place.length as usize
            {
                place.with(jvm, targets, *index, |target| target.store(0, &bytes))?;
                filled[*index] = 1;
            }
        }
        rest = behind;
    }
    Ok(filled)
}

/// Returns how many of the `places` with these indexes are read together: as many as [`TOGETHER_BYTES`] hold, and at least
/// one.
fn fitting(places: &[Place], indexes: &[usize]) -> usize {
    let mut bytes = 0;
    let fits = |index: &&usize| {
        bytes += places[**index].length as usize;
        bytes <= TOGETHER_BYTES
    };
    indexes.iter().take_while(fits).count().max(1)
}

/// `long connect(byte[] uri, byte[] user, byte[] realUser, byte[] settings)`
///
/// # Safety
///
/// Called by the JVM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_connect(
    env: *mut JNIEnv,
    _class: jclass,
    uri: jbyteArray,
    user: jbyteArray,
    real_user: jbyteArray,
    settings: jbyteArray,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread.
    let jvm = unsafe { Jvm::new(env) };
    guarded(&jvm, 0, || {
        let mut builder = FileSystem::builder()
            .configuration(configuration(&jvm, settings)?)
            .url(jvm.text(uri)?)
            .user(jvm.text(user)?);
        let real_user = jvm.text(real_user)?;
        if !real_user.is_empty() {
            builder = builder.real_user(real_user);
        }
        let runtime = runtime::runtime()?;
        let _entered = runtime.enter();
        Ok(handed(builder.build()?))
    })
}

/// `void disconnect(long client)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, once for each address that `connect` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_disconnect(
    env: *mut JNIEnv,
    _class: jclass,
    client: jlong,
) {
    // SAFETY: the JVM passes its environment of this thread. Java disconnects a client once, and uses it no more.
    unsafe { take_back::<FileSystem>(env, client) };
}

/// `long open(long client, byte[] path, byte[] blocks)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `connect` returned and that is not disconnected.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_open(
    env: *mut JNIEnv,
    _class: jclass,
    client: jlong,
    path: jbyteArray,
    blocks: jbyteArray,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the client while it calls.
    unsafe { NativeCall::<FileSystem>::new(env, client) }.run(0, |jvm, client| {
        let (path, located) = (jvm.text(path)?, located::decode(&jvm.bytes(blocks)?)?);
        let Some(first) = located.blocks.first().or(located.last_block.as_ref()) else { return Ok(0) };
        if !wait(jvm, client.is_on_hearth(first))?.map_err(classified)? {
            return Ok(0);
        }
        let reader = client.open_located(&path, located)?;
        let positioned = reader.positioned();
        let in_order = Mutex::new(InOrder { reader, shown: None });
        Ok(handed(OpenFile { positioned, in_order, told: Mutex::new(0) }))
    })
}

/// Returns the exception of a call that could not begin to read or write. Java distinguishes failures by its class.
fn classified(error: Error) -> Thrown {
    let kind = error.kind();
    match Thrown::from(error) {
        Thrown::Io(message) if kind == ErrorKind::Unreachable => Thrown::Unreachable(message),
        thrown => thrown,
    }
}

/// `byte[][] readStarts(long client, byte[] paths, int length)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `connect` returned and that is not disconnected.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_readStarts(
    env: *mut JNIEnv,
    _class: jclass,
    client: jlong,
    paths: jbyteArray,
    length: jint,
) -> jobjectArray {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the client while it calls.
    unsafe { NativeCall::<FileSystem>::new(env, client) }.run(std::ptr::null_mut(), |jvm, client| {
        let (paths, length) = (jvm.text(paths)?, length.max(0) as u64);
        let start = ByteRange::new(0, length).ok_or(Thrown::Argument("a length below 0"))?;
        let wanted: Vec<_> = paths.split_terminator('\0').map(|path| (path, start)).collect();
        // SAFETY: `wait` polls the future that holds it on this thread only, and drops it before this method returns.
        let mut arrays = unsafe { jvm.new_arrays(wanted.len())? };
        // The caller opens the others one by one, and finds the errors. If all that have bytes fail, it says why.
        let (mut any, mut reason) = (false, None);
        let put = |index, bytes: Result<Cow<'_, [u8]>, Error>| match bytes {
            Ok(bytes) => {
                any |= !bytes.is_empty();
                arrays.put(index, &bytes);
            }
            // Other errors, such as that of a missing file, say nothing about the other files.
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::DataUnavailable) => {
                reason.get_or_insert(error);
            }
            Err(_) => {}
        };
        wait(jvm, client.visit_many(&wanted, put))?;
        match reason {
            Some(error) if !any => Err(classified(error)),
            _ => arrays.finish(),
        }
    })
}

/// `long read(long file, long position, byte[] into, int offset, int length)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_read(
    env: *mut JNIEnv,
    _class: jclass,
    file: jlong,
    position: jlong,
    into: jbyteArray,
    offset: jint,
    length: jint,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the file while it calls.
    unsafe { NativeCall::<OpenFile>::new(env, file) }.run(0, |jvm, file| {
        let read = read_in_order(jvm, file, position as u64, &mut Array::new(jvm, into, offset, length)?)?;
        Ok(file.answer(read))
    })
}

/// `long readDirect(long file, long position, ByteBuffer into, int offset, int length)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_readDirect(
    env: *mut JNIEnv,
    _class: jclass,
    file: jlong,
    position: jlong,
    into: jobject,
    offset: jint,
    length: jint,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the file while it calls.
    unsafe { NativeCall::<OpenFile>::new(env, file) }.run(0, |jvm, file| {
        // SAFETY: the reference `into` keeps the buffer's memory until this method returns.
        let into = unsafe { jvm.direct_range(into, offset, length)? };
        let read = read_in_order(jvm, file, position as u64, &mut Direct(into))?;
        Ok(file.answer(read))
    })
}

/// `long readAt(long file, long position, byte[] into, int offset, int length)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_readAt(
    env: *mut JNIEnv,
    _class: jclass,
    file: jlong,
    position: jlong,
    into: jbyteArray,
    offset: jint,
    length: jint,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the file while it calls.
    unsafe { NativeCall::<OpenFile>::new(env, file) }.run(0, |jvm, file| {
        let read = read_at(jvm, file, position as u64, &mut Array::new(jvm, into, offset, length)?)?;
        Ok(file.answer(read))
    })
}

/// `long readAtDirect(long file, long position, ByteBuffer into, int offset, int length)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_readAtDirect(
    env: *mut JNIEnv,
    _class: jclass,
    file: jlong,
    position: jlong,
    into: jobject,
    offset: jint,
    length: jint,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the file while it calls.
    unsafe { NativeCall::<OpenFile>::new(env, file) }.run(0, |jvm, file| {
        // SAFETY: the reference `into` keeps the buffer's memory until this method returns.
        let into = unsafe { jvm.direct_range(into, offset, length)? };
        let read = read_at(jvm, file, position as u64, &mut Direct(into))?;
        Ok(file.answer(read))
    })
}

/// `byte[] readRanges(long file, long[] positions, int[] lengths, Object[] targets, int[] offsets)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_readRanges(
    env: *mut JNIEnv,
    _class: jclass,
    file: jlong,
    positions: jlongArray,
    lengths: jintArray,
    targets: jobjectArray,
    offsets: jintArray,
) -> jbyteArray {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the file while it calls.
    unsafe { NativeCall::<OpenFile>::new(env, file) }.run(std::ptr::null_mut(), |jvm, file| {
        let (positions, lengths, offsets) = (jvm.longs(positions)?, jvm.ints(lengths)?, jvm.ints(offsets)?);
        if positions.len() != lengths.len() || positions.len() != offsets.len() {
            return Err(Thrown::Argument("arrays of different lengths"));
        }
        let places = positions.iter().zip(&lengths).zip(&offsets);
        let places: Vec<_> = places
            .map(|((position, length), offset)| Place { position: *position as u64, length: *length, offset: *offset })
            .collect();
        jvm.new_bytes(&read_ranges(jvm, file, &places, targets)?)
    })
}

/// `int elsewhere(long file)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_elsewhere(
    env: *mut JNIEnv,
    _class: jclass,
    file: jlong,
) -> jint {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the file while it calls.
    unsafe { NativeCall::<OpenFile>::new(env, file) }.run(0, |_, file| Ok(file.elsewhere()))
}

/// `long view(long file, long position, int length, boolean verify)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_view(
    env: *mut JNIEnv,
    _class: jclass,
    file: jlong,
    position: jlong,
    length: jint,
    verify: jboolean,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the file while it calls.
    unsafe { NativeCall::<OpenFile>::new(env, file) }.run(0, |jvm, file| {
        let (position, length) = (position as u64, length.max(0) as usize);
        // Otherwise the bytes would be requested, and dropped.
        if !wait(jvm, file.positioned.map_at(position))?? {
            return Ok(0);
        }
        let checks = if verify { ViewChecks::Verified } else { ViewChecks::Unverified };
        let showing = file.positioned.view_in_place_with(position, length, checks);
        let Some(view) = wait(jvm, showing)?? else { return Ok(0) };
        Ok(if view.is_shown() && !view.is_empty() { handed(view) } else { 0 })
    })
}

/// `ByteBuffer buffer(long view)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `view` returned. The view is released when the buffer and all
/// that were made of it are given up, and Java hands out read-only ones only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_buffer(
    env: *mut JNIEnv,
    _class: jclass,
    view: jlong,
) -> jobject {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the view while it calls.
    unsafe { NativeCall::<View>::new(env, view) }.run(std::ptr::null_mut(), |jvm, view| {
        // SAFETY: see above.
        unsafe { jvm.new_direct_buffer(view) }
    })
}

/// `void release(long view)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, once for each address that `view` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_release(env: *mut JNIEnv, _class: jclass, view: jlong) {
    // SAFETY: the JVM passes its environment of this thread. Java releases a view once, and uses it no more.
    unsafe { take_back::<View>(env, view) };
}

/// `void unbuffer(long file)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_unbuffer(env: *mut JNIEnv, _class: jclass, file: jlong) {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the file while it calls.
    unsafe { NativeCall::<OpenFile>::new(env, file) }.run((), |_, file| {
        let runtime = runtime::runtime()?;
        let _entered = runtime.enter();
        let mut in_order = file.in_order.lock();
        in_order.reader.unbuffer();
        in_order.shown = None;
        Ok(())
    });
}

/// `void close(long file)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, once for each address that `open` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeFiles_close(env: *mut JNIEnv, _class: jclass, file: jlong) {
    // SAFETY: the JVM passes its environment of this thread. Java closes a file once, and uses it no more.
    unsafe { take_back::<OpenFile>(env, file) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_together_are_bounded() {
        let most = TOGETHER_BYTES as jint;
        let lengths = [most / 2, 1, most / 2, 10, most, most + 1, 0];
        let places = lengths.map(|length| Place { position: 0, length, offset: 0 });
        let all: Vec<usize> = (0..places.len()).collect();
        // The first three exceed the bound by one byte.
        let counts = [(0, 2), (1, 3), (2, 2), (4, 1), (5, 1), (6, 1)];
        for (first, count) in counts {
            assert_eq!(fitting(&places, &all[first..]), count, "from range {first} on");
        }
        // Ranges between them may be filled already.
        assert_eq!(fitting(&places, &[0, 3, 6]), 3);
    }
}
