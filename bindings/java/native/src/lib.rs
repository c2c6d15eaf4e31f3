//! Native half of the Java class `io.hearth.hdfs.Native`, which documents each function: conversion between Java's types
//! and [`hearth_client::LocalBlocks`]. [`files`] is that of `io.hearth.hdfs.NativeFiles`: whole files, by the client.
//!
//! Objects of Rust are handed to Java as addresses. The Java classes guarantee that an address is used only between the
//! call that returned it and the call that closed it, and that no call uses it while another closes it.

mod files;
mod jvm;
mod runtime;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hearth_client::{
    Block, BlockId, BlockPoolId, Configuration, ExtendedBlock, GenerationStamp, LocalBlock, LocalBlocks, Token,
};
use jni_sys::{JNI_VERSION_1_6, JNIEnv, JavaVM, jboolean, jbyteArray, jclass, jint, jlong, jobject};
use parking_lot::Mutex;

use jvm::{Jvm, Thrown};

/// Bytes that are copied in one critical section. The JVM cannot collect garbage during it: about a millisecond.
const CRITICAL_BYTES: usize = 4 << 20;

/// Bytes that are read from a file at a time.
const FILE_BYTES: usize = 1 << 20;

/// Replicas of one block pool on this machine.
struct Pool {
    blocks: LocalBlocks,
    id: BlockPoolId,
}

impl Pool {
    /// `length`: number of bytes that may be read.
    fn block(&self, id: jlong, stamp: jlong, length: jlong) -> ExtendedBlock {
        let block = Block { id: BlockId(id), stamp: GenerationStamp(stamp as u64), length: length.max(0) as u64 };
        ExtendedBlock { pool: self.id.clone(), block }
    }
}

/// Runs the body of a native method. An error or a panic becomes a Java exception, and the method returns `otherwise`.
fn guarded<T>(jvm: &Jvm, otherwise: T, body: impl FnOnce() -> Result<T, Thrown>) -> T {
    let thrown = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(thrown)) => thrown,
        Err(_) => Thrown::Io("internal error of Hearth's native library: see the standard error output".to_owned()),
    };
    jvm.throw(thrown);
    otherwise
}

/// Objects that live as long as the Java class. Java bounds their number.
static KEPT: Mutex<Vec<Arc<dyn Any + Send + Sync>>> = Mutex::new(Vec::new());

/// Keeps an object until the library is unloaded. Returns its address.
fn kept<T: Any + Send + Sync>(object: T) -> jlong {
    let object = Arc::new(object);
    let address = Arc::as_ptr(&object) as jlong;
    KEPT.lock().push(object);
    address
}

/// Hands an object to Java. Any thread may use it and close it.
fn handed<T: Send + Sync>(object: T) -> jlong {
    Box::into_raw(Box::new(object)) as jlong
}

/// Takes an object back and drops it: the body of a native method that closes it.
///
/// # Safety
///
/// `env` is as for [`Jvm::new`]. `address` is an address of a `T` that [`handed`] returned and that is not used any more.
unsafe fn take_back<T>(env: *mut JNIEnv, address: jlong) {
    // SAFETY: see above.
    let jvm = unsafe { Jvm::new(env) };
    guarded(&jvm, (), || {
        // SAFETY: see above.
        let object = unsafe { Box::from_raw(address as *mut T) };
        // In the runtime, so that connections and slots of replicas are released at once.
        let runtime = runtime::runtime()?;
        let _entered = runtime.enter();
        drop(object);
        Ok(())
    });
}

/// # Safety
///
/// `address` is an address of a `T` that [`kept`] or [`handed`] returned, and is not closed while the reference lives.
unsafe fn object<'a, T>(address: jlong) -> &'a T {
    // SAFETY: see above.
    unsafe { &*(address as *const T) }
}

/// Call of a native method that uses an object which was handed to Java.
struct NativeCall<'a, T> {
    jvm: Jvm,
    object: &'a T,
}

impl<'a, T> NativeCall<'a, T> {
    /// # Safety
    ///
    /// `env` is as for [`Jvm::new`], and `address` as for [`object`].
    unsafe fn new(env: *mut JNIEnv, address: jlong) -> Self {
        // SAFETY: see above.
        unsafe { Self { jvm: Jvm::new(env), object: object(address) } }
    }

    /// Runs the body of the method, like [`guarded`]. Apart from [`Self::new`], so that the body is in no unsafe block.
    fn run<R>(self, otherwise: R, body: impl FnOnce(&Jvm, &'a T) -> Result<R, Thrown>) -> R {
        guarded(&self.jvm, otherwise, || body(&self.jvm, self.object))
    }
}

/// Called by the JVM when it loads the library.
#[unsafe(no_mangle)]
pub extern "system" fn JNI_OnLoad(_vm: *mut JavaVM, _reserved: *mut std::ffi::c_void) -> jint {
    JNI_VERSION_1_6
}

/// Called by the JVM when the class loader that loaded the library is gone.
#[unsafe(no_mangle)]
pub extern "system" fn JNI_OnUnload(_vm: *mut JavaVM, _reserved: *mut std::ffi::c_void) {
    // No native method runs, because the class that declares them is gone.
    KEPT.lock().clear();
    runtime::end();
}

/// `byte[] version()`
///
/// # Safety
///
/// Called by the JVM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_version(env: *mut JNIEnv, _class: jclass) -> jbyteArray {
    // SAFETY: the JVM passes its environment of this thread.
    let jvm = unsafe { Jvm::new(env) };
    guarded(&jvm, std::ptr::null_mut(), || jvm.new_bytes(env!("CARGO_PKG_VERSION").as_bytes()))
}

