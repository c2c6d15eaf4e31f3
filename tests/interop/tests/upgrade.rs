//! A DataNode restarts for an upgrade: writers without another DataNode wait for it and continue. Also checks which
//! data of a file is on disk after Java's hsync.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run, slow};
use hearth_testkit::{ClusterSpec, Content, Implementation, files_below, hearth_program, jmx_bean, wait_until};
use serde_json::json;

const BLOCK: u64 = 1 << 20;
/// Timeout for a busy machine.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);

const CHECKS: &[Check] = &[("writers_wait_for_upgrading_datanode", restarts)];
const SYNCS: &[Check] = &[("javas_hsync_syncs_only_the_current_block", hsync)];

fn main() -> ExitCode {
    use Implementation::{Apache, Hearth};
    let spec = |namenode: Implementation, datanode: Implementation| {
        ClusterSpec::new(namenode, datanode)
            .datanodes(1)
            .set("dfs.blocksize", BLOCK)
            .set("dfs.replication", 1)
            .set("dfs.client.datanode-restart.timeout", 100)
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 50)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 10)
    };
    let oracle = slow().then(|| spec(Apache, Apache));
    let clusters = oracle.into_iter().chain([spec(Apache, Hearth), spec(Hearth, Hearth)]).collect();
    let unflushed = spec(Hearth, Hearth).set("hearth.memory.flush.delay", 3600).labelled("unflushed");
    run(&[
        Suite { name: "upgrade", clusters, checks: CHECKS },
        Suite { name: "hsync", clusters: vec![unflushed], checks: SYNCS },
    ])
}

/// Two writers of Java's client and one of Hearth's are open during the restart of the DataNode.
fn restarts(session: &mut Session) -> Result<()> {
    for (nth, handle) in ["/waits", "/sends"].into_iter().enumerate() {
        session.java()?.call("create", json!({"path": handle, "handle": handle}))?;
        let write = json!({"handle": handle, "seed": nth, "position": 0, "length": 300_000});
        session.java()?.call("write", write)?;
        session.java()?.call("hflush", json!({"handle": handle}))?;
    }
    let port = session.cluster.datanodes[0].port("dfs.datanode.http.address")?;
    let served = || -> Result<u64> {
        let info = jmx_bean(port, "Hadoop:service=DataNode,name=DataNodeInfo")?;
        info["XceiverCount"].as_u64().context("a number of operations")
    };
    let served_before = served()?;
    let content = Content::new(7).bytes(0, 2 * BLOCK as usize);
    let mut put = Command::new(hearth_program()?)
        .args(["fs", "-put", "-", "/rust"])
        .env("HADOOP_CONF_DIR", session.cluster.conf())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut pipe = put.stdin.take().context("it is piped")?;
    pipe.write_all(&content[..400_000])?;
    wait_until("the third file to be begun", SETTLES_WITHIN, || {
        let written = session.java()?.call("exists", json!({"path": "/rust._COPYING_"}))?;
        Ok(written.as_bool().unwrap_or_default().then_some(()))
    })?;
    // A writer without a pipeline would find no DataNode during the restart, and fail.
    wait_until("the third file's pipeline", SETTLES_WITHIN, || Ok((served()? > served_before).then_some(())))?;

    let ipc = format!("127.0.0.1:{}", session.cluster.datanodes[0].port("dfs.datanode.ipc.address")?);
    let asked = session.cluster.apache()?.dfsadmin(session.cluster.conf(), ["-shutdownDatanode", &ipc, "upgrade"])?;
    asked.success().context("hdfs dfsadmin -shutdownDatanode upgrade")?;
    wait_until("the DataNode's end", SETTLES_WITHIN, || {
        Ok(session.cluster.datanodes[0].check_alive().is_err().then_some(()))
    })?;
    session.cluster.datanodes[0].kill();
    session.cluster.start_datanode(0)?;

    pipe.write_all(&content[400_000..])?;
    drop(pipe);
    for (nth, handle) in ["/waits", "/sends"].into_iter().enumerate() {
        let length = 2 * BLOCK + 1000 * nth as u64;
        let write = json!({"handle": handle, "seed": nth, "position": 300_000, "length": length - 300_000});
        session.java()?.call("write", write).context(handle)?;
        session.java()?.call("close", json!({"handle": handle})).context(handle)?;
        let found = session.java()?.call("read", json!({"path": handle}))?;
        let wanted = hearth_testkit::sha256_hex(&Content::new(nth as u64).bytes(0, length as usize));
        ensure!(found["sha256"] == wanted, "{handle} reads as {found}");
    }
    let output = put.wait_with_output()?;
    ensure!(output.status.success(), "hearth fs -put: {}", String::from_utf8_lossy(&output.stderr));
    let found = session.java()?.call("read", json!({"path": "/rust"}))?;
    ensure!(found["sha256"] == hearth_testkit::sha256_hex(&content), "/rust reads as {found}");
    Ok(())
}

/// Without automatic flushes, the data on disk is exactly the synced data.
fn hsync(session: &mut Session) -> Result<()> {
    let disk = session.cluster.datanodes[0].data_directory().context("a storage directory")?;
    let on_disk = || -> u64 {
        let is_data = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("blk_") && !name.ends_with(".meta")
        };
        files_below(&disk)
            .iter()
            .filter(|path| is_data(path))
            .filter_map(|path| path.metadata().ok())
            .map(|about| about.len())
            .sum()
    };
    session.java()?.call("create", json!({"path": "/synced", "handle": "s"}))?;
    let write = |session: &mut Session, position: u64, length: u64| -> Result<()> {
        session.java()?.call("write", json!({"handle": "s", "seed": 1, "position": position, "length": length}))?;
        Ok(())
    };
    // One block, and half of the next: the first was full earlier.
    write(session, 0, BLOCK + BLOCK / 2)?;
    session.java()?.call("hsync", json!({"handle": "s"}))?;
    ensure!(on_disk() == BLOCK / 2, "{} bytes after the first hsync", on_disk());
    // The rest of that block, all of the third, and half of the fourth.
    write(session, BLOCK + BLOCK / 2, 2 * BLOCK)?;
    session.java()?.call("hsync", json!({"handle": "s"}))?;
    wait_until("the second and the fourth block on the disk", SETTLES_WITHIN, || {
        Ok((on_disk() == BLOCK + BLOCK / 2).then_some(()))
    })?;
    session.java()?.call("close", json!({"handle": "s"}))?;
    wait_until("the whole block of the hsync", SETTLES_WITHIN, || Ok((on_disk() == BLOCK + BLOCK / 2).then_some(())))
}
