//! Participants of a benchmark: a cluster, and a client that stores and fetches files in it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, ErrorKind, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Apache, Cluster, ClusterSpec, Driver, Implementation, unshared_directory, usage};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::memory;

/// Bytes that a client writes or reads with one call.
const PIECE: usize = 128 << 10;

/// Cluster of one implementation.
pub struct System {
    pub name: &'static str,
    pub cluster: Cluster,
    /// Directory of its DataNodes' sockets.
    _sockets: tempfile::TempDir,
}

impl System {
    /// Starts `datanodes` DataNodes. Each block has a replica on every one of them.
    pub fn start(make: Implementation, datanodes: usize, block_bytes: u64) -> Result<Self> {
        Self::with(make, datanodes, block_bytes, &[])
    }

    /// Starts a Hearth cluster whose DataNodes forward replicas as if each was on its own machine.
    pub fn apart(datanodes: usize, block_bytes: u64) -> Result<Self> {
        Self::with(Implementation::Hearth, datanodes, block_bytes, &[("hearth.datanode.forward.local", "false")])
    }

    /// Starts a cluster. `settings`: configuration keys in addition to the common ones.
    fn with(make: Implementation, datanodes: usize, block_bytes: u64, settings: &[(&str, &str)]) -> Result<Self> {
        let sockets = tempfile::Builder::new()
            .prefix("hearth-bench-")
            .tempdir_in(unshared_directory())
            .context("cannot make a directory for sockets")?;
        let mut spec = ClusterSpec::new(make, make)
            .datanodes(datanodes)
            .set("dfs.replication", datanodes)
            .set("dfs.blocksize", block_bytes)
            .set("dfs.heartbeat.interval", 3)
            .set("dfs.namenode.heartbeat.recheck-interval", 300_000)
            // Shortens the sleep of Apache's client in close(); see docs/benchmarks.
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 12)
            .for_measuring();
        let name = if make == Implementation::Apache {
            spec = spec.within(Path::new(memory::TMPFS));
            "Apache"
        } else {
            // The same settings as `hearth up`.
            spec = spec
                .set("dfs.domain.socket.path", sockets.path().join("dn_PORT").display())
                .set("hearth.local.write.trusted", true);
            "Hearth"
        };
        for (key, value) in settings {
            spec = spec.set(key, value);
        }
        Ok(Self { name, cluster: spec.start()?, _sockets: sockets })
    }

    pub fn datanodes(&self) -> Result<Vec<u32>> {
        self.cluster.datanodes.iter().map(|datanode| datanode.id()).collect()
    }
}

