//! Errors of files and directories of a storage directory: which volume fails, which replica is reported. See
//! docs/compatibility/volume-errors.md.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::*;
use hearth_blockstore::*;
use hearth_types::*;

const LENGTH: usize = 100_000;

fn content(id: i64) -> Vec<u8> {
    bytes(id as u64, LENGTH)
}

/// Creates two storage directories, with replicas 0..6 only on their disks.
fn on_disks(kind: Kind) -> (Bed, Blockstore) {
    let mut bed = Bed::new(kind);
    let second = VolumeOptions { dir: bed.disk.path().join("v1"), ..bed.options.volumes[0].clone() };
    bed.options.volumes.push(second);
    let store = bed.open();
    (0..6).for_each(|id| drop(put(&store, id, 1, &content(id))));
    assert_eq!(bed.flush(&store).failures, 0);
    drop(store);
    bed.lose_power();
    let store = bed.open();
    (bed, store)
}

fn storage_of(store: &Blockstore, bed: &Bed, id: i64) -> StorageId {
    store.replica(&bed.pool.pool, BlockId(id)).expect("it is there").storage
}

/// Returns the ids of replicas on the first storage directory.
fn of_first(store: &Blockstore, bed: &Bed) -> Vec<i64> {
    let first = store.storages()[0].id.clone();
    (0..6).filter(|id| storage_of(store, bed, *id) == first).collect()
}

fn pool_dir(bed: &Bed, volume: usize) -> PathBuf {
    bed.options.volumes[volume].dir.join("current").join(bed.pool.pool.as_str())
}

fn data_file(bed: &Bed, id: i64) -> PathBuf {
    let name = format!("current/finalized/subdir0/subdir0/blk_{id}");
    (0..2)
        .map(|volume| pool_dir(bed, volume).join(&name))
        .find(|path| path.symlink_metadata().is_ok())
        .expect("its file")
}

fn meta_of(data: &Path) -> PathBuf {
    let name = format!("{}_1.meta", data.file_name().unwrap().to_str().unwrap());
    data.with_file_name(name)
}

#[derive(Default, PartialEq, Debug)]
struct Told {
    failed: Vec<PathBuf>,
    missing: Vec<i64>,
    corrupt: Vec<i64>,
}

fn told(store: &Blockstore) -> Told {
    let mut told = Told::default();
    for event in store.take_events() {
        match event {
            StoreEvent::VolumeFailed { dir, .. } => told.failed.push(dir),
            StoreEvent::Missing(replica) => told.missing.push(replica.block.id().0),
            StoreEvent::Corrupt { block, .. } => told.corrupt.push(block.id().0),
            StoreEvent::Moved(_) => {}
        }
    }
    told
}

/// Replaces a directory by a file, or by nothing.
fn replace_dir(dir: &Path, by_file: bool) {
    fs::rename(dir, dir.with_extension("aside")).unwrap();
    if by_file {
        fs::write(dir, b"no directory").unwrap();
    }
}

#[test]
fn missing_or_replaced_directory_fails_its_volume() {
    for kind in [Kind::Memory, Kind::File, Kind::Mmap] {
        for below in [
            "",
            "current",
            "current/BP/current",
            "current/BP/current/finalized",
            "current/BP/current/rbw",
            "current/BP/tmp",
        ] {
            for by_file in [false, true] {
                let case = format!("{kind:?}, {below:?}, by a file: {by_file}");
                let (bed, store) = on_disks(kind);
                let there = of_first(&store, &bed);
                let dir = bed.options.volumes[0].dir.join(below.replace("BP", bed.pool.pool.as_str()));
                let dir: PathBuf = dir.components().collect();
                replace_dir(&dir, by_file);
                // A heartbeat detects errors of statfs; a writer or the flusher detects errors below.
                let reported = store.storage_reports(&bed.pool.pool).len();
                assert!(reported == 1 || by_file || !below.is_empty(), "{case}");
                for id in 10..14 {
                    let options = CreateOptions { expected_bytes: LENGTH as u64, ..CreateOptions::default() };
                    let Ok(mut writer) = store.create(&block(id, 1, 0), CREATE, &options) else { continue };
                    let data = content(id);
                    let spec = writer.checksum();
                    let sent = writer.write(0, &data, Checksums::Given(&crcs(spec, &data)));
                    let _ = sent.and_then(|_| writer.finalize(Durability::Memory).map(drop));
                }
                bed.flush(&store);
                for id in &there {
                    let _ = store.reader(&block(*id, 1, 0));
                }
                store.look_at_suspects();
                bed.flush(&store);
                let told = told(&store);
                assert_eq!(told.failed, [bed.options.volumes[0].dir.clone()], "{case}: {told:?}");
                let states = store.storage_states();
                assert_eq!(states.iter().map(|state| state.failed).collect::<Vec<_>>(), [true, false], "{case}");
                assert!(states.iter().zip(store.storages()).all(|(state, storage)| state.id == storage.id), "{case}");
                assert_eq!(
                    (told.missing, told.corrupt),
                    (vec![], vec![]),
                    "{case}: no replica is called lost for its volume"
                );
                assert_eq!(store.storage_reports(&bed.pool.pool).len(), 1, "{case}");
                assert_eq!(store.report(&bed.pool.pool).len(), 1, "{case}");
                // No directory was created again in place of the old one.
                assert!(by_file == dir.exists(), "{case}");
                let other: Vec<i64> = (0..6).filter(|id| !there.contains(id)).collect();
                for id in other {
                    assert!(get(&store, id, 1) == content(id), "{case}: {id}");
                }
                // The other volume takes new replicas.
                put(&store, 20, 1, &content(20));
                assert!(get(&store, 20, 1) == content(20), "{case}");
            }
        }
    }
}

