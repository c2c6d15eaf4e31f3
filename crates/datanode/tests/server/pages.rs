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
    let front = page(&node, "/plain").await;
    assert!(front.contains(&format!("<td>1: {bad}</td>")), "{front}");
    let beans = page(&node, "/jmx?qry=Hadoop:service=DataNode,name=FSDatasetState").await;
    assert!(beans.contains("\"NumFailedVolumes\": 1"), "{beans}");
}

/// Returns the JSON of a page, which must be there and must be for pages of other servers if `is_public`.
async fn data(node: &Handle, path: &str, is_public: bool) -> serde_json::Value {
    let answer = page(node, path).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 "), "{path}: {answer}");
    assert_eq!(head.contains("access-control-allow-origin: *"), is_public, "{path}: {head}");
    serde_json::from_str(body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interface_shows_memory_volumes_and_replicas() {
    let (namenode, dir) = (FakeNamenode::start().await, scratch());
    let node = start_datanode(&namenode, dir.path(), &[]).await;
    let front = page(&node, "/").await;
    assert!(front.contains("<title>Hearth DataNode</title>") && front.contains("\r\nx-frame-options: SAMEORIGIN\r\n"));
    assert!(page(&node, "/datanode.html").await.contains("\r\nlocation: /\r\n"));
    let status = data(&node, "/ui/status", true).await;
    assert!(status["memory"]["limit"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(status["addresses"]["transfer"], node.addresses().transfer.to_string());
    assert_eq!(status["namenodes"].as_array().unwrap().len(), 1);
    assert!(!status["volumes"].as_array().unwrap().is_empty(), "{status}");
    // A status is made at most every few seconds.
    assert_eq!(data(&node, "/ui/status", true).await["nowMs"], status["nowMs"]);
    let session = data(&node, "/ui/session", false).await;
    assert_eq!((&session["readOnly"], &session["administrator"]), (&false.into(), &true.into()));
    let session = data(&node, "/ui/session?user.name=bob", false).await;
    assert_eq!((&session["user"], &session["administrator"]), (&"bob".into(), &false.into()));
    assert!(data(&node, "/ui/history", false).await["series"]["readBytes"].is_array());
    assert!(data(&node, "/ui/log?from=0", false).await["lines"].is_array());
    assert!(page(&node, "/ui/log?from=x").await.starts_with("HTTP/1.0 400 "));
    for path in ["/ui/log?user.name=bob", "/ui/log-level?user.name=bob"] {
        let refused = page(&node, path).await;
        assert!(refused.starts_with("HTTP/1.0 403 ") && refused.contains("only the user that runs"), "{refused}");
    }
    assert_eq!(data(&node, "/ui/replicas?pool=none&blocks=1,2", true).await["replicas"], serde_json::json!({}));
    assert!(page(&node, "/ui/replicas?blocks=x").await.starts_with("HTTP/1.0 400 "));
}
