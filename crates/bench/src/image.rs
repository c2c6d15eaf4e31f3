//! The namespace as an image of Apache's format: a NameNode with many files writes one while it runs (`hearth admin
//! -backup`), a new name directory is made of it (`hearth namenode -importCheckpoint`), and a NameNode starts with that
//! directory. Wall time and peak memory of each. Three simulated DataNodes without disks report the replicas.
//!
//! The tree is compared at the end: the content summary of the root must be the same.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_testkit::{ClusterSpec, Implementation, hearth_program, usage};

use crate::amounts::at_least_one;
use crate::namenode_memory::fill::{Filler, Shape};
use crate::record::{Figures, Recording};
use crate::watch::watched;

#[derive(clap::Args)]
pub struct Arguments {
    /// Number of files, each with one block of three replicas
    #[arg(long, default_value_t = 1_000_000, value_parser = at_least_one::<usize>)]
    files: usize,
    /// Number of runs, each on a new NameNode
    #[arg(long, default_value_t = 2, value_parser = at_least_one::<usize>)]
    runs: usize,
    /// Directory for the metadata and the image: on a disk [default: target/]
    #[arg(long)]
    disk: Option<PathBuf>,
    #[command(flatten)]
    recording: Recording,
}

const SYSTEM: &str = "Hearth";
const WRITE: &str = "write an image";
const IMPORT: &str = "import the image";
const START: &str = "start with it";
const WALL: &str = "wall";
const PEAK: &str = "peak resident";
const START_WITHIN: Duration = Duration::from_secs(600);
const STOP_WITHIN: Duration = Duration::from_secs(120);
/// Time between two looks at the resident memory.
const PAUSE: Duration = Duration::from_millis(5);

pub fn run(arguments: &Arguments) -> Result<()> {
    let disk = arguments.disk.clone().unwrap_or_else(|| hearth_testkit::workspace_root().join("target"));
    std::fs::create_dir_all(&disk).with_context(|| format!("cannot make {}", disk.display()))?;
    let mut figures = Figures::default();
    for _ in 0..arguments.runs {
        one(arguments.files, &disk, &mut figures)?;
    }
    figures.print();
    let workload = format!("image: {} files of one block, names of 20 bytes, three replicas each", arguments.files);
    if arguments.recording.is_wanted() {
        arguments.recording.append(&workload, &figures.0)?;
    }
    Ok(())
}

fn one(files: usize, disk: &Path, figures: &mut Figures) -> Result<()> {
    let make = Implementation::Hearth;
    let spec = ClusterSpec::new(make, make).only_namenode().within(disk).for_measuring();
    // The DataNodes send heartbeats only while files are created. They must not count as dead afterwards.
    let mut cluster = spec.set("dfs.namenode.heartbeat.recheck-interval", 3_600_000).start()?;
    let address = SocketAddr::from(([127, 0, 0, 1], cluster.namenode_rpc_port()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let filler = runtime.block_on(Filler::join(address))?;
    runtime.block_on(filler.fill("creating files", Shape { directory: "image", files, blocks: 1 }))?;
    let summary = runtime.block_on(filler.summary())?;
    ensure!(summary.file_count == files as u64, "{} of {files} files were created", summary.file_count);
    let mut add = |work: &str, what: &str, unit, value: f64| figures.add(work, SYSTEM, "", what, unit, value);

    let backup = cluster.directory().join("backup");
    let namenode = cluster.namenode.id()?;
    add(WRITE, "resident before", "bytes", usage(namenode)?.resident as f64);
    let mut command = Command::new(hearth_program()?);
    // The first byte comes when the image is complete, which may take longer than the default allows.
    command.args(["admin", "-D", "dfs.client.fsck.read.timeout=1h", "-backup"]).arg(&backup);
    let written = measured(command.env("HADOOP_CONF_DIR", cluster.conf()), Some(namenode))?;
    add(WRITE, WALL, "s", written.seconds);
    add(WRITE, PEAK, "bytes", written.peak as f64);
    add(WRITE, "length", "bytes", image_bytes(&backup)? as f64);

    cluster.namenode.stop(STOP_WITHIN)?;
    let imported = format!("file://{}", cluster.directory().join("imported").display());
    cluster.namenode.change(&[("dfs.namenode.name.dir", imported.as_str())])?;
    let mut command = Command::new(hearth_program()?);
    command.args(["namenode", "-importCheckpoint"]).arg(&backup).env("HADOOP_CONF_DIR", cluster.namenode.conf());
    let read = measured(&mut command, None)?;
    add(IMPORT, WALL, "s", read.seconds);
    add(IMPORT, PEAK, "bytes", read.peak as f64);

    let began = Instant::now();
    cluster.start_namenode()?;
    runtime.block_on(filler.wait_for_answer(START_WITHIN))?;
    add(START, WALL, "s", began.elapsed().as_secs_f64());
    add(START, "resident", "bytes", usage(cluster.namenode.id()?)?.resident as f64);
    let after = runtime.block_on(filler.summary())?;
    ensure!(after == summary, "the imported tree differs: {after:?} instead of {summary:?}");
    Ok(())
}

/// Costs of a command.
struct Costs {
    seconds: f64,
    /// Most bytes that were resident at a time.
    peak: u64,
}

/// Runs a command to its successful end. `server`: the process whose memory is measured; `None`: the command's own.
fn measured(command: &mut Command, server: Option<u32>) -> Result<Costs> {
    let name = format!("{command:?}");
    let started = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {name}"))?;
    let process = server.unwrap_or(child.id());
    let look = |peak: &mut u64| {
        // A command's process may have ended.
        if let Ok(usage) = usage(process) {
            *peak = usage.resident.max(*peak);
        }
    };
    let work = || -> Result<_> {
        let output = child.wait_with_output().with_context(|| format!("waiting for {name}"))?;
        Ok((output, started.elapsed().as_secs_f64()))
    };
    let ((output, seconds), peak) = watched(PAUSE, 0, look, work)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} ended with {}\n{errors}", output.status);
    Ok(Costs { seconds, peak })
}

/// Returns the length of the image in a backup.
fn image_bytes(backup: &Path) -> Result<u64> {
    let current = backup.join("current");
    let entries = std::fs::read_dir(&current).with_context(|| format!("cannot list {}", current.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("fsimage_")).unwrap_or_default();
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(entry.metadata()?.len());
        }
    }
    anyhow::bail!("{} has no image", current.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_and_its_memory_are_measured() {
        let line = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let costs = measured(Command::new("sh").args(["-c", line]), None).unwrap();
        assert!(costs.seconds > 0.0 && costs.peak > 0, "{} s, {} bytes", costs.seconds, costs.peak);
        let error = measured(Command::new("sh").args(["-c", "echo no >&2; exit 4"]), None).map(drop).unwrap_err();
        assert!(error.to_string().ends_with("\nno\n"), "{error}");
    }

    #[test]
    fn the_image_of_a_backup_is_found() {
        let backup = tempfile::tempdir().unwrap();
        let current = backup.path().join("current");
        std::fs::create_dir(&current).unwrap();
        for (name, bytes) in [("VERSION", 9), ("fsimage_0000000000000000012.md5", 50)] {
            std::fs::write(current.join(name), vec![0; bytes]).unwrap();
        }
        assert!(image_bytes(backup.path()).is_err());
        std::fs::write(current.join("fsimage_0000000000000000012"), [0; 77]).unwrap();
        assert_eq!(image_bytes(backup.path()).unwrap(), 77);
    }
}
