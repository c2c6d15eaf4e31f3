//! Behaviour specific to the engines `mmap` and `file`: replicas stay open and mapped within limits, truncated files do
//! not end the process, finalized replicas are synced in the background, and a directory can change from one engine to
//! another.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::*;
use hearth_blockstore::*;
use hearth_testkit::skip_or_fail;
use hearth_types::*;

const ENGINES: [Engine; 3] = [Engine::Memory, Engine::Mmap, Engine::File];

fn path_of(bed: &Bed, name: &str) -> PathBuf {
    fn find(dir: &std::path::Path, name: &str) -> Option<PathBuf> {
        std::fs::read_dir(dir).unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            if path.is_dir() { find(&path, name) } else { path.ends_with(name).then_some(path) }
        })
    }
    find(bed.disk.path(), name).unwrap()
}

/// Reads short pieces at scattered offsets, like short gets.
fn gets(store: &Blockstore, id: i64, data: &[u8]) {
    for at in (0..data.len()).step_by(37 * 512) {
        let reader = store.reader(&block(id, 1, 0)).unwrap();
        let mut into = vec![0; (data.len() - at).min(4096)];
        reader.read_at(at as u64, &mut into).unwrap();
        assert!(into == data[at..at + into.len()]);
    }
}

#[test]
fn repeated_reads_map_and_changes_unmap() {
    let mut bed = Bed::new(Kind::Mmap);
    bed.options.open_file_cache.map_at = 2;
    let store = bed.open();
    let data = bytes(1, 300_000);
    put(&store, 1, 1, &data);
    store.reader(&block(1, 1, 0)).unwrap();
    assert_eq!((store.metrics().kept_replicas, store.metrics().mapped_bytes), (1, 0), "opened once");
    gets(&store, 1, &data);
    // Data and CRCs, in whole pages.
    assert_eq!(store.metrics().mapped_bytes, 74 * 4096 + 4096);
    // Only a guard keeps its mapping.
    let guard = store.reader(&block(1, 1, 0)).unwrap();
    let mut writer = store.append(&block(1, 1, 0), GenerationStamp(2), 300_000).unwrap();
    send(&mut writer, &bytes(2, 32), 512);
    writer.finalize(Durability::Memory).unwrap();
    assert!(store.metrics().mapped_bytes > 0 && read(&guard) == data);
    drop(guard);
    assert_eq!(store.metrics().mapped_bytes, 0);
    let now = [&data[..], &bytes(2, 32)].concat();
    for _ in 0..3 {
        assert!(get(&store, 1, 2) == now);
    }
    assert!(store.metrics().mapped_bytes > 0);
    store.invalidate(&bed.pool.pool, &[block(1, 2, 0).block])[0].as_ref().unwrap();
    assert_eq!(store.metrics().mapped_bytes, 0);
}

#[test]
fn cached_memory_files_do_not_pin_memory() {
    let mut bed = Bed::new(Kind::NoSlabs);
    bed.options.memory.limit = 4 << 20;
    let store = bed.open();
    let data = bytes(1, 1 << 20);
    for id in 0..3 {
        put(&store, id, 1, &data);
        gets(&store, id, &data);
        assert_eq!(store.metrics().pinned, 0);
        gets(&store, id, &data);
    }
    assert!(store.metrics().kept_replicas >= 3);
    bed.flush(&store);
    // Other replicas need the memory: the one that was read is evicted, and is read back.
    for id in 10..16 {
        put(&store, id, 1, &data);
        gets(&store, id, &data);
        bed.flush(&store);
    }
    assert!(store.metrics().evictions > 0 && store.metrics().memory_lingering == 0);
    for id in [0, 1, 2, 10, 15] {
        gets(&store, id, &data);
    }
    let used = store.metrics().memory_used;
    let blocks: Vec<Block> = (0..16).map(|id| block(id, 1, 0).block).collect();
    store.invalidate(&bed.pool.pool, &blocks);
    let metrics = store.metrics();
    assert!(used > 0 && (metrics.memory_used, metrics.memory_lingering) == (0, 0), "{metrics:?}");
}

