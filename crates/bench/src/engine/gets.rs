//! One measurement in its own process: creates or warms the replicas, reads at random, and collects the latencies.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_blockstore::{
    Blockstore, Checksums, CreateKind, CreateOptions, Durability, Engine, MemoryOptions, StoreOptions, VolumeOptions,
};
use hearth_testkit::{Content, usage};
use hearth_types::{
    Block, BlockId, BlockPoolId, ByteRange, ChecksumSpec, ExtendedBlock, GenerationStamp, PoolIdentity,
};

use crate::random::Random;

use super::{Measured, System, Task};

const GET_BYTES: u64 = 4096;
/// Bytes of a replica that are written or read with one call during creation and warm-up.
const PIECE_BYTES: u64 = 1 << 20;

fn pool() -> PoolIdentity {
    PoolIdentity {
        pool: BlockPoolId::new("BP-1-127.0.0.1-1700000000000"),
        namespace_id: 1,
        cluster_id: "CID-bench".to_owned(),
        created_ms: 1_700_000_000_000,
    }
}

fn block(index: u64) -> ExtendedBlock {
    let block = Block { id: BlockId(1 + index as i64), stamp: GenerationStamp(1001), length: 0 };
    ExtendedBlock { pool: pool().pool, block }
}

fn content(index: u64) -> Content {
    Content::new(index)
}

fn open(task: &Task, engine: Engine) -> Result<Blockstore> {
    let volume = VolumeOptions { engine, ..VolumeOptions::memory(&task.disk) };
    // The remaining quarter is for the process itself.
    let memory = MemoryOptions::new(task.memory.join("tier"), task.memory_bytes / 4 * 3);
    let mut options = StoreOptions::new(vec![volume], memory);
    options.scrub_bytes_per_second = 0;
    let store = Blockstore::open(options)?;
    store.attach_pool(&pool())?;
    Ok(store)
}

/// Creates the replicas on disk.
pub fn fill(task: &Task) -> Result<()> {
    let store = open(task, Engine::File)?;
    let mut sums = Vec::new();
    for index in 0..task.replicas {
        let options = CreateOptions { expected_bytes: task.replica_bytes, ..CreateOptions::default() };
        let mut writer = store.create(&block(index), CreateKind::BeingWritten { replace: false }, &options)?;
        let mut at = 0;
        while at < task.replica_bytes {
            let piece = content(index).bytes(at, PIECE_BYTES.min(task.replica_bytes - at) as usize);
            sums.clear();
            ChecksumSpec::DEFAULT.compute(&piece, &mut sums);
            at = writer.write(at, &piece, Checksums::Given(&sums))?;
        }
        writer.finalize(Durability::Disk)?;
    }
    store.close();
    Ok(())
}

/// Returns the target of the next read: the replica and the offset in it.
fn place(random: &mut Random, task: &Task) -> (u64, u64) {
    let gets = task.replica_bytes / GET_BYTES;
    let get = random.below(gets * task.replicas);
    (get / gets, get % gets * GET_BYTES)
}

enum Reader {
    /// Store, and the blocks of the replicas.
    Store(Blockstore, Vec<ExtendedBlock>),
    Files(Vec<std::fs::File>),
}

impl Reader {
    fn open(task: &Task, system: System) -> Result<Self> {
        let engine = match system {
            System::Mmap => Engine::Mmap,
            System::File => Engine::File,
            System::Memory => Engine::Memory,
            System::Pread => {
                let pool = task.disk.join("current").join(pool().pool.as_str()).join("current/finalized");
                let path = |index: u64| {
                    let id = 1 + index;
                    let dir = pool.join(format!("subdir{}/subdir{}", (id >> 16) & 31, (id >> 8) & 31));
                    dir.join(format!("blk_{id}"))
                };
                let open = |index| {
                    let file = std::fs::File::open(path(index))?;
                    // The same advice as in the engines.
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
                    Ok(file)
                };
                return Ok(Self::Files((0..task.replicas).map(open).collect::<Result<_>>()?));
            }
        };
        Ok(Self::Store(open(task, engine)?, (0..task.replicas).map(block).collect()))
    }

