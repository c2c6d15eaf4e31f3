//! Unmodified Java clients with libhadoop read the DataNode's own memory through passed file descriptors. Shared memory
//! notifies them when the memory no longer belongs to the replica.
//!
//! `cargo xtask test --cluster` adds Apache's servers alone, as the oracle, and Apache's NameNode without block tokens.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Session, Suite, run, slow};
use hearth_testkit::{
    ClusterSpec, Content, Driver, Implementation, get_text, sha256_hex, unshared_directory, wait_until,
};
use serde_json::{Value, json};

const BLOCK: u64 = 1 << 20;

/// Sizes: a replica in a slab, one in a separate file, and several blocks with a short last chunk.
const SIZES: [u64; 4] = [100, 60_000, 200_003, 3 * BLOCK + 70_001];

const CHECKS: &[Check] = &[
    ("every_byte_comes_by_descriptor", by_descriptor),
    ("zero_copy_reads_map_memory", zero_copy),
    ("changed_file_is_read_with_new_content", changes),
    ("open_reader_keeps_its_replica", keeps),
    ("a_killed_datanode_comes_back", killed),
    ("killed_clients_leave_no_resources", nothing_left),
];

const MEMORY_CHECKS: &[Check] = &[("files_larger_than_memory_are_read_correctly", evicted)];

fn main() -> ExitCode {
    let of = |namenode, datanode| {
        ClusterSpec::new(namenode, datanode)
            .short_circuit()
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
            // A DataNode that was unavailable is soon asked for descriptors again.
            .set("dfs.domain.socket.disable.interval.seconds", 1)
    };
    // Apache's DataNode listens only in directories without ancestors that other users can write to, such as /tmp.
    let oracle = of(Implementation::Apache, Implementation::Apache).within(&unshared_directory());
    let under_apaches = of(Implementation::Apache, Implementation::Hearth);
    let tokens = under_apaches.clone().labelled("tokens").set("dfs.block.access.token.enable", true);
    let ours = of(Implementation::Hearth, Implementation::Hearth);
    let clusters = if slow() { vec![oracle, under_apaches, ours, tokens] } else { vec![ours, tokens] };
    let short_of_memory = of(Implementation::Hearth, Implementation::Hearth)
        .labelled("16MiB")
        .set("hearth.memory.limit", 16 << 20)
        .set("hearth.memory.flush.delay", "100ms");
    run(&[
        Suite { name: "short_circuit", clusters, checks: CHECKS },
        Suite { name: "short_circuit", clusters: vec![short_of_memory], checks: MEMORY_CHECKS },
    ])
}

fn store(java: &mut Driver, path: &str, seed: u64, length: u64) -> Result<()> {
    java.call("store", json!({"path": path, "seed": seed, "length": length}))?;
    Ok(())
}

/// Returns the SHA-256 of the concatenated `parts`, each from the start of its content.
fn sha256_of(parts: &[(u64, u64)]) -> String {
    let parts: Vec<Vec<u8>> =
        parts.iter().map(|(seed, length)| Content::new(*seed).bytes(0, *length as usize)).collect();
    sha256_hex(&parts.concat())
}

/// Reads all of `path`, and checks its content and the path of the data.
fn reads(java: &mut Driver, path: &str, parts: &[(u64, u64)]) -> Result<()> {
    java.call("open", json!({"path": path, "handle": "checked"}))?;
    let read = java.call("read", json!({"handle": "checked"}));
    let statistics = java.call("statistics", json!({"handle": "checked"}));
    java.call("close", json!({"handle": "checked"}))?;
    let (read, statistics) = (read?, statistics?);
    ensure!(read["sha256"] == sha256_of(parts), "{path} reads as {read}");
    let length: u64 = parts.iter().map(|(_, length)| length).sum();
    ensure!(
        statistics["shortCircuit"] == length && statistics["total"] == length,
        "{path}: {length} bytes arrived as {statistics}"
    );
    Ok(())
}

