//! Runs the real DataNode over real sockets, with a fake NameNode that sends what each test needs.

mod bad_input;
mod client;
mod crowds;
mod in_place;
mod lazy_persist;
mod local;
mod local_copies;
mod local_writes;
mod many;
mod moves;
mod namenode;
mod one_sided;
mod one_sided_copies;
mod one_sided_writes;
mod pages;
mod paused_copies;
mod pipelines;
mod reads_and_writes;
mod recovery;
mod restart_notice;
mod slow_disk;
mod streams;
mod tokens;
mod transfers;
mod volume_errors;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hearth_config::Configuration;
use hearth_datanode::{Datanode, DatanodeOptions, Handle};
use hearth_fabric::one_sided::Transport;
use hearth_testkit::eventually;
use hearth_types::SystemClock;

use client::WAIT;
use namenode::FakeNamenode;

/// Starts a DataNode for `namenode`, with its directories below `dir`. `settings`: keys of its configuration.
async fn start_datanode(namenode: &FakeNamenode, dir: &Path, settings: &[(&str, &str)]) -> Handle {
    start_datanode_with(|_| {}, namenode, dir, settings).await
}

/// Like `start_datanode`, with the test's own one-sided network if given.
async fn start_datanode_in(
    network: Option<Arc<dyn Transport>>,
    namenode: &FakeNamenode,
    dir: &Path,
    settings: &[(&str, &str)],
) -> Handle {
    let change = |options: &mut DatanodeOptions| {
        if network.is_some() {
            options.one_sided.transport = network;
        }
    };
    start_datanode_with(change, namenode, dir, settings).await
}

/// Like `start_datanode`. `change` sets options that have no key.
async fn start_datanode_with(
    change: impl FnOnce(&mut DatanodeOptions),
    namenode: &FakeNamenode,
    dir: &Path,
    settings: &[(&str, &str)],
) -> Handle {
    let mut configuration = Configuration::empty()
        .with("fs.defaultFS", format!("hdfs://{}", namenode.address()))
        .with("dfs.datanode.data.dir", dir.join("disk").display().to_string())
        .with("hearth.memory.dir", dir.join("memory").display().to_string())
        .with("hearth.memory.limit", "64m")
        .with("dfs.datanode.address", "127.0.0.1:0")
        .with("dfs.datanode.ipc.address", "127.0.0.1:0")
        .with("dfs.datanode.http.address", "127.0.0.1:0")
        .with("dfs.heartbeat.interval", "1");
    for (key, value) in settings {
        configuration.set(key, *value);
    }
    let clock = Arc::new(SystemClock::new());
    let mut options =
        DatanodeOptions::from_configuration(Arc::new(configuration), "tester", "localhost", clock).unwrap();
    if !settings.iter().any(|(key, _)| *key == "hearth.memory.flush.delay") {
        options.store.flush_delay = Duration::from_millis(200);
    }
    // The tests check which path bytes take, so a stalled machine must not make the DataNode choose another one.
    options.transfer.memory_connect_timeout = WAIT;
    change(&mut options);
    // A previous DataNode that is still stopping may hold its directories for a moment.
    let handle = eventually("the datanode to start", async || {
        Datanode::start(options.clone()).await.inspect_err(|error| eprintln!("{error}")).ok()
    })
    .await;
    tokio::time::timeout(WAIT, handle.registered()).await.expect("registers in time");
    handle
}

/// Returns a directory for one DataNode: on the tmpfs if there is one, as the memory tier requires.
fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm).unwrap() } else { tempfile::tempdir().unwrap() }
}

/// Like `scratch`, in huge pages, if this process may mount such a tmpfs.
struct HugeScratch {
    /// Dropped before its directory.
    huge: Option<hearth_testkit::HugePages>,
    dir: tempfile::TempDir,
}

impl HugeScratch {
    fn new() -> Self {
        let dir = scratch();
        Self { huge: hearth_testkit::HugePages::mount(dir.path()).ok(), dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn is_huge(&self) -> bool {
        self.huge.is_some()
    }
}
