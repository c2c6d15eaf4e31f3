//! A storage directory whose disk fails, at the start or later, while another one works.

mod common;

use std::path::{Path, PathBuf};

use common::*;
use hearth_blockstore::*;
use hearth_testkit::{ReadOnly, skip_or_fail};
use hearth_types::*;

/// Creates a bed with two working storage directories.
fn two_volumes(kind: Kind) -> Bed {
    let mut bed = Bed::new(kind);
    let second = VolumeOptions { dir: bed.disk.path().join("v1"), ..bed.options.volumes[0].clone() };
    bed.options.volumes.push(second);
    drop(bed.open());
    bed
}

fn first(bed: &Bed) -> PathBuf {
    bed.options.volumes[0].dir.clone()
}

/// Makes a directory read-only. `None`, with a message: not permitted here.
fn fail(test: &str, directory: PathBuf) -> Option<ReadOnly> {
    ReadOnly::new(&directory).inspect_err(|error| skip_or_fail(test, error)).ok()
}

fn storage_of(store: &Blockstore, bed: &Bed, id: i64) -> StorageId {
    store.replica(&bed.pool.pool, BlockId(id)).expect("it is there").storage
}

/// Returns the directories of `VolumeFailed` events and the blocks of `Moved` events, in order.
fn events(store: &Blockstore) -> (Vec<PathBuf>, Vec<i64>) {
    let (mut failed, mut moved) = (Vec::new(), Vec::new());
    for event in store.take_events() {
        match event {
            StoreEvent::VolumeFailed { dir, .. } => failed.push(dir),
            StoreEvent::Moved(replica) => moved.push(replica.block.id().0),
            other => panic!("{other:?}"),
        }
    }
    moved.sort_unstable();
    (failed, moved)
}

const LENGTH: usize = 100_000;

fn content(id: i64) -> Vec<u8> {
    bytes(id as u64, LENGTH)
}

#[test]
fn failed_storage_is_evacuated_from_memory() {
    for kind in KINDS {
        let mut bed = two_volumes(kind);
        let store = bed.open();
        let (old, new) = (0..6, 10..16);
        old.clone().for_each(|id| drop(put(&store, id, 1, &content(id))));
        assert_eq!(bed.flush(&store).failures, 0);
        drop(store);
        bed.lose_power();
        let store = bed.open();
        new.clone().for_each(|id| drop(put(&store, id, 1, &content(id))));
        let failed = store.storages()[0].id.clone();
        let of_failed = |ids: std::ops::Range<i64>| -> Vec<i64> {
            ids.filter(|id| storage_of(&store, &bed, *id) == failed).collect()
        };
        let (old_there, new_there) = (of_failed(old.clone()), of_failed(new.clone()));
        assert!(!old_there.is_empty() && !new_there.is_empty());

        let name = "failed_storage_is_evacuated_from_memory";
        let Some(failing) = fail(name, first(&bed).join("current")) else { return };
        bed.flush(&store);
        if !kind.has_memory() {
            // Nothing is flushed there: a writer detects the failure.
            assert!((20..22).any(|id| store.create(&block(id, 1, 0), CREATE, &CreateOptions::default()).is_err()));
        }
        bed.flush(&store);
        let in_memory = if kind.has_memory() { new_there.clone() } else { Vec::new() };
        assert_eq!(events(&store), (vec![first(&bed)], in_memory.clone()), "{kind:?}");
        assert_eq!(store.metrics().dirty_replicas, 0, "{kind:?}");
        for id in &in_memory {
            assert_ne!(storage_of(&store, &bed, *id), failed);
            assert!(store.replica(&bed.pool.pool, BlockId(*id)).unwrap().on_disk);
        }
        let gone: Vec<i64> = old_there.iter().chain(&new_there).copied().filter(|id| !in_memory.contains(id)).collect();
        for id in old.clone().chain(new.clone()) {
            if gone.contains(&id) {
                assert!(matches!(store.reader(&block(id, 1, 0)), Err(StoreError::ReplicaNotFound { .. })), "{kind:?}");
            } else {
                assert!(get(&store, id, 1) == content(id), "{kind:?}: {id}");
            }
        }
        // Created again, as the NameNode would request.
        for id in &gone {
            let options = CreateOptions { expected_bytes: LENGTH as u64, ..CreateOptions::default() };
            let mut writer = store.create(&block(*id, 1, 0), CreateKind::Temporary, &options).unwrap();
            send(&mut writer, &content(*id), 64 << 10);
            writer.finalize(Durability::Disk).unwrap();
            assert_ne!(storage_of(&store, &bed, *id), failed);
        }
        assert_eq!(store.report(&bed.pool.pool).len(), 1);
        drop(store);
        // Then the machine fails, too.
        bed.lose_power();
        bed.options.failed_volumes_tolerated = 1;
        let store = bed.open();
        assert_eq!(events(&store), (vec![first(&bed)], Vec::new()));
        for id in in_memory.iter().chain(&gone) {
            assert!(get(&store, *id, 1) == content(*id), "{kind:?}: {id}");
        }
        drop(store);
        drop(failing);
        // Repaired: a replica on both volumes counts once.
        let store = bed.open();
        assert_eq!(events(&store), (Vec::new(), Vec::new()));
        for id in old.chain(new) {
            assert!(get(&store, id, 1) == content(id), "{kind:?}: {id}");
        }
        assert_eq!(store.metrics().replicas, 12, "{kind:?}");
    }
}