    /// Reads into `into`, which has the size of the data. The CRCs go to `sums`.
    fn get(&self, replica: u64, offset: u64, into: &mut [u8], sums: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Store(store, blocks) => {
                let reader = store.reader(&blocks[replica as usize])?;
                reader.read_at(offset, into)?;
                sums.clear();
                let range = ByteRange::with_length(offset, into.len() as u64).context("within the replica")?;
                reader.checksums(range, sums)?;
            }
            Self::Files(files) => files[replica as usize].read_exact_at(into, offset)?,
        }
        Ok(())
    }

    /// Reads as many replicas as fit in memory. A small set is then completely in memory, and a larger one as far as
    /// possible. Also verifies the bytes.
    fn warm(&self, task: &Task) -> Result<()> {
        let (mut into, mut sums) = (vec![0; GET_BYTES as usize], Vec::new());
        let held = task.memory_bytes.div_ceil(task.replica_bytes);
        for index in task.replicas.saturating_sub(held)..task.replicas {
            if let Self::Store(store, blocks) = self {
                // Loads the replica into memory, if the engine has a memory tier.
                store.pin(&blocks[index as usize])?;
            }
            let mut at = 0;
            while at < task.replica_bytes {
                let expected = content(index).bytes(at, PIECE_BYTES.min(task.replica_bytes - at) as usize);
                for expected in expected.chunks(GET_BYTES as usize) {
                    self.get(index, at, &mut into, &mut sums)?;
                    ensure!(into == expected, "wrong bytes at {at} of replica {index}");
                    if let Self::Store(..) = self {
                        ChecksumSpec::DEFAULT.verify(&into, &sums)?;
                    }
                    at += GET_BYTES;
                }
            }
        }
        Ok(())
    }
}

/// Latency histogram: bucket bounds grow by a sixteenth of a power of two.
struct Histogram(Vec<u64>);

const STEPS: u32 = 4;

impl Histogram {
    fn new() -> Self {
        Self(vec![0; 64 << STEPS])
    }

    fn bucket(nanos: u64) -> usize {
        let nanos = nanos.max(1 << STEPS);
        let power = nanos.ilog2();
        let step = (nanos >> (power - STEPS)) & ((1 << STEPS) - 1);
        ((power << STEPS) + step as u32) as usize
    }

    /// Returns the upper bound of a bucket in microseconds.
    fn end(bucket: usize) -> f64 {
        let (power, step) = (bucket as u32 >> STEPS, bucket as u64 & ((1 << STEPS) - 1));
        let steps = f64::from(1 << STEPS);
        2f64.powi(power as i32) * (1.0 + (step as f64 + 1.0) / steps) / 1000.0
    }

    fn add(&mut self, took: Duration) {
        self.0[Self::bucket(took.as_nanos() as u64)] += 1;
    }

    fn curve(&self) -> Vec<(f64, f64)> {
        let total: u64 = self.0.iter().sum();
        let mut below = 0;
        let filled = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        filled
            .map(|(bucket, count)| {
                below += count;
                (Self::end(bucket), below as f64 / total as f64)
            })
            .collect()
    }
}

pub fn measure(task: &Task, system: System) -> Result<Measured> {
    let reader = Reader::open(task, system)?;
    reader.warm(task)?;
    let (stop, gets) = (AtomicBool::new(false), AtomicU64::new(0));
    let process = std::process::id();
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (reader, stop, gets) = (&reader, &stop, &gets);
            move || -> Result<Histogram> {
                let mut random = Random::new(thread << 32);
                let (mut into, mut sums) = (vec![0; GET_BYTES as usize], Vec::with_capacity(64));
                let (mut histogram, mut own) = (Histogram::new(), 0);
                let mut before = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let (replica, offset) = place(&mut random, task);
                    reader.get(replica, offset, &mut into, &mut sums)?;
                    let now = Instant::now();
                    histogram.add(now - before);
                    before = now;
                    own += 1;
                }
                gets.fetch_add(own, Ordering::Relaxed);
                Ok(histogram)
            }
        };
        let before = usage(process)?;
        let started = Instant::now();
        let threads: Vec<_> = (0..task.threads as u64).map(|thread| scope.spawn(work(thread))).collect();
        std::thread::sleep(Duration::from_secs(task.seconds));
        // Measured before the threads end, because the kernel accounts for ended threads only roughly.
        let after = usage(process);
        let took = started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let mut all = Histogram::new();
        for thread in threads {
            let one = thread.join().map_err(|_| anyhow::anyhow!("a reading thread panicked"))??;
            all.0.iter_mut().zip(one.0).for_each(|(sum, count)| *sum += count);
        }
        let (after, gets) = (after?, gets.load(Ordering::Relaxed) as f64);
        Ok(Measured {
            gets_per_second: gets / took,
            user_us: (after.user - before.user) * 1e6 / gets,
            kernel_us: (after.system - before.system) * 1e6 / gets,
            latencies: all.curve(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_is_cumulative() {
        let mut histogram = Histogram::new();
        for nanos in 1..=100_000 {
            histogram.add(Duration::from_nanos(nanos));
        }
        let curve = histogram.curve();
        let measured = Measured { gets_per_second: 0.0, user_us: 0.0, kernel_us: 0.0, latencies: curve };
        for (part, us) in [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = measured.percentile(part);
            assert!(found >= us && found < us * 1.07, "{found} for {us}");
        }
        assert!(Histogram::bucket(u64::MAX) < 64 << STEPS);
    }
}
