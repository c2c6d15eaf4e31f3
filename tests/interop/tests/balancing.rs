//! Apache's balancer, mover and disk balancer, and Hearth's balancer, on Hearth's servers, with block tokens off and on.
//! Hearth's balancer also runs on Apache's servers.
//!
//! All of them begin with NamenodeProtocol's `getBlockKeys` and use the answer without a check.

use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, balance, run, slow};
use hearth_testkit::{ClusterSpec, Content, Implementation, hearth_program, sha256_hex, wait_until};
use serde_json::{Value, json};

const BLOCK: u64 = 1 << 20;
const FILES: u64 = 40;
const SETTLES_WITHIN: Duration = Duration::from_secs(120);
/// Directory of the DataNodes' disks. Each DataNode has a capacity so small that the balancer notices the checks' data.
const TMPFS: &str = "/dev/shm";
const CAPACITY: u64 = 500 << 20;

const CHECKS: &[Check] = &[
    ("datanodes_start_with_two_kinds_of_storage", start),
    ("the_balancer_moves_blocks", balancer),
    ("the_mover_applies_storage_policies", mover),
    ("the_disk_balancer_reports", disk_balancer),
];

/// The same unbalanced cluster for Hearth's balancer.
const HEARTH_CHECKS: &[Check] =
    &[("datanodes_start_with_two_kinds_of_storage", start), ("hearths_balancer_moves_blocks", hearth_balancer)];

fn main() -> ExitCode {
    let reserved = tmpfs_bytes().saturating_sub(CAPACITY);
    let spec = |make: Implementation| {
        ClusterSpec::new(make, make)
            .datanodes(3)
            .only_namenode()
            .within(Path::new(TMPFS))
            .set("dfs.blocksize", BLOCK)
            .set("dfs.datanode.du.reserved", reserved)
            .set("dfs.datanode.round-robin-volume-choosing-policy.additional-available-space", 0)
            .set("dfs.namenode.redundancy.considerLoad", false)
            .set("dfs.namenode.redundancy.interval.seconds", 1)
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            // With the default of five, a busy DataNode would have 62 ms to report a block.
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
            .set("dfs.balancer.getBlocks.min-block-size", 1)
            .set("dfs.balancer.getBlocks.size", 4 * BLOCK)
            .set("hearth.memory.limit", "256m")
            .set("hearth.memory.flush.delay", 1)
    };
    let with_tokens = |spec: ClusterSpec| spec.set("dfs.block.access.token.enable", true).labelled("tokens");
    let oracle = slow().then(|| spec(Implementation::Apache));
    let ours = [spec(Implementation::Hearth), with_tokens(spec(Implementation::Hearth))];
    let apaches = Suite { name: "balancing", clusters: oracle.into_iter().chain(ours).collect(), checks: CHECKS };
    let makes =
        if slow() { &[Implementation::Apache, Implementation::Hearth][..] } else { &[Implementation::Hearth][..] };
    let clusters = makes.iter().flat_map(|make| [spec(*make), with_tokens(spec(*make))]).collect();
    run(&[apaches, Suite { name: "balancing_by_hearth", clusters, checks: HEARTH_CHECKS }])
}

/// Writes all files to the first DataNode, because only that one runs.
fn start(session: &mut Session) -> Result<()> {
    for datanode in &mut session.cluster.datanodes {
        let directory = datanode.data_directory().context("a directory")?;
        let directory = directory.display();
        let both = format!("[DISK]file://{directory}/disk,[ARCHIVE]file://{directory}/archive");
        datanode.change(&[("dfs.datanode.data.dir", &both)])?;
    }
    session.cluster.start_datanode(0)?;
    session.cluster.wait_ready()?;
    for file in 0..FILES {
        session.java()?.call("store", json!({"path": path(file), "seed": file, "length": BLOCK}))?;
    }
    for index in 1..session.cluster.datanodes.len() {
        session.cluster.start_datanode(index)?;
    }
    session.cluster.wait_ready()
}

fn path(file: u64) -> String {
    format!("/moved/{file}")
}

fn balancer(session: &mut Session) -> Result<()> {
    let full = full_datanode(session)?;
    let runs = balance(session, session.cluster.conf(), &["-threshold", "1"])?;
    println!("{runs} runs");
    blocks_were_moved(session, &full)
}

