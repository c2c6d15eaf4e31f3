//! Bytes shown to other processes: they stay unchanged, they are withdrawn before the replica changes, and their memory
//! counts until those processes release it.

mod common;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use hearth_blockstore::*;
use hearth_types::*;
use parking_lot::Mutex;

/// Records the withdrawals.
#[derive(Default)]
struct Told {
    all: Mutex<Vec<(BlockId, WithdrawReason)>>,
    /// Evictions have to wait.
    busy: AtomicBool,
}

impl WithdrawHook for Told {
    fn withdraw(&self, block: &ExtendedBlock, what: WithdrawReason) -> WithdrawReply {
        self.all.lock().push((block.id(), what));
        if self.busy.load(Ordering::Acquire) { WithdrawReply::Later } else { WithdrawReply::Done }
    }
}

fn open(bed: &Bed) -> (Blockstore, Arc<Told>) {
    let store = Blockstore::open(bed.options.clone()).unwrap();
    let told = Arc::new(Told::default());
    store.on_withdraw(told.clone());
    store.attach_pool(&bed.pool).unwrap();
    (store, told)
}

fn show(store: &Blockstore, id: i64) -> Shown {
    store.reader(&block(id, 1, 0)).unwrap().show().unwrap()
}

/// A mapping as another process has it.
struct Mapping(*const u8, usize);

impl Mapping {
    fn new(descriptor: &OwnedFd, length: usize) -> Self {
        use rustix::mm::{MapFlags, ProtFlags};
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, descriptor, 0) };
        Self(start.unwrap().cast(), length)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for that length; shown bytes are neither changed nor truncated, which is what these tests
        // verify.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range that `new` mapped.
        unsafe { rustix::mm::munmap(self.0.cast_mut().cast(), self.1).unwrap() };
    }
}

fn length(descriptor: &OwnedFd) -> u64 {
    File::from(descriptor.try_clone().unwrap()).metadata().unwrap().len()
}

