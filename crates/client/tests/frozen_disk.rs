//! A disk that hangs delays only the writers whose blocks are on it.

mod common;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, LoopDisk, jmx_bean, skip_or_fail};

use common::streamed;

const TEST: &str = "hanging_disk_delays_only_its_own_writers";
/// Number of writers: more than the threads that serve on most test machines.
const WRITERS: u64 = 16;
/// Bytes that a writer has written before the disk hangs, and bytes that it writes then. Its block is on disk from the
/// first byte.
const BEFORE: usize = 100_000;
const MEANWHILE: usize = 900_000;
/// Shorter than the client's time-out, after which the block would be written elsewhere.
const WAIT: Duration = Duration::from_secs(40);

/// Continues after the first `BEFORE` bytes, and waits until the DataNodes have the data.
async fn go_on(mut writer: hearth_client::Writer, seed: u64) -> Result<hearth_client::Writer> {
    writer.write(&Content::new(seed).bytes(BEFORE as u64, MEANWHILE)).await?;
    writer.hflush().await?;
    Ok(writer)
}

/// Returns the seconds since the NameNode last received a heartbeat of the DataNode.
fn silent_seconds(cluster: &Cluster) -> Result<u64> {
    let port = cluster.datanodes[0].port("dfs.datanode.address")?;
    let node = cluster.live_datanode(&format!("127.0.0.1:{port}"))?;
    node["lastContact"].as_u64().context("the NameNode reports the last contact")
}

#[test]
fn hanging_disk_delays_only_its_own_writers() {
    let at = tempfile::tempdir().unwrap();
    let disk = match LoopDisk::mount(at.path(), 256 << 20) {
        Ok(disk) => disk,
        Err(error) => return skip_or_fail(TEST, error.context("no file system of a test's own (root may mount one)")),
    };
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .set("dfs.blocksize", 6 << 20)
        .set("hearth.storage.engine", "file")
        .set("hearth.client.paths", "packets");
    let mut cluster = spec.start().unwrap();
    let node = &mut cluster.datanodes[0];
    node.stop(WAIT).unwrap();
    let own = node.setting("dfs.datanode.data.dir").unwrap().to_owned();
    let both = format!("[DISK]{own},[SSD]file://{}", at.path().join("data").display());
    node.change(&[("dfs.datanode.data.dir", &both)]).unwrap();
    cluster.start_datanode(0).unwrap();
    cluster.wait_ready().unwrap();
    let conf = Configuration::load_dir(cluster.conf(), Environment::empty()).unwrap();
    let fs = FileSystem::connect(&conf, None, &hearth_client::os_user_name()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(hangs(&cluster, &disk, &fs)).unwrap();
}

async fn hangs(cluster: &Cluster, disk: &LoopDisk, fs: &FileSystem) -> Result<()> {
    let well = Content::new(99).bytes(0, 3_000_000);
    let mut writer = fs.create("/well", CreateOptions::default()).await?;
    writer.write(&well).await?;
    writer.close().await?;
    let mut writers = Vec::new();
    for seed in 0..WRITERS {
        let policy = Some("ALL_SSD".to_owned());
        let options = CreateOptions { storage_policy: policy, ..CreateOptions::default() };
        let mut writer = fs.create(&format!("/{seed}"), options).await?;
        writer.write(&Content::new(seed).bytes(0, BEFORE)).await?;
        writer.hflush().await?;
        writers.push((seed, writer));
    }

    let frozen = disk.freeze()?;
    let waiting: Vec<_> = writers.into_iter().map(|(seed, writer)| (seed, tokio::spawn(go_on(writer, seed)))).collect();
    // Give all writers time to reach the disk.
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(waiting.iter().all(|(_, writing)| !writing.is_finished()), "the disk does not hang");
    let others = async {
        for number in 0..4 {
            ensure!(streamed(fs, "/well", |there| there).await? == well, "wrong contents read from another disk");
            let path = format!("/well-{number}");
            let mut writer = fs.create(&path, CreateOptions::default()).await?;
            writer.write(&well).await?;
            writer.close().await?;
            ensure!(streamed(fs, &path, |there| there).await? == well, "wrong contents written to another disk");
            let port = cluster.datanodes[0].port("dfs.datanode.http.address")?;
            jmx_bean(port, "Hearth:service=DataNode,name=Memory")?;
        }
        Ok(())
    };
    tokio::time::timeout(WAIT, others).await.context("other clients wait for the disk that hangs")??;
    ensure!(silent_seconds(cluster)? < 10, "no heartbeats arrive, although one a second is due");
    ensure!(waiting.iter().all(|(_, writing)| !writing.is_finished()), "the disk no longer hangs");

    drop(frozen);
    for (seed, writing) in waiting {
        tokio::time::timeout(WAIT, writing).await.context("the disk answers again")???.close().await?;
        let expected = Content::new(seed).bytes(0, BEFORE + MEANWHILE);
        ensure!(streamed(fs, &format!("/{seed}"), |there| there).await? == expected, "file {seed}");
    }
    Ok(())
}