fn by_descriptor(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    for (seed, length) in (1..).zip(SIZES) {
        let path = format!("/read-{length}");
        store(java, &path, seed, length)?;
        // The second read uses descriptors that the client has cached.
        for _ in 0..2 {
            reads(java, &path, &[(seed, length)])?;
        }
        let read = java.call("pread", json!({"path": path, "position": length / 3, "length": length / 2}))?;
        let expected = Content::new(seed).bytes(length / 3, (length / 2) as usize);
        ensure!(read["sha256"] == sha256_hex(&expected), "{path}: {read}");
    }
    Ok(())
}

/// Memory with verified checksums may be mapped as it is. Apache's DataNode reports that only for memory that it has
/// locked.
fn zero_copy(session: &mut Session) -> Result<()> {
    let oracle = session.is_oracle();
    let java = session.java()?;
    for (seed, length) in (10..).zip(SIZES) {
        let path = format!("/mapped-{length}");
        store(java, &path, seed, length)?;
        for skip_checksums in [false, true] {
            let read = java.call("zeroCopyRead", json!({"path": path, "skipChecksums": skip_checksums}))?;
            ensure!(read["sha256"] == sha256_of(&[(seed, length)]), "{path}: {read}");
            let mapped = read["zeroCopy"] == length;
            ensure!(mapped || (oracle && !skip_checksums), "{path}: {read}");
        }
    }
    Ok(())
}

/// The reader has the old replica's descriptors cached each time.
fn changes(session: &mut Session) -> Result<()> {
    let mut other = session.another_java()?;
    let java = session.java()?;
    for length in [100, 60_000, 200_003, BLOCK + 333] {
        let path = format!("/changing-{length}");
        store(java, &path, 20, length)?;
        reads(java, &path, &[(20, length)])?;
        other.call("extend", json!({"path": path, "seed": 21, "length": 1000}))?;
        reads(java, &path, &[(20, length), (21, 1000)])?;
        other.call("extend", json!({"path": path, "seed": 22, "length": 300_000}))?;
        reads(java, &path, &[(20, length), (21, 1000), (22, 300_000)])?;
        other.call("truncate", json!({"path": path, "length": length - 13}))?;
        wait_until("the truncation", Duration::from_secs(60), || {
            Ok(other.call("isClosed", json!({"path": path}))?.as_bool().unwrap_or(false).then_some(()))
        })?;
        reads(java, &path, &[(20, length - 13)])?;
        other.call("delete", json!({"path": path}))?;
        store(&mut other, &path, 23, length)?;
        reads(java, &path, &[(23, length)])?;
    }
    Ok(())
}

/// A stream that has begun to read a block continues to read the bytes that it was opened for.
fn keeps(session: &mut Session) -> Result<()> {
    // Apache's DataNode truncates and extends the same file that the reader has open.
    if session.is_oracle() {
        return Ok(());
    }
    let length = 700_003;
    let mut other = session.another_java()?;
    let java = session.java()?;
    let changes: [(&str, Value); 3] =
        [("extend", json!({"seed": 31, "length": 5000})), ("truncate", json!({"length": 1234})), ("delete", json!({}))];
    for (operation, arguments) in changes {
        let path = format!("/kept-{operation}");
        store(java, &path, 30, length)?;
        java.call("open", json!({"path": path, "handle": "kept"}))?;
        java.call("read", json!({"handle": "kept", "length": 1000}))?;
        let mut arguments = arguments.clone();
        arguments["path"] = path.clone().into();
        other.call(operation, arguments)?;
        // Other replicas reuse any memory that was freed.
        for index in 0..5 {
            store(&mut other, &format!("/other-{operation}-{index}"), 40 + index, length)?;
        }
        let rest = java.call("read", json!({"handle": "kept", "length": length - 1000}));
        java.call("close", json!({"handle": "kept"}))?;
        let expected = Content::new(30).bytes(1000, length as usize - 1000);
        let rest = rest?;
        ensure!(rest["sha256"] == sha256_hex(&expected), "{operation}: {rest}");
    }
    Ok(())
}