#[test]
fn tolerated_number_of_failed_storages_at_start() {
    let mut bed = two_volumes(Kind::Memory);
    let name = "tolerated_number_of_failed_storages_at_start";
    let Some(failing) = fail(name, first(&bed)) else { return };
    let error = Blockstore::open(bed.options.clone()).err().expect("none is tolerated");
    assert!(error.to_string().contains(first(&bed).to_str().unwrap()), "{error}");
    bed.options.failed_volumes_tolerated = 1;
    let store = bed.open();
    assert_eq!(events(&store), (vec![first(&bed)], Vec::new()));
    (0..4).for_each(|id| drop(put(&store, id, 1, &content(id))));
    assert_eq!(store.storages().len(), 1);
    drop(store);
    bed.options.failed_volumes_tolerated = usize::MAX;
    let Some(second) = fail(name, bed.options.volumes[1].dir.clone()) else { return };
    assert!(Blockstore::open(bed.options.clone()).is_err(), "none is left");
    drop((failing, second));
    let store = bed.open();
    (0..4).for_each(|id| assert!(get(&store, id, 1) == content(id)));
}

#[test]
fn storage_failing_during_attach_keeps_its_memory() {
    let bed = two_volumes(Kind::Memory);
    let store = bed.open();
    (0..6).for_each(|id| drop(put(&store, id, 1, &content(id))));
    let failed = store.storages()[0].id.clone();
    let (there, others): (Vec<i64>, Vec<i64>) = (0..6).partition(|id| storage_of(&store, &bed, *id) == failed);
    drop(store);

    let name = "storage_failing_during_attach_keeps_its_memory";
    let Some(failing) = fail(name, first(&bed).join("current")) else { return };
    let store = bed.open();
    assert_eq!(events(&store), (vec![first(&bed)], Vec::new()));
    for id in &others {
        assert!(get(&store, *id, 1) == content(*id));
    }
    for id in &there {
        assert!(matches!(store.reader(&block(*id, 1, 0)), Err(StoreError::ReplicaNotFound { .. })));
    }
    bed.flush(&store);
    drop(store);
    // An offline flush, which needs everything on disk, fails.
    let flushed = Blockstore::flush_offline(bed.options.clone(), &mut |_| true);
    assert!(matches!(flushed, Err(StoreError::VolumeFailed { .. })), "{flushed:?}");
    drop(failing);
    let store = bed.open();
    for id in 0..6 {
        assert!(get(&store, id, 1) == content(id), "{id}");
    }

    // The only volume.
    let bed = Bed::new(Kind::Memory);
    drop(bed.open());
    let Some(_failing) = fail(name, first(&bed).join("current")) else { return };
    let store = Blockstore::open(bed.options.clone()).unwrap();
    assert!(matches!(store.attach_pool(&bed.pool), Err(StoreError::Io { .. })));
}

