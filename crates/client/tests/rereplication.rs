//! Copies of blocks that have too few replicas, between real DataNodes under Hearth's NameNode. Their duration is
//! printed, not checked: the machine may be busy. The checks do not depend on it, because these DataNodes send
//! heartbeats once an hour.

use std::time::Duration;

use hearth_client::{CreateOptions, FileSystem};
use hearth_config::Configuration;
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, get_text, wait_until};
use tokio::time::Instant;

const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 96;
const LONG: Duration = Duration::from_secs(90);

fn connect(cluster: &Cluster, replication: u16) -> FileSystem {
    let conf = Configuration::empty()
        .with("dfs.blocksize", BLOCK.to_string())
        .with("dfs.replication", replication.to_string());
    FileSystem::connect(&conf, Some(cluster.uri()), &hearth_client::os_user_name()).unwrap()
}

fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(work).unwrap_or_else(|error| panic!("{error:?}"))
}

async fn write(fs: &FileSystem, content: Content) -> anyhow::Result<()> {
    let mut writer = fs.create("/file", CreateOptions::default()).await?;
    writer.write(&content.bytes(0, BLOCKS * BLOCK)).await?;
    writer.close().await?;
    Ok(())
}

/// Checks that every block has the wanted number of replicas, and that all of them are readable.
async fn is_whole(fs: &FileSystem, replicas: usize, content: Content) -> anyhow::Result<()> {
    let located = fs.locations("/file", 0, u64::MAX >> 1).await?;
    let short = located.blocks.iter().filter(|block| block.locations.len() != replicas).count();
    anyhow::ensure!(short == 0, "{short} of {} blocks have not {replicas} replicas", located.blocks.len());
    let reader = fs.open("/file").await?;
    let mut bytes = vec![0; BLOCKS * BLOCK];
    anyhow::ensure!(reader.read_at(0, &mut bytes).await? == bytes.len());
    anyhow::ensure!(bytes == content.bytes(0, BLOCKS * BLOCK), "wrong contents");
    Ok(())
}

fn figure(cluster: &Cluster, name: &str) -> anyhow::Result<u64> {
    let page = get_text(cluster.namenode_http_port(), "/metrics")?;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("hearth_namenode_{name} ")));
    line.ok_or_else(|| anyhow::anyhow!("no {name}"))?.parse().map_err(Into::into)
}

/// Waits until no replica is missing or pending.
fn wait_whole(cluster: &Cluster) {
    wait_until("all blocks to have their replicas", LONG, || {
        let open = figure(cluster, "low_redundancy_blocks")? + figure(cluster, "pending_copies")?;
        Ok((open == 0).then_some(()))
    })
    .unwrap();
}

#[test]
fn copies_are_scheduled_without_heartbeats() {
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(2)
        .set("dfs.heartbeat.interval", 3600);
    // Many rounds of scheduling.
    let cluster = spec.set("hearth.namenode.replication.window", "8m").start().unwrap();
    let content = Content::new(7);
    let fs = connect(&cluster, 1);
    run(async {
        write(&fs, content).await?;
        anyhow::ensure!(fs.set_replication("/file", 2).await?);
        Ok(())
    });
    let started = Instant::now();
    wait_whole(&cluster);
    println!("{BLOCKS} MiB copied in {:?}, without heartbeats", started.elapsed());
    run(is_whole(&fs, 2, content));
}

#[test]
fn replicas_of_a_dead_datanode_are_copied() {
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).datanodes(3).set("dfs.replication", 2);
    // A datanode counts as dead after eleven seconds of silence.
    let mut cluster = spec.set("dfs.namenode.heartbeat.recheck-interval", 500).start().unwrap();
    let content = Content::new(8);
    let fs = connect(&cluster, 2);
    run(write(&fs, content));
    wait_whole(&cluster);
    cluster.datanodes[0].kill();
    cluster.wait_live(2, LONG).unwrap();
    let detected = Instant::now();
    wait_whole(&cluster);
    println!("whole again {:?} after a DataNode was found dead", detected.elapsed());
    run(is_whole(&fs, 2, content));
}
