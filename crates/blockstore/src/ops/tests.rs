//! Tests of the effects of concurrent threads, a failed storage and partly failed operations on a replica, from within.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hearth_types::{
    Block, BlockId, BlockPoolId, ExtendedBlock, GenerationStamp, PoolIdentity, ReplicaState, StorageType,
};

use crate::blockstore::Blockstore;
use crate::disk::layout::ReplicaDir;
use crate::replica::Replica;
use crate::replica::writer_shared::WriteTarget;
use crate::{
    Checksums, CreateKind, CreateOptions, Durability, Engine, MemoryOptions, ReplicaWriter, StoreError, StoreOptions,
    VolumeOptions,
};

struct Bed {
    store: Blockstore,
    // Dropped after the store.
    _dirs: [tempfile::TempDir; 2],
}

/// About the minimum that memory is allocated for: no lent memory is unused, so that none is copied for that reason.
const LENGTH: usize = 262_000;
const CREATE: CreateKind = CreateKind::BeingWritten { replace: false };

fn pool() -> BlockPoolId {
    BlockPoolId::new("BP-1-127.0.0.1-1700000000000")
}

fn block(id: i64, stamp: u64) -> ExtendedBlock {
    let block = Block { id: BlockId(id), stamp: GenerationStamp(stamp), length: LENGTH as u64 };
    ExtendedBlock { pool: pool(), block }
}

fn content(id: i64) -> Vec<u8> {
    (0..LENGTH).map(|at| (at as i64 * 31 + id) as u8).collect()
}

impl Bed {
    /// Opens a store with one storage of each of these types.
    fn new(types: &[StorageType]) -> Self {
        Self::with_engine(types, Engine::Memory)
    }

    fn with_engine(types: &[StorageType], engine: Engine) -> Self {
        let (disk, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let volumes = types.iter().enumerate().map(|(index, storage_type)| VolumeOptions {
            storage_type: *storage_type,
            engine,
            ..VolumeOptions::memory(disk.path().join(format!("v{index}")))
        });
        let tier = MemoryOptions::new(memory.path().join("m"), 16 << 20);
        let mut options = StoreOptions::new(volumes.collect(), tier);
        options.background = false;
        options.default_block_bytes = 1 << 20;
        let store = Blockstore::open(options).unwrap();
        let identity = PoolIdentity {
            pool: pool(),
            namespace_id: 77,
            cluster_id: "CID-test".to_owned(),
            created_ms: 1_700_000_000_000,
        };
        store.attach_pool(&identity).unwrap();
        Self { store, _dirs: [disk, memory] }
    }

    fn on_two_disks() -> Self {
        Self::new(&[StorageType::Disk, StorageType::Disk])
    }

    fn put(&self, id: i64) -> Arc<Replica> {
        self.put_with(id, Durability::Memory)
    }

    fn put_with(&self, id: i64, durability: Durability) -> Arc<Replica> {
        self.begin(id).finalize(durability).unwrap();
        self.replica(id)
    }

    /// Begins a replica and writes and acknowledges all of it.
    fn begin(&self, id: i64) -> ReplicaWriter {
        let mut writer = self.store.create(&block(id, 1), CREATE, &CreateOptions::default()).unwrap();
        writer.write(0, &content(id), Checksums::Compute).unwrap();
        writer.acker().set(LENGTH as u64).unwrap();
        writer
    }

    fn replica(&self, id: i64) -> Arc<Replica> {
        self.store.find_replica(&block(id, 1)).unwrap()
    }

    fn reads(&self, id: i64, stamp: u64) {
        let reader = self.store.reader(&block(id, stamp)).unwrap();
        let mut data = vec![0; reader.length() as usize];
        reader.read_at(0, &mut data).unwrap();
        assert!(data == content(id), "{id}");
    }

    fn fail(&self, replica: &Replica) {
        self.store.fail_volume(&replica.slice.volume, "simulated by a test");
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    hearth_testkit::wait_until(what, Duration::from_secs(120), || Ok(done().then_some(()))).unwrap();
}

/// Moves the replica `id` to another storage while `other` waits for it, and returns the result of `other`.
fn while_it_moves<T: Send>(bed: &Bed, id: i64, other: impl FnOnce(&Blockstore) -> T + Send) -> T {
    let store = &bed.store;
    let old = bed.replica(id);
    let change = old.change.lock();
    let holders = Arc::strong_count(&old);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other(store));
        // It has looked up the replica and is waiting for its lock.
        wait_for("the other thread to hold the replica", || Arc::strong_count(&old) > holders);
        let pool = store.pool(&block(id, 1)).unwrap();
        let content = old.snapshot(&mut old.core()).unwrap();
        let slice = store.choose_volume(&pool, StorageType::Disk, LENGTH as u64).unwrap();
        store.relocate(&pool, &old, &content, slice).unwrap();
        drop(change);
        waiting.join().unwrap()
    })
}