#[test]
fn metrics_keep_cached_files_open() {
    let bed = Bed::new(Kind::NoSlabs);
    let store = bed.open();
    let data = bytes(1, 100_000);
    put(&store, 1, 1, &data);
    for _ in 0..3 {
        gets(&store, 1, &data);
        let metrics = store.metrics();
        // If it were opened again, it would be counted twice.
        assert_eq!((metrics.kept_replicas, metrics.pinned, metrics.shown), (1, 0, 0));
    }
    let reader = store.reader(&block(1, 1, 0)).unwrap();
    assert_eq!(store.metrics().pinned, 1);
    drop(reader);
    assert_eq!(store.metrics().pinned, 0);
}

#[test]
fn storages_count_finalized_replicas() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let store = bed.open();
        let replicas = |store: &Blockstore| store.storages()[0].replicas;
        for id in 0..4 {
            put(&store, id, 1, &bytes(id as u64, 10_000));
        }
        let mut writer = create(&store, 10, 1);
        assert_eq!(replicas(&store), 4, "{kind:?}");
        let more = store.append(&block(1, 1, 0), GenerationStamp(2), 10_000).unwrap();
        assert_eq!(replicas(&store), 3, "{kind:?}");
        drop(more);
        send(&mut writer, &bytes(10, 100), 512);
        writer.finalize(Durability::Memory).unwrap();
        bed.flush(&store);
        assert_eq!(replicas(&store), 4, "{kind:?}");
        store.invalidate(&bed.pool.pool, &[block(2, 1, 0).block])[0].as_ref().unwrap();
        assert_eq!(replicas(&store), 3, "{kind:?}");
        drop(store);
        assert_eq!(replicas(&bed.open()), 3, "{kind:?}");
    }
}

#[test]
fn cache_and_mapping_limits_are_enforced() {
    for kind in [Kind::Mmap, Kind::File] {
        let mut bed = Bed::new(kind);
        bed.options.open_file_cache.replicas_max = 10;
        bed.options.open_file_cache.mapped_bytes_max = 100_000;
        let store = bed.open();
        let replicas: Vec<Vec<u8>> = (0..40).map(|id| bytes(id, 20_000)).collect();
        for (id, data) in replicas.iter().enumerate() {
            put(&store, id as i64, 1, data);
        }
        let mut most = 0;
        for round in 0..4 {
            for (id, data) in replicas.iter().enumerate().skip(round % 3) {
                gets(&store, id as i64, data);
                let metrics = store.metrics();
                assert!(metrics.kept_replicas <= 10 && metrics.mapped_bytes <= 100_000, "{metrics:?}");
                most = most.max(metrics.mapped_bytes);
            }
        }
        assert_eq!(most > 50_000, kind == Kind::Mmap);
        // Replicas that are read now get the room, whichever had it before.
        for _ in 0..200 {
            gets(&store, 0, &replicas[0]);
        }
        let mapped = store.metrics().mapped_bytes;
        gets(&store, 0, &replicas[0]);
        assert_eq!(store.metrics().mapped_bytes, mapped);
        // A lower limit closes replicas at once, and perhaps one more to make room for a mapping. A higher one lets more
        // stay open.
        store.set_open_replicas_max(3);
        assert_eq!(store.open_replicas_max(), 3);
        assert!((1..=3).contains(&store.metrics().kept_replicas), "{:?}", store.metrics());
        let mapped = store.metrics().mapped_bytes;
        store.set_open_replicas_max(20);
        store.set_mapped_bytes_max(0);
        (0..20).zip(&replicas).for_each(|(id, data)| gets(&store, id, data));
        let metrics = store.metrics();
        assert!(metrics.mapped_bytes <= mapped, "{metrics:?}");
        // Replicas that find no room for a mapping close others.
        assert!(metrics.kept_replicas > 10 || kind == Kind::Mmap, "{metrics:?}");
        assert_eq!(store.mapped_bytes_max(), 0);
    }
    let mut bed = Bed::new(Kind::Mmap);
    bed.options.open_file_cache.replicas_max = 0;
    let store = bed.open();
    put(&store, 1, 1, &bytes(1, 20_000));
    gets(&store, 1, &bytes(1, 20_000));
    assert_eq!((store.metrics().kept_replicas, store.metrics().mapped_bytes), (0, 0));
}

