//! Hearth's DataNodes and the Rust client under several Apache NameNodes: a highly available pair (failed over in order
//! and by a kill, during writes and reads), an observer, and two namespaces on the same DataNodes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, FileSystem, os_user_name};
use hearth_config::{Configuration, Environment};
use hearth_interop::{program_said, tool_said};
use hearth_testkit::{
    Content, Driver, Implementation, Missing, Nameservices, NameservicesSpec, Settings, hearth_program, jmx_bean,
    skip_or_fail, wait_until,
};
use serde_json::json;

const BLOCK: u64 = 1 << 20;
const OBSERVER_PROVIDER: &str = "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider";

/// Runs the test unless Apache Hadoop is missing.
fn with_cluster(
    name: &str,
    nameservices: &[(&'static str, usize)],
    datanodes: &[Implementation],
    settings: &[(&str, &str)],
    test: impl FnOnce(&mut Nameservices) -> Result<()>,
) {
    let mut all = Settings::default();
    all.set("dfs.replication", datanodes.len())
        .set("dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER")
        .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
        .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
        .set("hearth.memory.limit", "512m");
    for (key, value) in settings {
        all.set(*key, value);
    }
    let spec = NameservicesSpec { nameservices: nameservices.to_vec(), datanodes: datanodes.to_vec(), settings: all };
    match spec.start() {
        Ok(mut cluster) => {
            if let Err(error) = test(&mut cluster) {
                panic!("{error:#}");
            }
        }
        Err(error) if error.is::<Missing>() => skip_or_fail(name, &error),
        Err(error) => panic!("{error:#}"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads start")
}

fn connect(cluster: &Nameservices, uri: Option<&str>) -> Result<FileSystem> {
    let configuration = Configuration::load_dir(&cluster.conf(), Environment::empty())?;
    Ok(FileSystem::connect(&configuration, uri, &os_user_name())?)
}

async fn put(fs: &FileSystem, path: &str, seed: u64, length: u64) -> Result<()> {
    let mut writer = fs.create(path, CreateOptions::default()).await?;
    writer.write(&Content::new(seed).bytes(0, length as usize)).await?;
    writer.close().await?;
    Ok(())
}

async fn read(fs: &FileSystem, path: &str) -> Result<Vec<u8>> {
    let mut reader = fs.open(path).await?;
    let mut bytes = vec![0; reader.length() as usize];
    let mut done = 0;
    while done < bytes.len() {
        let got = reader.read(&mut bytes[done..]).await?;
        ensure!(got > 0, "{path} ends at {done}");
        done += got;
    }
    Ok(bytes)
}

async fn reads_as(fs: &FileSystem, path: &str, seed: u64, length: u64) -> Result<()> {
    let found = read(fs, path).await?;
    ensure!(found == Content::new(seed).bytes(0, length as usize), "{path} reads as {} other bytes", found.len());
    Ok(())
}

/// Returns the number of calls of a method that a NameNode has received.
fn asked(cluster: &Nameservices, index: usize, method: &str) -> Result<u64> {
    let served = &cluster.namenodes[index];
    let name = format!("Hadoop:service=NameNode,name=RpcDetailedActivityForPort{}", served.rpc_port);
    Ok(jmx_bean(served.http_port, &name)?[format!("{method}NumOps")].as_u64().unwrap_or(0))
}

/// Checks that every replica of a file has the same content.
fn everywhere(java: &mut Driver, path: &str, seed: u64, length: u64, replicas: usize) -> Result<()> {
    let wanted = Content::new(seed).sha256(0, length);
    wait_until(&format!("{replicas} replicas of {path}"), Duration::from_secs(120), || {
        let each = java.call("readEach", json!({"path": path}))?;
        let each = each.as_array().context("a list")?;
        ensure!(each.len() == replicas, "{each:?}");
        ensure!(each.iter().all(|replica| replica["sha256"] == wanted), "{each:?}");
        Ok(Some(()))
    })
}

/// Files of one round of writing and reading.
fn round(
    cluster: &mut Nameservices,
    java: &mut Driver,
    number: u64,
    fail_over: impl FnOnce(&mut Nameservices) -> Result<()>,
) -> Result<()> {
    let runtime = runtime();
    let fs = runtime.block_on(async { connect(cluster, None) })?;
    runtime.block_on(put(&fs, &format!("/read-{number}"), 3, 3 * BLOCK))?;
    let open = format!("/java-open-{number}");
    java.call("create", json!({"path": open, "handle": "out"}))?;
    java.call("write", json!({"handle": "out", "seed": 7, "length": 300_000}))?;
    java.call("hflush", json!({"handle": "out"}))?;

    // During the state changes, Rust writes and reads, and Java stores many files.
    let writing = {
        let (fs, path) = (fs.clone(), format!("/rust-{number}"));
        runtime.spawn(async move {
            let mut writer = fs.create(&path, CreateOptions::default()).await?;
            for part in 0..40 {
                writer.write(&Content::new(9).bytes(part * 131_072, 131_072)).await?;
                // The pace of a writer that is at work during all state changes.
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            writer.close().await?;
            anyhow::Ok(())
        })
    };
    let reading = {
        let (fs, path) = (fs.clone(), format!("/read-{number}"));
        runtime.spawn(async move {
            for _ in 0..40 {
                reads_as(&fs, &path, 3, 3 * BLOCK).await?;
                // The pace of a reader that is at work during all state changes.
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            anyhow::Ok(())
        })
    };
    let many = json!({"dir": format!("/many-{number}"), "count": 150, "length": 20_000, "seed": 1, "threads": 2});
    java.send("storeMany", many.clone())?;
    // Time for Java to store some of them.
    std::thread::sleep(Duration::from_secs(1));
    fail_over(cluster)?;
    runtime.block_on(writing)?.context("a writer during the failover")?;
    runtime.block_on(reading)?.context("a reader during the failover")?;
    java.answer("storeMany")?;
    java.call("readMany", many)?;
    java.call("write", json!({"handle": "out", "seed": 7, "position": 300_000, "length": 2 * BLOCK}))?;
    java.call("close", json!({"handle": "out"}))?;

    let replicas = cluster.datanodes.len();
    everywhere(java, &open, 7, 300_000 + 2 * BLOCK, replicas)?;
    everywhere(java, &format!("/rust-{number}"), 9, 40 * 131_072, replicas)?;
    Ok(())
}

#[test]
fn writers_and_readers_survive_failover() {
    let makes = [Implementation::Hearth, Implementation::Apache, Implementation::Hearth];
    with_cluster("ha", &[("ha", 2)], &makes, &[], |cluster| {
        let mut java = Driver::java(cluster.apache(), &cluster.conf())?;
        round(cluster, &mut java, 0, |cluster| {
            cluster.admin(0, "-transitionToStandby", &[])?;
            cluster.admin(1, "-transitionToActive", &[])?;
            Ok(())
        })?;
        ensure!(cluster.state(0)? == "standby" && cluster.state(1)? == "active", "not failed over");
        // And back, by a kill.
        round(cluster, &mut java, 1, |cluster| {
            cluster.namenodes[1].node.kill();
            cluster.admin(0, "-transitionToActive", &["--forceactive"])?;
            Ok(())
        })?;
        // The restarted NameNode learns of the events during its absence, as standby and after it becomes active again.
        cluster.start_namenode(1)?;
        cluster.wait_up(1)?;
        cluster.wait_datanodes(1)?;
        java.call("delete", json!({"path": "/many-0", "recursive": true}))?;
        cluster.admin(0, "-transitionToStandby", &[])?;
        cluster.admin(1, "-transitionToActive", &[])?;
        everywhere(&mut java, "/rust-1", 9, 40 * 131_072, 3)?;
        let fsck = cluster.apache().fsck(&cluster.conf(), ["/"])?.success()?;
        ensure!(fsck.contains("is HEALTHY"), "{fsck}");
        Ok(())
    });
}

#[test]
fn observer_reads_are_never_stale() {
    let settings = [
        ("dfs.namenode.state.context.enabled", "true"),
        ("dfs.ha.tail-edits.in-progress", "true"),
        ("dfs.ha.tail-edits.period", "100ms"),
        ("dfs.ha.tail-edits.period.backoff-max", "0"),
        ("dfs.client.failover.proxy.provider.ha", OBSERVER_PROVIDER),
        // Before every read, so that other clients' changes are visible, too.
        ("dfs.client.failover.observer.auto-msync-period.ha", "0ms"),
    ];
    with_cluster("observer", &[("ha", 3)], &[Implementation::Hearth], &settings, |cluster| {
        cluster.admin(2, "-transitionToObserver", &[])?;
        ensure!(cluster.state(2)? == "observer", "nn2 is {}", cluster.state(2)?);
        let runtime = runtime();
        let (fs, other) = runtime.block_on(async { anyhow::Ok((connect(cluster, None)?, connect(cluster, None)?)) })?;
        runtime.block_on(async {
            for round in 0..20 {
                let path = format!("/observed-{round}");
                put(&fs, &path, round, 70_000).await?;
                // Its own writes are visible, and those of another client.
                ensure!(fs.status(&path).await?.length == 70_000, "{path}");
                ensure!(other.status(&path).await?.length == 70_000, "{path} for another client");
                reads_as(&other, &path, round, 70_000).await?;
            }
            anyhow::Ok(())
        })?;
        let (active, observer) = (asked(cluster, 0, "GetFileInfo")?, asked(cluster, 2, "GetFileInfo")?);
        println!("getFileInfo: active {active}, observer {observer}; msync {}", asked(cluster, 0, "Msync")?);
        ensure!(observer >= 40, "the observer was asked {observer} times, the active one {active}");
        // Without the observer, the active NameNode answers.
        cluster.namenodes[2].node.kill();
        runtime.block_on(async {
            put(&fs, "/unobserved", 1, BLOCK).await?;
            reads_as(&other, "/unobserved", 1, BLOCK).await
        })
    });
}

#[test]
fn datanodes_serve_two_namespaces() {
    let datanodes = [Implementation::Hearth, Implementation::Hearth];
    with_cluster("federation", &[("one", 1), ("two", 1)], &datanodes, &[], |cluster| {
        let runtime = runtime();
        let uris = cluster.namenodes.iter().map(|namenode| format!("hdfs://127.0.0.1:{}", namenode.rpc_port));
        let connections: Vec<FileSystem> =
            uris.map(|uri| runtime.block_on(async { connect(cluster, Some(&uri)) })).collect::<Result<_>>()?;
        // The same paths, and most likely the same block ids.
        for (number, fs) in connections.iter().enumerate() {
            runtime.block_on(put(fs, "/file", number as u64, 3 * BLOCK))?;
        }
        for (number, fs) in connections.iter().enumerate() {
            runtime.block_on(reads_as(fs, "/file", number as u64, 3 * BLOCK))?;
        }
        // A command of one NameNode does not affect blocks of the other.
        runtime.block_on(connections[0].delete("/file", false))?;
        cluster.namenodes[0].node.kill();
        for datanode in 0..2 {
            cluster.datanodes[datanode].kill();
            cluster.start_datanode(datanode)?;
        }
        cluster.wait_datanodes(1)?;
        runtime.block_on(async {
            wait_for_read(&connections[1], "/file", 1, 3 * BLOCK).await?;
            put(&connections[1], "/after", 5, BLOCK).await
        })?;
        // The other namespace is readable again after its NameNode has restarted.
        cluster.start_namenode(0)?;
        cluster.wait_up(0)?;
        cluster.wait_datanodes(0)?;
        runtime.block_on(async {
            put(&connections[0], "/file", 8, BLOCK).await?;
            reads_as(&connections[0], "/file", 8, BLOCK).await?;
            reads_as(&connections[1], "/after", 5, BLOCK).await
        })
    });
}

/// A restarted DataNode is live a moment before its report arrives.
async fn wait_for_read(fs: &FileSystem, path: &str, seed: u64, length: u64) -> Result<()> {
    let mut last = None;
    for _ in 0..240 {
        match reads_as(fs, path, seed, length).await {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
        // The pace of the attempts: the DataNode starts.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err(last.context("tried at least once")?)
}

/// Forwards connections to `port` of this machine. After `held_up` is set, no data passes, but connections stay open.
fn forward_to(port: u16, held_up: Arc<AtomicBool>) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let own = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { continue };
                let held_up = held_up.clone();
                std::thread::spawn(move || {
                    let mut piece = vec![0; 65_536];
                    while let Ok(got @ 1..) = from.read(&mut piece) {
                        if !held_up.load(Ordering::Acquire) && to.write_all(&piece[..got]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    Ok(own)
}

/// The NameNode's own port is blocked; its lifeline port is not.
#[test]
#[ignore = "takes half a minute: cargo xtask test --cluster"]
fn lifeline_keeps_datanode_alive_without_heartbeats() {
    let lifeline = hearth_testkit::free_port();
    let address = format!("127.0.0.1:{lifeline}");
    let settings = [("dfs.namenode.lifeline.rpc-address.ns", address.as_str())];
    with_cluster("lifeline", &[("ns", 1)], &[Implementation::Hearth], &settings, |cluster| {
        let held_up = Arc::new(AtomicBool::new(false));
        let proxy_port = forward_to(cluster.namenodes[0].rpc_port, held_up.clone())?;
        cluster.datanodes[0].kill();
        let through = format!("127.0.0.1:{proxy_port}");
        cluster.datanodes[0].change(&[("dfs.namenode.rpc-address.ns", &through)])?;
        cluster.start_datanode(0)?;
        let live = |cluster: &Nameservices| -> Result<u64> {
            let bean = jmx_bean(cluster.namenodes[0].http_port, "Hadoop:service=NameNode,name=FSNamesystemState")?;
            bean["NumLiveDataNodes"].as_u64().context("a number")
        };
        let log = |cluster: &Nameservices| {
            cluster.datanodes[0].process().map(|process| process.log_text()).unwrap_or_default()
        };
        wait_until("the registration through the proxy", Duration::from_secs(60), || {
            Ok((log(cluster).matches("registered").count() >= 2).then_some(()))
        })?;
        held_up.store(true, Ordering::Release);
        wait_until("a lifeline", Duration::from_secs(60), || Ok(log(cluster).contains("lifeline").then_some(())))?;
        // Longer than the dead timeout without lifelines.
        for _ in 0..25 {
            ensure!(live(cluster)? == 1, "dead: {}", cluster.log_tails());
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    });
}

/// Command lines of an administrator of a highly available pair. Each is run by Apache's tool, then by `hearth`.
const PAIR_LINES: &[&str] = &[
    "haadmin -getServiceState nn0",
    "haadmin -ns ns -getServiceState nn1",
    "haadmin -ns none -getServiceState nn1",
    "haadmin -getServiceState nn9",
    "haadmin -getAllServiceState",
    "haadmin -checkHealth nn1",
    "haadmin -transitionToActive nn1",
    "dfsadmin -safemode get",
    "dfsadmin -safemode enter",
    "dfsadmin -safemode leave",
    "dfsadmin -refreshNodes",
    "dfsadmin -refreshServiceAcl",
    "dfsadmin -refreshUserToGroupsMappings",
    "dfsadmin -refreshSuperUserGroupsConfiguration",
    "dfsadmin -refreshCallQueue",
    "dfsadmin -saveNamespace",
    "dfsadmin -restoreFailedStorage check",
    "dfsadmin -finalizeUpgrade",
    "dfsadmin -upgrade query",
    "dfsadmin -metasave LOCAL/pair.txt",
    "dfsadmin -listOpenFiles",
    "getconf -namenodes",
    "getconf -nnRpcAddresses",
    "groups nobody",
    "lsSnapshottableDir",
];

#[test]
fn administration_of_a_pair_matches_apaches() {
    with_cluster("administration", &[("ns", 2)], &[Implementation::Hearth], &[], |cluster| {
        let mut java = Driver::java(cluster.apache(), &cluster.conf())?;
        let local = cluster.directory().to_str().context("a path of text")?.to_owned();
        let words = |line: &str| -> Vec<String> { line.split(' ').map(|word| word.replace("LOCAL", &local)).collect() };
        let hearth = |cluster: &Nameservices, line: &str| -> Result<serde_json::Value> {
            let mut command = std::process::Command::new(hearth_program()?);
            let output = command.args(words(line)).env("HADOOP_CONF_DIR", cluster.conf()).output()?;
            Ok(program_said(&output, &local))
        };
        let mut differing = Vec::new();
        for line in PAIR_LINES {
            let words = words(line);
            let class = match words[0].as_str() {
                "haadmin" => "org.apache.hadoop.hdfs.tools.DFSHAAdmin",
                "dfsadmin" => "org.apache.hadoop.hdfs.tools.DFSAdmin",
                "getconf" => "org.apache.hadoop.hdfs.tools.GetConf",
                "groups" => "org.apache.hadoop.hdfs.tools.GetGroups",
                _ => "org.apache.hadoop.hdfs.tools.snapshot.LsSnapshottableDir",
            };
            let mut theirs = tool_said(&mut java, class, &words[1..], &local)?;
            theirs[0] = json!(theirs[0].as_i64().context("an exit code")? & 255);
            let ours = hearth(cluster, line)?;
            if theirs != ours {
                differing.push(format!("{line}\n  Apache: {theirs}\n  Hearth: {ours}"));
            }
        }
        ensure!(differing.is_empty(), "{} lines differ:\n{}", differing.len(), differing.join("\n"));
        // The states change hands, and back.
        for (line, active) in [("haadmin -failover nn0 nn1", 1), ("haadmin -ns ns -failover nn1 nn0", 0)] {
            let said = hearth(cluster, line)?;
            ensure!(said[0] == 0 && said.to_string().contains("successful"), "{line}: {said}");
            ensure!(cluster.state(active)? == "active" && cluster.state(1 - active)? == "standby", "{line}");
        }
        let refused = hearth(cluster, "haadmin -failover nn1 nn0")?;
        ensure!(refused[0] == 255 && refused.to_string().contains("Can't failover to an active service"), "{refused}");
        hearth(cluster, "haadmin -transitionToStandby nn0")?;
        ensure!(cluster.state(0)? == "standby", "nn0 is still active");
        let back = hearth(cluster, "haadmin -transitionToActive nn0")?;
        ensure!(back[0] == 0 && cluster.state(0)? == "active", "{back}");
        Ok(())
    });
}