#[test]
fn operations_follow_a_replica_that_moves() {
    let bed = Bed::new(&[StorageType::RamDisk, StorageType::Disk]);
    let options = CreateOptions { storage_type: StorageType::RamDisk, ..CreateOptions::default() };
    for id in 0..6 {
        let mut writer = bed.store.create(&block(id, 1), CREATE, &options).unwrap();
        writer.write(0, &content(id), Checksums::Compute).unwrap();
        writer.acker().set(LENGTH as u64).unwrap();
        writer.finalize(Durability::Memory).unwrap();
    }
    let (two, length) = (GenerationStamp(2), LENGTH as u64);

    let found = while_it_moves(&bed, 0, |store| store.initiate_recovery(&block(0, 1), two)).unwrap();
    assert_eq!(found.expect("not none").original_state, ReplicaState::Finalized);
    bed.store.update_under_recovery(&block(0, 1), two, length, None).unwrap();
    bed.reads(0, 2);

    let gone = [block(1, 1).block];
    let mut deleted = while_it_moves(&bed, 1, |store| store.invalidate(&pool(), &gone));
    let deleted = deleted.remove(0).unwrap();
    assert_eq!(deleted.storage_type, StorageType::Disk);
    assert!(bed.store.replica(&pool(), BlockId(1)).is_none());

    let writer = while_it_moves(&bed, 2, |store| store.append(&block(2, 1), two, length)).unwrap();
    assert_eq!(writer.storage().1, StorageType::Disk);
    drop(writer);
    bed.reads(2, 2);

    let closed = while_it_moves(&bed, 3, |store| store.recover_close(&block(3, 1), two, length)).unwrap();
    assert_eq!(closed.storage_type, StorageType::Disk);
    bed.reads(3, 2);

    let writer = while_it_moves(&bed, 4, |store| store.recover_append(&block(4, 1), two, length)).unwrap();
    drop(writer);
    bed.reads(4, 2);

    // A replica that was deleted during the wait is not found.
    let gone = bed.replica(5);
    let change = gone.change.lock();
    let holders = Arc::strong_count(&gone);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| bed.store.initiate_recovery(&block(5, 1), two));
        wait_for("the other thread to hold the replica", || Arc::strong_count(&gone) > holders);
        bed.store.discard(&gone);
        drop(change);
        assert!(waiting.join().unwrap().unwrap().is_none());
    });
}

#[test]
fn moving_replica_is_always_found() {
    let bed = Bed::new(&[StorageType::Disk, StorageType::Ssd]);
    bed.put(1);
    thread::scope(|scope| {
        let moving = scope.spawn(|| {
            for to in [StorageType::Ssd, StorageType::Disk].repeat(20) {
                bed.store.move_to_storage_type(&block(1, 1), to).unwrap();
            }
        });
        while !moving.is_finished() {
            bed.reads(1, 1);
            assert!(bed.store.replica(&pool(), BlockId(1)).is_some());
            let report = bed.store.report(&pool());
            assert_eq!(report.iter().map(|storage| storage.replicas.len()).sum::<usize>(), 1);
        }
    });
    assert_eq!(bed.store.metrics().replicas, 1);
}