/// Returns the configuration that Java passes: keys and values in turn, each ended by NUL.
fn configuration(jvm: &Jvm, settings: jbyteArray) -> Result<Configuration, Thrown> {
    let settings = jvm.text(settings)?;
    let mut configuration = Configuration::empty();
    let mut words = settings.split('\0');
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        configuration.set(key, value.to_owned());
    }
    Ok(configuration)
}

/// `long connect(byte[] settings)`
///
/// # Safety
///
/// Called by the JVM only.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_connect(
    env: *mut JNIEnv,
    _class: jclass,
    settings: jbyteArray,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread.
    let jvm = unsafe { Jvm::new(env) };
    guarded(&jvm, 0, || Ok(kept(LocalBlocks::new(&configuration(&jvm, settings)?)?)))
}

/// `int datanodes(long blocks)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `connect` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_datanodes(
    env: *mut JNIEnv,
    _class: jclass,
    blocks: jlong,
) -> jint {
    // SAFETY: the JVM passes its environment of this thread. These objects are kept while the class exists.
    unsafe { NativeCall::<LocalBlocks>::new(env, blocks) }
        .run(0, |_, blocks| Ok(runtime::runtime()?.block_on(blocks.datanodes()) as jint))
}

/// `long pool(long blocks, byte[] id)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `connect` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_pool(
    env: *mut JNIEnv,
    _class: jclass,
    blocks: jlong,
    id: jbyteArray,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. These objects are kept while the class exists.
    unsafe { NativeCall::<LocalBlocks>::new(env, blocks) }
        .run(0, |jvm, blocks| Ok(kept(Pool { blocks: blocks.clone(), id: BlockPoolId::new(jvm.text(id)?) })))
}

/// `long cached(long pool, long id, long stamp, long length)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `pool` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_cached(
    env: *mut JNIEnv,
    _class: jclass,
    pool: jlong,
    id: jlong,
    stamp: jlong,
    length: jlong,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. These objects are kept while the class exists.
    unsafe { NativeCall::<Pool>::new(env, pool) }
        .run(0, |_, pool| Ok(pool.blocks.cached(&pool.block(id, stamp, length)).map_or(0, handed)))
}

/// `long open(long pool, long id, long stamp, long length, byte[] identifier, byte[] password, byte[] kind, byte[]
/// service)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `pool` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_open(
    env: *mut JNIEnv,
    _class: jclass,
    pool: jlong,
    id: jlong,
    stamp: jlong,
    length: jlong,
    identifier: jbyteArray,
    password: jbyteArray,
    kind: jbyteArray,
    service: jbyteArray,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. These objects are kept while the class exists.
    unsafe { NativeCall::<Pool>::new(env, pool) }.run(0, |jvm, pool| {
        let token = Token {
            identifier: jvm.bytes(identifier)?,
            password: jvm.bytes(password)?,
            kind: jvm.text(kind)?,
            service: jvm.text(service)?,
        };
        let opened = runtime::runtime()?.block_on(pool.blocks.open(&pool.block(id, stamp, length), &token));
        Ok(opened.map_or(0, handed))
    })
}

/// `void read(long block, long at, byte[] into, int offset, int length, boolean verify)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` or `cached` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_read(
    env: *mut JNIEnv,
    _class: jclass,
    block: jlong,
    at: jlong,
    into: jbyteArray,
    offset: jint,
    length: jint,
    verify: jboolean,
) {
    // SAFETY: the JVM passes its environment of this thread. The caller holds the lock under which it closes the block.
    unsafe { NativeCall::<LocalBlock>::new(env, block) }.run((), |jvm, block| {
        let (offset, length) = jvm.checked_range(into, offset, length)?;
        let mut done = 0;
        while done < length {
            let (at, to) = (at as u64 + done as u64, offset + done);
            let piece = (length - done).min(CRITICAL_BYTES);
            let read = {
                // SAFETY: the range was checked. Nothing in this block calls the JVM or waits.
                let mut array = unsafe { jvm.critical(into)? };
                block.try_read_at(at, &mut array.bytes()[to..to + piece], verify)
            };
            done += match read {
                Some(read) => read.map(|()| piece)?,
                None => {
                    let mut copy = vec![0; piece.min(FILE_BYTES)];
                    runtime::runtime()?.block_on(block.read_at(at, &mut copy, verify))?;
                    jvm.store(into, to, &copy)?;
                    copy.len()
                }
            };
        }
        Ok(())
    });
}

/// `void readDirect(long block, long at, ByteBuffer into, int offset, int length, boolean verify)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `open` or `cached` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_readDirect(
    env: *mut JNIEnv,
    _class: jclass,
    block: jlong,
    at: jlong,
    into: jobject,
    offset: jint,
    length: jint,
    verify: jboolean,
) {
    // SAFETY: the JVM passes its environment of this thread. The caller holds the lock under which it closes the block.
    unsafe { NativeCall::<LocalBlock>::new(env, block) }.run((), |jvm, block| {
        // SAFETY: the reference `into` keeps the buffer's memory until this method returns.
        let into = unsafe { jvm.direct_range(into, offset, length)? };
        match block.try_read_at(at as u64, into, verify) {
            Some(read) => read?,
            None => runtime::runtime()?.block_on(block.read_at(at as u64, into, verify))?,
        }
        Ok(())
    });
}

/// `void close(long block)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, once for each address that `open` or `cached` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_Native_close(env: *mut JNIEnv, _class: jclass, block: jlong) {
    // SAFETY: the JVM passes its environment of this thread. Java closes a block once, and uses it no more.
    unsafe { take_back::<LocalBlock>(env, block) };
}
