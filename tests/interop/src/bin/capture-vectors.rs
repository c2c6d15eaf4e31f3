//! Records the golden vectors of `crates/wire/tests/vectors` from a running Apache Hadoop: the real traffic of its
//! clients and DataNodes with its NameNode and DataNodes, by connection. Run manually when Hearth adopts another Hadoop
//! version: `cargo run --package hearth-interop --bin capture-vectors`.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hearth_testkit::{
    ClusterSpec, Driver, Implementation, NamenodePorts, Recorded, RecordingProxy, free_port, wait_until, workspace_root,
};
use serde_json::json;

/// Apache's DataNodes listen on 127.0.0.1. Clients get this host, where the proxies listen on the same ports.
const PROXIED_HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Number of recorded connections of each kind.
const KEPT_OF_A_KIND: usize = 6;

fn main() -> Result<()> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let ports = NamenodePorts { rpc: free_port(), seen: free_port() };
    let namenode = RecordingProxy::start(local(ports.seen), local(ports.rpc))?;
    let cluster = ClusterSpec::new(Implementation::Apache, Implementation::Apache)
        .datanodes(2)
        .ports(ports)
        .set("dfs.replication", 2)
        .set("dfs.blocksize", 2048)
        .set("dfs.datanode.hostname", PROXIED_HOST)
        .set("dfs.client.use.datanode.hostname", true)
        .set("dfs.datanode.use.datanode.hostname", true)
        .start()?;
    let (mut transfers, mut calls) = (Vec::new(), vec![namenode]);
    for datanode in &cluster.datanodes {
        for (key, proxies) in [("dfs.datanode.address", &mut transfers), ("dfs.datanode.ipc.address", &mut calls)] {
            let port = datanode.port(key)?;
            proxies.push(RecordingProxy::start((IpAddr::V4(PROXIED_HOST), port).into(), local(port))?);
        }
    }
    let mut java = Driver::java(cluster.apache()?, cluster.conf())?;
    exercise(&mut java)?;
    cluster.apache()?.dfsadmin(cluster.conf(), ["-report"])?.success()?;
    cluster.apache()?.dfsadmin(cluster.conf(), ["-safemode", "get"])?.success()?;
    drop(java);

    let vectors = workspace_root().join("crates/wire/tests/vectors");
    if vectors.exists() {
        fs::remove_dir_all(&vectors).with_context(|| format!("cannot remove {}", vectors.display()))?;
    }
    fs::create_dir_all(&vectors).with_context(|| format!("cannot make {}", vectors.display()))?;
    let mut kinds = BTreeMap::new();
    for recorded in calls.iter().flat_map(RecordingProxy::recorded) {
        // The connection context contains the protocol's name: `org.apache.hadoop...ClientProtocol`.
        let text = String::from_utf8_lossy(&recorded.to_server);
        let protocols = ["InterDatanodeProtocol", "ClientDatanodeProtocol", "ClientProtocol", "DatanodeProtocol"];
        let kind = protocols.into_iter().find(|name| text.contains(name));
        keep(&vectors, kind.map(|kind| format!("rpc-{kind}")), &recorded, &mut kinds)?;
    }
    for recorded in transfers.iter().flat_map(RecordingProxy::recorded) {
        let kind = match recorded.to_server.get(2) {
            Some(80) => Some("write-block"),
            Some(81) => Some("read-block"),
            Some(85) => Some("block-checksum"),
            Some(86) => Some("transfer-block"),
            _ => None,
        };
        keep(&vectors, kind.map(str::to_owned), &recorded, &mut kinds)?;
    }
    for (kind, count) in kinds {
        println!("{kind}: {count} connections, the first {} kept", count.min(KEPT_OF_A_KIND));
    }
    Ok(())
}

/// Makes each call that the vectors must contain. Blocks are 2048 bytes.
fn exercise(java: &mut Driver) -> Result<()> {
    let calls = [
        ("mkdirs", json!({"path": "/a/b", "permission": "750"})),
        ("store", json!({"path": "/a/one", "seed": 1, "length": 1300})),
        ("read", json!({"path": "/a/one"})),
        ("pread", json!({"path": "/a/one", "position": 600, "length": 200})),
        ("extend", json!({"path": "/a/one", "seed": 2, "length": 1000})),
        ("create", json!({"path": "/a/open", "handle": "out"})),
        ("write", json!({"handle": "out", "seed": 3, "length": 700})),
        ("hflush", json!({"handle": "out"})),
        ("hsync", json!({"handle": "out", "updateLength": true})),
        ("write", json!({"handle": "out", "seed": 3, "position": 700, "length": 100})),
        ("close", json!({"handle": "out"})),
        ("list", json!({"path": "/a"})),
        ("stat", json!({"path": "/a/one"})),
        ("stat", json!({"path": "/nothing"})),
        ("rename", json!({"from": "/a/open", "to": "/a/two"})),
        ("rename", json!({"from": "/a/two", "to": "/a/three", "overwrite": true})),
        ("checksum", json!({"path": "/a/one"})),
        ("setrep", json!({"path": "/a/one", "replication": 1})),
        ("chmod", json!({"path": "/a/one", "permission": "640"})),
        ("chown", json!({"path": "/a/one", "owner": "someone", "group": "some"})),
        ("times", json!({"path": "/a/one", "modified": 1_600_000_000_000u64, "accessed": 1_600_000_001_000u64})),
        ("summary", json!({"path": "/"})),
        ("df", json!({})),
        ("defaults", json!({})),
        ("locations", json!({"path": "/a/one"})),
        ("isClosed", json!({"path": "/a/one"})),
        ("recoverLease", json!({"path": "/a/one"})),
        ("truncate", json!({"path": "/a/one", "length": 100})),
        ("store", json!({"path": "/a/three", "overwrite": false, "seed": 1, "length": 1})),
        ("store", json!({"path": "/c/x", "seed": 4, "length": 2048})),
        ("store", json!({"path": "/c/y", "seed": 5, "length": 10})),
        ("concat", json!({"path": "/c/x", "from": ["/c/y"]})),
        ("delete", json!({"path": "/c", "recursive": true})),
    ];
    for (operation, arguments) in calls {
        if let Err(error) = java.call(operation, arguments) {
            println!("{operation}: {error}");
        }
    }
    // Waits until the truncated block is recovered and the DataNodes have reported it.
    wait_until("the truncated file to be closed", Duration::from_secs(60), || {
        Ok(java.call("isClosed", json!({"path": "/a/one"}))?.as_bool().unwrap_or(false).then_some(()))
    })?;
    // Time for the DataNodes to report it.
    std::thread::sleep(Duration::from_secs(3));
    Ok(())
}

fn keep(vectors: &Path, kind: Option<String>, recorded: &Recorded, kinds: &mut BTreeMap<String, usize>) -> Result<()> {
    let Some(kind) = kind else { return Ok(()) };
    let number = kinds.entry(kind.clone()).or_default();
    *number += 1;
    if *number > KEPT_OF_A_KIND {
        return Ok(());
    }
    for (direction, bytes) in [("to-server", &recorded.to_server), ("to-client", &recorded.to_client)] {
        let path: PathBuf = vectors.join(format!("{kind}-{number}.{direction}.bin"));
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
