//! Compares the cost of the store's write path with the minimum: CRC32C over 512 bytes, and pwrite to a tmpfs.
//!
//! `cargo run --release -p hearth-blockstore --example write_path [MiB]`. Prints CPU seconds of this process, user and
//! system; the flusher is off. Use the ratio: absolute numbers depend on the machine.

#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use hearth_blockstore::*;
use hearth_types::*;

const BLOCK: usize = 32 << 20;
const PACKET: usize = 126 * 512;

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

fn measure(name: &str, work: impl FnOnce()) -> f64 {
    let (cpu, wall) = (cpu_seconds(), Instant::now());
    work();
    let cpu = cpu_seconds() - cpu;
    println!("{name:28} {cpu:7.3} CPU s {:7.3} s", wall.elapsed().as_secs_f64());
    cpu
}

fn main() {
    let blocks = std::env::args().nth(1).and_then(|text| text.parse::<usize>().ok()).unwrap_or(2048) / 32;
    let packet: Vec<u8> = (0..PACKET).map(|i| ((i * 31) >> 3) as u8).collect();
    let spec = ChecksumSpec::DEFAULT;
    let mut crcs = Vec::new();
    spec.compute(&packet, &mut crcs);
    for round in 0..3 {
        let least = measure("CRC check and pwrite", || {
            let dir = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
            for block in 0..blocks {
                let file = File::create(dir.path().join(block.to_string())).expect("a file");
                let mut at = 0;
                while at < BLOCK {
                    let bytes = PACKET.min(BLOCK - at);
                    spec.verify(&packet[..bytes], &crcs[..bytes.div_ceil(512) * 4]).expect("right CRCs");
                    file.write_all_at(&packet[..bytes], at as u64).expect("room");
                    at += bytes;
                }
                // Removed like the store's replicas, so that memory is equally warm.
                std::fs::remove_file(dir.path().join(block.to_string())).expect("it is there");
            }
        });
        let ours = measure("CRC check and blockstore", || {
            let (memory, disk) =
                (tempfile::tempdir_in("/dev/shm").expect("a tmpfs"), tempfile::tempdir().expect("a disk"));
            let volume = VolumeOptions::memory(disk.path());
            let mut options = StoreOptions::new(vec![volume], MemoryOptions::new(memory.path(), 4 << 30));
            options.background = false;
            let store = Blockstore::open(options).expect("a store");
            let pool = PoolIdentity {
                pool: BlockPoolId::new("BP-1"),
                namespace_id: 1,
                cluster_id: "C".to_owned(),
                created_ms: 1,
            };
            store.attach_pool(&pool).expect("a pool");
            for block in 0..blocks {
                let block = Block { id: BlockId(block as i64), stamp: GenerationStamp(1), length: 0 };
                let named = ExtendedBlock { pool: pool.pool.clone(), block };
                let kind = CreateKind::BeingWritten { replace: false };
                let create = CreateOptions { expected_bytes: BLOCK as u64, ..CreateOptions::default() };
                let mut writer = store.create(&named, kind, &create).expect("a writer");
                let acker = writer.acker();
                let mut at = 0;
                while at < BLOCK {
                    let bytes = PACKET.min(BLOCK - at);
                    let given = &crcs[..bytes.div_ceil(512) * 4];
                    spec.verify(&packet[..bytes], given).expect("right CRCs");
                    let end = writer.write(at as u64, &packet[..bytes], Checksums::Given(given)).expect("room");
                    acker.set(end).expect("the writer");
                    at += bytes;
                }
                writer.finalize(Durability::Memory).expect("finalized");
                store.invalidate(&pool.pool, &[block]);
            }
        });
        println!("round {round}: {:.2} times the least", ours / least);
    }
}
