//! Memory that a file takes, counted as an allocator with multiples of 16 bytes does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hearth_namenode::blocks::{BlockMap, BlockSettings};
use hearth_namenode::leases::{LeaseLimits, Leases};
use hearth_namenode::namespace::{BlockRecord, Caller, Limits, Namespace, NewFile, RecordState, Writer};
use hearth_types::{Block, BlockPoolId, FsPermission};

/// The system allocator with a counter of the bytes in use.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

// SAFETY: every call is passed unchanged to the system allocator, which fulfils the contract; counting does not touch
// the allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(rounded(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(rounded(layout.size()), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FILES: usize = 100_000;
/// Number of files in a directory.
const TOGETHER: usize = 1000;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Created and not closed, as NNThroughputBenchmark leaves its files.
    Open,
    Closed {
        blocks: u64,
    },
}

/// Returns the bytes per file for many files with names of 20 bytes. It excludes the initial capacity of the tables.
fn bytes_a_file(kind: Kind) -> usize {
    let mut namespace = Namespace::format(Limits::default(), "root", "supergroup", 1);
    let mut leases = Leases::new(LeaseLimits::default());
    let mut blocks = BlockMap::new(BlockPoolId::new("BP-1-127.0.0.1-1"), BlockSettings::default(), 1);
    let caller = Caller { user: "root".into(), groups: [].into(), superuser: true, machine: "127.0.0.1".into() };
    let before = HELD.load(Ordering::Relaxed);
    for number in 0..FILES {
        let path = format!("/benchmark/{:05}/ThroughputB{number:09}", number / TOGETHER);
        let trail = namespace.check_create(&caller, &path, true, false, true).unwrap();
        let client = format!("NNThroughputBenchmark-client-{}", number % 3);
        let writer = Writer { client: client.clone(), machine: caller.machine.to_string(), truncation: None };
        let file = NewFile {
            modes: FsPermission(0o644).into(),
            replication: 3,
            block_size: 128 << 20,
            storage_policy: 0,
            writer,
            caller: &caller,
        };
        let slot = namespace.create_file(&trail, file, 1).unwrap();
        let id = namespace.inode(slot).id();
        leases.add(&client, id, Duration::ZERO);
        if let Kind::Closed { blocks: count } = kind {
            for _ in 0..count {
                let block = Block { id: namespace.next_block_id(), stamp: namespace.next_stamp(), length: 1 << 20 };
                namespace.push_block(slot, BlockRecord::new(block, RecordState::Complete));
                blocks.restore(block, id.0, 3, 0, true);
            }
            namespace.file_mut(slot).close();
            leases.remove(&client, id);
        }
        // Drop the changes, as the store takes them.
        drop(namespace.take_changes());
    }
    (HELD.load(Ordering::Relaxed) - before) / FILES
}

#[test]
fn file_memory_stays_within_bounds() {
    let open = bytes_a_file(Kind::Open);
    let [empty, one, ten] = [0, 1, 10].map(|blocks| bytes_a_file(Kind::Closed { blocks }));
    println!("bytes a file: {open} open and empty, {empty} empty, {one} of one block, {ten} of ten blocks");
    assert!(open <= 90, "an open file without blocks takes {open} bytes");
    assert!(empty <= 90, "an empty file takes {empty} bytes");
    assert!(one <= 120, "a file of one block takes {one} bytes");
    assert!(ten <= 500, "a file of ten blocks takes {ten} bytes");
}