#[test]
fn truncated_file_is_an_error() {
    for kind in [Kind::Mmap, Kind::MmapOnTmpfs, Kind::File] {
        let bed = Bed::new(kind);
        let store = bed.open();
        let data = bytes(1, 300_000);
        put(&store, 1, 1, &data);
        put(&store, 2, 1, &data);
        bed.flush(&store);
        gets(&store, 1, &data);
        gets(&store, 2, &data);
        let before = store.reader(&block(1, 1, 0)).unwrap();
        // Truncated by another process, which should not do so.
        let file = std::fs::File::options().write(true).open(path_of(&bed, "blk_1")).unwrap();
        file.set_len(8192).unwrap();
        let mut into = vec![0; 4096];
        assert!(matches!(before.read_at(200_000, &mut into), Err(StoreError::Io { .. })), "{kind:?}");
        let mut now = Vec::new();
        assert!(!matches!(before.read_now(ByteRange::new(0, 300_000).unwrap(), &mut now), Ok(true)));
        // The remaining bytes are readable, by the guard and by later readers.
        before.read_at(4096, &mut into).unwrap();
        assert!(into == data[4096..8192]);
        let after = store.reader(&block(1, 1, 0)).unwrap();
        after.read_at(0, &mut into).unwrap();
        assert!(into == data[..4096]);
        assert!(matches!(store.verify(&block(1, 1, 0)), Err(StoreError::Corrupt { .. })), "{kind:?}");
        assert!(matches!(store.reader(&block(1, 1, 0)), Err(StoreError::Corrupt { .. })));
        gets(&store, 2, &data);
        // The same for the CRCs.
        let meta = std::fs::File::options().write(true).open(path_of(&bed, "blk_2_1.meta")).unwrap();
        let reader = store.reader(&block(2, 1, 0)).unwrap();
        meta.set_len(7).unwrap();
        // Within the file's last page a mapping shows zeros: an error, or CRCs that do not match.
        now.clear();
        let sums = reader.checksums(ByteRange::new(0, 4096).unwrap(), &mut now);
        assert!(sums.is_err() || reader.checksum().verify(&data[..4096], &now).is_err());
        assert!(reader.read_at(0, &mut into).is_ok() && into == data[..4096]);
    }
}

#[test]
fn finalized_files_are_synced_in_background() {
    for kind in [Kind::Mmap, Kind::File, Kind::NoMemory] {
        let bed = Bed::new(kind);
        let store = bed.open();
        for id in 0..20 {
            put(&store, id, 1, &bytes(id as u64, 100 + 10_000 * id as usize));
        }
        let mut durable = create(&store, 20, 1);
        send(&mut durable, b"on disk at once", 512);
        durable.finalize(Durability::Disk).unwrap();
        store.invalidate(&bed.pool.pool, &[block(7, 1, 0).block])[0].as_ref().unwrap();
        bed.clock.advance(Duration::from_secs(9));
        assert_eq!(store.flush_due().replicas_done, 0);
        let metrics = store.metrics();
        assert_eq!((metrics.unsynced_replicas, metrics.oldest_dirty_age), (20, Duration::from_secs(9)), "{kind:?}");
        bed.clock.advance(Duration::from_secs(2));
        let done = store.flush_due();
        assert_eq!((done.replicas_done, done.failures), (19, 0), "{kind:?}");
        assert_eq!((store.metrics().unsynced_replicas, store.metrics().oldest_dirty_age), (0, Duration::ZERO));
        // Also the entries that are left at the end.
        put(&store, 30, 1, b"late");
        assert_eq!(store.flush_all(&mut |_| true).failures, 0);
        assert_eq!(store.metrics().unsynced_replicas, 0);
    }
}

