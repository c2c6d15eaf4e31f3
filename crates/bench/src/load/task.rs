//! One unit of load: the kind of operations, the number of workers, and the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, DataPath, FileSystem};
use hearth_testkit::Content;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::bench_client::{self, BenchClient, file_name};
use crate::measure::percentile;
use crate::random::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Write,
    Read,
    Pread,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Pread => "pread",
        }
    }
}

/// Load on `files` files of `directory`, `size` bytes each.
#[derive(Clone, Debug)]
pub struct Task {
    pub kind: Kind,
    pub directory: String,
    pub files: usize,
    pub size: u64,
    /// Bytes of an operation.
    pub piece: usize,
    /// For [`Kind::Pread`]: number of operations of all workers together.
    pub reads: u64,
    /// Number of clients, each with its own connections.
    pub clients: usize,
    /// Number of concurrent threads of each client.
    pub threads: usize,
    pub replication: Option<u16>,
    pub block_size: Option<u64>,
}

/// Result of a task.
pub struct Outcome {
    pub bytes: u64,
    pub operations: u64,
    pub seconds: f64,
    /// Microseconds of an operation at each of [`RANKS`]. Apache's client reports them for positioned reads only.
    pub ranks: Option<[f64; 4]>,
    /// Bytes by data path. Apache's client does not report them.
    pub by_path: Vec<(DataPath, u64)>,
}

/// Ranks of the reported latencies among all operations, sorted by latency.
pub const RANKS: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// Columns, in the order of the table.
pub const COLUMNS: &[&str] = &[
    "throughput",
    "operations",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "client CPU",
    "DataNode CPU",
    "by local",
    "by one-sided",
    "by packets",
];

impl Task {
    pub fn bytes(&self) -> u64 {
        match self.kind {
            Kind::Pread => self.reads * self.piece as u64,
            Kind::Write | Kind::Read => self.files as u64 * self.size,
        }
    }

    fn path(&self, index: usize) -> String {
        format!("{}/{}", self.directory, file_name(index))
    }

    pub fn carry_out(&self, party: &mut BenchClient, progress: &AtomicU64) -> Result<Outcome> {
        match &mut party.kind {
            bench_client::Kind::Java(driver) => self.by_java(driver),
            bench_client::Kind::Own { runtime, configuration, user, .. } => {
                let clients = {
                    let _within = runtime.enter();
                    (0..self.clients).map(|_| bench_client::connect(configuration, user)).collect::<Result<Vec<_>>>()?
                };
                self.by_own(runtime, clients, progress)
            }
        }
    }

    fn by_java(&self, driver: &mut hearth_testkit::Driver) -> Result<Outcome> {
        let workers = self.clients * self.threads;
        let mut request = json!({"dir": self.directory, "count": self.files, "threads": workers, "piece": self.piece});
        let operation = match self.kind {
            Kind::Write => {
                request["length"] = self.size.into();
                if let Some(replication) = self.replication {
                    request["replication"] = replication.into();
                }
                if let Some(bytes) = self.block_size {
                    request["blockSize"] = bytes.into();
                }
                "pourMany"
            }
            Kind::Read => "catMany",
            Kind::Pread => {
                let each = (self.reads / workers as u64).max(1);
                request = json!({"path": self.directory, "files": self.files, "length": self.piece, "count": each,
                    "threads": workers, "seed": 1});
                "timedPreads"
            }
        };
        let answer = driver.call(operation, request)?;
        let number = |name: &str| answer[name].as_f64();
        let ranks = match [number("p50"), number("p90"), number("p99"), number("p999")] {
            [Some(p50), Some(p90), Some(p99), Some(p999)] => Some([p50, p90, p99, p999]),
            _ => None,
        };
        let piece = self.piece as u64;
        let (bytes, operations) = match self.kind {
            Kind::Pread => {
                let reads = (self.reads / workers as u64).max(1) * workers as u64;
                (reads * piece, reads)
            }
            Kind::Write | Kind::Read => (self.bytes(), self.files as u64 * self.size.div_ceil(piece)),
        };
        Ok(Outcome { bytes, operations, seconds: number("seconds").context("seconds")?, ranks, by_path: Vec::new() })
    }

