//! Directories that belong to another owner, are in use, or are damaged.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::*;
use hearth_blockstore::*;
use hearth_testkit::wait_until;
use hearth_types::*;

const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(120);

fn files(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, wanted));
        } else if wanted(path.file_name().unwrap().to_str().unwrap()) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Flips a bit of the byte at `at`. For damaged bytes a store must return an error, or the right bytes of another copy.
fn flip(path: &Path, at: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}

#[test]
fn directory_is_locked_by_one_store() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let error = Blockstore::open(bed.options.clone()).err().unwrap();
    assert!(matches!(&error, StoreError::InUse { holder, .. } if holder.starts_with(&std::process::id().to_string())));
    drop(store);
    // Java's lock: held by another process, whose name is in the file.
    let lock = bed.options.volumes[0].dir.join("in_use.lock");
    let mut child = std::process::Command::new("flock").arg(&lock).args(["sleep", "60"]).spawn();
    if let Ok(child) = &mut child {
        // flock(1) takes another kind of lock, which the store does not see: only fcntl's is Java's.
        child.kill().unwrap();
        child.wait().unwrap();
    }
    Blockstore::open(bed.options.clone()).unwrap();
}

#[test]
fn directory_under_upgrade_is_refused() {
    let bed = Bed::new(Kind::Memory);
    {
        let store = bed.open();
        put(&store, 1, 1, b"precious");
        store.flush_all(&mut |_| true);
    }
    let volume = bed.options.volumes[0].dir.clone();
    let pool = volume.join("current").join(bed.pool.pool.as_str());
    for sign in [volume.join("previous"), pool.join("previous"), pool.join("trash"), pool.join("finalized.tmp")] {
        std::fs::create_dir(&sign).unwrap();
        let error = Blockstore::open(bed.options.clone()).unwrap().attach_pool(&bed.pool).unwrap_err();
        assert!(error.to_string().contains("an upgrade is in progress"), "{error}");
        assert!(error.to_string().contains(sign.to_str().unwrap()), "{error}");
        std::fs::remove_dir(&sign).unwrap();
    }
    assert!(get(&bed.open(), 1, 1) == b"precious");
}

#[test]
fn directory_of_another_cluster_stays_untouched() {
    let bed = Bed::new(Kind::Memory);
    {
        let store = bed.open();
        put(&store, 1, 1, b"precious");
        store.flush_all(&mut |_| true);
    }
    let check = |change: &dyn Fn(&mut PoolIdentity)| {
        let mut other = bed.pool.clone();
        change(&mut other);
        let store = Blockstore::open(bed.options.clone()).unwrap();
        let error = store.attach_pool(&other).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        error.to_string()
    };
    assert!(check(&|pool| pool.cluster_id = "CID-other".into()).contains("cluster: CID-test, not CID-other"));
    check(&|pool| pool.namespace_id = 1);
    check(&|pool| pool.created_ms = 1);
    let store = Blockstore::open(bed.options.clone()).unwrap();
    for name in ["BP-1/../../x", "", "x", "BP-\n"] {
        let other = PoolIdentity { pool: BlockPoolId::new(name), ..bed.pool.clone() };
        assert!(matches!(store.attach_pool(&other), Err(StoreError::BadOptions(_))));
    }
    drop(store);
    assert_eq!(get(&bed.open(), 1, 1), b"precious");
}

#[test]
fn identities_survive_restarts() {
    let mut bed = Bed::new(Kind::Memory);
    bed.options
        .volumes
        .push(VolumeOptions { storage_type: StorageType::Ssd, ..VolumeOptions::memory(bed.disk.path().join("v1")) });
    let store = bed.open();
    let (uuid, storages) = (store.datanode_uuid().clone(), store.storages());
    assert!(!uuid.0.is_empty() && storages[0].id != storages[1].id);
    drop(store);
    let store = bed.open();
    assert_eq!((store.datanode_uuid(), store.storages()), (&uuid, storages));
    drop(store);
    // Volumes of two DataNodes in one store, a wrong layout, garbage.
    let version = bed.disk.path().join("v1/current/VERSION");
    let good = fs::read_to_string(&version).unwrap();
    let open = |text: &str| {
        fs::write(&version, text).unwrap();
        Blockstore::open(bed.options.clone()).err()
    };
    assert!(matches!(open(&good.replace(&*uuid.0, "other")), Some(StoreError::Foreign { .. })));
    assert!(matches!(open(&good.replace("-57", "-99")), Some(StoreError::BadDirectory { .. })));
    assert!(matches!(open("\u{0}\u{1}"), Some(StoreError::BadDirectory { .. })));
    assert!(open(&good).is_none());
    // A copied volume.
    fs::copy(bed.disk.path().join("v0/current/VERSION"), &version).unwrap();
    assert!(matches!(Blockstore::open(bed.options.clone()), Err(StoreError::BadDirectory { .. })));
}

