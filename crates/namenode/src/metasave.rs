//! `dfsadmin -metasave`: lists of blocks with pending work, and of datanodes, as a text file on the NameNode's machine.
//!
//! The lock is held for one part of the text at a time, and the part is written before the next one is made. So the
//! parts are from different moments, and a block that vanishes in between is left out.
//!
//! Source of the texts: `FSNamesystem.metaSave`, `BlockManager.metaSave`, `DatanodeInfo.dumpDatanode` of Hadoop 3.4.2.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use hearth_types::{BlockId, DatanodeAdminState, DatanodeUuid};
use tokio::fs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;

use crate::blocks::{BlockReport, DEFAULT_RACK, DatanodeWork, PendingReplicas};
use crate::date::{date_text, time_of_day};
use crate::error::{Error, bytes_text};
use crate::namespace::{InodeId, SnapshotPaths};
use crate::state::Namenode;

/// Directory below the NameNode's own one, for a NameNode without an audit log.
pub const METASAVE_DIRECTORY: &str = "metasave";

/// Limit of blocks and snapshots examined before the lock is released for a moment.
const BATCH: usize = 1_000;
/// Last words of the first line of each file.
const FIRST_LINE_END: &str = " total filesystem objects";
/// The first line has three numbers, and so is shorter.
const FIRST_LINE_BYTES_MAX: u64 = 256;

/// The files that metasave writes.
pub struct MetasaveFiles {
    directory: PathBuf,
    /// Held while a file is written.
    writing: Mutex<()>,
}

impl MetasaveFiles {
    /// `directory`: made when the first file is written.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, writing: Mutex::new(()) }
    }

    /// Writes the file `name`. Replaces a file of an earlier metasave, and no other file.
    pub async fn save(&self, namenode: &Namenode, name: &str) -> Result<(), Error> {
        if Path::new(name).file_name() != Some(OsStr::new(name)) {
            return Err(Error::MetasaveName { name: name.to_owned() });
        }
        let path = self.directory.join(name);
        let unfinished = self.directory.join(format!(".{name}.unfinished"));
        let shown = || path.display().to_string();
        let _writing = self.writing.lock().await;
        match is_replaceable(&path).await {
            Ok(true) => {}
            Ok(false) => return Err(Error::MetasaveExists { path: shown() }),
            Err(source) => return Err(Error::MetasaveFailed { path: shown(), source }),
        }
        let written = match fs::create_dir_all(&self.directory).await {
            Ok(()) => write(namenode, &unfinished, &path).await,
            Err(error) => Err(error),
        };
        if let Err(source) = written {
            // It may not exist. The first error is the one to report.
            let _ = fs::remove_file(&unfinished).await;
            return Err(Error::MetasaveFailed { path: shown(), source });
        }
        Ok(())
    }
}

/// Returns true if there is no file, or one that metasave has written.
async fn is_replaceable(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path).await {
        Ok(found) if !found.is_file() => return Ok(false),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    let mut start = Vec::new();
    fs::File::open(path).await?.take(FIRST_LINE_BYTES_MAX).read_to_end(&mut start).await?;
    let first = String::from_utf8_lossy(&start);
    Ok(first.lines().next().is_some_and(|line| line.ends_with(FIRST_LINE_END)))
}

/// A part of the file that is made from a list.
enum Section {
    Blocks(Vec<BlockId>),
    Pending(Vec<PendingReplicas>),
    Deletions(Vec<DatanodeUuid>),
    CorruptReplicas(Vec<BlockId>),
    Datanodes(Vec<DatanodeUuid>),
}

async fn write(namenode: &Namenode, unfinished: &Path, path: &Path) -> io::Result<()> {
    let mut file = fs::File::create(unfinished).await?;
    for (title, section) in sections(namenode) {
        file.write_all(title.as_bytes()).await?;
        match section {
            Section::Blocks(blocks) => {
                let mut rest = &blocks[..];
                while !rest.is_empty() {
                    let (text, done) = block_lines(namenode, rest);
                    file.write_all(text.as_bytes()).await?;
                    rest = &rest[done..];
                }
            }
            Section::Pending(pending) => {
                for part in pending.chunks(BATCH) {
                    file.write_all(pending_lines(part).as_bytes()).await?;
                }
            }
            Section::Deletions(datanodes) => {
                for datanode in &datanodes {
                    write_deletions(namenode, datanode, &mut file).await?;
                }
            }
            Section::CorruptReplicas(blocks) => {
                for part in blocks.chunks(BATCH) {
                    file.write_all(corrupt_lines(namenode, part).as_bytes()).await?;
                }
            }
            Section::Datanodes(datanodes) => {
                for part in datanodes.chunks(BATCH) {
                    file.write_all(datanode_lines(namenode, part).as_bytes()).await?;
                }
            }
        }
    }
    file.flush().await?;
    fs::rename(unfinished, path).await
}

