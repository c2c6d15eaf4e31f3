//! The reference in C (`bench/baselines/minimal_datanode.c`), which takes the place of a stopped Apache DataNode.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hearth_testkit::{Cluster, Process, wait_until, workspace_root};

pub struct MinimalDatanode {
    process: Process,
    written: PathBuf,
}

impl MinimalDatanode {
    /// Kills the DataNode of `cluster` and serves its finalized blocks in its place. The NameNode takes it for the same
    /// DataNode until it has missed heartbeats for too long.
    pub fn replace(cluster: &mut Cluster) -> Result<Self> {
        let program = compile(cluster.directory())?;
        let datanode = &mut cluster.datanodes[0];
        let port = datanode.port("dfs.datanode.address")?;
        let data = datanode.data_directory().context("the datanode has a directory")?;
        let finalized = finalized_directory(&data)?;
        datanode.kill();
        let written = cluster.directory().join("minimal-written");
        fs::create_dir_all(&written).with_context(|| format!("cannot make {}", written.display()))?;
        let mut command = Command::new(program);
        command.arg(port.to_string()).arg(finalized).arg(&written);
        let mut process =
            Process::start("minimal_datanode", &mut command, &cluster.directory().join("minimal_datanode.log"))?;
        wait_until("the minimal datanode to listen", Duration::from_secs(5), || {
            process.check_alive()?;
            Ok(std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop))
        })?;
        Ok(Self { process, written })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Removes the blocks that were written to it. No NameNode has a record of them.
    pub fn forget_written(&self) -> Result<()> {
        for entry in fs::read_dir(&self.written).with_context(|| format!("cannot list {}", self.written.display()))? {
            let path = entry.with_context(|| format!("cannot list {}", self.written.display()))?.path();
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

fn compile(directory: &Path) -> Result<PathBuf> {
    let source = workspace_root().join("bench/baselines/minimal_datanode.c");
    let program = directory.join("minimal_datanode");
    let output = Command::new("cc")
        .args(["-O2", "-msse4.2", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .output()
        .context("cannot start cc")?;
    if !output.status.success() {
        bail!("compiling {}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(program)
}

/// Returns the `finalized` directory of the only block pool.
fn finalized_directory(data: &Path) -> Result<PathBuf> {
    let current = data.join("current");
    let entries = fs::read_dir(&current).with_context(|| format!("cannot list {}", current.display()))?;
    let pool = entries.filter_map(Result::ok).find(|entry| entry.file_name().to_string_lossy().starts_with("BP-"));
    Ok(pool.with_context(|| format!("no block pool in {}", current.display()))?.path().join("current/finalized"))
}