#[test]
fn replicas_move_between_storage_types() {
    let mut bed = Bed::new(Kind::Memory);
    bed.options.volumes.push(VolumeOptions {
        storage_type: StorageType::Ssd,
        engine: Engine::File,
        ..VolumeOptions::memory(bed.disk.path().join("v1"))
    });
    let store = bed.open();
    let create_on = |id, storage_type| {
        let options = CreateOptions { storage_type, ..CreateOptions::default() };
        store.create(&block(id, 1, 0), CREATE, &options)
    };
    assert!(matches!(create_on(1, StorageType::Archive), Err(StoreError::NoSuchStorageType(StorageType::Archive))));
    let mut writer = create_on(1, StorageType::Ssd).unwrap();
    assert_eq!(writer.storage().1, StorageType::Ssd);
    send(&mut writer, b"on the ssd", 100);
    writer.finalize(Durability::Memory).unwrap();
    let summary = store.move_to_storage_type(&block(1, 1, 0), StorageType::Disk).unwrap();
    assert_eq!(summary.storage, store.storages()[0].id);
    let report = store.report(&bed.pool.pool);
    assert_eq!((report[0].replicas.len(), report[1].replicas.len()), (1, 0));
    assert_eq!(get(&store, 1, 1), b"on the ssd");
    drop(store);
    let store = bed.open();
    assert_eq!(info(&store, 1).storage_type, StorageType::Disk);
}

#[test]
fn damaged_memory_copy_falls_back_to_disk() {
    for size in [1000, 100_000] {
        let bed = Bed::new(Kind::Memory);
        let store = bed.open();
        let data = bytes(1, size);
        put(&store, 1, 1, &data);
        bed.flush(&store);
        let name = if size > 65536 { ".data" } else { "slab_" };
        let in_memory = files(bed.memory.path(), &|file| file.contains(name) && !file.contains("69632"));
        // The second half of the slot contains only data.
        flip(&in_memory[0], if size > 65536 { 70_000 } else { 900 });
        store.verify(&block(1, 1, 0)).unwrap();
        assert!(!info(&store, 1).in_memory, "the bad copy is dropped");
        assert!(get(&store, 1, 1) == data);
        assert_eq!(store.metrics().corruptions, 1);
        assert!(store.take_events().is_empty());
    }
}

#[test]
fn damaged_disk_copy_is_repaired_from_memory() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    put(&store, 1, 1, &bytes(1, 5000));
    bed.flush(&store);
    let data = files(bed.disk.path(), &|name| name == "blk_1");
    let meta = files(bed.disk.path(), &|name| name == "blk_1_1.meta");
    for path in [&data[0], &meta[0]] {
        flip(path, 20);
        store.verify(&block(1, 1, 0)).unwrap();
        assert!(!info(&store, 1).on_disk);
        bed.flush(&store);
        store.verify(&block(1, 1, 0)).unwrap();
        assert!(info(&store, 1).on_disk);
    }
    assert!(fs::read(&data[0]).unwrap() == bytes(1, 5000));
}

#[test]
fn bad_disk_copy_stays_gone_after_restart() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    let data = bytes(1, 100_000);
    put(&store, 1, 1, &data);
    bed.flush(&store);
    flip(&files(bed.disk.path(), &|name| name == "blk_1")[0], 20);
    store.verify(&block(1, 1, 0)).unwrap();
    // Killed before the copy in memory was written again.
    drop(store);
    let store = bed.open();
    assert!(!info(&store, 1).on_disk);
    bed.flush(&store);
    drop(store);
    bed.lose_power();
    assert!(get(&bed.open(), 1, 1) == data);
}