#[test]
fn restamped_files_are_synced_in_background() {
    for kind in [Kind::Mmap, Kind::File, Kind::NoMemory] {
        let bed = Bed::new(kind);
        let store = bed.open();
        put(&store, 1, 1, &bytes(1, 10_000));
        store.recover_close(&block(1, 1, 0), GenerationStamp(2), 10_000).unwrap();
        let done = bed.flush(&store);
        assert_eq!((done.replicas_done, done.failures), (1, 0), "{kind:?}");
        assert!(get(&store, 1, 2) == bytes(1, 10_000));
    }
}

/// Finalized files may be only in the page cache: a close recovery that cannot make them durable must not succeed.
#[test]
fn close_recovery_syncs_finalized_files() {
    for kind in [Kind::Mmap, Kind::File, Kind::NoMemory] {
        let bed = Bed::new(kind);
        let store = bed.open();
        put(&store, 1, 1, &bytes(1, 10_000));
        let (data, aside) = (path_of(&bed, "blk_1"), bed.disk.path().join("aside"));
        std::fs::rename(&data, &aside).unwrap();
        // It can be opened, but not synced.
        std::os::unix::fs::symlink("/dev/null", &data).unwrap();
        let close = || store.recover_close(&block(1, 1, 0), GenerationStamp(2), 10_000);
        assert!(matches!(close(), Err(StoreError::Io { .. })), "{kind:?}");
        std::fs::rename(&aside, &data).unwrap();
        close().unwrap();
        assert!(get(&store, 1, 2) == bytes(1, 10_000), "{kind:?}");
    }
}

#[test]
fn directory_can_switch_engines() {
    for from in ENGINES {
        for to in ENGINES {
            let mut bed = Bed::new(Kind::Memory);
            let data: Vec<Vec<u8>> = [100, 70_000, 200_300].iter().map(|size| bytes(*size, *size as usize)).collect();
            bed.options.volumes[0].engine = from;
            {
                let store = bed.open();
                for (id, data) in data.iter().enumerate() {
                    put(&store, id as i64, 1, data);
                }
                send(&mut create(&store, 9, 1), &data[1], 64 << 10);
                // As after a kill: nothing was flushed.
            }
            bed.options.volumes[0].engine = to;
            for _ in 0..2 {
                let store = bed.open();
                for (id, data) in data.iter().enumerate() {
                    assert!(get(&store, id as i64, 1) == *data, "{from:?} to {to:?}");
                }
                assert_eq!(info(&store, 9).block.length, 70_000, "{from:?} to {to:?}");
                assert_eq!(bed.flush(&store).failures, 0);
                assert!((0..3).all(|id| info(&store, id).on_disk));
            }
            let store = bed.open();
            let mut writer = store.append(&block(1, 1, 0), GenerationStamp(2), 70_000).unwrap();
            let rest = 512 - 70_000 % 512;
            send(&mut writer, &data[2][..rest], 512);
            send(&mut writer, &data[2][rest..], 64 << 10);
            writer.finalize(Durability::Memory).unwrap();
            assert!(get(&store, 1, 2) == [&data[1][..], &data[2]].concat(), "{from:?} to {to:?}");
        }
    }
}

/// Laid out like Apache's DataNode, without CRCs so that it may be a hole.
#[test]
fn huge_block_of_apaches_datanode_is_read() {
    const GIB: u64 = 1 << 30;
    for kind in [Kind::File, Kind::Mmap] {
        let bed = Bed::new(kind);
        drop(bed.open());
        let pool = bed.options.volumes[0].dir.join("current").join(bed.pool.pool.as_str());
        let dir = pool.join("current/finalized/subdir0/subdir0");
        std::fs::create_dir_all(&dir).unwrap();
        let file = std::fs::File::create(dir.join("blk_5")).unwrap();
        file.set_len(9 * GIB + 77).unwrap();
        let data = bytes(5, 100_000);
        std::os::unix::fs::FileExt::write_all_at(&file, &data, 5 * GIB - 50_000).unwrap();
        let spec = ChecksumSpec { kind: ChecksumKind::Null, bytes_per_chunk: 512 };
        std::fs::write(dir.join("blk_5_1001.meta"), spec.to_meta_header()).unwrap();
        let store = bed.open();
        for _ in 0..3 {
            let mut reader = store.reader(&block(5, 1001, 0)).unwrap();
            assert_eq!(reader.length(), 9 * GIB + 77);
            let mut into = vec![1; 100_000];
            reader.read_at(5 * GIB - 50_000, &mut into).unwrap();
            assert!(into == data);
            reader.read_at(9 * GIB, &mut into[..77]).unwrap();
            assert_eq!(into[..77], [0; 77]);
            assert!(reader.read_at(9 * GIB, &mut into[..78]).is_err());
            reader.read_ahead();
            reader.read_at(5 * GIB, &mut into[..50_000]).unwrap();
            assert!(into[..50_000] == data[50_000..]);
        }
        assert_eq!(store.metrics().mapped_bytes > 9 * GIB, kind == Kind::Mmap);
    }
}