#[test]
fn failed_storage_is_exempt_from_eviction() {
    let bed = Bed::on_two_disks();
    let replicas: Vec<_> = (0..6).map(|id| bed.put_with(id, Durability::Disk)).collect();
    bed.fail(&replicas[0]);
    // The first call clears the reference bits.
    bed.store.reclaim(u64::MAX);
    bed.store.reclaim(u64::MAX);
    assert!(bed.store.metrics().evictions > 0);
    for replica in &replicas {
        assert_eq!(replica.core().copies.is_in_memory(), replica.slice.volume.is_failed());
    }
    let failed = replicas[0].slice.volume.clone();
    bed.store.evacuate_failed_volume(&failed, true);
    (0..6).for_each(|id| bed.reads(id, 1));
}

#[test]
fn one_of_two_creations_of_a_block_succeeds() {
    let bed = Bed::with_engine(&[StorageType::Disk], Engine::File);
    for id in 1..=50 {
        let barrier = std::sync::Barrier::new(2);
        let create = || {
            barrier.wait();
            bed.store.create(&block(id, 1), CREATE, &CreateOptions::default())
        };
        let both = thread::scope(|scope| {
            let other = scope.spawn(create);
            [create(), other.join().unwrap()]
        });
        let mut writers = Vec::new();
        for created in both {
            match created {
                Ok(writer) => writers.push(writer),
                Err(StoreError::ReplicaExists { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(writers.len(), 1, "{id}");
        let mut writer = writers.remove(0);
        writer.write(0, &content(id), Checksums::Compute).unwrap();
        writer.finalize(Durability::Memory).unwrap();
        bed.reads(id, 1);
    }
    let pool = bed.store.pool(&block(51, 1)).unwrap();
    let creation = pool.creations.begin(BlockId(51));
    let create = || bed.store.create(&block(51, 1), CREATE, &CreateOptions::default());
    assert!(matches!(create(), Err(StoreError::ReplicaExists { state: ReplicaState::Temporary, .. })));
    drop(creation);
    drop(create().unwrap());
}

#[test]
fn eviction_passes_over_a_locked_replica() {
    let bed = Bed::new(&[StorageType::Disk]);
    let replicas = [1, 2].map(|id| bed.put_with(id, Durability::Disk));
    let evict = |store: &Blockstore| {
        // The first call clears the reference bits.
        store.reclaim(u64::MAX);
        store.reclaim(u64::MAX);
    };
    // Held as by a thread that opens the replica's files on a disk that does not respond.
    let core = replicas[0].core();
    let (tell, told) = std::sync::mpsc::channel();
    let store = bed.store.share();
    thread::spawn(move || {
        evict(&store);
        tell.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(120)).expect("the eviction ends");
    assert!(core.copies.is_in_memory() && !replicas[1].core().copies.is_in_memory());
    drop(core);
    evict(&bed.store);
    assert!(!replicas[0].core().copies.is_in_memory(), "it kept its place in the clock");
    [1, 2].iter().for_each(|id| bed.reads(*id, 1));
}

#[test]
fn failed_storage_refuses_appends() {
    for engine in [Engine::Memory, Engine::File] {
        let bed = Bed::with_engine(&[StorageType::Disk], engine);
        let replica = bed.put(1);
        bed.fail(&replica);
        let appended = bed.store.append(&block(1, 1), GenerationStamp(2), LENGTH as u64);
        assert!(matches!(appended, Err(StoreError::VolumeFailed { .. })));
        let core = replica.core();
        assert_eq!(
            (core.lifecycle.state(), core.lifecycle.stamp()),
            (ReplicaState::Finalized, GenerationStamp(1)),
            "{engine:?}"
        );
    }
}

#[test]
fn failed_append_keeps_the_memory_copy() {
    let bed = Bed::new(&[StorageType::Disk]);
    let replica = bed.put_with(1, Durability::Disk);
    let budget = &bed.store.budget;
    let all = budget.take(budget.limit() - budget.used()).unwrap();
    let meta = replica.slice.dirs.meta(ReplicaDir::Finalized, replica.id, GenerationStamp(1));
    let aside = meta.with_extension("aside");
    fs::rename(&meta, &aside).unwrap();
    let append = || bed.store.append(&block(1, 1), GenerationStamp(2), LENGTH as u64);
    assert!(append().is_err());
    assert!(replica.core().copies.is_in_memory() && replica.core().is_on_disk());
    bed.reads(1, 1);
    fs::rename(&aside, &meta).unwrap();
    drop(append().unwrap());
    assert!(!replica.core().copies.is_in_memory());
    drop(all);
    bed.reads(1, 2);
}

#[test]
fn recovery_runs_where_the_replica_was_evacuated() {
    let bed = Bed::on_two_disks();
    let (two, three, length) = (GenerationStamp(2), GenerationStamp(3), LENGTH as u64);
    let (begun, later) = (bed.put(1), [bed.put(2), bed.put(3)]);
    let later = later.into_iter().find(|other| other.slice.volume.index == begun.slice.volume.index).unwrap();
    bed.store.initiate_recovery(&block(1, 1), two).unwrap();
    bed.fail(&begun);

    let updated = bed.store.update_under_recovery(&block(1, 1), two, length, None);
    assert!(matches!(updated, Err(StoreError::VolumeFailed { .. })));
    let of_later = |stamp| block(later.id.0, stamp);
    let initiated = bed.store.initiate_recovery(&of_later(1), two);
    assert!(matches!(initiated, Err(StoreError::VolumeFailed { .. })), "not none");
    for replica in [&begun, &later] {
        assert_eq!(replica.core().lifecycle.stamp(), GenerationStamp(1));
        assert!(replica.core().copies.is_dirty());
    }
    assert_eq!(later.core().lifecycle.recovery(), None);

    let failed = begun.slice.volume.clone();
    bed.store.evacuate_failed_volume(&failed, true);
    assert!(!failed.is_evacuation_due(u64::MAX - 1), "nothing is left there");
    for (id, was) in [(1, &begun), (later.id.0, &later)] {
        assert!(was.core().lifecycle.is_gone() && !bed.replica(id).slice.volume.is_failed());
        bed.store.initiate_recovery(&block(id, 1), three).unwrap().expect("it is there");
        bed.store.update_under_recovery(&block(id, 1), three, length, None).unwrap();
        bed.reads(id, 3);
    }
}

#[test]
fn failed_recovery_leaves_the_replica_flushable() {
    let bed = Bed::new(&[StorageType::Disk]);
    let mut writer = bed.store.create(&block(1, 1), CREATE, &CreateOptions::default()).unwrap();
    let (data, length) = (content(1), LENGTH as u64);
    assert_eq!(writer.grant(length).unwrap(), length);
    let lent = fs::File::from(writer.lend(true).unwrap());
    lent.write_all_at(&data, 0).unwrap();
    let mut crcs = Vec::new();
    writer.checksum().compute(&data, &mut crcs);
    writer.commit(0, length, &crcs).unwrap();
    writer.acker().set(length).unwrap();
    writer.finalize(Durability::Memory).unwrap();
    let replica = bed.replica(1);
    assert!(replica.core().copies.is_dirty());
    assert_eq!(bed.store.metrics().copied_back_bytes, 0);

    // Its writer may continue to write, so a recovery copies the bytes, for which there is neither memory nor disk.
    bed.store.initiate_recovery(&block(1, 1), GenerationStamp(2)).unwrap();
    let budget = &bed.store.budget;
    let all = budget.take(budget.limit() - budget.used()).unwrap();
    let in_the_way = replica.slice.dirs.being_written.join("blk_1");
    fs::create_dir(&in_the_way).unwrap();
    let recover = |stamp| bed.store.update_under_recovery(&block(1, 1), GenerationStamp(stamp), length, None);
    assert!(recover(2).is_err());
    {
        let core = replica.core();
        assert_eq!(
            (core.lifecycle.stamp(), core.lifecycle.state(), core.lifecycle.recovery()),
            (GenerationStamp(1), ReplicaState::Finalized, None)
        );
        assert!(core.copies.is_in_memory() && core.copies.is_dirty());
    }
    assert_eq!(bed.store.metrics().dirty_replicas, 1);
    fs::remove_dir(&in_the_way).unwrap();
    drop(all);
    assert_eq!(bed.store.flush_all(&mut |_| true).failures, 0);
    assert!(replica.core().is_on_disk());
    bed.reads(1, 1);
    bed.store.initiate_recovery(&block(1, 1), GenerationStamp(3)).unwrap();
    recover(3).unwrap();
    bed.reads(1, 3);
}

#[test]
fn second_copy_waits_without_locking_the_source() {
    let bed = Bed::new(&[StorageType::Disk]);
    let source = bed.put(1);
    let copy = |stamp| {
        bed.store.initiate_recovery(&block(1, 1), GenerationStamp(stamp)).unwrap();
        bed.store.update_under_recovery(&block(1, 1), GenerationStamp(stamp), LENGTH as u64, Some(BlockId(2)))
    };
    copy(2).unwrap();
    // Held as by the flusher, which takes the source's lock next.
    let earlier = bed.replica(2);
    let change = earlier.change.lock();
    let holders = Arc::strong_count(&earlier);
    thread::scope(|scope| {
        let again = scope.spawn(|| copy(3));
        wait_for("the other thread to hold the replica", || Arc::strong_count(&earlier) > holders);
        assert!(source.change.try_lock_for(Duration::from_secs(60)).is_some(), "both would wait for each other");
        drop(change);
        assert_eq!(again.join().unwrap().unwrap().block.stamp(), GenerationStamp(3));
    });
    assert_eq!(source.core().lifecycle.recovery(), None);
}

#[test]
fn duplicate_dirty_entry_does_not_deadlock_flush() {
    let bed = Bed::new(&[StorageType::Disk]);
    let replica = bed.put(1);
    // Like a replica that was reopened and finalized again while its batch was gathered.
    let queue = &bed.store.dirty[replica.slice.volume.index];
    let entry = queue.lock().front().cloned().unwrap();
    queue.lock().push_back(entry);
    let (tell, told) = std::sync::mpsc::channel();
    let (store, volume) = (bed.store.share(), replica.slice.volume.clone());
    thread::spawn(move || {
        store.flush_volume(&volume, u64::MAX, &mut |_| true);
        tell.send(()).unwrap();
    });
    told.recv_timeout(Duration::from_secs(120)).expect("the flush ends");
    assert!(replica.core().is_on_disk());
    assert!(queue.lock().is_empty());
}

#[test]
fn empty_hsync_syncs_an_appended_replica() {
    let bed = Bed::new(&[StorageType::Disk]);
    let replica = bed.put_with(1, Durability::Disk);
    let mut writer = bed.store.append(&block(1, 1), GenerationStamp(2), LENGTH as u64).unwrap();
    assert!(replica.core().is_on_disk() && replica.core().copies.is_in_memory());
    // It may be only in the page cache, so hsync opens the file, and fails because it is gone.
    let disk = replica.core().copies.disk().unwrap();
    fs::remove_file(replica.slice.dirs.data(disk.place, replica.id)).unwrap();
    assert!(writer.sync().is_err());
}

#[test]
fn replicas_finalized_during_flush_all_are_flushed() {
    let bed = Bed::new(&[StorageType::Disk]);
    let mut writers: Vec<_> = (0..3).map(|id| (bed.begin(id), bed.replica(id))).collect();
    let done = bed.store.flush_all(&mut |progress| {
        if progress.replicas_done > 0 {
            let all = std::mem::take(&mut writers).into_iter();
            let (flushed, others): (Vec<_>, Vec<_>) =
                all.partition(|(_, replica)| replica.core().copies.disk().is_some());
            writers = flushed;
            for (writer, _) in others {
                writer.finalize(Durability::Memory).unwrap();
            }
        }
        true
    });
    assert_eq!((done.replicas_done, done.replicas_left, done.failures), (3, 0, 0));
    let replicas: Vec<_> = (0..3).map(|id| bed.replica(id)).collect();
    assert_eq!(replicas.iter().filter(|replica| replica.core().lifecycle.is_finalized()).count(), 2);
    assert!(replicas.iter().all(|replica| replica.core().is_on_disk()));
}

#[test]
fn writes_during_flush_all_are_flushed_or_reported() {
    let bed = Bed::new(&[StorageType::Disk]);
    bed.put(1);
    let mut writers = Vec::new();
    let done = bed.store.flush_all(&mut |progress| {
        // Before the replicas being written are flushed, and after the last of them.
        if (progress.replicas_done, progress.replicas_left) == (1, 0) || progress.replicas_done == 2 {
            writers.push(bed.begin(10 + writers.len() as i64));
        }
        true
    });
    assert_eq!(writers.len(), 2);
    assert!(bed.replica(1).core().is_on_disk() && bed.replica(10).core().is_on_disk());
    assert!(!bed.replica(11).core().is_on_disk());
    assert_eq!((done.replicas_done, done.replicas_left, done.bytes_left, done.failures), (2, 1, LENGTH as u64, 1));
}

#[test]
fn writer_moving_to_disk_survives_flush_all() {
    let bed = Bed::new(&[StorageType::Disk]);
    let writer = bed.begin(1);
    let replica = bed.replica(1);
    let shared = replica.core().copies.writer().cloned().unwrap();
    // Held as by a writer in the middle of a packet.
    let mut target = shared.target.lock();
    thread::scope(|scope| {
        let flushing = scope.spawn(|| bed.store.flush_all(&mut |_| true));
        wait_for("the flush to begin", || replica.change.is_locked() || flushing.is_finished());
        // Time in which the flush could wrongly write the replica.
        thread::sleep(Duration::from_millis(100));
        assert!(replica.core().copies.disk().is_none(), "the writer goes on in the same files");
        let budget = &bed.store.budget;
        let _all = budget.take(budget.limit() - budget.used()).unwrap();
        assert!(!bed.store.make_room_in_memory(&replica, &mut target, 8 << 20, 8 << 20).unwrap());
        assert!(matches!(&*target, WriteTarget::File(_)), "memory is full, and no disk is used");
        bed.store.make_room(&replica, &mut target, 8 << 20, 8 << 20).unwrap();
        assert!(matches!(&*target, WriteTarget::Disk(_)));
        drop(target);
        let done = flushing.join().unwrap();
        assert_eq!((done.replicas_done, done.replicas_left, done.failures), (1, 0, 0));
    });
    assert!(!replica.core().copies.is_in_memory() && replica.core().is_on_disk());
    writer.finalize(Durability::Memory).unwrap();
    bed.reads(1, 1);
}

#[test]
fn memory_is_kept_if_a_sync_has_failed() {
    let bed = Bed::new(&[StorageType::Disk]);
    bed.put(1);
    assert_eq!(bed.store.flush_all(&mut |_| true).failures, 0);
    // Of another replica: what the kernel has dropped with it is unknown.
    bed.store.volumes[0].note_failed_sync();
    assert_eq!(bed.store.drop_memory(), (1, LENGTH as u64));
}