fn all_of(descriptor: OwnedFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::from(descriptor).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Own files, small slabs, and disk: shown bytes stay the same, whatever happens to the replica.
#[test]
fn shown_bytes_survive_every_change() {
    type Change = fn(&Bed, &Blockstore, i64);
    let changes: [(&str, Change, &[WithdrawReason]); 5] = [
        (
            "append",
            |_, store, id| {
                let length = store.reader(&block(id, 1, 0)).unwrap().length();
                let mut writer = store.append(&block(id, 1, 0), GenerationStamp(2), length).unwrap();
                let seam = length.next_multiple_of(512) - length;
                send(&mut writer, &bytes(77, seam as usize), 512);
                send(&mut writer, &bytes(78, 300_000), 64 << 10);
                writer.finalize(Durability::Memory).unwrap();
            },
            &[WithdrawReason::Append],
        ),
        (
            "truncate",
            |_, store, id| {
                let info = store.initiate_recovery(&block(id, 1, 0), GenerationStamp(2)).unwrap().unwrap();
                let old = ExtendedBlock { pool: pool_identity().pool, block: info.block };
                store.update_under_recovery(&old, GenerationStamp(2), 700, None).unwrap();
            },
            &[WithdrawReason::Recovery],
        ),
        (
            "recovery",
            |_, store, id| {
                let info = store.initiate_recovery(&block(id, 1, 0), GenerationStamp(2)).unwrap().unwrap();
                let old = ExtendedBlock { pool: pool_identity().pool, block: info.block };
                store.update_under_recovery(&old, GenerationStamp(2), info.block.length, None).unwrap();
            },
            &[WithdrawReason::Recovery],
        ),
        (
            "delete",
            |bed, store, id| {
                store.invalidate(&bed.pool.pool, &[block(id, 1, 0).block]).remove(0).unwrap();
            },
            &[WithdrawReason::Deletion],
        ),
        (
            "replace",
            |_, store, id| {
                let kind = CreateKind::BeingWritten { replace: true };
                let mut writer = store.create(&block(id, 2, 0), kind, &CreateOptions::default()).unwrap();
                send(&mut writer, &bytes(79, 200_000), 64 << 10);
                writer.finalize(Durability::Memory).unwrap();
            },
            &[WithdrawReason::Deletion],
        ),
    ];
    for kind in KINDS {
        for (name, change, expected) in changes {
            for flushed in [false, true] {
                let bed = Bed::new(kind);
                let (store, told) = open(&bed);
                for (id, size) in [(1, 1000), (2, 200_300)] {
                    let data = bytes(id as u64, size);
                    put(&store, id, 1, &data);
                    if flushed {
                        bed.flush(&store);
                    }
                    let shown = show(&store, id);
                    let (map, meta) = (Mapping::new(&shown.data, size), shown.meta.try_clone().unwrap());
                    let meta_before = all_of(shown.meta);
                    assert_eq!(
                        shown.in_place,
                        matches!((kind, size > 65536), (Kind::Memory, true) | (Kind::NoSlabs | Kind::HugePages, _))
                    );
                    told.all.lock().clear();

                    change(&bed, &store, id);
                    assert_eq!(*told.all.lock(), expected.iter().map(|what| (BlockId(id), *what)).collect::<Vec<_>>());
                    // More replicas, which reuse any freed memory.
                    for other in 10..20 {
                        put(&store, other * 10 + id, 1, &bytes(other as u64, size));
                    }
                    assert!(map.bytes() == data, "{kind:?} {name}: bytes of a mapping");
                    let disk_append = name == "append" && !kind.has_memory();
                    if !disk_append {
                        // On disk an append continues in the same files, as Java's does.
                        assert_eq!(length(&shown.data), size as u64, "{kind:?} {name}: length of the file");
                        let mut again = vec![0; meta_before.len() + 1];
                        let read = File::from(meta).read_at(&mut again, 0).unwrap();
                        assert!(again[..read] == meta_before, "{kind:?} {name}: CRCs");
                    }
                }
            }
        }
    }
}

#[test]
fn changed_replica_is_not_shown() {
    for kind in KINDS {
        let bed = Bed::new(kind);
        let (store, _) = open(&bed);
        for id in [1, 2] {
            put(&store, id, 1, &bytes(1, 100_000));
        }
        let before = store.reader(&block(1, 1, 0)).unwrap();
        let deleted = store.reader(&block(2, 1, 0)).unwrap();
        let writer = store.append(&block(1, 1, 0), GenerationStamp(2), 100_000).unwrap();
        store.invalidate(&bed.pool.pool, &[block(2, 1, 0).block]).remove(0).unwrap();
        assert!(matches!(before.show(), Err(StoreError::Withdrawn { .. })));
        assert!(matches!(deleted.show(), Err(StoreError::Withdrawn { .. })));
        assert!(matches!(store.reader(&block(1, 1, 0)).unwrap().show(), Err(StoreError::WrongState { .. })));
        writer.finalize(Durability::Memory).unwrap();
        let shown = store.reader(&block(1, 2, 0)).unwrap().show().unwrap();
        assert!(all_of(shown.data) == bytes(1, 100_000));
    }
}

/// An append extends the memory in place unless another process holds it; the file still ends where the replica does.
#[test]
fn append_copies_only_held_memory() {
    let bed = Bed::new(Kind::NoSlabs);
    let (store, _) = open(&bed);
    put(&store, 1, 1, &bytes(1, 1 << 20));
    drop(show(&store, 1));
    let name = || {
        let mut names: Vec<_> = walk(bed.memory.path()).into_iter().filter(|name| name.ends_with(".data")).collect();
        assert_eq!(names.len(), 1);
        names.remove(0)
    };
    let before = name();
    let mut writer = store.append(&block(1, 1, 0), GenerationStamp(2), 1 << 20).unwrap();
    send(&mut writer, &bytes(2, 5000), 4096);
    writer.finalize(Durability::Memory).unwrap();
    assert_eq!(name(), before, "no process held it");
    let held = store.reader(&block(1, 2, 0)).unwrap().show().unwrap();
    assert_eq!(length(&held.data), (1 << 20) + 5000);
    let mut writer = store.append(&block(1, 2, 0), GenerationStamp(3), (1 << 20) + 5000).unwrap();
    send(&mut writer, &bytes(3, 120), 120);
    writer.finalize(Durability::Memory).unwrap();
    assert_ne!(name(), before, "a process held it");
    assert_eq!(length(&held.data), (1 << 20) + 5000);
    let all = [bytes(1, 1 << 20), bytes(2, 5000), bytes(3, 120)].concat();
    assert!(get(&store, 1, 3) == all);
    assert!(all_of(store.reader(&block(1, 3, 0)).unwrap().show().unwrap().data) == all);
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(walk(&path));
        } else {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

#[test]
fn memory_counts_until_last_holder_closes() {
    let bed = Bed::new(Kind::NoSlabs);
    let (store, _) = open(&bed);
    let size = 3 << 20;
    put(&store, 1, 1, &bytes(1, size));
    put(&store, 2, 1, &bytes(2, size));
    let full = store.metrics();
    let shown = show(&store, 1);
    let map = Mapping::new(&shown.data, size);
    drop(shown);
    store.invalidate(&bed.pool.pool, &[block(1, 1, 0).block, block(2, 1, 0).block]);
    let held = store.metrics();
    assert!(held.memory_used >= size as u64 && held.memory_used < full.memory_used, "{held:?}");
    assert_eq!((held.memory_lingering, held.shown), (held.memory_used, 0));
    store.sweep();
    assert_eq!(store.metrics().memory_used, held.memory_used);
    assert!(map.bytes() == bytes(1, size));
    drop(map);
    store.sweep();
    assert_eq!((store.metrics().memory_used, store.metrics().memory_lingering), (0, 0));
}

#[test]
fn held_replicas_are_evicted_last() {
    let mut bed = Bed::new(Kind::NoSlabs);
    bed.options.memory.limit = 8 << 20;
    let (store, told) = open(&bed);
    let size = 2 << 20;
    for id in 1..=3 {
        put(&store, id, 1, &bytes(id as u64, size));
    }
    bed.flush(&store);
    let in_memory = |id| info(&store, id).in_memory;
    let maps: Vec<_> = (1..=2).map(|id| Mapping::new(&show(&store, id).data, size)).collect();
    told.all.lock().clear();
    // The unheld replica makes room for a fourth.
    put(&store, 4, 1, &bytes(4, size));
    bed.flush(&store);
    assert_eq!(([1, 2, 3].map(in_memory), told.all.lock().len()), ([true, true, false], 1));
    told.busy.store(true, Ordering::Release);
    // Replica 4 could be evicted, but its owner defers that, as for all others.
    put(&store, 5, 1, &bytes(5, size));
    assert_eq!([1, 2, 4, 5].map(in_memory), [true, true, true, false]);
    assert!(told.all.lock().iter().all(|(_, what)| *what == WithdrawReason::Eviction));
    told.busy.store(false, Ordering::Release);
    for id in 6..=7 {
        put(&store, id, 1, &bytes(id as u64, size));
        bed.flush(&store);
        assert!([1, 2].map(in_memory) == [true, true], "another replica was evicted each time");
    }
    let others: Vec<_> = (3..=7).filter(|id| in_memory(*id)).collect();
    let more: Vec<_> = others.iter().map(|id| Mapping::new(&show(&store, *id).data, size)).collect();
    put(&store, 8, 1, &bytes(8, size));
    // All are held: they have been withdrawn, and their bytes still exist and are counted.
    let metrics = store.metrics();
    assert!(metrics.memory_lingering >= size as u64 && metrics.memory_used <= 8 << 20, "{metrics:?}");
    for (map, id) in more.iter().zip(others) {
        assert!(map.bytes() == bytes(id as u64, size));
    }
    for (map, id) in maps.iter().zip(1..) {
        assert!(map.bytes() == bytes(id, size));
    }
    for id in 1..=8 {
        assert!(get(&store, id, 1) == bytes(id as u64, size));
    }
    drop((maps, more));
    store.sweep();
    assert_eq!(store.metrics().memory_lingering, 0);
}

/// A descriptor outlives the process that passed it on: the next one detects that, and does not modify the memory.
#[test]
fn restart_detects_memory_still_held() {
    let bed = Bed::new(Kind::NoSlabs);
    let data = bytes(1, 100_000);
    let shown = {
        let (store, _) = open(&bed);
        put(&store, 1, 1, &data);
        put(&store, 2, 1, &data);
        show(&store, 1)
    };
    let (store, _) = open(&bed);
    assert_eq!(store.metrics().shown, 1);
    let reader = store.reader(&block(1, 1, 0)).unwrap();
    assert!(!reader.show().unwrap().verified, "this process has not checked the bytes");
    reader.verify_memory().unwrap();
    assert!(reader.show().unwrap().verified);
    drop(reader);
    for id in [1, 2] {
        let mut writer = store.append(&block(id, 1, 0), GenerationStamp(2), 100_000).unwrap();
        send(&mut writer, &bytes(3, 352), 352);
        writer.finalize(Durability::Memory).unwrap();
    }
    assert_eq!(length(&shown.data), 100_000);
    assert!(all_of(shown.data) == data);
    assert!(get(&store, 1, 2) == [data, bytes(3, 352)].concat());
}

#[test]
fn unchecked_memory_is_not_reported_verified() {
    let bed = Bed::new(Kind::Memory);
    let (store, _) = open(&bed);
    for (id, size) in [(1, 500), (2, 200_000)] {
        let mut writer = create(&store, id, 1);
        writer.set_checked(false);
        send(&mut writer, &bytes(id as u64, size), 64 << 10);
        writer.finalize(Durability::Memory).unwrap();
        assert!(!show(&store, id).verified);
    }
    bed.flush(&store);
    // The flush has checked every byte.
    assert!([1, 2].iter().all(|id| show(&store, *id).verified));
    put(&store, 3, 1, &bytes(3, 200_000));
    assert!(show(&store, 3).verified, "checked when written");
}