/// Lists what to write, each list with the text before it.
fn sections(namenode: &Namenode) -> Vec<(String, Section)> {
    let now = namenode.now();
    let state = namenode.read();
    let (figures, inodes) = (state.blocks.cluster_statistics(now), state.namespace.inode_count());
    let low = state.blocks.low_redundancy_blocks(usize::MAX);
    let missing = state.blocks.missing_blocks(None, usize::MAX);
    let pending = state.blocks.pending_replicas(now);
    let datanodes = state.blocks.datanode_uuids();
    let mut deleting = datanodes.clone();
    deleting.retain(|datanode| state.blocks.deletion_count(datanode) > 0);
    let deletions: usize = deleting.iter().map(|datanode| state.blocks.deletion_count(datanode)).sum();
    let (blocks, total) = (figures.blocks, inodes + figures.blocks);
    vec![
        (
            format!(
                "{inodes} files and directories, {blocks} blocks = {total}{FIRST_LINE_END}\nLive Datanodes: {}\nDead \
                 Datanodes: {}\nMetasave: Blocks waiting for reconstruction: {}\n",
                figures.live_nodes,
                figures.dead_nodes,
                low.len()
            ),
            Section::Blocks(low),
        ),
        (format!("Metasave: Blocks currently missing: {}\n", missing.len()), Section::Blocks(missing)),
        (
            "Mis-replicated blocks that have been postponed:\n".to_owned(),
            Section::Blocks(state.blocks.postponed_blocks()),
        ),
        (format!("Metasave: Blocks being reconstructed: {}\n", pending.len()), Section::Pending(pending)),
        (
            format!("Metasave: Blocks {deletions} waiting deletion from {} datanodes.\n", deleting.len()),
            Section::Deletions(deleting),
        ),
        ("Corrupt Blocks:\n".to_owned(), Section::CorruptReplicas(state.blocks.corrupt_blocks(usize::MAX))),
        (format!("Metasave: Number of datanodes: {}\n", datanodes.len()), Section::Datanodes(datanodes)),
    ]
}

/// Returns the lines of the first of these blocks, as many as the lock may be held for, and their number.
fn block_lines(namenode: &Namenode, blocks: &[BlockId]) -> (String, usize) {
    let now = namenode.now();
    let state = namenode.read();
    let mut paths = SnapshotPaths::new(&state.namespace);
    let (mut out, mut done) = (String::new(), 0);
    for block in blocks {
        if done + paths.looked_at() >= BATCH && done > 0 {
            break;
        }
        done += 1;
        let Some(report) = state.blocks.block_report(*block, now) else { continue };
        let inode = InodeId(report.inode);
        let path = state.namespace.slot(inode).map(|slot| state.namespace.path_of(slot));
        let path = path.or_else(|| paths.of(inode, 1).pop());
        write_block(&mut out, path.as_deref().unwrap_or("[orphaned]"), &report);
    }
    (out, done)
}

fn write_block(out: &mut String, path: &str, report: &BlockReport) {
    let leaving = report.decommissioning + report.decommissioned;
    let missing = if report.live + leaving > 0 { "" } else { " MISSING" };
    let _ = write!(
        out,
        "{path}: {}{missing} (replicas: live: {} decommissioning and decommissioned: {leaving} corrupt: {} in excess: \
         {} maintenance mode: {}) ",
        report.block, report.live, report.corrupt, report.excess, report.maintenance
    );
    for replica in &report.replicas {
        let node = &replica.target.datanode;
        let state = match node.admin_state {
            _ if replica.corrupt => "(corrupt)",
            DatanodeAdminState::DecommissionInProgress | DatanodeAdminState::Decommissioned => "(decommissioned)",
            DatanodeAdminState::EnteringMaintenance | DatanodeAdminState::InMaintenance => "(maintenance)",
            DatanodeAdminState::Normal => "",
        };
        let stale = if replica.stale_contents { " (block deletions maybe out of date)" } else { "" };
        let _ = write!(out, " {}{state}{stale} : ", node.id);
    }
    out.push('\n');
}

