//! SIGKILL at any moment loses nothing that was acknowledged.
//!
//! The NameNode runs in a process of its own: this test binary, started again with a directory in its environment.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hearth_namenode::{FormatPolicy, Namenode, NamenodeOptions};
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, Target};
use hearth_types::SystemClock;
use hearth_wire::proto::hdfs::*;
use hearth_wire::rpc::protocols;

const DIRECTORY: &str = "HEARTH_TEST_CRASH_DIRECTORY";

/// Not a test of its own: what the other process runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namenode_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let options = NamenodeOptions {
        // Its files take turns many times.
        configuration: support::configuration().with("hearth.namenode.journal.bytes", "4k"),
        user: "root".into(),
        host_name: "namenode".into(),
        clock: Arc::new(SystemClock::new()),
        format: FormatPolicy::IfEmpty,
        directory: Some(directory.into()),
        rpc_address: Some("127.0.0.1:0".into()),
        http_address: Some("127.0.0.1:0".into()),
    };
    let handle = Namenode::start(options).await.unwrap();
    println!("\nADDRESS {}", handle.rpc_address());
    // Until it is killed; a test that dies takes the pipe with it.
    tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await.unwrap();
}

struct Process(Child);

impl Process {
    fn start(directory: &Path) -> (Self, SocketAddr) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "namenode_process", "--nocapture"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .find_map(|line| line.unwrap().strip_prefix("ADDRESS ").map(|address| address.parse().unwrap()))
            .expect("the NameNode says where it listens");
        // Nobody may wait for us to read what the process still says.
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

/// Makes directories until the NameNode is gone; returns those that were acknowledged.
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
        // In the middle of the work, however fast the machine is.
        while acknowledged.load(Ordering::Relaxed) < 30 + 17 * round {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
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
