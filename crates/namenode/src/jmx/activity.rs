//! The beans about what the NameNode has done since its start: `NameNodeActivity`, `StartupProgress`, and those of its
//! RPC ports and its process.
//!
//! Times are means since the start in milliseconds; Apache's are of the last ten seconds.
//! Sources: Hadoop's `NameNodeMetrics` and `StartupProgressMetrics`.

use hearth_types::{HistogramSnapshot, RpcFigures};
use hearth_web::{Bean, process_beans, rpc_beans};
use serde_json::Value;

use crate::blocks::{ClusterStatistics, StartupSafeMode};
use crate::metrics::CallMetrics;
use crate::state::Namenode;

/// Returns all of these beans.
pub fn beans(
    namenode: &Namenode,
    calls: &CallMetrics,
    cluster: &ClusterStatistics,
    safe_mode: StartupSafeMode,
) -> Vec<Bean> {
    let host_name = &namenode.settings.host_name;
    let mut figures = calls.of_ports();
    let mut beans: Vec<Bean> = figures.iter().flat_map(|port| rpc_beans("NameNode", host_name, port)).collect();
    figures.push(calls.of_webhdfs());
    beans.push(activity(namenode, &Calls(figures), cluster, safe_mode));
    beans.push(startup_progress(namenode, safe_mode));
    beans.extend(process_beans("NameNode", host_name));
    beans
}

/// Calls over all ports and WebHDFS.
struct Calls(Vec<RpcFigures>);

impl Calls {
    fn all(&self, names: &[&str]) -> u64 {
        self.0.iter().flat_map(|port| names.iter().map(move |name| port.calls(name))).sum()
    }

    fn successes(&self, names: &[&str]) -> u64 {
        self.0.iter().flat_map(|port| names.iter().map(move |name| port.successes(name))).sum()
    }

    fn times(&self, name: &str) -> HistogramSnapshot {
        self.0.iter().fold(HistogramSnapshot::default(), |all, port| all.plus(&port.times(name)))
    }
}

/// Attributes that count calls, and the methods of ClientProtocol and DatanodeProtocol that they count.
const OPERATIONS: [(&str, &[&str]); 18] = [
    ("CreateFileOps", &["create"]),
    ("GetBlockLocations", &["getBlockLocations", "getLocatedFileInfo", "openMany"]),
    ("GetListingOps", &["getListing", "getBatchedListing"]),
    ("DeleteFileOps", &["delete"]),
    ("FileInfoOps", &["getFileInfo", "getFileLinkInfo", "isFileClosed"]),
    ("AddBlockOps", &["addBlock"]),
    ("GetAdditionalDatanodeOps", &["getAdditionalDatanode"]),
    ("CreateSymlinkOps", &["createSymlink"]),
    ("GetLinkTargetOps", &["getLinkTarget"]),
    ("AllowSnapshotOps", &["allowSnapshot"]),
    ("DisallowSnapshotOps", &["disallowSnapshot"]),
    ("CreateSnapshotOps", &["createSnapshot"]),
    ("DeleteSnapshotOps", &["deleteSnapshot"]),
    ("RenameSnapshotOps", &["renameSnapshot"]),
    ("ListSnapshottableDirOps", &["getSnapshottableDirListing"]),
    ("ListSnapshotOps", &["getSnapshotListing"]),
    ("SnapshotDiffReportOps", &["getSnapshotDiffReport", "getSnapshotDiffReportListing"]),
    ("BlockReceivedAndDeletedOps", &["blockReceivedAndDeleted"]),
];

/// Attributes that count what succeeded.
const CHANGES: [(&str, &[&str]); 5] = [
    ("FilesCreated", &["create", "mkdirs"]),
    ("FilesAppended", &["append"]),
    ("FilesRenamed", &["rename", "rename2"]),
    ("FilesTruncated", &["truncate"]),
    ("FilesDeleted", &["delete"]),
];

fn activity(namenode: &Namenode, calls: &Calls, cluster: &ClusterStatistics, safe_mode: StartupSafeMode) -> Bean {
    let journal = namenode.store.journal_figures();
    let mut bean = Bean::new("Hadoop:service=NameNode,name=NameNodeActivity")
        .with("tag.ProcessName", "NameNode")
        .with("tag.SessionId", Value::Null)
        .with("tag.Context", "dfs")
        .with("tag.Hostname", namenode.settings.host_name.clone());
    for (attribute, methods) in OPERATIONS {
        bean = bean.with(attribute, calls.all(methods));
    }
    for (attribute, methods) in CHANGES {
        bean = bean.with(attribute, calls.successes(methods));
    }
    let of_files: u64 = OPERATIONS.iter().map(|(_, methods)| calls.all(methods)).sum();
    let of_files = of_files - calls.all(&["blockReceivedAndDeleted"])
        + calls.successes(&["append", "rename", "rename2", "truncate"]);
    let (reports, cache_reports) = (calls.times("blockReport"), calls.times("cacheReport"));
    bean.with("TotalFileOps", of_files)
        .with("TransactionsNumOps", journal.operations)
        .with("SyncsNumOps", journal.syncs.count())
        .with("SyncsAvgTime", journal.syncs.mean_ms())
        .with("TransactionsBatchedInSync", journal.operations.saturating_sub(journal.syncs.count()))
        .with("StorageBlockReportNumOps", reports.count())
        .with("StorageBlockReportAvgTime", reports.mean_ms())
        .with("CacheReportNumOps", cache_reports.count())
        .with("CacheReportAvgTime", cache_reports.mean_ms())
        .with("TimeoutReReplications", cluster.timed_out_copies)
        .with("PendingDeleteBlocksCount", cluster.pending_deletion)
        .with("SafeModeTime", safe_mode.lasted.as_millis() as u64)
        .with("FsImageLoadTime", namenode.load_time.as_millis() as u64)
        // Reports are processed as they arrive, without a queue.
        .with("BlockOpsQueued", 0)
        .with("BlockOpsBatched", 0)
}

/// The phases of a start. The image and the journal are read together; that, and the rest of it, are over when this is
/// asked.
fn startup_progress(namenode: &Namenode, safe_mode: StartupSafeMode) -> Bean {
    let inodes = namenode.read().namespace.inode_count();
    let load_ms = namenode.load_time.as_millis() as u64;
    let StartupSafeMode { safe_blocks, wanted_blocks, lasted, is_over } = safe_mode;
    let done = if is_over || wanted_blocks == 0 { 1.0 } else { (safe_blocks as f64 / wanted_blocks as f64).min(1.0) };
    let mut bean = Bean::new("Hadoop:service=NameNode,name=StartupProgress")
        .with("tag.Hostname", namenode.settings.host_name.clone())
        .with("ElapsedTime", load_ms + lasted.as_millis() as u64)
        // The four phases count alike.
        .with("PercentComplete", (3.0 + done) / 4.0);
    let lasted_ms = lasted.as_millis() as u64;
    for (phase, count, total, elapsed_ms, done) in [
        ("LoadingFsImage", inodes, inodes, load_ms, 1.0),
        ("LoadingEdits", 0, 0, 0, 1.0),
        ("SavingCheckpoint", 0, 0, 0, 1.0),
        ("SafeMode", safe_blocks.min(wanted_blocks), wanted_blocks, lasted_ms, done),
    ] {
        bean = bean
            .with(&format!("{phase}Count"), count)
            .with(&format!("{phase}Total"), total)
            .with(&format!("{phase}ElapsedTime"), elapsed_ms)
            .with(&format!("{phase}PercentComplete"), done);
    }
    bean
}