fn hearth_balancer(session: &mut Session) -> Result<()> {
    let full = full_datanode(session)?;
    // Without sources, nothing can be moved, and nothing is.
    let ended = hearth(session, &["balancer", "-threshold", "1", "-source", "192.0.2.1"])?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    ensure!(ended.status.code() == Some(254) && said.contains("No block can be moved. Exiting..."), "{ended:?}");
    let ended = hearth(session, &["balancer", "-threshold", "1"])?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    ensure!(ended.status.code() == Some(0) && said.contains("The cluster is balanced. Exiting..."), "{ended:?}");
    ensure!(said.starts_with("Time Stamp               Iteration#  Bytes Already Moved"), "{said}");
    println!("{said}");
    blocks_were_moved(session, &full)?;
    let found = hearth(session, &["fs", "-test", "-e", "/system/balancer.id"])?;
    ensure!(found.status.code() == Some(1), "the balancer's file is still there: {found:?}");
    let wrong = hearth(session, &["balancer", "-threshold", "0"])?;
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    ensure!(wrong.status.code() == Some(255) && said.contains("Number out of range: threshold = 0.0"), "{wrong:?}");
    Ok(())
}

/// Runs `hearth ARGUMENTS`.
fn hearth(session: &Session, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(hearth_program()?);
    command.args(arguments).env("HADOOP_CONF_DIR", session.cluster.conf()).output().context("hearth")
}

/// Returns the address of the DataNode with all files, after it has reported them.
fn full_datanode(session: &Session) -> Result<String> {
    let full = format!("127.0.0.1:{}", session.cluster.datanodes[0].port("dfs.datanode.address")?);
    wait_until("the heartbeat that reports all files", SETTLES_WITHIN, || {
        Ok((session.cluster.live_datanode(&full)?["usedSpace"].as_u64() >= Some(FILES * BLOCK)).then_some(()))
    })?;
    Ok(full)
}

/// Checks that many files have left the DataNode that was full, and that all can be read.
fn blocks_were_moved(session: &mut Session, full: &str) -> Result<()> {
    let mut moved = 0;
    for file in 0..FILES {
        moved += u64::from(place(session, file)?["names"][0] != full);
        reads(session, file)?;
    }
    println!("{moved} of {FILES} moved from {full}");
    ensure!(moved >= FILES / 4, "the balancer moved {moved} of {FILES} files");
    Ok(())
}

fn mover(session: &mut Session) -> Result<()> {
    const COLD: u64 = 8;
    for file in 0..COLD {
        ensure!(place(session, file)?["types"] == "[DISK]", "{}", place(session, file)?);
    }
    session.java()?.call("mkdirs", json!({"path": "/cold"}))?;
    session.java()?.call("policy", json!({"path": "/cold", "policy": "COLD"}))?;
    for file in 0..COLD {
        let rename = json!({"from": path(file), "to": format!("/cold/{file}")});
        session.java()?.call("rename", rename)?;
    }
    let main = "org.apache.hadoop.hdfs.server.mover.Mover";
    session.cluster.apache()?.run(session.cluster.conf(), main, ["-p", "/cold"])?.success()?;
    for file in 0..COLD {
        let back = json!({"from": format!("/cold/{file}"), "to": path(file)});
        wait_until("the block on an archive", SETTLES_WITHIN, || {
            let located = session.java()?.call("locations", json!({"path": format!("/cold/{file}")}))?;
            Ok((located[0]["types"] == "[ARCHIVE]").then_some(()))
        })?;
        session.java()?.call("rename", back)?;
        reads(session, file)?;
    }
    Ok(())
}

/// The disk balancer asks the NameNode for keys and for a report of every storage.
fn disk_balancer(session: &mut Session) -> Result<()> {
    let main = "org.apache.hadoop.hdfs.tools.DiskBalancerCLI";
    let said = session.cluster.apache()?.run(session.cluster.conf(), main, ["-report", "-top", "3"])?.success()?;
    ensure!(said.contains("DataNode"), "{said}");
    Ok(())
}

/// Returns the location of a file's only block, after its only replica has settled.
fn place(session: &mut Session, file: u64) -> Result<Value> {
    wait_until("one replica", SETTLES_WITHIN, || {
        let located = session.java()?.call("locations", json!({"path": path(file)}))?;
        let is_one = located[0]["names"].as_array().is_some_and(|names| names.len() == 1);
        Ok(is_one.then(|| located[0].clone()))
    })
}

fn reads(session: &mut Session, file: u64) -> Result<()> {
    let found = session.java()?.call("read", json!({"path": path(file)}))?;
    ensure!(found["sha256"] == sha256_hex(&Content::new(file).bytes(0, BLOCK as usize)), "{file} reads as {found}");
    Ok(())
}

/// Returns the size of the tmpfs.
fn tmpfs_bytes() -> u64 {
    let output = Command::new("df").args(["--block-size=1", "--output=size", TMPFS]).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().nth(1).and_then(|size| size.trim().parse().ok()).unwrap_or(CAPACITY)
}