#[test]
fn replica_with_missing_files_is_reported() {
    for kind in [Kind::Memory, Kind::File, Kind::Mmap] {
        let (bed, store) = on_disks(kind);
        let data = data_file(&bed, 0);
        fs::remove_file(meta_of(&data)).unwrap();
        fs::remove_file(&data).unwrap();
        let error = store.reader(&block(0, 1, 0)).err().expect("no reader");
        assert_eq!(error.reaction(), Reaction::OtherReplica, "{kind:?}: {error}");
        assert_eq!(told(&store), Told::default(), "{kind:?}: the reader does not wait for the check");
        store.look_at_suspects();
        assert_eq!(told(&store), Told { missing: vec![0], ..Told::default() }, "{kind:?}");
        assert!(matches!(store.reader(&block(0, 1, 0)), Err(StoreError::ReplicaNotFound { .. })));
        assert!(store.storages().iter().all(|storage| !storage.failed));
        // Created again, as the NameNode would request.
        let options = CreateOptions { expected_bytes: LENGTH as u64, ..CreateOptions::default() };
        let mut writer = store.create(&block(0, 1, 0), CreateKind::Temporary, &options).unwrap();
        send(&mut writer, &content(0), 64 << 10);
        writer.finalize(Durability::Disk).unwrap();
        assert!(get(&store, 0, 1) == content(0), "{kind:?}");

        // Also detected by an append.
        let data = data_file(&bed, 1);
        fs::remove_file(meta_of(&data)).unwrap();
        fs::remove_file(&data).unwrap();
        assert!(store.append(&block(1, 1, 0), GenerationStamp(2), LENGTH as u64).is_err());
        store.look_at_suspects();
        assert_eq!(told(&store).missing, [1], "{kind:?}");
    }
}

#[test]
fn unreadable_replica_is_reported_as_corrupt() {
    for kind in [Kind::Memory, Kind::File, Kind::Mmap] {
        for (case, spoil) in [
            ("no meta file", (|data| fs::remove_file(meta_of(data)).unwrap()) as fn(&Path)),
            ("no data file", |data| fs::remove_file(data).unwrap()),
            ("a directory", |data| {
                fs::remove_file(data).unwrap();
                fs::create_dir(data).unwrap();
            }),
            ("cut", |data| fs::OpenOptions::new().write(true).open(data).unwrap().set_len(1000).unwrap()),
            // Reading at address 0 of this process is EIO.
            ("reads fail", |data| {
                fs::remove_file(data).unwrap();
                std::os::unix::fs::symlink("/proc/self/mem", data).unwrap();
            }),
        ] {
            let (bed, store) = on_disks(kind);
            let data = data_file(&bed, 0);
            spoil(&data);
            let read = store.reader(&block(0, 1, 0)).and_then(|reader| reader.read_at(0, &mut vec![0; LENGTH]));
            assert!(read.is_err(), "{kind:?}, {case}");
            store.look_at_suspects();
            assert_eq!(told(&store), Told { corrupt: vec![0], ..Told::default() }, "{kind:?}, {case}");
            assert!(matches!(store.reader(&block(0, 1, 0)), Err(StoreError::Corrupt { .. })), "{kind:?}, {case}");
            assert!(store.storages().iter().all(|storage| !storage.failed), "{kind:?}, {case}");
            assert!(data.symlink_metadata().is_ok() || meta_of(&data).exists(), "{kind:?}, {case}: the rest stays");
            (1..6).for_each(|id| assert!(get(&store, id, 1) == content(id)));
        }
    }
}

#[test]
fn missing_disk_files_are_rewritten_from_memory() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    put(&store, 0, 1, &content(0));
    assert_eq!(bed.flush(&store).failures, 0);
    let data = pool_dir(&bed, 0).join("current/finalized/subdir0/subdir0/blk_0");
    fs::remove_file(&data).unwrap();
    store.verify(&block(0, 1, 0)).unwrap();
    assert!(get(&store, 0, 1) == content(0));
    assert_eq!(bed.flush(&store).failures, 0);
    assert!(data.exists());
    assert_eq!(told(&store), Told::default());
}

#[test]
fn replaced_directory_counts_as_failed_at_start() {
    let (mut bed, store) = on_disks(Kind::File);
    drop(store);
    let dir = bed.options.volumes[0].dir.clone();
    replace_dir(&dir, true);
    let refused = Blockstore::open(bed.options.clone()).err().expect("none is tolerated");
    assert!(refused.to_string().contains(dir.to_str().unwrap()), "{refused}");
    bed.options.failed_volumes_tolerated = 1;
    let store = bed.open();
    assert_eq!(told(&store).failed, [dir]);
}