    fn by_own(&self, runtime: &Runtime, clients: Vec<FileSystem>, progress: &AtomicU64) -> Result<Outcome> {
        let shared = Arc::new(Shared {
            task: self.clone(),
            next: AtomicUsize::new(0),
            done: AtomicU64::new(0),
            source: Content::new(1).bytes(0, if self.kind == Kind::Write { self.piece } else { 0 }),
        });
        runtime.block_on(async {
            for fs in &clients {
                // Registers the connection with the NameNode first, as Java's threads do with their shared client.
                fs.exists(&self.directory).await?;
            }
            let started = Instant::now();
            let mut workers = JoinSet::new();
            for worker in 0..clients.len() * self.threads {
                let (shared, fs) = (Arc::clone(&shared), clients[worker % clients.len()].clone());
                workers.spawn(async move { shared.work(&fs, worker).await });
            }
            let mut took = Vec::new();
            let mut look = tokio::time::interval(super::LOOK);
            loop {
                tokio::select! {
                    ended = workers.join_next() => match ended {
                        Some(worker) => took.append(&mut worker.context("a worker panicked")??),
                        None => break,
                    },
                    _ = look.tick() => progress.store(shared.done.load(Ordering::Relaxed), Ordering::Relaxed),
                }
            }
            let seconds = started.elapsed().as_secs_f64();
            took.sort_by(f32::total_cmp);
            let ranks = RANKS.map(|(_, part)| percentile(&took, part).map_or(f64::NAN, f64::from));
            let by_path = DataPath::ALL.map(|path| {
                let carried = clients.iter().map(|fs| match self.kind {
                    Kind::Write => fs.statistics().written_bytes(path),
                    Kind::Read | Kind::Pread => fs.statistics().read_bytes(path),
                });
                (path, carried.sum::<u64>())
            });
            Ok(Outcome {
                bytes: shared.done.load(Ordering::Relaxed),
                operations: took.len() as u64,
                seconds,
                ranks: (!took.is_empty()).then_some(ranks),
                by_path: by_path.into_iter().filter(|(_, bytes)| *bytes > 0).collect(),
            })
        })
    }
}

impl BenchClient {
    /// Returns whether all files of `task` exist with their full length.
    pub fn has(&mut self, task: &Task) -> Result<bool> {
        let bench_client::Kind::Own { runtime, fs, .. } = &self.kind else { return Ok(false) };
        runtime.block_on(async {
            for index in 0..task.files {
                let path = task.path(index);
                if !fs.exists(&path).await? || fs.status(&path).await?.length < task.size {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}

/// State shared by the workers of all clients.
struct Shared {
    task: Task,
    /// Next file, or next batch of positioned reads.
    next: AtomicUsize,
    /// Bytes done so far.
    done: AtomicU64,
    /// Data that is written repeatedly.
    source: Vec<u8>,
}

/// Number of positioned reads that a worker takes at once.
const BATCH: u64 = 64;

impl Shared {
    /// Returns the microseconds of each operation. The open or create of a file counts for its first operation, the
    /// close for its last.
    async fn work(&self, fs: &FileSystem, worker: usize) -> Result<Vec<f32>> {
        match self.task.kind {
            Kind::Write => self.write(fs).await,
            Kind::Read => self.read(fs).await,
            Kind::Pread => self.pread(fs, worker).await,
        }
    }

    fn next_file(&self) -> Option<String> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        (index < self.task.files).then(|| self.task.path(index))
    }

    fn count(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    async fn write(&self, fs: &FileSystem) -> Result<Vec<f32>> {
        let mut took = Vec::new();
        let Task { size, piece, replication, block_size, .. } = self.task;
        while let Some(path) = self.next_file() {
            let mut clock = LapTimer::start();
            let options = CreateOptions { overwrite: true, replication, block_size, ..CreateOptions::default() };
            let mut writer = fs.create(&path, options).await?;
            let mut left = size;
            loop {
                let bytes = left.min(piece as u64) as usize;
                writer.write(&self.source[..bytes]).await?;
                left -= bytes as u64;
                self.count(bytes);
                if left == 0 {
                    writer.close().await?;
                    took.push(clock.lap());
                    break;
                }
                took.push(clock.lap());
            }
        }
        Ok(took)
    }

    async fn read(&self, fs: &FileSystem) -> Result<Vec<f32>> {
        let mut took = Vec::new();
        let mut buffer = vec![0; self.task.piece];
        while let Some(path) = self.next_file() {
            let mut clock = LapTimer::start();
            let mut reader = fs.open(&path).await?;
            loop {
                let mut filled = 0;
                while filled < buffer.len() {
                    match reader.read(&mut buffer[filled..]).await? {
                        0 => break,
                        bytes => filled += bytes,
                    }
                }
                if filled == 0 {
                    break;
                }
                self.count(filled);
                took.push(clock.lap());
            }
        }
        Ok(took)
    }

    async fn pread(&self, fs: &FileSystem, worker: usize) -> Result<Vec<f32>> {
        let mut took = Vec::new();
        let reader = fs.open(&self.task.path(worker % self.task.files)).await?.positioned();
        let (mut random, mut buffer) = (Random::new(worker as u64), vec![0; self.task.piece]);
        let places = (reader.length() + 1).saturating_sub(buffer.len() as u64);
        ensure!(places > 0, "a file is shorter than a read of {} bytes", buffer.len());
        loop {
            let begun = self.next.fetch_add(BATCH as usize, Ordering::Relaxed) as u64;
            if begun >= self.task.reads {
                return Ok(took);
            }
            for _ in 0..BATCH.min(self.task.reads - begun) {
                let at = random.below(places);
                let mut clock = LapTimer::start();
                let bytes = reader.read_at(at, &mut buffer).await?;
                ensure!(bytes == buffer.len(), "{bytes} of {} bytes at {at}", buffer.len());
                took.push(clock.lap());
                self.count(bytes);
            }
            tokio::task::consume_budget().await;
        }
    }
}

struct LapTimer(Instant);

impl LapTimer {
    fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the microseconds since the last call.
    fn lap(&mut self) -> f32 {
        let now = Instant::now();
        let took = now - self.0;
        self.0 = now;
        (took.as_secs_f64() * 1e6) as f32
    }
}
