//! Memory at its limit; full tmpfs and full disk.

mod common;

use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

use common::*;
use hearth_blockstore::*;
use hearth_testkit::{skip_or_fail, wait_until};
use hearth_types::*;
use rustix::mount::{MountFlags, UnmountFlags};

/// A dedicated tmpfs, unmounted at the end.
struct SmallTmpfs {
    dir: tempfile::TempDir,
}

impl SmallTmpfs {
    /// Returns `None`, and reports that `test` is skipped, where mounting is not permitted.
    fn mount(test: &str, bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = CString::new(format!("size={bytes},mode=0700")).unwrap();
        // Not through mount(8): until a child process executes its program, it has copies of all our descriptors, and
        // memory that another process has open is not free.
        match rustix::mount::mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str()) {
            Ok(()) => Some(Self { dir }),
            Err(error) => {
                skip_or_fail(test, format_args!("mounting a tmpfs needs root: {error}"));
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

const MIB: usize = 1 << 20;

/// Bed with 8 MiB of memory, which is soon also flushed to disk.
fn small_memory() -> Bed {
    let mut bed = Bed::new(Kind::Memory);
    bed.options.memory.limit = 8 << 20;
    bed.options.background = true;
    bed.options.flush_delay = Duration::from_millis(20);
    bed.options.clock = std::sync::Arc::new(SystemClock::new());
    bed
}

/// Writes 20 replicas of 1 MiB, at the disk's pace, so that memory has clean replicas to evict.
fn fill(store: &Blockstore) {
    for id in 0..20 {
        put(store, id, 1, &bytes(id as u64, MIB));
        wait_for(|| store.metrics().dirty_bytes < 4 << 20);
    }
    wait_for(|| store.metrics().dirty_replicas == 0);
}

#[test]
fn pinned_replica_stays_in_memory_until_changed() {
    let bed = small_memory();
    let store = bed.open();
    fill(&store);
    // The first replicas were evicted; pinned, they are read back and stay, whatever else is read.
    let held: Vec<_> = (0..3).map(|id| store.pin(&block(id, 1, 0)).unwrap().expect("there is room")).collect();
    for round in 0..3 {
        for id in 3..20 {
            assert!(get(&store, id, 1) == bytes(id as u64, MIB), "{round}: {id}");
        }
    }
    for id in 20..30 {
        put(&store, id, 1, &bytes(id as u64, MIB));
        wait_for(|| store.metrics().dirty_bytes < 4 << 20);
    }
    for (id, held) in (0..3).zip(&held) {
        assert!(info(&store, id).in_memory && held.is_current() && held.length() == MIB as u64, "{id}");
    }
    // A pin for which memory has no room is refused, without waiting.
    let many: Vec<_> = (3..20).filter_map(|id| store.pin(&block(id, 1, 0)).unwrap()).collect();
    assert!(many.len() < 8, "{} MiB held besides the others in 8", many.len());
    drop(many);
    // A change ends the pin.
    let gone = Block { id: BlockId(0), stamp: GenerationStamp(1), length: MIB as u64 };
    store.invalidate(&block(0, 1, 0).pool, &[gone])[0].as_ref().unwrap();
    assert!(!held[0].is_current() && held[1].is_current());
    assert!(matches!(store.pin(&block(0, 1, 0)), Err(StoreError::ReplicaNotFound { .. })));
}

#[test]
fn memory_limit_changes_while_the_store_is_used() {
    let bed = small_memory();
    let store = bed.open();
    fill(&store);
    store.set_memory_limit(64 << 20).unwrap();
    assert_eq!(store.metrics().memory_limit, 64 << 20);
    for id in 20..40 {
        put(&store, id, 1, &bytes(id as u64, MIB));
    }
    wait_for(|| store.metrics().dirty_replicas == 0);
    assert!((20..40).all(|id| info(&store, id).in_memory), "there is room for all");
    store.set_memory_limit(4 << 20).unwrap();
    wait_for(|| store.metrics().memory_used <= 4 << 20);
    for id in 0..40 {
        assert!(get(&store, id, 1) == bytes(id as u64, MIB), "{id}");
    }
    assert!(store.metrics().memory_used <= 4 << 20);
    // Other engines have no such memory.
    let bed = Bed::new(Kind::File);
    let store = bed.open();
    assert!(matches!(store.set_memory_limit(8 << 20), Err(StoreError::BadOptions(_))));
}

#[test]
fn lowered_memory_limit_is_kept_once_replicas_are_unpinned() {
    let bed = small_memory();
    let store = bed.open();
    fill(&store);
    let held: Vec<_> = (0..3).map(|id| store.pin(&block(id, 1, 0)).unwrap().expect("there is room")).collect();
    store.set_memory_limit(2 << 20).unwrap();
    assert!(store.metrics().memory_used > 2 << 20);
    assert!((0..3).all(|id| info(&store, id).in_memory) && held.iter().all(PinnedReplica::is_current));
    drop(held);
    wait_for(|| store.metrics().memory_used <= 2 << 20);
}

#[test]
fn flush_delay_changes_while_the_store_is_used() {
    let mut bed = small_memory();
    bed.options.flush_delay = Duration::from_secs(3600);
    let store = bed.open();
    put(&store, 1, 1, &bytes(1, MIB));
    assert_eq!(store.metrics().dirty_replicas, 1);
    store.set_flush_delay(Duration::from_millis(20));
    wait_for(|| store.metrics().dirty_replicas == 0);
    assert_eq!(store.flush_delay(), Duration::from_millis(20));
}

#[test]
fn short_reads_do_not_evict_other_replicas() {
    let mut bed = small_memory();
    let store = bed.open();
    fill(&store);
    let on_disk: Vec<i64> = (0..20).filter(|id| !info(&store, *id).in_memory).collect();
    let read = |id: i64, count: usize| {
        let whole = bytes(id as u64, MIB);
        let mut into = [0; 4096];
        for at in (0..MIB).step_by(4096).take(count) {
            store.reader(&block(id, 1, 0)).unwrap().read_at(at as u64, &mut into).unwrap();
            assert!(into == whole[at..at + 4096]);
        }
    };
    let [short, other] = on_disk[..2] else { panic!("20 MiB do not fit: {on_disk:?}") };
    read(short, 200);
    // Would be behind it in the queue, if it were queued.
    wait_for(|| {
        get(&store, other, 1);
        info(&store, other).in_memory
    });
    assert!(!info(&store, short).in_memory, "only part of it was read, but it has evicted other replicas");
    wait_for(|| {
        read(short, 256);
        info(&store, short).in_memory
    });
    drop(store);
    // If there is room, two readers are enough.
    bed.options.memory.limit = 64 << 20;
    let store = bed.open();
    let cold = (0..20).find(|id| !info(&store, *id).in_memory).expect("20 MiB did not fit");
    wait_for(|| {
        store.reader(&block(cold, 1, 0)).unwrap().read_at(0, &mut [0; 512]).unwrap();
        info(&store, cold).in_memory
    });
}

#[test]
fn clean_replicas_are_evicted_and_read_back() {
    let bed = small_memory();
    let store = bed.open();
    for id in 0..30 {
        put(&store, id, 1, &bytes(id as u64, MIB));
        assert!(store.metrics().memory_used <= 8 << 20);
        // At the disk's pace, so that memory has clean replicas to evict.
        wait_for(|| store.metrics().dirty_bytes < 4 << 20);
    }
    for id in 100..200 {
        put(&store, id, 1, &bytes(id as u64, 1000));
    }
    wait_for(|| store.metrics().dirty_replicas == 0);
    let metrics = store.metrics();
    assert!(metrics.evictions > 0, "{metrics:?}");
    let evicted = (0..30).find(|id| !info(&store, *id).in_memory).expect("30 MiB do not fit");
    // Guards keep their bytes in memory or open.
    let guard = store.reader(&block(29, 1, 0)).unwrap();
    for round in 0..3 {
        for id in (0..30).chain(100..200) {
            assert!(get(&store, id, 1) == bytes(id as u64, if id < 100 { MIB } else { 1000 }), "{round}: {id}");
        }
    }
    assert!(read(&guard) == bytes(29, MIB));
    drop(guard);
    let before = store.metrics().read_backs;
    assert!(get(&store, evicted, 1) == bytes(evicted as u64, MIB));
    assert!(get(&store, evicted, 1) == bytes(evicted as u64, MIB));
    wait_for(|| {
        // Other replicas may evict it again: two more reads queue it again.
        get(&store, evicted, 1);
        store.metrics().read_backs > before
    });
    assert!(store.metrics().memory_used <= 8 << 20);
    assert_eq!(store.metrics().corruptions, 0);
    drop(store);
    let store = bed.open();
    for id in (0..30).chain(100..200) {
        assert!(get(&store, id, 1) == bytes(id as u64, if id < 100 { MIB } else { 1000 }));
    }
}

fn wait_for(mut done: impl FnMut() -> bool) {
    wait_until("the store", Duration::from_secs(120), || Ok(done().then_some(()))).unwrap();
}

#[test]
fn concurrent_writers_do_not_block_each_other() {
    let mut bed = Bed::new(Kind::Memory);
    bed.options.memory.limit = 4 << 20;
    let store = bed.open();
    // All open at once, each larger than its share, none finalized: nothing can be evicted.
    let mut writers: Vec<ReplicaWriter> = (0..10).map(|id| create(&store, id, 1)).collect();
    let data: Vec<Vec<u8>> = (0..10).map(|id| bytes(id, MIB)).collect();
    for from in (0..MIB).step_by(64 << 10) {
        for (writer, data) in writers.iter_mut().zip(&data) {
            send(writer, &data[from..from + (64 << 10)], 64 << 10);
        }
    }
    assert!(store.metrics().memory_used <= 4 << 20);
    assert!(store.metrics().memory_full > 0);
    for writer in writers {
        writer.finalize(Durability::Memory).unwrap();
    }
    for id in 0..10 {
        assert!(get(&store, id, 1) == data[id as usize]);
    }
    // Replicas that continued in files are on disk; those that stayed in memory are flushed.
    assert!((0..10).any(|id| info(&store, id).on_disk));
    bed.flush(&store);
    drop(store);
    let store = bed.open();
    for id in 0..10 {
        assert!(get(&store, id, 1) == data[id as usize]);
    }
}

#[test]
fn write_reports_whether_it_may_block() {
    let mut bed = small_memory();
    // Nothing is evicted.
    bed.options.background = false;
    let store = bed.open();
    assert!(!store.create_may_wait(&CreateOptions::default()), "there is room in memory");
    let mut writer = create(&store, 1, 1);
    for piece in bytes(1, 2 * MIB).chunks(MIB / 4) {
        assert!(!writer.write_may_wait(piece.len() as u64), "at {}: there is room in memory", writer.received());
        send(&mut writer, piece, 64 << 10);
    }
    assert!(writer.write_may_wait(8 << 20), "there is not enough memory");
    let mut others = Vec::new();
    for id in 2..8 {
        let mut other = create(&store, id, 1);
        while store.metrics().memory_used < 7 << 20 && other.received() < 2 << 20 {
            send(&mut other, &bytes(2, MIB / 4), 64 << 10);
        }
        others.push(other);
    }
    assert!(writer.write_may_wait(2 << 20) && store.create_may_wait(&CreateOptions::default()), "it is full");
    let end = writer.received() + (2 << 20);
    assert!(!writer.receives_in_place(end));
    assert!(!info(&store, 1).on_disk, "the question moves nothing to disk");
    let before = writer.received();
    send(&mut writer, &bytes(3, 6 * MIB), 64 << 10);
    assert!(writer.received() == before + 6 * MIB as u64 && writer.write_may_wait(1) && writer.waits_at_end());
    drop((writer, others));

    let bed = Bed::new(Kind::File);
    let store = bed.open();
    assert!(store.create_may_wait(&CreateOptions::default()), "it is written in files");
    let writer = create(&store, 1, 1);
    assert!(writer.write_may_wait(1) && writer.waits_at_end(), "it is written in files");
    assert!(!writer.is_in_memory());
}

#[test]
fn finalize_reports_whether_it_syncs() {
    for sync in [false, true] {
        let mut bed = Bed::new(Kind::Memory);
        bed.options.sync_on_finalize = sync;
        let store = bed.open();
        for (id, length) in [(1, 1000), (2, 2 * MIB)] {
            let mut writer = create(&store, id, 1);
            send(&mut writer, &bytes(1, length), 64 << 10);
            assert!(writer.is_in_memory() && !writer.write_may_wait(1000));
            assert_eq!(writer.waits_at_end(), sync, "{length} bytes");
            writer.finalize(Durability::Memory).unwrap();
            assert_eq!(info(&store, id).on_disk, sync, "{length} bytes");
        }
    }
}

#[test]
fn full_tmpfs_counts_as_full_memory() {
    let Some(tmpfs) = SmallTmpfs::mount("full_tmpfs_counts_as_full_memory", 4 << 20) else { return };
    let mut bed = Bed::new(Kind::Memory);
    bed.options.memory.dir = tmpfs.path().join("m");
    // Another process uses part of it, which the limit does not account for.
    std::fs::write(tmpfs.path().join("other"), vec![1; 2 * MIB]).unwrap();
    bed.options.memory.limit = 1 << 30;
    let store = bed.open();
    assert!(store.warnings().iter().any(|warning| warning.contains("lowered")), "{:?}", store.warnings());
    for id in 0..8 {
        put(&store, id, 1, &bytes(id as u64, MIB / 2 + id as usize));
        put(&store, id + 100, 1, &bytes(id as u64, 3000));
    }
    for id in 0..8 {
        assert!(get(&store, id, 1) == bytes(id as u64, MIB / 2 + id as usize));
        assert!(get(&store, id + 100, 1) == bytes(id as u64, 3000));
    }
    assert!(store.metrics().memory_full > 0);
    bed.flush(&store);
    drop(store);
    let store = bed.open();
    for id in 0..8 {
        assert!(get(&store, id, 1) == bytes(id as u64, MIB / 2 + id as usize));
    }
}

#[test]
fn too_small_tmpfs_falls_back_to_files() {
    let Some(tmpfs) = SmallTmpfs::mount("too_small_tmpfs_falls_back_to_files", 2 << 20) else { return };
    let mut bed = Bed::new(Kind::Memory);
    bed.options.memory.dir = tmpfs.path().join("m");
    let store = bed.open();
    assert!(store.warnings().iter().any(|warning| warning.contains("engine mmap instead")), "{:?}", store.warnings());
    for id in 0..4 {
        put(&store, id, 1, &bytes(id as u64, MIB));
        assert!(get(&store, id, 1) == bytes(id as u64, MIB));
    }
    let metrics = store.metrics();
    assert_eq!((metrics.memory_limit, metrics.replicas_in_memory, metrics.kept_replicas), (0, 0, 4));
    assert!(metrics.mapped_bytes > 0);
}

#[test]
fn full_disk_refuses_only_new_replicas() {
    let Some(disk) = SmallTmpfs::mount("full_disk_refuses_only_new_replicas", 6 << 20) else { return };
    for engine in [Engine::Memory, Engine::File, Engine::Mmap] {
        let mut bed = Bed::new(Kind::Memory);
        bed.options.volumes[0].dir = disk.path().join(format!("{engine:?}"));
        bed.options.volumes[0].engine = engine;
        bed.options.default_block_bytes = MIB as u64;
        let store = bed.open();
        let mut put_ids = Vec::new();
        let error = loop {
            let id = put_ids.len() as i64;
            match store.create(&block(id, 1, 0), CREATE, &CreateOptions::default()) {
                Ok(mut writer) => {
                    send(&mut writer, &bytes(id as u64, MIB / 2), 64 << 10);
                    writer.finalize(Durability::Memory).unwrap();
                    put_ids.push(id);
                }
                Err(error) => break error,
            }
            assert!(put_ids.len() < 20, "more than the disk has");
        };
        assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
        assert!(put_ids.len() >= 5, "{}", put_ids.len());
        // Another process takes the rest: flushing fails, and nothing is lost.
        let hog = disk.path().join("hog");
        let _ = std::fs::write(&hog, vec![1; 8 * MIB]);
        let flushed = bed.flush(&store);
        if engine == Engine::Memory {
            assert!(flushed.failures > 0);
            assert!(store.metrics().dirty_replicas > 0);
        }
        for id in &put_ids {
            assert!(get(&store, *id, 1) == bytes(*id as u64, MIB / 2));
        }
        std::fs::remove_file(&hog).unwrap();
        assert_eq!(bed.flush(&store).failures, 0);
        assert_eq!(store.metrics().dirty_replicas, 0);
        let blocks: Vec<Block> = put_ids.iter().map(|id| block(*id, 1, 0).block).collect();
        assert!(store.invalidate(&bed.pool.pool, &blocks).iter().all(|outcome| outcome.is_ok()));
        put(&store, 50, 1, b"there is room again");
        drop(store);
        std::fs::remove_dir_all(disk.path().join(format!("{engine:?}"))).unwrap();
    }
}

#[test]
fn small_replicas_take_little_memory() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    put(&store, -1, 1, &[7; 100]);
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
        let line = status.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    let (before, before_memory) = (resident(), store.metrics().memory_used);
    const COUNT: u64 = 20_000;
    for id in 0..COUNT as i64 {
        put(&store, id, 1, &[id as u8; 100]);
    }
    let memory = (store.metrics().memory_used - before_memory) / COUNT;
    let process = resident().saturating_sub(before) / COUNT;
    eprintln!("a replica of 100 bytes: {memory} bytes of tmpfs, {process} of the process");
    assert!(memory <= 600 && memory + process <= 2048);
}

/// Copies `data` like a DataNode, packet by packet. With `driven`, pieces for the disk are written in between.
fn copy(store: &Blockstore, id: i64, data: &[u8], packet: usize, driven: bool) -> ReplicaWriter {
    let options = CreateOptions { expected_bytes: data.len() as u64, ..CreateOptions::default() };
    let mut writer = store.create(&block(id, 1, data.len() as u64), CreateKind::Temporary, &options).unwrap();
    let mut out: Option<PendingWrite> = None;
    for piece in data.chunks(packet) {
        if writer.makes_piece_due(piece.len())
            && let Some(due) = out.take()
        {
            writer.complete_write(due.write()).unwrap();
        }
        let sums = crcs(writer.checksum(), piece);
        let at = writer.received();
        let given = if at.is_multiple_of(512) { Checksums::Given(&sums) } else { Checksums::Compute };
        writer.write(at, piece, given).unwrap();
        if driven {
            out = out.or_else(|| writer.take_pending_write());
        }
    }
    if let Some(due) = out {
        writer.complete_write(due.write()).unwrap();
    }
    writer
}

#[test]
fn incoming_copies_evict_nothing() {
    for engine in [Engine::Memory, Engine::File] {
        let mut bed = Bed::new(Kind::Memory);
        bed.options.memory.limit = 8 << 20;
        bed.options.volumes[0].engine = engine;
        let store = bed.open();
        for id in 0..3 {
            put(&store, id, 1, &bytes(id as u64, MIB));
        }
        bed.flush(&store);
        // Whole and partial pieces, chunks and packets; the last starts a packet within a chunk.
        let cases = [
            (10, 2 * MIB, 64 << 10),
            (11, 3 * MIB, 64 << 10),
            (12, 3 * MIB + 700, 64 << 10),
            (13, 512 << 10, 512 << 10),
            (14, 2 * MIB + 1, 3 * MIB),
            (15, 100_000, 64 << 10),
            (16, 1_500_100, 700),
        ];
        for (id, length, packet) in cases {
            let data = bytes(id as u64, length);
            copy(&store, id, &data, packet, id % 2 == 0).finalize(Durability::Memory).unwrap();
            assert!(get(&store, id, 1) == data, "{engine:?} {id}");
            let on_disk = files_named(&bed, &format!("blk_{id}"));
            let lengths: Vec<_> = on_disk.iter().map(|file| std::fs::metadata(file).unwrap().len()).collect();
            assert_eq!(lengths, if info(&store, id).in_memory { vec![] } else { vec![length as u64] });
        }
        let in_memory = |id| info(&store, id).in_memory;
        if engine == Engine::Memory {
            // Existing replicas stay; the first copy found room, and the second would have left less than a quarter.
            assert!((0..3).all(in_memory), "evicted");
            assert!(in_memory(10) && !in_memory(11) && !in_memory(12) && !in_memory(16));
            assert_eq!(store.metrics().evictions, 0);
        }
        assert!(cases.iter().all(|(id, ..)| in_memory(*id) != info(&store, *id).on_disk));
        // An incomplete copy leaves nothing behind.
        let dropped = copy(&store, 20, &bytes(20, 3 * MIB), 64 << 10, true);
        assert!(store.reader(&block(20, 1, 0)).is_err(), "it is not to be read before its end");
        drop(dropped);
        assert_eq!(files_named(&bed, "blk_20"), Vec::<std::path::PathBuf>::new());
        // The same after a restart.
        store.flush_all(&mut |_| true);
        drop(store);
        let store = bed.open();
        for (id, length, _) in cases {
            assert!(get(&store, id, 1) == bytes(id as u64, length), "{engine:?} {id}");
        }
    }
}

#[test]
fn streaming_copy_can_join_pipeline_or_stop() {
    let mut bed = Bed::new(Kind::Memory);
    bed.options.memory.limit = 2 << 20;
    let store = bed.open();
    let data = bytes(1, 3 * MIB + 100);
    let replica = copy(&store, 1, &data, 64 << 10, true).convert_temporary_to_being_written().unwrap();
    assert_eq!((replica.block.length(), info(&store, 1).visible_length), (data.len() as u64, Some(data.len() as u64)));
    assert!(get(&store, 1, 1) == data);
    // A newer copy replaces one that is still arriving, of which a piece may be being written to disk.
    let mut old = copy(&store, 2, &data, 64 << 10, false);
    let due = old.take_pending_write().expect("the last piece was not taken");
    let options = CreateOptions { expected_bytes: data.len() as u64, ..CreateOptions::default() };
    let mut new = store.create(&block(2, 2, 0), CreateKind::Temporary, &options).unwrap();
    assert!(matches!(old.complete_write(due.write()), Err(StoreError::WriterStopped { .. })));
    drop(old);
    new.write(0, &data, Checksums::Compute).unwrap();
    new.finalize(Durability::Disk).unwrap();
    assert!(get(&store, 2, 2) == data);
}

#[test]
fn disk_replica_is_read_in_pieces() {
    let mut bed = Bed::new(Kind::File);
    bed.options.memory.limit = 64 << 20;
    let store = bed.open();
    for (id, length, packet) in [(1, 3 * MIB + 700, 64 << 10), (2, 2 * MIB, 96 << 10), (3, MIB, 512 << 10)] {
        let data = bytes(id as u64, length);
        put(&store, id, 1, &data);
        let reader = store.reader(&block(id, 1, 0)).unwrap();
        let Some(mut pieces) = reader.pieces(packet) else {
            let why = format_args!("{} has no direct I/O", bed.disk.path().display());
            return skip_or_fail("disk_replica_is_read_in_pieces", why);
        };
        let (mut all, mut used) = (Vec::new(), None);
        while let Some(due) = pieces.next(used.take()) {
            let piece = due.read().unwrap();
            while let at = all.len() as u64
                && let Some(packet) =
                    piece.bytes(at, packet.min(length as u64 - at)).filter(|packet| !packet.is_empty())
            {
                all.extend_from_slice(packet);
            }
            used = Some(piece);
        }
        assert!(all == data, "{id}: {} of {length}", all.len());
    }
    // Not for packets that do not fit pages, nor for small replicas; and a truncated file is an error.
    let reader = store.reader(&block(3, 1, 0)).unwrap();
    assert!(reader.pieces(1000).is_none());
    assert!(reader.pieces(1 << 20).is_none());
    let mut pieces = reader.pieces(64 << 10).unwrap();
    let [path] = &files_named(&bed, "blk_3")[..] else { panic!("one file") };
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(5000).unwrap();
    let Err(error) = pieces.next(None).unwrap().read() else { panic!("read what is not there") };
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    // A replica in memory is not read in pieces.
    let memory = Bed::new(Kind::Memory);
    let store = memory.open();
    put(&store, 1, 1, &bytes(1, MIB));
    assert!(store.reader(&block(1, 1, 0)).unwrap().pieces(64 << 10).is_none());
}

#[test]
fn store_reopens_on_a_full_tmpfs() {
    let Some(tmpfs) = SmallTmpfs::mount("store_reopens_on_a_full_tmpfs", 4 << 20) else { return };
    let mut bed = Bed::new(Kind::Memory);
    bed.options.memory.dir = tmpfs.path().join("m");
    let store = bed.open();
    for id in 0..4 {
        put(&store, id, 1, &bytes(id as u64, MIB / 2));
    }
    drop(store);
    // Another process takes all remaining space.
    let mut other = std::fs::File::create(tmpfs.path().join("other")).unwrap();
    while std::io::Write::write_all(&mut other, &[1; 4096]).is_ok() {}
    assert!(std::fs::write(tmpfs.path().join("one more"), "text").is_err());
    for _ in 0..2 {
        let store = bed.open();
        for id in 0..4 {
            assert!(info(&store, id).in_memory);
            assert!(get(&store, id, 1) == bytes(id as u64, MIB / 2));
        }
    }
}