/// Returns a closed store with a replica whole on both volumes, as after a failure and a repair, and the data files of
/// both, first volume first.
fn on_both(kind: Kind) -> (Bed, [PathBuf; 2]) {
    let bed = two_volumes(kind);
    let store = bed.open();
    put(&store, 1, 1, &content(1));
    bed.flush(&store);
    let pools: Vec<PathBuf> = (0..2)
        .map(|nth| bed.options.volumes[nth].dir.join("current").join(bed.pool.pool.as_str()).join("current/finalized"))
        .collect();
    let there = usize::from(storage_of(&store, &bed, 1) == store.storages()[1].id);
    drop(store);
    bed.lose_power();
    let dirs: Vec<PathBuf> = pools.iter().map(|pool| pool.join("subdir0/subdir0")).collect();
    std::fs::create_dir_all(&dirs[1 - there]).unwrap();
    for name in ["blk_1", "blk_1_1.meta"] {
        std::fs::copy(dirs[there].join(name), dirs[1 - there].join(name)).unwrap();
    }
    (bed, [dirs[0].join("blk_1"), dirs[1].join("blk_1")])
}

fn spoil(file: &Path) {
    let mut data = std::fs::read(file).unwrap();
    data[LENGTH / 2] ^= 1;
    std::fs::write(file, data).unwrap();
}

#[test]
fn good_replica_of_two_storages_is_kept() {
    for kind in [Kind::Memory, Kind::File] {
        for bad in [0, 1] {
            let (bed, files) = on_both(kind);
            spoil(&files[bad]);
            let store = bed.open();
            assert!(get(&store, 1, 1) == content(1), "{kind:?}: {bad}");
            assert_eq!(storage_of(&store, &bed, 1), store.storages()[1 - bad].id);
            assert_eq!(files.each_ref().map(|file| file.exists()), [bad == 1, bad == 0], "{kind:?}");
            assert_eq!(events(&store), (Vec::new(), Vec::new()), "no good replica was lost");
        }
        // Neither is good: both are kept for the operator.
        let (bed, files) = on_both(kind);
        files.iter().for_each(|file| spoil(file));
        drop(bed.open());
        assert!(files.iter().all(|file| file.exists()));
        // Both are good: one is enough.
        let (bed, files) = on_both(kind);
        let store = bed.open();
        assert!(get(&store, 1, 1) == content(1));
        assert_eq!(files.each_ref().map(|file| file.exists()), [true, false]);
    }
}

#[test]
fn unreadable_replica_is_kept_beside_bad_one() {
    let (bed, files) = on_both(Kind::File);
    spoil(&files[0]);
    let meta = files[1].with_file_name("blk_1_1.meta");
    let looped = Loop::new(&meta);
    drop(bed.open());
    drop(looped);
    let store = bed.open();
    assert!(get(&store, 1, 1) == content(1));
}

#[test]
fn storage_failing_during_flush_keeps_its_memory() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    put(&store, 1, 1, &content(1));
    bed.flush(&store);
    put(&store, 2, 1, &content(2));
    drop(store);

    let name = "storage_failing_during_flush_keeps_its_memory";
    let (mut failing, mut told) = (None, false);
    let done = Blockstore::flush_offline(bed.options.clone(), &mut |_| {
        if !std::mem::replace(&mut told, true) {
            failing = fail(name, first(&bed).join("current"));
        }
        true
    });
    if failing.is_none() {
        return;
    }
    assert!(done.unwrap().failures > 0);
    drop(failing);
    let store = bed.open();
    for id in [1, 2] {
        assert!(info(&store, id).in_memory, "{id}");
        assert!(get(&store, id, 1) == content(id), "{id}");
    }
}
