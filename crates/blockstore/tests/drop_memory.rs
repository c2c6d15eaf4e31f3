//! The end of a DataNode that keeps nothing in memory: what is on disk leaves memory, and nothing else does.

mod common;

use std::path::{Path, PathBuf};

use common::*;
use hearth_blockstore::*;
use hearth_types::*;

fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_in(&path)) } else { found.push(path) }
    }
    found
}

/// Replicas of all sizes: in slabs, and in files of their own.
fn content(id: i64) -> Vec<u8> {
    bytes(id as u64, 100 + 9_000 * id as usize)
}

#[test]
fn flushed_memory_is_freed_and_found_on_disk() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let store = bed.open();
        for id in 0..30 {
            put(&store, id, 1, &content(id));
        }
        let mut being_written = create(&store, 100, 1);
        send(&mut being_written, &bytes(100, 70_144), 1 << 16);
        let transfer = CreateOptions::default();
        let mut unfinished = store.create(&block(101, 1, 0), CreateKind::Temporary, &transfer).unwrap();
        send(&mut unfinished, &bytes(101, 100_000), 1 << 16);
        // A reader in this process keeps its memory to the end.
        let reader = store.reader(&block(29, 1, 0)).unwrap();

        let left = store.flush_all(&mut |_| true);
        assert_eq!((left.replicas_left, left.failures), (0, 0), "{kind:?}");
        // Acknowledged between the flush and the end.
        send(&mut being_written, &bytes(102, 5_000), 5_000);
        assert_eq!(store.drop_memory(), (0, 0), "{kind:?}");
        assert!(read(&reader) == content(29), "{kind:?}");
        drop((reader, being_written, unfinished));
        store.close();
        let memory = bed.memory.path().join("m");
        assert_eq!(files_in(&memory), Vec::<PathBuf>::new(), "{kind:?}");
        assert_eq!(std::fs::read_dir(&memory).unwrap().count(), 0, "{kind:?}: directories without files");

        // As after a restart of the machine.
        bed.lose_power();
        let store = bed.open();
        for id in 0..30 {
            assert!(get(&store, id, 1) == content(id), "{kind:?}: {id}");
        }
        let found = info(&store, 100);
        assert_eq!((found.state, found.block.length), (ReplicaState::WaitingToBeRecovered, 75_144), "{kind:?}");
        assert!(store.replica(&bed.pool.pool, BlockId(101)).is_none(), "{kind:?}");
    }
}

#[test]
fn replicas_that_are_only_in_memory_stay() {
    for kind in [Kind::Memory, Kind::NoSlabs] {
        let bed = Bed::new(kind);
        let store = bed.open();
        for id in 0..10 {
            put(&store, id, 1, &content(id));
        }
        assert_eq!(bed.flush(&store).replicas_done, 10);
        for id in 10..20 {
            put(&store, id, 1, &content(id));
        }
        let expected: u64 = (10..20).map(|id| content(id).len() as u64).sum();
        assert_eq!(store.drop_memory(), (10, expected), "{kind:?}");
        store.close();
        let store = bed.open();
        for id in 0..20 {
            assert_eq!(info(&store, id).in_memory, id >= 10, "{kind:?}: {id}");
            assert!(get(&store, id, 1) == content(id), "{kind:?}: {id}");
        }
    }
}

#[test]
fn freed_memory_is_not_read_back() {
    let mut bed = Bed::new(Kind::NoSlabs);
    bed.options.background = true;
    let store = bed.open();
    put(&store, 1, 1, &content(20));
    assert_eq!(store.flush_all(&mut |_| true).failures, 0);
    assert_eq!(store.drop_memory(), (0, 0));
    for _ in 0..100 {
        assert!(get(&store, 1, 1) == content(20));
    }
    store.close();
    assert_eq!(files_in(bed.memory.path()), Vec::<PathBuf>::new());
}
