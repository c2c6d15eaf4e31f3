//! Tests of writers whose calls are dropped half way, for example by a time-out, and that then continue.

use futures_util::FutureExt;
use hearth_client::{CreateOptions, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{ClusterSpec, Content, Implementation};

const BLOCK: u64 = 64 << 10;
const BYTES: usize = 5 << 20;

#[test]
fn dropped_writes_and_flushes_lose_nothing() {
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).datanodes(1).set("dfs.replication", 1);
    // Many packets of many blocks: the end of each block follows its last packet.
    let spec = spec.set("dfs.namenode.fs-limits.min-block-size", 512).set("dfs.blocksize", BLOCK);
    let cluster = spec.set("dfs.client-write-packet-size", 4096).start().unwrap();
    let mut conf = Configuration::load_dir(cluster.conf(), Environment::empty()).unwrap();
    conf.set("hearth.client.paths", "packets".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let outcome: anyhow::Result<()> = runtime.block_on(async {
        // In a task, because only there does tokio make calls that are ready yield.
        let (conf, user) = (conf.clone(), hearth_client::os_user_name());
        tokio::spawn(async move {
            let fs = FileSystem::connect(&conf, None, &user)?;
            let bytes = Content::new(3).bytes(0, BYTES);
            let mut writer = fs.create("/dropped", CreateOptions::default()).await?;
            let (mut dropped, mut flushes_dropped) = (0, 0);
            while (writer.position() as usize) < BYTES {
                let at = writer.position() as usize;
                match writer.write(&bytes[at..BYTES.min(at + 9_000)]).now_or_never() {
                    Some(written) => written?,
                    None => {
                        dropped += 1;
                        tokio::task::yield_now().await;
                    }
                }
                match writer.hflush().now_or_never() {
                    Some(flushed) => flushed?,
                    None => flushes_dropped += 1,
                }
            }
            anyhow::ensure!(dropped > 0 && flushes_dropped > 0, "{dropped} and {flushes_dropped} calls were dropped");
            writer.hflush().await?;
            writer.close().await?;
            let mut read = vec![0; BYTES + 1];
            let count = fs.open("/dropped").await?.read(&mut read).await?;
            anyhow::ensure!(count == BYTES && read[..count] == bytes, "{count} bytes came, or others");
            Ok(())
        })
        .await?
    });
    outcome.unwrap();
}