/// Seconds of the stages of one operation: `create`, `fill` and `close` of a write; `open` and `read` of a read.
pub type Stages = Vec<(&'static str, f64)>;

pub fn total(stages: &Stages) -> f64 {
    stages.iter().map(|(_, seconds)| seconds).sum()
}

/// Client, and the index of its system.
pub struct BenchClient {
    /// Index of its system.
    pub system: usize,
    pub client: &'static str,
    pub kind: Kind,
}

pub enum Kind {
    Java(Box<Driver>),
    Own { runtime: Runtime, fs: FileSystem, configuration: Configuration, user: String },
}

impl BenchClient {
    /// Apache's client in its own JVM.
    pub fn java(system: usize, of: &System) -> Result<Self> {
        let driver = Driver::java(&Apache::for_measuring()?, of.cluster.conf())?;
        Ok(Self { system, client: "warm JVM", kind: Kind::Java(Box::new(driver)) })
    }

    /// Hearth's client in this process, over the given paths.
    pub fn own(system: usize, of: &System, client: &'static str, paths: Option<&str>) -> Result<Self> {
        let configuration = Configuration::load_dir(of.cluster.conf(), Environment::empty())?;
        Self::with(system, configuration, hearth_client::os_user_name(), client, paths)
    }

    /// Hearth's client with the given configuration, for any cluster.
    pub fn with(
        system: usize,
        mut configuration: Configuration,
        user: String,
        client: &'static str,
        paths: Option<&str>,
    ) -> Result<Self> {
        if let Some(paths) = paths {
            configuration.set("hearth.client.paths", paths.to_owned());
        }
        let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 16));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        let fs = {
            let _within = runtime.enter();
            connect(&configuration, &user)?
        };
        Ok(Self { system, client, kind: Kind::Own { runtime, fs, configuration, user } })
    }

    /// Returns the label of its curve.
    pub fn label(&self, systems: &[System]) -> String {
        format!("{}: {}", systems[self.system].name, self.client)
    }

    /// Returns the client's process id.
    pub fn process(&self) -> u32 {
        match &self.kind {
            Kind::Java(driver) => driver.id(),
            Kind::Own { .. } => std::process::id(),
        }
    }

    /// Returns the CPU seconds of that process.
    pub fn cpu(&self) -> Result<f64> {
        Ok(usage(self.process())?.cpu())
    }

    /// Stores the local file `source` as `path`.
    pub fn write(&mut self, source: &Path, path: &str) -> Result<Stages> {
        match &mut self.kind {
            Kind::Java(driver) => {
                let local = source.to_str().context("a path of text")?;
                let steps = [
                    ("create", "create", json!({"path": path, "handle": "out", "overwrite": true})),
                    ("fill", "pour", json!({"handle": "out", "local": local})),
                    ("close", "close", json!({"handle": "out"})),
                ];
                in_turn(driver, steps)
            }
            Kind::Own { runtime, fs, .. } => runtime.block_on(async {
                let unreadable = || format!("cannot read {}", source.display());
                let mut from = File::open(source).with_context(unreadable)?;
                let mut clock = StageTimer::start();
                let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
                let mut writer = fs.create(path, options).await?;
                clock.lap("create");
                loop {
                    // Reads directly into the packet or the DataNode's memory, as `hearth fs -put` does.
                    match from.read(writer.space().await?).with_context(unreadable)? {
                        0 => break,
                        bytes => writer.advance(bytes).await?,
                    }
                }
                clock.lap("fill");
                writer.close().await?;
                clock.lap("close");
                Ok(clock.stages)
            }),
        }
    }

    /// Reads `path`, which has `bytes` bytes, to its end.
    pub fn read(&mut self, path: &str, bytes: u64) -> Result<Stages> {
        match &mut self.kind {
            Kind::Java(driver) => {
                let mut clock = StageTimer::start();
                driver.call("open", json!({"path": path, "handle": "in"}))?;
                clock.lap("open");
                let found = driver.call("cat", json!({"handle": "in", "piece": PIECE}))?;
                clock.lap("read");
                driver.call("close", json!({"handle": "in"}))?;
                ensure!(found["length"] == bytes, "{path}: {} bytes instead of {bytes}", found["length"]);
                Ok(clock.stages)
            }
            Kind::Own { runtime, fs, .. } => runtime.block_on(async {
                let mut clock = StageTimer::start();
                let mut reader = fs.open(path).await?;
                clock.lap("open");
                let found = drain(&mut reader).await?;
                clock.lap("read");
                ensure!(found == bytes, "{path}: {found} bytes instead of {bytes}");
                Ok(clock.stages)
            }),
        }
    }

    /// `count` clients each read one of the `files` files of `directory`, `rounds` times, concurrently and without
    /// waiting for each other between rounds. Returns the seconds until the last one is done. In the next round each
    /// reads the file `count` further on, modulo `files`. After a number of complete cycles, the same bytes were read
    /// as by any other number of clients.
    pub fn read_together(&mut self, directory: &str, files: usize, count: usize, rounds: usize) -> Result<f64> {
        match &mut self.kind {
            Kind::Java(driver) => {
                let request = json!({
                    "dir": directory, "files": files, "count": count, "threads": count, "piece": PIECE, "rounds": rounds,
                });
                driver.call("catMany", request)?["seconds"].as_f64().context("a number")
            }
            Kind::Own { configuration, user, .. } => {
                let clients = (0..count).map(|index| {
                    // Each client has its own event loop, like independent programs.
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                    let fs = {
                        let _within = runtime.enter();
                        connect(configuration, user)?
                    };
                    // Registers the connection with the NameNode first, as the threads of a JVM do with their shared
                    // client.
                    runtime.block_on(fs.exists(directory))?;
                    Ok((runtime, fs, index))
                });
                let clients = clients.collect::<Result<Vec<_>>>()?;
                let started = Instant::now();
                std::thread::scope(|scope| {
                    let reading = clients.iter().map(|(runtime, fs, index)| {
                        scope.spawn(move || {
                            runtime.block_on(async {
                                for round in 0..rounds {
                                    let path = format!("{directory}/{}", file_name((index + round * count) % files));
                                    drain(&mut fs.open(&path).await?).await?;
                                }
                                anyhow::Ok(())
                            })
                        })
                    });
                    let reading: Vec<_> = reading.collect();
                    reading.into_iter().try_for_each(|client| client.join().expect("a client does not panic"))
                })?;
                Ok(started.elapsed().as_secs_f64())
            }
        }
    }

    pub fn delete(&mut self, path: &str) -> Result<()> {
        match &mut self.kind {
            Kind::Java(driver) => {
                driver.call("delete", json!({"path": path, "recursive": true}))?;
            }
            Kind::Own { runtime, fs, .. } => {
                runtime.block_on(fs.delete(path, true))?;
            }
        }
        Ok(())
    }

    /// Removes a directory if it is empty.
    pub fn delete_if_empty(&mut self, path: &str) -> Result<()> {
        let Kind::Own { runtime, fs, .. } = &mut self.kind else { return Ok(()) };
        match runtime.block_on(fs.delete(path, false)) {
            Err(error) if error.kind() != ErrorKind::DirectoryNotEmpty => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns a file name in the form that the driver's `catMany` uses.
pub fn file_name(index: usize) -> String {
    format!("file-{index}")
}

pub fn connect(configuration: &Configuration, user: &str) -> Result<FileSystem> {
    Ok(FileSystem::connect(configuration, None, user)?)
}

/// Reads to the end. Returns the number of bytes.
async fn drain(reader: &mut hearth_client::Reader) -> Result<u64> {
    let mut piece = vec![0; PIECE];
    let mut sum = 0;
    loop {
        match reader.read(&mut piece).await? {
            0 => return Ok(sum),
            bytes => sum += bytes as u64,
        }
    }
}

fn in_turn<const N: usize>(driver: &mut Driver, steps: [(&'static str, &str, serde_json::Value); N]) -> Result<Stages> {
    let mut clock = StageTimer::start();
    for (name, operation, request) in steps {
        driver.call(operation, request)?;
        clock.lap(name);
    }
    Ok(clock.stages)
}

struct StageTimer {
    last: Instant,
    stages: Stages,
}

impl StageTimer {
    fn start() -> Self {
        Self { last: Instant::now(), stages: Vec::new() }
    }

    fn lap(&mut self, name: &'static str) {
        let now = Instant::now();
        self.stages.push((name, (now - self.last).as_secs_f64()));
        self.last = now;
    }
}
