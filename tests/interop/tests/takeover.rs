//! A storage directory goes from one make of DataNode to the other and back, with everything in it.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{ClusterSpec, Content, Driver, Make, hearth_program, sha256_hex};
use serde_json::json;

const BLOCK: u64 = 1 << 20;
const SIZES: [u64; 7] = [0, 1, 511, 513, 65_537, BLOCK, 2 * BLOCK + 70_001];

const CHECKS: &[Check] = &[("directories_go_to_the_other_make_and_back", there_and_back)];

fn main() -> ExitCode {
    let cluster = ClusterSpec::new(Make::Apache, Make::Hearth)
        .set("dfs.blocksize", BLOCK)
        .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
        .set("dfs.client.block.write.locateFollowingBlock.retries", 12)
        // Nothing reaches the disk by itself while the test runs.
        .set("hearth.memory.flush.delay", "1h");
    run(&[Suite { name: "takeover", clusters: vec![cluster], checks: CHECKS }])
}

fn there_and_back(session: &mut Session) -> Result<()> {
    let mut java = session.another_java()?;
    store(&mut java, "/hearth")?;
    java.call("create", json!({"path": "/open", "handle": "out"}))?;
    java.call("write", json!({"handle": "out", "seed": 9, "length": 70_000}))?;
    java.call("hflush", json!({"handle": "out"}))?;
    java.kill();

    // Killed with everything in memory; emptied to disk; given to Java.
    session.cluster.datanodes[0].kill();
    let flush = Command::new(hearth_program()?)
        .args(["datanode", "--flush"])
        .env("HADOOP_CONF_DIR", session.cluster.datanodes[0].conf())
        .output()
        .context("running hearth datanode --flush")?;
    let said = String::from_utf8_lossy(&flush.stdout).into_owned() + &String::from_utf8_lossy(&flush.stderr);
    ensure!(flush.status.success(), "hearth datanode --flush: {said}");
    println!("{}", said.lines().last().unwrap_or_default());
    start_as(session, Make::Apache)?;
    let mut java = session.another_java()?;
    check(&mut java, "/hearth", 0)?;
    extend(&mut java, "/hearth")?;
    store(&mut java, "/java")?;
    java.call("recoverLease", json!({"path": "/open"}))?;
    hearth_testkit::wait_until("the lease's recovery", Duration::from_secs(60), || {
        Ok(java.call("isClosed", json!({"path": "/open"}))?.as_bool().unwrap_or(false).then_some(()))
    })?;
    reads_as(&mut java, "/open", &[(Content::new(9), 70_000)])?;

    // Java's directory, as it is when its process is gone, taken over.
    session.cluster.datanodes[0].stop(Duration::from_secs(60))?;
    start_as(session, Make::Hearth)?;
    let mut java = session.another_java()?;
    check(&mut java, "/hearth", 1)?;
    check(&mut java, "/java", 0)?;
    extend(&mut java, "/hearth")?;
    extend(&mut java, "/java")?;
    store(&mut java, "/again")?;

    // SIGTERM writes everything to disk, and Java finds it.
    session.cluster.datanodes[0].stop(Duration::from_secs(60))?;
    start_as(session, Make::Apache)?;
    let mut java = session.another_java()?;
    check(&mut java, "/hearth", 2)?;
    check(&mut java, "/java", 1)?;
    check(&mut java, "/again", 0)?;
    let fsck = session.cluster.apache()?.fsck(session.cluster.conf(), ["/"])?.success()?;
    ensure!(fsck.contains("is HEALTHY"), "{fsck}");
    Ok(())
}

fn start_as(session: &mut Session, make: Make) -> Result<()> {
    session.cluster.datanodes[0].become_of(make);
    // The NameNode still counts the old process as live: only a report of the new one is news.
    session.cluster.start_datanode(0)?;
    session.cluster.wait_ready()?;
    std::thread::sleep(Duration::from_secs(3));
    session.cluster.wait_ready()
}

fn store(java: &mut Driver, directory: &str) -> Result<()> {
    for size in SIZES {
        let path = format!("{directory}/{size}");
        java.call("store", json!({"path": path, "seed": 1000 + size, "length": size}))?;
    }
    Ok(())
}

fn extend(java: &mut Driver, directory: &str) -> Result<()> {
    for size in SIZES {
        java.call("extend", json!({"path": format!("{directory}/{size}"), "seed": 5, "length": 700}))?;
    }
    Ok(())
}

fn check(java: &mut Driver, directory: &str, extended: usize) -> Result<()> {
    for size in SIZES {
        let mut parts = vec![(Content::new(1000 + size), size)];
        parts.extend(std::iter::repeat_n((Content::new(5), 700), extended));
        reads_as(java, &format!("{directory}/{size}"), &parts)?;
    }
    Ok(())
}

fn reads_as(java: &mut Driver, path: &str, parts: &[(Content, u64)]) -> Result<()> {
    let mut expected = Vec::new();
    for (content, length) in parts {
        expected.extend(content.bytes(0, *length as usize));
    }
    let found = java.call("read", json!({"path": path}))?;
    ensure!(
        found["sha256"] == sha256_hex(&expected),
        "{path} reads as {found}, not as the {} bytes stored",
        expected.len()
    );
    Ok(())
}
