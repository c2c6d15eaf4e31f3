//! A storage directory moves from one DataNode implementation to the other and back, with all its data.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run};
use hearth_testkit::{ClusterSpec, Content, Driver, Implementation, hearth_program, sha256_hex, wait_until};
use serde_json::json;

const BLOCK: u64 = 1 << 20;
const SIZES: [u64; 7] = [0, 1, 511, 513, 65_537, BLOCK, 2 * BLOCK + 70_001];

const CHECKS: &[Check] = &[
    ("directories_move_between_implementations", there_and_back),
    ("thousand_blocks_are_taken_over_and_returned", thousand_blocks),
    ("flushed_memory_is_never_served_again", killed_and_flushed),
];
/// Each file has one block.
const SMALL: u64 = 20_000;
const THREADS: u64 = 8;

fn main() -> ExitCode {
    let cluster = ClusterSpec::new(Implementation::Apache, Implementation::Hearth)
        .set("dfs.blocksize", BLOCK)
        .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
        .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
        // No data is flushed to disk automatically during the test.
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

    // Kills the DataNode with all data in memory, flushes it to disk, and starts Java on it.
    session.cluster.datanodes[0].kill();
    println!("{}", flush(session)?);
    start_as(session, Implementation::Apache)?;
    let mut java = session.another_java()?;
    check(&mut java, "/hearth", 0)?;
    extend(&mut java, "/hearth")?;
    store(&mut java, "/java")?;
    java.call("recoverLease", json!({"path": "/open"}))?;
    hearth_testkit::wait_until("the lease's recovery", Duration::from_secs(60), || {
        Ok(java.call("isClosed", json!({"path": "/open"}))?.as_bool().unwrap_or(false).then_some(()))
    })?;
    reads_as(&mut java, "/open", &[(Content::new(9), 70_000)])?;

    // Takes over Java's directory as it is after its process has ended. This time the files are served from mappings.
    session.cluster.datanodes[0].stop(STOPS_WITHIN)?;
    session.cluster.datanodes[0].change(&[("hearth.storage.engine", "mmap")])?;
    start_as(session, Implementation::Hearth)?;
    let mut java = session.another_java()?;
    check(&mut java, "/hearth", 1)?;
    check(&mut java, "/java", 0)?;
    extend(&mut java, "/hearth")?;
    extend(&mut java, "/java")?;
    store(&mut java, "/again")?;

    // SIGTERM writes everything to disk, and Java finds it.
    session.cluster.datanodes[0].stop(STOPS_WITHIN)?;
    session.cluster.datanodes[0].change(&[("hearth.storage.engine", "memory")])?;
    start_as(session, Implementation::Apache)?;
    let mut java = session.another_java()?;
    check(&mut java, "/hearth", 2)?;
    check(&mut java, "/java", 1)?;
    check(&mut java, "/again", 0)?;
    let fsck = session.cluster.apache()?.fsck(session.cluster.conf(), ["/"])?.success()?;
    ensure!(fsck.contains("is HEALTHY"), "{fsck}");
    Ok(())
}

/// From Java to Hearth and back, by SIGTERM.
fn thousand_blocks(session: &mut Session) -> Result<()> {
    start_other(session, Implementation::Apache)?;
    many(session, "storeMany", "/thousand", 1000)?;
    start_other(session, Implementation::Hearth)?;
    let reported = session.cluster.datanodes[0].process().context("it runs")?.log_text();
    let replicas = reported.lines().rev().find(|line| line.contains("full block report sent"));
    println!("{}", replicas.unwrap_or("no report"));
    many(session, "readMany", "/thousand", 1000)?;
    many(session, "storeMany", "/five-hundred", 500)?;
    extend_some(session, "/thousand")?;
    start_other(session, Implementation::Apache)?;
    many(session, "readMany", "/five-hundred", 500)?;
    healthy(session)?;
    check_some(session, "/thousand", 1)
}

