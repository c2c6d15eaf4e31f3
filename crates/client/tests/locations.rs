//! Number of calls for a file's block locations, counted on the wire.

use std::net::{Ipv4Addr, SocketAddr};

use hearth_client::{CreateOptions, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{ClusterSpec, Content, Implementation, NamenodePorts, RecordingProxy, free_port};

const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 16;

/// Counts the calls of `method` that went through the proxy.
fn calls(proxy: &RecordingProxy, method: &str) -> usize {
    let asked = |bytes: &[u8]| bytes.windows(method.len()).filter(|window| *window == method.as_bytes()).count();
    proxy.recorded().iter().map(|connection| asked(&connection.to_server)).sum()
}

#[test]
fn long_read_locates_once_per_prefetch_window() {
    let ports = NamenodePorts { rpc: free_port(), seen: free_port() };
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let proxy = RecordingProxy::start(local(ports.seen), local(ports.rpc)).unwrap();
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).datanodes(1).ports(ports);
    let spec = spec.set("dfs.replication", 1).set("dfs.blocksize", BLOCK);
    let cluster = spec.set("dfs.client.read.prefetch.size", 4 * BLOCK).start().unwrap();
    let conf = Configuration::load_dir(cluster.conf(), Environment::empty()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let outcome: anyhow::Result<()> = runtime.block_on(async {
        let fs = FileSystem::connect(&conf, None, &hearth_client::os_user_name())?;
        let content = Content::new(1);
        let mut writer = fs.create("/long", CreateOptions::default()).await?;
        writer.write(&content.bytes(0, BLOCKS * BLOCK)).await?;
        writer.close().await?;
        let before = calls(&proxy, "getBlockLocations");
        let mut reader = fs.open("/long").await?;
        let mut bytes = vec![0; BLOCKS * BLOCK];
        let count = reader.read(&mut bytes).await?;
        anyhow::ensure!(count == bytes.len() && bytes == content.bytes(0, count), "wrong bytes");
        let asked = calls(&proxy, "getBlockLocations") - before;
        anyhow::ensure!(asked == BLOCKS / 4, "asked {asked} times");
        // A jump beyond the prefetched window takes a second call: a known block is located again to confirm that the
        // path still names the same file.
        let reader = fs.open("/long").await?;
        let before = calls(&proxy, "getBlockLocations");
        let mut bytes = vec![0; 1000];
        reader.read_at(12 * BLOCK as u64 + 5, &mut bytes).await?;
        anyhow::ensure!(bytes == content.bytes(12 * BLOCK as u64 + 5, 1000), "wrong bytes");
        let asked = calls(&proxy, "getBlockLocations") - before;
        anyhow::ensure!(asked == 2, "asked {asked} times after a jump");
        Ok(())
    });
    outcome.unwrap();
}