#[test]
fn unopenable_copy_is_neither_good_nor_bad() {
    let bed = Bed::new(Kind::Memory);
    let data = bytes(1, 100_000);
    {
        let store = bed.open();
        put(&store, 1, 1, &data);
        bed.flush(&store);
    }
    let store = bed.open();
    let in_memory = files(bed.memory.path(), &|file| file.ends_with(".data")).remove(0);
    let on_disk = files(bed.disk.path(), &|name| name == "blk_1").remove(0);

    // The state of both copies is unknown.
    let looped = [Loop::new(&in_memory), Loop::new(&on_disk)];
    assert!(matches!(store.verify(&block(1, 1, 0)), Err(StoreError::Io { .. })));
    drop(looped);
    assert!(info(&store, 1).in_memory && info(&store, 1).on_disk);
    assert!(store.take_events().is_empty());

    // The state of the copy in memory is unknown, the one on disk is good. (From here on the store keeps the former
    // open.)
    let looped = Loop::new(&in_memory);
    store.verify(&block(1, 1, 0)).unwrap();
    drop(looped);
    assert!(!store.reader(&block(1, 1, 0)).unwrap().show().unwrap().verified);

    // The copy in memory is bad, and the one on disk cannot be checked: that does not make the bad one the only copy.
    flip(&in_memory, 70_000);
    let looped = Loop::new(&on_disk);
    assert!(matches!(store.verify(&block(1, 1, 0)), Err(StoreError::Io { .. })));
    assert!(info(&store, 1).in_memory && store.take_events().is_empty());
    drop(looped);
    store.verify(&block(1, 1, 0)).unwrap();
    assert!(!info(&store, 1).in_memory && get(&store, 1, 1) == data);
}

#[test]
fn replica_without_good_copy_is_not_served() {
    for kind in [Kind::Memory, Kind::File, Kind::Mmap] {
        let bed = Bed::new(kind);
        let store = bed.open();
        put(&store, 1, 1, &bytes(1, 100_000));
        // Now open, and mapped if the engine maps.
        assert!(get(&store, 1, 1) == bytes(1, 100_000));
        let dir = if kind != Kind::Memory { bed.disk.path() } else { bed.memory.path() };
        let name = if kind != Kind::Memory { "blk_1" } else { ".data" };
        flip(&files(dir, &|file| file.ends_with(name))[0], 77);
        assert!(matches!(store.verify(&block(1, 1, 0)), Err(StoreError::Corrupt { .. })));
        assert!(matches!(store.reader(&block(1, 1, 0)), Err(StoreError::Corrupt { .. })));
        assert!(matches!(store.append(&block(1, 1, 0), GenerationStamp(2), 100_000), Err(StoreError::Corrupt { .. })));
        let events = store.take_events();
        assert!(matches!(&events[..], [StoreEvent::Corrupt { block: bad, .. }] if bad.id() == BlockId(1)));
        assert!(store.take_events().is_empty());
        // Delete it, as the NameNode would request.
        store.invalidate(&bed.pool.pool, &[block(1, 1, 0).block])[0].as_ref().unwrap();
        put(&store, 1, 2, b"again");
        assert_eq!(get(&store, 1, 2), b"again");
    }
}

#[test]
fn scrubber_finds_corruption_of_unread_replicas() {
    let mut bed = Bed::new(Kind::Memory);
    let data = bytes(1, 100_000);
    {
        let store = bed.open();
        put(&store, 1, 1, &data);
        put(&store, 2, 1, &data);
        bed.flush(&store);
        // Only in memory: there is no other copy to repair it from.
        put(&store, 3, 1, &data);
        for id in [1, 3] {
            let prefix = format!("blk_{id}_");
            let in_memory = files(bed.memory.path(), &|name| name.starts_with(&prefix) && name.ends_with(".data"));
            flip(&in_memory[0], 70_000);
        }
    }
    bed.options.background = true;
    // The flusher must not be the one that finds it.
    bed.options.flush_delay = std::time::Duration::from_secs(3600);
    bed.options.scrub_bytes_per_second = 100 << 20;
    bed.options.scrub_pause = std::time::Duration::from_millis(10);
    let store = bed.open();
    let mut events = Vec::new();
    wait_until("the scrubber to find both", WAIT_MAX, || {
        events.extend(store.take_events());
        Ok((store.metrics().corruptions >= 2 && !events.is_empty()).then_some(()))
    })
    .unwrap();
    assert!(matches!(&events[..], [StoreEvent::Corrupt { block, .. }] if block.id() == BlockId(3)), "{events:?}");
    assert!(matches!(store.reader(&block(3, 1, 0)), Err(StoreError::Corrupt { .. })));
    assert!(!info(&store, 1).in_memory);
    assert!(info(&store, 2).in_memory);
    assert!(get(&store, 1, 1) == data);
    assert!(get(&store, 2, 1) == data);
    // It scrubs repeatedly, and finds nothing more.
    let scrubbed = store.metrics().scrubbed_bytes;
    wait_until("another round", WAIT_MAX, || Ok((store.metrics().scrubbed_bytes >= scrubbed + 500_000).then_some(())))
        .unwrap();
    assert_eq!(store.metrics().corruptions, 2);
}

