//! Measures the cost of moving replicas from memory to disk: 32 MiB each, allocated, filled by another writer, checked
//! in place and flushed.
//!
//! `cargo run --release -p hearth-blockstore --example flush [MEMORY_DIR DISK_DIR [MiB]]`. Prints milliseconds of CPU
//! of this process, user and system, for 128 MiB. Compare a tmpfs with small pages to one mounted with
//! `huge=within_size`.

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use hearth_blockstore::*;
use hearth_types::*;

const BLOCK: usize = 32 << 20;
const PACKET: usize = 1 << 20;

fn cpu_seconds() -> f64 {
    // SAFETY: an all-zero rusage is valid, and getrusage fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

struct Step {
    name: &'static str,
    cpu: f64,
    wall: f64,
}

impl Step {
    fn new(name: &'static str) -> Self {
        Self { name, cpu: 0.0, wall: 0.0 }
    }

    fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (cpu, wall) = (cpu_seconds(), Instant::now());
        let result = work();
        self.cpu += cpu_seconds() - cpu;
        self.wall += wall.elapsed().as_secs_f64();
        result
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let memory = PathBuf::from(arguments.next().unwrap_or_else(|| "/dev/shm".to_owned()));
    let disk = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let blocks = arguments.next().and_then(|text| text.parse::<usize>().ok()).unwrap_or(512).div_ceil(32);
    let (memory, disk) = (tempfile::tempdir_in(memory).expect("a tmpfs"), tempfile::tempdir_in(disk).expect("a disk"));
    let data: Vec<u8> = (0..PACKET).map(|i| ((i * 31) >> 3) as u8).collect();
    let mut crcs = Vec::new();
    ChecksumSpec::DEFAULT.compute(&data, &mut crcs);
    let mut options =
        StoreOptions::new(vec![VolumeOptions::memory(disk.path())], MemoryOptions::new(memory.path(), 8 << 30));
    options.background = false;
    let store = Blockstore::open(options).expect("a store");
    let pool =
        PoolIdentity { pool: BlockPoolId::new("BP-1"), namespace_id: 1, cluster_id: "C".to_owned(), created_ms: 1 };
    store.attach_pool(&pool).expect("a pool");
    for round in 0..3 {
        let mut steps = ["allocate", "fill", "check in place", "finalize", "flush", "delete"].map(Step::new);
        let [allocate, fill, check, finalize, flush, delete] = &mut steps;
        let made: Vec<Block> = (0..blocks)
            .map(|index| Block { id: BlockId((round * blocks + index) as i64), stamp: GenerationStamp(1), length: 0 })
            .collect();
        for block in &made {
            let named = ExtendedBlock { pool: pool.pool.clone(), block: *block };
            let kind = CreateKind::BeingWritten { replace: false };
            let mut writer = store.create(&named, kind, &CreateOptions::default()).expect("a writer");
            let mut at = 0;
            let mut granted = 0;
            while at < BLOCK {
                if at as u64 == granted {
                    granted = (granted + granted.clamp(1 << 20, 8 << 20)).min(BLOCK as u64);
                    let got = allocate.measure(|| writer.grant(granted)).expect("memory");
                    assert_eq!(got, granted, "memory is full");
                }
                let lent = File::from(writer.lend(true).expect("lent"));
                fill.measure(|| lent.write_all_at(&data, at as u64)).expect("room");
                check.measure(|| writer.commit(at as u64, PACKET as u64, &crcs)).expect("right CRCs");
                at += PACKET;
            }
            finalize.measure(|| writer.finalize(Durability::Memory)).expect("finalized");
        }
        let done = flush.measure(|| store.flush_all(&mut |_| true));
        assert_eq!((done.replicas_done, done.failures), (blocks as u64, 0));
        delete.measure(|| store.invalidate(&pool.pool, &made));
        println!("round {round}, ms for 128 MiB");
        for Step { name, cpu, wall } in &steps {
            let each = 1e3 * 4.0 / blocks as f64;
            println!("  {name:16} {:6.1} CPU {:6.1}", cpu * each, wall * each);
        }
    }
}