/// Drops the file's pages from the page cache. False: on this file system, cached pages cannot be detected.
fn forget(path: &std::path::Path) -> bool {
    let file = std::fs::File::open(path).unwrap();
    let bytes = file.metadata().unwrap().len() as usize;
    let is_cached = || {
        let mut byte = [0; 1];
        let mut slices = [std::io::IoSliceMut::new(&mut byte)];
        let nowait = rustix::io::ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(&file, &mut slices, bytes as u64 - 1, nowait) == Ok(1)
    };
    file.sync_all().unwrap();
    std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
    let was = is_cached();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    was && !is_cached()
}

#[test]
fn uncached_bytes_are_prefetched() {
    let bed = Bed::new(Kind::File);
    let store = bed.open();
    let data = bytes(1, 3_000_001);
    put(&store, 1, 1, &data);
    assert!(matches!(store.reader_now(&block(1, 1, 0)).unwrap(), Reading::OnDisk(_)));
    let reader = store.reader(&block(1, 1, 0)).unwrap();
    // It stays open.
    assert!(matches!(store.reader_now(&block(1, 1, 0)).unwrap(), Reading::Now(_)));
    if !(forget(&path_of(&bed, "blk_1")) & forget(&path_of(&bed, "blk_1_1.meta"))) {
        let why = format_args!("{} does not show which bytes are cached", bed.disk.path().display());
        return skip_or_fail("uncached_bytes_are_prefetched", why);
    }
    for (from, to, ahead) in [(0, 65_536, 1 << 20), (2_000_000, 2_100_000, 0), (2_990_080, 3_000_001, 1 << 20)] {
        let range = ByteRange::new(from, to).unwrap();
        reader.data_prefetch(range, ahead).unwrap_or_else(|| panic!("{range:?} is not cached")).fetch().unwrap();
        let after = ByteRange::new(from, (from + ahead).min(3_000_001).max(to)).unwrap();
        assert!(reader.data_prefetch(after, 0).is_none(), "{range:?}");
    }
    let all = ByteRange::new(0, 3_000_001).unwrap();
    reader.checksum_prefetch(all).expect("the CRCs are not cached").fetch().unwrap();
    assert!(reader.checksum_prefetch(all).is_none());
    // The CRC of its last chunk is in memory.
    assert!(reader.checksum_prefetch(ByteRange::new(2_999_808, 3_000_001).unwrap()).is_none());
    assert!(read(&reader) == data);
}

#[test]
fn memory_and_tmpfs_need_no_prefetch() {
    let (data, all) = (bytes(1, 3_000_001), ByteRange::new(0, 3_000_001).unwrap());
    for kind in [Kind::Memory, Kind::MmapOnTmpfs] {
        let bed = Bed::new(kind);
        let store = bed.open();
        put(&store, 1, 1, &data);
        let reader = store.reader(&block(1, 1, 0)).unwrap();
        assert!(reader.data_prefetch(all, 0).is_none());
        assert!(reader.checksum_prefetch(all).is_none());
        assert!(reader.read_now(all, &mut Vec::new()).unwrap());
        assert!(matches!(store.reader_now(&block(1, 1, 0)).unwrap(), Reading::Now(_)));
    }
}