/// Kills Hearth while memory has data that is not on disk, then flushes it. Java changes the data. When Hearth starts
/// again with a tmpfs from before that change, nothing of it may be served.
fn killed_and_flushed(session: &mut Session) -> Result<()> {
    start_other(session, Implementation::Hearth)?;
    many(session, "storeMany", "/killed", 500)?;
    extend_some(session, "/thousand")?;
    session.cluster.datanodes[0].kill();
    let memory = PathBuf::from(session.cluster.datanodes[0].setting("hearth.memory.dir").context("it is set")?);
    let stale = memory.with_extension("stale");
    copy_tree(&memory, &stale)?;
    println!("{}", flush(session)?);
    start_as(session, Implementation::Apache)?;
    many(session, "readMany", "/killed", 500)?;
    check_some(session, "/thousand", 2)?;
    // Changes by Java: longer, shorter, and replaced, with old copies in the memory.
    extend_some(session, "/thousand")?;
    let mut java = session.another_java()?;
    for file in 0..SOME {
        java.call("truncate", json!({"path": format!("/killed/file-{file}"), "length": 10_000}))?;
    }
    wait_until("the truncations", Duration::from_secs(60), || {
        for file in 0..SOME {
            let closed = java.call("isClosed", json!({"path": format!("/killed/file-{file}")}))?;
            ensure!(closed == true, "file-{file} is open");
        }
        Ok(Some(()))
    })?;
    drop(java);
    healthy(session)?;

    session.cluster.datanodes[0].stop(STOPS_WITHIN)?;
    fs::remove_dir_all(&memory)?;
    fs::rename(&stale, &memory)?;
    start_as(session, Implementation::Hearth)?;
    wait_until("the old memory to be put aside", Duration::from_secs(60), || {
        let log = session.cluster.datanodes[0].process().context("it runs")?.log_text();
        Ok(log.contains("moved aside memory").then_some(()))
    })
    .with_context(|| session.cluster.log_tails())?;
    check_some(session, "/thousand", 3)?;
    let mut java = session.another_java()?;
    for file in 0..SOME {
        reads_as(&mut java, &format!("/killed/file-{file}"), &[(Content::new(file), 10_000)])?;
    }
    drop(java);
    start_other(session, Implementation::Apache)?;
    check_some(session, "/thousand", 3)?;
    healthy(session)
}

/// Timeout: all data in memory is written to disk first.
const STOPS_WITHIN: Duration = Duration::from_secs(300);

/// Number of files of `/thousand` and `/killed` that are changed at times.
const SOME: u64 = 20;

/// Stops the running DataNode in order, and starts one of `make` in its place.
fn start_other(session: &mut Session, make: Implementation) -> Result<()> {
    session.cluster.datanodes[0].stop(STOPS_WITHIN)?;
    start_as(session, make)
}

fn many(session: &mut Session, operation: &str, dir: &str, count: u64) -> Result<()> {
    let java = session.java()?;
    let took =
        java.call(operation, json!({"dir": dir, "count": count, "length": SMALL, "seed": 0, "threads": THREADS}))?;
    println!("{operation} {count} in {dir}: {took}");
    Ok(())
}

fn extend_some(session: &mut Session, dir: &str) -> Result<()> {
    let java = session.java()?;
    for file in 0..SOME {
        let path = format!("{dir}/file-{file}");
        java.call("extend", json!({"path": path, "seed": 5, "length": 700}))?;
    }
    Ok(())
}

fn check_some(session: &mut Session, dir: &str, extended: usize) -> Result<()> {
    let java = session.java()?;
    for file in 0..SOME {
        let mut parts = vec![(Content::new(file), SMALL)];
        parts.extend(std::iter::repeat_n((Content::new(5), 700), extended));
        reads_as(java, &format!("{dir}/file-{file}"), &parts)?;
    }
    Ok(())
}

fn healthy(session: &Session) -> Result<()> {
    let fsck = session.cluster.apache()?.fsck(session.cluster.conf(), ["/"])?.success()?;
    ensure!(fsck.contains("is HEALTHY"), "{fsck}");
    Ok(())
}

/// Runs `hearth datanode --flush`. Returns its last line of output.
fn flush(session: &Session) -> Result<String> {
    let flush = Command::new(hearth_program()?)
        .args(["datanode", "--flush"])
        .env("HADOOP_CONF_DIR", session.cluster.datanodes[0].conf())
        .output()
        .context("running hearth datanode --flush")?;
    let said = String::from_utf8_lossy(&flush.stdout).into_owned() + &String::from_utf8_lossy(&flush.stderr);
    ensure!(flush.status.success(), "hearth datanode --flush: {said}");
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status().context("cannot start cp")?;
    ensure!(status.success(), "cp -a {} {} ended with {status}", from.display(), to.display());
    Ok(())
}

fn start_as(session: &mut Session, make: Implementation) -> Result<()> {
    session.cluster.datanodes[0].switch_implementation(make);
    session.cluster.start_datanode(0)?;
    session.cluster.wait_ready()?;
    // The NameNode still counts the old process as live. Only a report of the new process changes that.
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
