//! Checks that SIGKILL at any moment loses no acknowledged change.
//!
//! The NameNode runs in a separate process: this test binary, started again with a directory in its environment.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hearth_namenode::{FormatPolicy, Namenode, NamenodeOptions};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, Target};
use hearth_testkit::until;
use hearth_types::SystemClock;
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::protocols;
use prost::Message;

const DIRECTORY: &str = "HEARTH_TEST_CRASH_DIRECTORY";

/// Entry point of the NameNode process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the child of the tests below"]
async fn namenode_process() {
    let directory = std::env::var(DIRECTORY).expect("only the tests below start this one");
    let options = NamenodeOptions {
        // Small, so that the journal's files alternate often.
        configuration: support::configuration().with("hearth.namenode.journal.bytes", "4k"),
        user: "root".into(),
        host_name: "namenode".into(),
        clock: Arc::new(SystemClock::new()),
        format: FormatPolicy::IfEmpty,
        directory: Some(directory.into()),
        rpc_address: Some("127.0.0.1:0".into()),
        http_address: Some("127.0.0.1:0".into()),
        copier: None,
    };
    let handle = Namenode::start(options).await.unwrap();
    println!("\nADDRESS {}", handle.rpc_address());
    // Runs until it is killed. If the test dies, the pipe closes and the process ends.
    tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await.unwrap();
}

struct Process(Child);

