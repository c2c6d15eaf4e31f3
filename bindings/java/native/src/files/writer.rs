//! Native half of the Java class `io.hearth.hdfs.NativeWriter`, which documents each function: conversion between Java's
//! types and [`hearth_client::Writer`].

use hearth_client::{
    Block, BlockId, BlockPoolId, DatanodeInfo, ExtendedBlock, FileSystem, FlushOptions, ForeignFile, GenerationStamp,
    PendingFlush, Writer,
};
use jni_sys::{JNIEnv, jboolean, jbyteArray, jclass, jint, jlong};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::{classified, wait, wait_patiently};
use crate::jvm::{Jvm, Thrown};
use crate::{CRITICAL_BYTES, NativeCall, guarded, handed, runtime, take_back};

/// A file that is open for writing; `None` once it is complete.
struct OpenWriter(Mutex<Option<Writer>>);

impl OpenWriter {
    /// Errors: `Argument` if the file is complete.
    fn writer(&self) -> Result<MappedMutexGuard<'_, Writer>, Thrown> {
        MutexGuard::try_map(self.0.lock(), Option::as_mut)
            .map_err(|_| Thrown::Argument("a file that is complete already"))
    }
}

/// Checks for interrupts that a write leaves out: a second. Hadoop's client takes all bytes of a write, also from an
/// interrupted thread. By then there is room, unless a server hangs: a full packet window waits for the DataNodes, and a
/// change of blocks also for the NameNode and the next DataNodes.
const WRITE_PATIENCE: u32 = 10;

/// Checks for interrupts that `begin` leaves out where it allocates a block behind others: three seconds. The outcome
/// must be known, because the NameNode refuses a second such request. DataNodes that hang are given up after two
/// seconds, so only a NameNode that hangs takes longer.
const ALLOCATION_PATIENCE: u32 = 30;

/// Appends bytes of a Java array. They are copied once, to the packet or to the memory that the DataNode lends. Returns
/// their number, fewer only if the thread is interrupted and there was no room.
fn write(jvm: &Jvm, writer: &mut Writer, from: jbyteArray, offset: jint, length: jint) -> Result<usize, Thrown> {
    let (offset, length) = jvm.checked_range(from, offset, length)?;
    let runtime = runtime::runtime()?;
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(CRITICAL_BYTES);
        let taken = {
            let _entered = runtime.enter();
            // SAFETY: the range was checked. Nothing in this block calls the JVM or waits.
            let array = unsafe { jvm.critical(from)? };
            writer.try_write(&array.source()[offset + done..][..piece])
        };
        match taken? {
            0 => match wait_patiently(jvm, WRITE_PATIENCE, writer.begin_packet()) {
                Ok(room) => room?,
                Err(Thrown::Interrupted) => break,
                Err(thrown) => return Err(thrown),
            },
            taken => done += taken,
        }
    }
    Ok(done)
}

/// Describes DataNodes, each in a line: its fields, separated by tabs.
fn described(datanodes: &[DatanodeInfo]) -> String {
    let mut lines = String::new();
    for DatanodeInfo { id, location, .. } in datanodes {
        let (transfer, info, secure, ipc) = (id.transfer_port, id.info_port, id.info_secure_port, id.ipc_port);
        let line =
            format!("{}\t{}\t{}\t{transfer}\t{info}\t{secure}\t{ipc}\t{location}\n", id.ip, id.host_name, id.uuid);
        lines.push_str(&line);
    }
    lines
}

/// Encodes a block: pool, id, length and generation stamp, separated by tabs.
fn encoded(block: &ExtendedBlock) -> String {
    let Block { id, stamp, length } = block.block;
    format!("{}\t{}\t{length}\t{}", block.pool, id.0, stamp.0)
}

/// Decodes a block that Java has encoded likewise.
///
/// Errors: `Argument`.
fn decoded(text: &str) -> Result<ExtendedBlock, Thrown> {
    let block = || {
        let fields: Vec<&str> = text.split('\t').collect();
        let [pool, id, length, stamp] = fields[..] else { return None };
        let (id, stamp) = (BlockId(id.parse().ok()?), GenerationStamp(stamp.parse().ok()?));
        let block = Block { id, stamp, length: length.parse().ok()? };
        Some(ExtendedBlock { pool: BlockPoolId::new(pool), block })
    };
    block().ok_or(Thrown::Argument("a block that is not encoded as this library expects"))
}

/// `long begin(long client, byte[] path, long inode, byte[] holder, int replication, long blockSize, long length, byte[]
/// lastBlock)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `NativeFiles.connect` returned and that is not disconnected.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_begin(
    env: *mut JNIEnv,
    _class: jclass,
    client: jlong,
    path: jbyteArray,
    inode: jlong,
    holder: jbyteArray,
    replication: jint,
    block_size: jlong,
    length: jlong,
    last_block: jbyteArray,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the client while it calls.
    unsafe { NativeCall::<FileSystem>::new(env, client) }.run(0, |jvm, client| {
        let replication = u16::try_from(replication).map_err(|_| Thrown::Argument("a number of replicas"))?;
        let size = |bytes: jlong| u64::try_from(bytes).map_err(|_| Thrown::Argument("a number of bytes below 0"));
        let last_block = jvm.text(last_block)?;
        let file = ForeignFile {
            path: jvm.text(path)?,
            inode: inode as u64,
            client_name: jvm.text(holder)?,
            replication,
            block_size: size(block_size)?,
            length: size(length)?,
            last_block: if last_block.is_empty() { None } else { Some(decoded(&last_block)?) },
        };
        let is_behind_others = file.length > 0 && file.last_block.is_none();
        let patience = if is_behind_others { ALLOCATION_PATIENCE } else { WRITE_PATIENCE };
        let writer = wait_patiently(jvm, patience, client.write_foreign(file))?.map_err(classified)?;
        Ok(writer.map_or(0, |writer| handed(OpenWriter(Mutex::new(Some(writer))))))
    })
}

