//! The DataNode's web pages.

use hearth_datanode::Handle;
use hearth_testkit::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::namenode::FakeNamenode;
use super::one_sided_writes::figure;
use super::{scratch, start_datanode};

pub async fn page(node: &Handle, path: &str) -> String {
    let mut connection = tokio::net::TcpStream::connect(node.addresses().http).await.unwrap();
    connection.write_all(format!("GET {path} HTTP/1.0\r\nHost: datanode\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = String::new();
    connection.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storages_failed_at_start_are_counted_and_named() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    std::fs::write(dir.path().join("plain"), "no directory").unwrap();
    let [good, bad] = ["disk", "plain/disk"].map(|name| dir.path().join(name).display().to_string());
    let dirs = format!("{good},{bad}");
    let settings = [("dfs.datanode.data.dir", dirs.as_str()), ("dfs.datanode.failed.volumes.tolerated", "1")];
    let node = start_datanode(&namenode, dir.path(), &settings).await;
    until("the failed storage to be counted", async || figure(&node, "hearth_failed_volumes").await == 1).await;
    let front = page(&node, "/").await;
    assert!(front.contains(&format!("<td>1: {bad}</td>")), "{front}");
    let beans = page(&node, "/jmx?qry=Hadoop:service=DataNode,name=FSDatasetState").await;
    assert!(beans.contains("\"NumFailedVolumes\": 1"), "{beans}");
}