#[test]
fn flusher_does_not_write_corrupt_bytes() {
    let bed = Bed::new(Kind::Memory);
    let store = bed.open();
    put(&store, 1, 1, &bytes(1, 300_000));
    put(&store, 2, 1, &bytes(2, 300_000));
    let bad = files(bed.memory.path(), &|name| name.starts_with("blk_1_") && name.ends_with(".data"));
    flip(&bad[0], 299_999);
    assert_eq!(bed.flush(&store).failures, 1);
    bed.flush(&store);
    assert!(files(bed.disk.path(), &|name| name == "blk_1").is_empty());
    assert!(info(&store, 2).on_disk);
    assert!(matches!(&store.take_events()[..], [StoreEvent::Corrupt { .. }]));
    let tmp = files(bed.disk.path(), &|name| name.ends_with(".data"));
    assert!(tmp.is_empty(), "{tmp:?}");
}

#[test]
fn foreign_memory_is_put_aside() {
    let bed = Bed::new(Kind::Memory);
    {
        let store = bed.open();
        put(&store, 1, 1, b"on both");
        store.flush_all(&mut |_| true);
    }
    let copy = |from: &Path, to: &Path| {
        assert!(std::process::Command::new("cp").args(["-a"]).arg(from).arg(to).status().unwrap().success());
    };
    // The memory of an earlier incarnation comes back.
    let old = bed.memory.path().join("old");
    copy(&bed.options.memory.dir, &old);
    {
        let store = bed.open();
        let mut writer = store.append(&block(1, 1, 0), GenerationStamp(2), 7).unwrap();
        writer.write(7, b" and more", Checksums::Compute).unwrap();
        writer.finalize(Durability::Disk).unwrap();
        put(&store, 2, 1, b"new");
        store.flush_all(&mut |_| true);
    }
    fs::remove_dir_all(&bed.options.memory.dir).unwrap();
    copy(&old, &bed.options.memory.dir);
    let store = Blockstore::open(bed.options.clone()).unwrap();
    let summary = store.attach_pool(&bed.pool).unwrap();
    assert!(summary.quarantined);
    assert_eq!(summary.in_memory, 0);
    assert_eq!(get(&store, 1, 2), b"on both and more");
    assert_eq!(get(&store, 2, 1), b"new");
    let aside = fs::read_dir(fs::read_dir(&bed.options.memory.dir).unwrap().next().unwrap().unwrap().path()).unwrap();
    assert!(aside.flatten().any(|entry| entry.file_name().to_string_lossy().contains(".quarantined-")));
}