impl Process {
    fn start(directory: &Path) -> (Self, SocketAddr) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "namenode_process", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .find_map(|line| line.unwrap().strip_prefix("ADDRESS ").map(|address| address.parse().unwrap()))
            .expect("the NameNode prints its address");
        // Drains the process's further output, so that it never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        (Self(child), address)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates directories until the NameNode is gone. Returns the acknowledged ones.
async fn work(
    address: SocketAddr,
    worker: usize,
    round: usize,
    acknowledged: Arc<AtomicUsize>,
) -> (Vec<String>, Vec<String>) {
    let client = RpcClient::new(RpcClientOptions { connect_timeout: Duration::from_secs(1), ..Default::default() });
    let target = Target { address, protocol: protocols::CLIENT, user: "root".into() };
    let (mut made, mut deleted) = (Vec::new(), Vec::new());
    for i in 0.. {
        let path = format!("/r{round}/w{worker}/d{i}");
        let request = MkdirsRequestProto {
            src: path.clone(),
            masked: FsPermissionProto { perm: 0o755 },
            create_parent: true,
            unmasked: None,
        };
        if client.call::<MkdirsResponseProto>(&target, "mkdirs", &request).await.is_err() {
            break;
        }
        acknowledged.fetch_add(1, Ordering::Relaxed);
        made.push(path.clone());
        if i % 3 == 0 {
            let request = DeleteRequestProto { src: path.clone(), recursive: true };
            made.pop();
            match client.call::<DeleteResponseProto>(&target, "delete", &request).await {
                Ok(answer) => {
                    assert!(answer.result);
                    deleted.push(path);
                }
                Err(_) => break,
            }
        }
    }
    (made, deleted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let (mut made, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    let mut inodes = 0;
    for round in 0..5usize {
        let (process, address) = Process::start(directory.path());
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> =
            (0..8).map(|worker| tokio::spawn(work(address, worker, round, acknowledged.clone()))).collect();
        // Kill it in the middle of the work, however fast the machine is.
        until("acknowledged changes", async || acknowledged.load(Ordering::Relaxed) >= 30 + 17 * round).await;
        process.kill();
        for worker in workers {
            let (new, gone) = worker.await.unwrap();
            made.extend(new);
            deleted.extend(gone);
        }
        inodes = check(directory.path(), &made, &deleted).await;
    }
    assert!(made.len() > 50, "only {} directories were made", made.len());
    assert!(inodes as usize >= made.len());
}

async fn check(directory: &Path, made: &BTreeSet<String>, deleted: &BTreeSet<String>) -> u64 {
    let (_process, address) = Process::start(directory);
    let client = RpcClient::new(RpcClientOptions::default());
    let target = Target { address, protocol: protocols::CLIENT, user: "root".into() };
    let info = async |path: &str| {
        let request = GetFileInfoRequestProto { src: path.into() };
        client.call::<GetFileInfoResponseProto>(&target, "getFileInfo", &request).await.unwrap().fs
    };
    for path in made {
        assert!(info(path).await.is_some(), "{path} was acknowledged and is gone");
    }
    for path in deleted {
        assert!(info(path).await.is_none(), "{path} was deleted and is back");
    }
    let request = GetContentSummaryRequestProto { path: "/".into() };
    let answer: GetContentSummaryResponseProto = client.call(&target, "getContentSummary", &request).await.unwrap();
    answer.summary.directory_count
}

/// Names with their modes.
type Names = BTreeMap<String, u32>;

/// A directory that changes continuously, and its snapshots.
#[derive(Clone, Default, PartialEq, Debug)]
struct Kept {
    now: Names,
    snapshots: BTreeMap<String, Names>,
}

#[derive(Clone, Debug)]
enum Step {
    Create(String),
    Mode(String, u32),
    Rename(String, String),
    Delete(String),
    Snapshot(String),
    RenameSnapshot(String, String),
    DeleteSnapshot(String),
}

impl Kept {
    /// Returns step `i`. The kinds alternate, so that each combination of neighbours can occur when the NameNode dies.
    fn step(&self, i: usize) -> Step {
        let first = self.now.keys().next().cloned();
        let oldest = self.snapshots.keys().next().cloned();
        match (i % 9, first, oldest) {
            (1 | 4, _, _) => Step::Snapshot(format!("s{i:05}")),
            (2, Some(first), _) => Step::Mode(first, 0o600 + i as u32 % 8),
            (3, Some(first), _) => Step::Rename(first, format!("r{i:05}")),
            (5, _, Some(oldest)) => Step::RenameSnapshot(oldest, format!("t{i:05}")),
            (6, Some(first), _) => Step::Delete(first),
            (7 | 8, _, Some(oldest)) if self.snapshots.len() > 3 => Step::DeleteSnapshot(oldest),
            _ => Step::Create(format!("f{i:05}")),
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Create(name) => drop(self.now.insert(name, 0o644)),
            Step::Mode(name, mode) => drop(self.now.insert(name, mode)),
            Step::Rename(from, to) => {
                let mode = self.now.remove(&from).unwrap();
                self.now.insert(to, mode);
            }
            Step::Delete(name) => drop(self.now.remove(&name).unwrap()),
            Step::Snapshot(name) => drop(self.snapshots.insert(name, self.now.clone())),
            Step::RenameSnapshot(from, to) => {
                let names = self.snapshots.remove(&from).unwrap();
                self.snapshots.insert(to, names);
            }
            Step::DeleteSnapshot(name) => drop(self.snapshots.remove(&name).unwrap()),
        }
    }
}

/// Calls of one user to one NameNode.
struct User {
    client: RpcClient,
    target: Target,
}

impl User {
    fn of(address: SocketAddr) -> Self {
        let options = RpcClientOptions { connect_timeout: Duration::from_secs(1), ..Default::default() };
        let target = Target { address, protocol: protocols::CLIENT, user: "root".into() };
        Self { client: RpcClient::new(options), target }
    }

    /// Makes a call. `None` if the NameNode is gone before it answers.
    async fn call<A: Message + Default>(&self, method: &str, request: &impl Message) -> Option<A> {
        self.client.call(&self.target, method, request).await.ok()
    }

    async fn take(&self, root: &str, step: &Step) -> Option<()> {
        let path = |name: &str| format!("{root}/{name}");
        let snapshot_root = root.to_owned();
        match step.clone() {
            Step::Create(name) => {
                let request = support::new_file(&path(&name), "writer", 1);
                self.call::<CreateResponseProto>("create", &request).await?;
                let (src, client_name) = (path(&name), "writer".into());
                let request = CompleteRequestProto { src, client_name, last: None, file_id: None };
                self.call::<CompleteResponseProto>("complete", &request).await.map(drop)
            }
            Step::Mode(name, perm) => {
                let request = SetPermissionRequestProto { src: path(&name), permission: FsPermissionProto { perm } };
                self.call::<SetPermissionResponseProto>("setPermission", &request).await.map(drop)
            }
            Step::Rename(from, to) => {
                let request = RenameRequestProto { src: path(&from), dst: path(&to) };
                self.call::<RenameResponseProto>("rename", &request).await.map(|answer| assert!(answer.result))
            }
            Step::Delete(name) => {
                let request = DeleteRequestProto { src: path(&name), recursive: true };
                self.call::<DeleteResponseProto>("delete", &request).await.map(|answer| assert!(answer.result))
            }
            Step::Snapshot(name) => {
                let request = CreateSnapshotRequestProto { snapshot_root, snapshot_name: Some(name) };
                self.call::<CreateSnapshotResponseProto>("createSnapshot", &request).await.map(drop)
            }
            Step::RenameSnapshot(snapshot_old_name, snapshot_new_name) => {
                let request = RenameSnapshotRequestProto { snapshot_root, snapshot_old_name, snapshot_new_name };
                self.call::<RenameSnapshotResponseProto>("renameSnapshot", &request).await.map(drop)
            }
            Step::DeleteSnapshot(snapshot_name) => {
                let request = DeleteSnapshotRequestProto { snapshot_root, snapshot_name };
                self.call::<DeleteSnapshotResponseProto>("deleteSnapshot", &request).await.map(drop)
            }
        }
    }

    async fn names(&self, path: &str) -> Names {
        let (src, start_after) = (path.to_owned(), Default::default());
        let request = GetListingRequestProto { src, start_after, need_location: false };
        let answer: GetListingResponseProto = self.call("getListing", &request).await.unwrap();
        let list = answer.dir_list.unwrap();
        assert_eq!(list.remaining_entries, 0);
        let entry =
            |status: HdfsFileStatusProto| (String::from_utf8(status.path.to_vec()).unwrap(), status.permission.perm);
        list.partial_listing.into_iter().map(entry).collect()
    }

    async fn found(&self, root: &str) -> Kept {
        let mut kept = Kept { now: self.names(root).await, ..Kept::default() };
        for name in self.names(&format!("{root}/.snapshot")).await.into_keys() {
            let names = self.names(&format!("{root}/.snapshot/{name}")).await;
            kept.snapshots.insert(name, names);
        }
        kept
    }
}

/// Works until the NameNode is gone. Returns the state at its last answer, and the step that it did not answer.
async fn change(
    address: SocketAddr,
    root: String,
    mut kept: Kept,
    round: usize,
    acknowledged: Arc<AtomicUsize>,
) -> (Kept, Step) {
    let user = User::of(address);
    // Each round has its own names.
    for i in round * 9000.. {
        let step = kept.step(i);
        if user.take(&root, &step).await.is_none() {
            return (kept, step);
        }
        kept.apply(step);
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
    unreachable!("the NameNode is killed before")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_survive_a_kill() {
    const DIRECTORIES: usize = 4;
    let root = |nth: usize| format!("/d{nth}");
    let directory = tempfile::tempdir().unwrap();
    let mut kept = vec![Kept::default(); DIRECTORIES];
    let (mut process, mut address) = Process::start(directory.path());
    for nth in 0..DIRECTORIES {
        let user = User::of(address);
        let masked = FsPermissionProto { perm: 0o755 };
        let request = MkdirsRequestProto { src: root(nth), masked, create_parent: true, unmasked: None };
        user.call::<MkdirsResponseProto>("mkdirs", &request).await.unwrap();
        let request = AllowSnapshotRequestProto { snapshot_root: root(nth) };
        user.call::<AllowSnapshotResponseProto>("allowSnapshot", &request).await.unwrap();
    }
    for round in 0..4usize {
        let acknowledged = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = kept
            .iter()
            .enumerate()
            .map(|(nth, kept)| tokio::spawn(change(address, root(nth), kept.clone(), round, acknowledged.clone())))
            .collect();
        until("acknowledged changes", async || acknowledged.load(Ordering::Relaxed) >= DIRECTORIES * 18 + 13 * round)
            .await;
        process.kill();
        (process, address) = Process::start(directory.path());
        let user = User::of(address);
        for (nth, worker) in workers.into_iter().enumerate() {
            let (before, step) = worker.await.unwrap();
            let mut after = before.clone();
            after.apply(step.clone());
            let found = user.found(&root(nth)).await;
            // The last step is either complete or absent.
            assert!(found == before || found == after, "{step:?}\nbefore {before:?}\nfound {found:?}");
            kept[nth] = found;
        }
    }
    assert!(kept.iter().all(|kept| !kept.snapshots.is_empty() && !kept.now.is_empty()));
    drop(process);
}