/// `int write(long writer, byte[] from, int offset, int length)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `begin` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_write(
    env: *mut JNIEnv,
    _class: jclass,
    writer: jlong,
    from: jbyteArray,
    offset: jint,
    length: jint,
) -> jint {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the writer while it calls.
    unsafe { NativeCall::<OpenWriter>::new(env, writer) }.run(0, |jvm, writer| {
        let mut writer = writer.writer()?;
        // At most `length`.
        Ok(write(jvm, &mut writer, from, offset, length)? as jint)
    })
}

/// `long flush(long writer, boolean sync, boolean endBlock, boolean updateLength)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `begin` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_flush(
    env: *mut JNIEnv,
    _class: jclass,
    writer: jlong,
    sync: jboolean,
    end_block: jboolean,
    update_length: jboolean,
) -> jlong {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the writer while it calls.
    unsafe { NativeCall::<OpenWriter>::new(env, writer) }.run(0, |jvm, writer| {
        let options = FlushOptions { sync, end_block, update_length };
        let pending = wait(jvm, writer.writer()?.begin_flush(options))??;
        Ok(handed(pending))
    })
}

/// `void acknowledged(long flush)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, once for each address that `flush` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_acknowledged(
    env: *mut JNIEnv,
    _class: jclass,
    flush: jlong,
) {
    // SAFETY: the JVM passes its environment of this thread.
    let jvm = unsafe { Jvm::new(env) };
    guarded(&jvm, (), || {
        // SAFETY: the address is of a box, and Java uses it once.
        let flush = unsafe { Box::from_raw(flush as *mut PendingFlush) };
        wait(&jvm, flush.acknowledged())??;
        Ok(())
    });
}

/// `byte[] pipeline(long writer)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `begin` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_pipeline(
    env: *mut JNIEnv,
    _class: jclass,
    writer: jlong,
) -> jbyteArray {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the writer while it calls.
    unsafe { NativeCall::<OpenWriter>::new(env, writer) }.run(std::ptr::null_mut(), |jvm, writer| {
        let datanodes = writer.writer()?.pipeline();
        jvm.new_bytes(described(&datanodes).as_bytes())
    })
}

/// `byte[] lastBlock(long writer)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `begin` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_lastBlock(
    env: *mut JNIEnv,
    _class: jclass,
    writer: jlong,
) -> jbyteArray {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the writer while it calls.
    unsafe { NativeCall::<OpenWriter>::new(env, writer) }.run(std::ptr::null_mut(), |jvm, writer| {
        let Some(last) = writer.writer()?.last_block() else { return Ok(std::ptr::null_mut()) };
        jvm.new_bytes(encoded(&last).as_bytes())
    })
}

/// `void finish(long writer)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `begin` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_finish(env: *mut JNIEnv, _class: jclass, writer: jlong) {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the writer while it calls.
    unsafe { NativeCall::<OpenWriter>::new(env, writer) }.run((), |jvm, writer| {
        wait(jvm, writer.writer()?.finish())??;
        Ok(())
    });
}

/// `void complete(long writer)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, with an address that `begin` returned and that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_complete(
    env: *mut JNIEnv,
    _class: jclass,
    writer: jlong,
) {
    // SAFETY: the JVM passes its environment of this thread. Java keeps the writer while it calls.
    unsafe { NativeCall::<OpenWriter>::new(env, writer) }.run((), |jvm, writer| {
        let taken = writer.0.lock().take();
        let writer = taken.ok_or(Thrown::Argument("a file that is complete already"))?;
        wait(jvm, writer.close())??;
        Ok(())
    });
}

/// `void close(long writer)`
///
/// # Safety
///
/// Called by `io.hearth.hdfs` only, once for each address that `begin` returned.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_hearth_hdfs_NativeWriter_close(env: *mut JNIEnv, _class: jclass, writer: jlong) {
    // SAFETY: the JVM passes its environment of this thread. Java closes a writer once, and uses it no more.
    unsafe { take_back::<OpenWriter>(env, writer) };
}

#[cfg(test)]
mod tests {
    use hearth_client::{DatanodeId, DatanodeUuid};

    use super::*;

    #[test]
    fn datanodes_are_described_in_lines() {
        let id = DatanodeId {
            ip: "127.0.0.1".to_owned(),
            host_name: "localhost".to_owned(),
            uuid: DatanodeUuid("one".into()),
            transfer_port: 1,
            info_port: 2,
            ipc_port: 3,
            info_secure_port: 0,
        };
        let datanode = DatanodeInfo { location: "/rack".to_owned(), ..DatanodeInfo::of(id) };
        let line = "127.0.0.1\tlocalhost\tone\t1\t2\t0\t3\t/rack\n";
        assert_eq!(described(&[datanode.clone(), datanode]), [line, line].concat());
    }

    #[test]
    fn blocks_are_decoded_as_they_are_encoded() {
        let block = Block { id: BlockId(-7), stamp: GenerationStamp(1001), length: 60 };
        let block = ExtendedBlock { pool: BlockPoolId::new("BP-1"), block };
        assert_eq!(encoded(&block), "BP-1\t-7\t60\t1001");
        assert_eq!(decoded(&encoded(&block)).unwrap(), block);
        for wrong in ["", "BP-1\t1\t2", "BP-1\t1\t2\t3\t4", "BP-1\t1\t-2\t3", "BP-1\tone\t2\t3"] {
            assert!(decoded(wrong).is_err(), "{wrong:?}");
        }
    }
}