fn pending_lines(pending: &[PendingReplicas]) -> String {
    let mut out = String::new();
    for PendingReplicas { block, since_ms, replicas } in pending {
        let since = time_of_day(*since_ms);
        let _ = writeln!(out, "{block} StartTime: {since} NumReconstructInProgress: {replicas}");
    }
    out
}

/// Writes the blocks whose replicas a datanode shall delete, in one line.
async fn write_deletions(namenode: &Namenode, datanode: &DatanodeUuid, file: &mut fs::File) -> io::Result<()> {
    let mut last = None;
    loop {
        let (name, blocks) = {
            let state = namenode.read();
            let name = state.blocks.datanode_work(datanode).map(|work| work.info.id.to_string());
            (name, state.blocks.deletions(datanode, last, BATCH))
        };
        let mut out = String::new();
        for block in &blocks {
            match (&name, last) {
                (Some(name), None) => {
                    let _ = write!(out, "{name}\n{block}");
                }
                _ => {
                    let _ = write!(out, ",{block}");
                }
            }
            last = Some(block.id);
        }
        if blocks.len() < BATCH {
            out.push_str(if last.is_some() { "\n" } else { "" });
            return file.write_all(out.as_bytes()).await;
        }
        file.write_all(out.as_bytes()).await?;
    }
}

fn corrupt_lines(namenode: &Namenode, blocks: &[BlockId]) -> String {
    let now = namenode.now();
    let state = namenode.read();
    let mut out = String::new();
    for report in blocks.iter().filter_map(|block| state.blocks.block_report(*block, now)) {
        for replica in report.replicas.iter().filter(|replica| replica.corrupt) {
            let _ = writeln!(
                out,
                "Block={}\tSize={}\tNode={}\tStorageID={}\tStorageState={}\tTotalReplicas={}\tReason=CORRUPTION_REPORTED",
                report.block,
                report.block.length,
                replica.target.datanode.id,
                replica.target.storage_id,
                if replica.failed_storage { "FAILED" } else { "NORMAL" },
                report.replicas.len()
            );
        }
    }
    out
}

fn datanode_lines(namenode: &Namenode, datanodes: &[DatanodeUuid]) -> String {
    let state = namenode.read();
    let mut out = String::new();
    for DatanodeWork { info, transfers, recoveries } in
        datanodes.iter().filter_map(|datanode| state.blocks.datanode_work(datanode))
    {
        let _ = write!(out, "{}", info.id);
        if info.location != DEFAULT_RACK {
            let _ = write!(out, " {}", info.location);
        }
        let admin = match info.admin_state {
            DatanodeAdminState::Normal => "IN",
            DatanodeAdminState::DecommissionInProgress => "DP",
            DatanodeAdminState::Decommissioned => "DD",
            DatanodeAdminState::EnteringMaintenance => "EM",
            DatanodeAdminState::InMaintenance => "IM",
        };
        let size = |bytes: u64| format!("{bytes}({})", bytes_text(bytes));
        let _ = write!(
            out,
            " {admin} {} {} {} {} {} {} {} {} {}",
            size(info.capacity),
            size(info.dfs_used),
            percent(info.dfs_used, info.capacity),
            size(info.remaining),
            size(info.cache_capacity),
            size(info.cache_used),
            percent(info.cache_used, info.cache_capacity),
            size(info.cache_capacity.saturating_sub(info.cache_used)),
            date_text(info.last_update_ms)
        );
        if transfers > 0 {
            let _ = write!(out, " {transfers} blocks to be replicated;");
        }
        if recoveries > 0 {
            let _ = write!(out, " {recoveries} blocks to be recovered;");
        }
        out.push('\n');
    }
    out
}

/// Share of `whole` with two digits; all of it if `whole` is 0.
fn percent(part: u64, whole: u64) -> String {
    let share = if whole == 0 { 100.0 } else { part as f64 * 100.0 / whole as f64 };
    format!("{share:.2}%")
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn share_of_nothing_is_all() {
        assert_eq!(percent(1, 3), "33.33%");
        assert_eq!(percent(0, 0), "100.00%");
    }
}