#[test]
fn damaged_memory_files_are_ignored() {
    let bed = Bed::new(Kind::Memory);
    {
        let store = bed.open();
        for id in 0..4 {
            put(&store, id, 1, &bytes(id as u64, 100_000));
        }
        put(&store, 10, 1, &[1; 100]);
        put(&store, 11, 1, &[2; 100]);
    }
    let of = |id: &str, end: &str| {
        let found = files(bed.memory.path(), &|name| name.starts_with(id) && name.ends_with(end));
        found.into_iter().next().unwrap()
    };
    // A torn header, a short data file, an empty CRC file, a lost data file; and a torn slot.
    flip(&of("blk_0_", ".crc"), 10);
    fs::File::options().write(true).open(of("blk_1_", ".data")).unwrap().set_len(99_999).unwrap();
    fs::write(of("blk_2_", ".crc"), b"").unwrap();
    fs::remove_file(of("blk_3_", ".data")).unwrap();
    let slab = of("slab_512_", "");
    flip(&slab, 20);
    let mut junk = fs::File::create(slab.with_file_name("slab_512_77")).unwrap();
    junk.write_all(&bytes(5, 1 << 20)).unwrap();
    fs::write(slab.with_file_name("slab_9999_1"), b"x").unwrap();
    fs::write(slab.with_file_name("blk_5_0000000000000001_0.crc"), bytes(4, 4096)).unwrap();
    let store = bed.open();
    let left: Vec<i64> = (0..12).filter(|id| store.replica(&bed.pool.pool, BlockId(*id)).is_some()).collect();
    assert_eq!(left, [11]);
    assert_eq!(get(&store, 11, 1), [2; 100]);
    // The ids can be used again.
    for id in 0..12 {
        store.create(&block(id, 2, 0), CreateKind::BeingWritten { replace: true }, &CreateOptions::default()).unwrap();
    }
}

#[test]
fn damaged_disk_files_are_errors() {
    [Kind::File, Kind::Mmap].into_iter().for_each(damaged_files_are_errors);
}

fn damaged_files_are_errors(kind: Kind) {
    let bed = Bed::new(kind);
    {
        let store = bed.open();
        for id in 0..5 {
            put(&store, id, 1, &bytes(id as u64, 3000));
        }
    }
    let of = |name: String| files(bed.disk.path(), &|file| file == name).into_iter().next().unwrap();
    fs::write(of("blk_0_1.meta".into()), b"").unwrap();
    fs::write(of("blk_1_1.meta".into()), b"\0\x09garbage").unwrap();
    fs::remove_file(of("blk_2_1.meta".into())).unwrap();
    fs::File::options().write(true).open(of("blk_3".into())).unwrap().set_len(100).unwrap();
    let store = bed.open();
    assert!(matches!(store.reader(&block(0, 1, 0)), Err(StoreError::Corrupt { .. })));
    assert!(matches!(store.reader(&block(1, 1, 0)), Err(StoreError::Corrupt { .. })));
    assert!(matches!(store.reader(&block(2, 1, 0)), Err(StoreError::ReplicaNotFound { .. })));
    // Truncated by another process: the bytes do not match their CRCs.
    assert!(matches!(store.verify(&block(3, 1, 0)), Err(StoreError::Corrupt { .. })));
    assert!(get(&store, 4, 1) == bytes(4, 3000));
}

#[test]
fn offline_flush_empties_killed_datanodes_memory() {
    let bed = Bed::new(Kind::Memory);
    {
        let store = bed.open();
        for id in 0..50 {
            put(&store, id, 1, &bytes(id as u64, 3000 * (id as usize + 1)));
        }
        let mut writer = create(&store, 100, 1);
        send(&mut writer, &bytes(100, 70_000), 1 << 20);
        std::mem::forget(writer);
    }
    let mut calls = 0;
    let done = Blockstore::flush_offline(bed.options.clone(), &mut |_| {
        calls += 1;
        true
    })
    .unwrap();
    assert_eq!((done.replicas_done, done.replicas_left, done.failures), (51, 0, 0));
    assert!(calls > 1);
    assert!(files(bed.memory.path(), &|name| name.starts_with("blk_") || name.ends_with(".data")).is_empty());
    // As Apache's DataNode would find it.
    for id in 0..50 {
        let data = files(bed.disk.path(), &|name| name == format!("blk_{id}"));
        assert!(data[0].to_str().unwrap().contains("/current/finalized/subdir0/subdir0/"));
        assert!(fs::read(&data[0]).unwrap() == bytes(id, 3000 * (id as usize + 1)));
    }
    assert!(files(bed.disk.path(), &|name| name == "blk_100")[0].to_str().unwrap().contains("/rbw/"));
    let store = bed.open();
    assert!(get(&store, 49, 1) == bytes(49, 150_000));
    assert_eq!(info(&store, 100).state, ReplicaState::WaitingToBeRecovered);
    assert!(!info(&store, 49).in_memory);
}