fn killed(session: &mut Session) -> Result<()> {
    let mut java = session.another_java()?;
    store(&mut java, "/survives", 50, 2 * BLOCK + 5)?;
    reads(&mut java, "/survives", &[(50, 2 * BLOCK + 5)])?;
    java.call("open", json!({"path": "/survives", "handle": "open"}))?;
    java.call("read", json!({"handle": "open", "length": 1000}))?;
    session.cluster.datanodes[0].kill();
    // The memory still exists for clients that have it mapped.
    let rest = java.call("read", json!({"handle": "open", "length": BLOCK - 1000}))?;
    ensure!(rest["sha256"] == sha256_hex(&Content::new(50).bytes(1000, BLOCK as usize - 1000)), "{rest}");
    session.cluster.start_datanode(0)?;
    session.cluster.wait_ready()?;
    // Waits until the DataNode has registered and reported.
    wait_until("reads by descriptor again", Duration::from_secs(60), || {
        reads(&mut java, "/survives", &[(50, 2 * BLOCK + 5)])?;
        Ok(Some(()))
    })?;
    let java = session.java()?;
    reads(java, "/survives", &[(50, 2 * BLOCK + 5)])
}

/// Returns a metric of the first DataNode's /metrics.
fn figure(session: &Session, name: &str) -> Result<u64> {
    let page = get_text(session.cluster.datanodes[0].port("dfs.datanode.http.address")?, "/metrics")?;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim_start_matches("_total").strip_prefix(' '));
    value.with_context(|| format!("no {name} in {page}"))?.parse().with_context(|| name.to_owned())
}

fn nothing_left(session: &mut Session) -> Result<()> {
    if session.is_oracle() {
        return Ok(());
    }
    let mut clients = Vec::new();
    for client in 0..2 {
        let mut java = session.another_java()?;
        for index in 0..3 {
            let path = format!("/left-{client}-{index}");
            store(&mut java, &path, 60, 300_000)?;
            reads(&mut java, &path, &[(60, 300_000)])?;
            java.call("zeroCopyRead", json!({"path": path}))?;
        }
        java.call("open", json!({"path": format!("/left-{client}-0"), "handle": "open"}))?;
        java.call("read", json!({"handle": "open", "length": 10}))?;
        clients.push(java);
    }
    ensure!(figure(session, "hearth_short_circuit_slots")? >= 6, "slots");
    ensure!(figure(session, "hearth_shown_replicas")? >= 6, "shown replicas");
    session.java()?.call("delete", json!({"path": "/left-0-0"}))?;
    clients.into_iter().for_each(Driver::kill);
    // Also the cached one.
    session.java()?.call("reopen", json!({}))?;
    session.end_java();
    for name in [
        "hearth_short_circuit_slots",
        "hearth_short_circuit_segments",
        "hearth_short_circuit_anchored",
        "hearth_shown_replicas",
        "hearth_pinned_replicas",
        "hearth_memory_lingering_bytes",
    ] {
        wait_until(name, Duration::from_secs(120), || Ok((figure(session, name)? == 0).then_some(())))?;
    }
    Ok(())
}

/// Reads 48 MiB with 16 MiB of memory, while the client holds as many replicas as it can.
fn evicted(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    let files: Vec<(String, u64)> = (0..24).map(|index| (format!("/much-{index}"), 70 + index)).collect();
    for (path, seed) in &files {
        store(java, path, *seed, 2 * BLOCK)?;
        reads(java, path, &[(*seed, 2 * BLOCK)])?;
    }
    for _ in 0..2 {
        for (path, seed) in &files {
            reads(java, path, &[(*seed, 2 * BLOCK)])?;
            let read = java.call("zeroCopyRead", json!({"path": path}))?;
            ensure!(read["sha256"] == sha256_of(&[(*seed, 2 * BLOCK)]), "{path}: {read}");
        }
    }
    ensure!(figure(session, "hearth_memory_used_bytes")? <= 16 << 20, "over the limit");
    ensure!(figure(session, "hearth_memory_evictions")? > 0, "nothing had to leave");
    Ok(())
}
