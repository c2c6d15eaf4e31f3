//! DataNodes of both implementations in one cluster of Apache's NameNode. Every replica of every block must be the same
//! on any DataNode, whichever daemon wrote, copied, truncated or moved it, and whichever DataNode died during it.
//!
//! The slow part (`cargo xtask test --cluster`) does the same with one, two and three Hearth DataNodes among three.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hearth_interop::{Check, Session, Suite, balance, program_said, run, slow, tool_said};
use hearth_testkit::{
    ClusterSpec, Content, Implementation, ReadOnly, files_below, get_text, hearth_program, jmx_bean, sha256_hex,
    skip_or_fail, wait_until,
};
use serde_json::{Value, json};

const BLOCK: u64 = 1 << 20;
const SIZES: [u64; 8] = [0, 1, 511, 513, 65_537, BLOCK - 1, BLOCK, 2 * BLOCK + 70_001];
/// Timeout for a copy, a deletion, or a decommissioning. It takes seconds; this is for a busy machine.
const SETTLES_WITHIN: Duration = Duration::from_secs(120);
/// Apache's fsck.
const FSCK: &str = "org.apache.hadoop.hdfs.tools.DFSck";
const EXCLUDED: &str = "excluded";
const HOSTS: &str = "hosts.json";
const COMBINED_HOSTS: &str = "org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager";
/// Directory of the DataNodes' disks. Each DataNode has a capacity so small that the balancer notices the checks' data.
const TMPFS: &str = "/dev/shm";
const CAPACITY: u64 = 500 << 20;
/// Cache limit of each DataNode.
const CACHE: u64 = 8 << 20;

const CHECKS: &[Check] = &[
    ("replicas_of_puts_and_appends_are_equal", put_and_append),
    ("the_rust_client_puts_and_gets", rust_client),
    ("flushed_data_is_visible_at_every_replica", flushed_is_seen),
    ("every_replica_is_truncated", truncates),
    ("replication_is_raised_and_lowered", replication),
    ("erasure_coded_files_are_stored_and_read", erasure_coded),
    ("a_dead_writers_file_is_recovered", lease_recovery),
    ("writers_survive_the_death_of_any_datanode", writers_survive),
    ("each_datanode_is_decommissioned_and_recommissioned", decommission),
    ("the_balancer_spreads_blocks_of_one_datanode", balancer),
    ("everything_is_healthy_at_the_end", healthy),
];

/// Checks for clusters whose DataNodes are all Hearth's. Apache's would need native code or a patch for them.
const SERVICES: &[Check] = &[
    ("web_pages_match_apaches", pages),
    ("lazy_persist_files_use_ram_disk_first", lazy_persist),
    ("dfsadmin_queries_and_configures_a_datanode", administration),
    ("unsupported_protection_is_rejected", protection_refused),
    ("a_failed_storage_directory_is_taken_out_of_service", failed_volume),
];

/// Checks for every NameNode with every DataNode.
const SPOILED: &[Check] = &[
    ("corrupt_replica_is_never_read_and_replaced", spoiled),
    ("fsck_of_a_corrupt_file_matches_apaches", corrupt_file),
    ("fsck_moves_remains_of_a_corrupt_file_like_apaches", moved_file),
];

/// Checks for Apache's NameNode and Hearth's.
const CACHING: &[Check] =
    &[("cacheadmin_output_matches_apaches", cacheadmin), ("cached_files_stay_in_memory", caching)];

/// Checks for Apache's NameNode and Hearth's.
const MAINTENANCE: &[Check] = &[("a_datanode_in_maintenance_is_waited_for", maintenance)];

/// Takes minutes: a key is valid for one minute.
const KEYS: &[Check] = &[("readers_and_writers_outlive_block_keys", keys_roll_over)];

fn main() -> ExitCode {
    use Implementation::{Apache, Hearth};
    let reserved = tmpfs_bytes().saturating_sub(CAPACITY);
    let spec = |datanodes: &[Implementation]| {
        ClusterSpec::mixed(Apache, datanodes)
            .set("dfs.blocksize", BLOCK)
            .set("dfs.replication", 3)
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
            // One of three DataNodes is killed, and there is no fourth.
            .set("dfs.client.block.write.replace-datanode-on-failure.best-effort", true)
            .set("dfs.client.socket-timeout", 10_000)
            .set_file("dfs.hosts.exclude", EXCLUDED)
            // Connections of earlier checks must not make the NameNode choose another DataNode.
            .set("dfs.namenode.redundancy.considerLoad", false)
            .set("dfs.namenode.redundancy.interval.seconds", 1)
            // A copy to a DataNode that died is soon scheduled to another one.
            .set("dfs.namenode.reconstruction.pending.timeout-sec", 3)
            .set("dfs.namenode.decommission.interval", 1)
            .set("dfs.namenode.replication.max-streams", 20)
            .set("dfs.namenode.replication.max-streams-hard-limit", 40)
            .set("dfs.namenode.replication.work.multiplier.per.iteration", 20)
            // Even small blocks are moved.
            .set("dfs.balancer.getBlocks.min-block-size", 1)
            .set("dfs.balancer.getBlocks.size", 4 * BLOCK)
            .within(Path::new(TMPFS))
            .set("dfs.datanode.du.reserved", reserved)
            // Java otherwise reserves 1 GiB of each disk.
            .set("dfs.datanode.round-robin-volume-choosing-policy.additional-available-space", 0)
            .set("hearth.memory.limit", "512m")
            .set("hearth.memory.flush.delay", 1)
    };
    let with_tokens = |spec: ClusterSpec| spec.set("dfs.block.access.token.enable", true).labelled("tokens");
    let clusters = if slow() {
        vec![
            // The oracle: Apache's daemons alone pass the same checks.
            spec(&[Apache, Apache, Apache]),
            spec(&[Hearth, Apache, Apache]),
            with_tokens(spec(&[Apache, Hearth, Hearth])),
            spec(&[Hearth, Hearth, Hearth]),
        ]
    } else {
        vec![with_tokens(spec(&[Apache, Hearth, Hearth]))]
    };
    let caching = |namenode: Implementation| {
        ClusterSpec::new(namenode, Hearth)
            .datanodes(2)
            .set("dfs.blocksize", BLOCK)
            .set("dfs.replication", 2)
            .set("dfs.datanode.max.locked.memory", CACHE)
            .set("dfs.cachereport.intervalMsec", 500)
            .set("dfs.namenode.path.based.cache.refresh.interval.ms", 500)
            .set("dfs.namenode.path.based.cache.retry.interval.ms", 1000)
            .set("hearth.memory.limit", "64m")
            .set("hearth.memory.flush.delay", 1)
    };
    let unscanned = |namenode: Implementation, datanodes: Implementation| {
        ClusterSpec::new(namenode, datanodes)
            .datanodes(3)
            .set("dfs.blocksize", BLOCK)
            .set("dfs.replication", 2)
            .set("dfs.namenode.redundancy.interval.seconds", 1)
            // Only a reader can find the corruption.
            .set("dfs.datanode.scan.period.hours", -1)
            .set("hearth.memory.limit", "64m")
            .set("hearth.memory.flush.delay", 1)
    };
    let oracle = slow().then(|| unscanned(Apache, Apache));
    let unscanned = oracle.into_iter().chain([unscanned(Apache, Hearth), unscanned(Hearth, Hearth)]).collect();
    let mut suites = vec![
        Suite { name: "cluster", clusters, checks: CHECKS },
        Suite { name: "services", clusters: vec![caching(Apache)], checks: SERVICES },
        Suite { name: "spoiled", clusters: unscanned, checks: SPOILED },
        Suite { name: "caching", clusters: vec![caching(Apache), caching(Hearth)], checks: CACHING },
    ];
    if slow() {
        let keys = with_tokens(spec(&[Hearth, Apache, Hearth]))
            .set("dfs.block.access.key.update.interval", 1)
            .set("dfs.block.access.token.lifetime", 1);
        let old = spec(&[Hearth, Apache, Hearth]).apache_version("3.3.6").labelled("3.3.6");
        let looked_after = |namenode: Implementation| {
            ClusterSpec::new(namenode, Hearth)
                .datanodes(3)
                .set("dfs.blocksize", BLOCK)
                .set("dfs.replication", 2)
                .set("dfs.namenode.hosts.provider.classname", COMBINED_HOSTS)
                .set_file("dfs.hosts", HOSTS)
                .set("dfs.namenode.decommission.interval", 1)
                // Dead after 14 seconds.
                .set("dfs.heartbeat.interval", 1)
                .set("dfs.namenode.heartbeat.recheck-interval", 2000)
        };
        let looked_after = vec![looked_after(Apache), looked_after(Hearth)];
        suites.push(Suite { name: "maintenance", clusters: looked_after, checks: MAINTENANCE });
        suites.push(Suite { name: "old", clusters: vec![old], checks: CHECKS });
        suites.push(Suite { name: "keys", clusters: vec![keys], checks: KEYS });
    }
    run(&suites)
}

fn put_and_append(session: &mut Session) -> Result<()> {
    for size in SIZES {
        let path = format!("/put/{size}");
        session.java()?.call("store", json!({"path": path, "seed": size, "length": size}))?;
        everywhere(session, &path, &[(size, size)], 3)?;
        session.java()?.call("extend", json!({"path": path, "seed": 5, "length": 70_000}))?;
        everywhere(session, &path, &[(size, size), (5, 70_000)], 3)?;
    }
    Ok(())
}

fn rust_client(session: &mut Session) -> Result<()> {
    let local = session.local("rust")?;
    let (put, got) = (local.join("put"), local.join("got"));
    let size = 3 * BLOCK + 70_001;
    Content::new(77).write_file(&put, size)?;
    hearth_fs(session, &["-put", text(&put)?, "/rust"])?;
    everywhere(session, "/rust", &[(77, size)], 3)?;
    hearth_fs(session, &["-appendToFile", text(&put)?, "/rust"])?;
    everywhere(session, "/rust", &[(77, size), (77, size)], 3)?;
    hearth_fs(session, &["-get", "/rust", text(&got)?])?;
    ensure!(fs::metadata(&got)?.len() == 2 * size, "got {} bytes", fs::metadata(&got)?.len());
    let got = fs::read(&got)?;
    let (first, second) = got.split_at(size as usize);
    let wanted = Content::new(77).sha256(0, size);
    ensure!(sha256_hex(first) == wanted && sha256_hex(second) == wanted, "the file read differs from the file written");
    Ok(())
}

fn hearth_fs(session: &Session, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(hearth_program()?);
    let output = command.arg("fs").args(arguments).env("HADOOP_CONF_DIR", session.cluster.conf()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "hearth fs {}: {said}", arguments.join(" "));
    Ok(())
}

fn flushed_is_seen(session: &mut Session) -> Result<()> {
    let path = "/flushed";
    session.java()?.call("create", json!({"path": path, "handle": "out"}))?;
    let mut written = 0;
    for part in [1, 511, 70_000, BLOCK] {
        let write = json!({"handle": "out", "seed": 8, "position": written, "length": part});
        session.java()?.call("write", write)?;
        session.java()?.call("hflush", json!({"handle": "out"}))?;
        written += part;
        let found = session.java()?.call("read", json!({"path": path}))?;
        ensure!(found["sha256"] == Content::new(8).sha256(0, written), "{written} bytes flushed, read {found}");
        everywhere(session, path, &[(8, written)], 3)?;
    }
    session.java()?.call("close", json!({"handle": "out"}))?;
    everywhere(session, path, &[(8, written)], 3)
}

fn truncates(session: &mut Session) -> Result<()> {
    let path = "/truncated";
    session.java()?.call("store", json!({"path": path, "seed": 6, "length": 3 * BLOCK + 1000}))?;
    for length in [3 * BLOCK + 513, 3 * BLOCK, 2 * BLOCK + 100_000, 1] {
        session.java()?.call("truncate", json!({"path": path, "length": length}))?;
        closed(session, path)?;
        everywhere(session, path, &[(6, length)], 3).with_context(|| format!("truncated to {length}"))?;
    }
    session.java()?.call("extend", json!({"path": path, "seed": 7, "length": BLOCK}))?;
    everywhere(session, path, &[(6, 1), (7, BLOCK)], 3)
}

fn replication(session: &mut Session) -> Result<()> {
    let size = 2 * BLOCK + 70_001;
    let ports = transfer_addresses(session)?;
    // One file on each, so that each DataNode is the source once.
    for (index, holder) in ports.iter().enumerate() {
        let path = format!("/replication/{index}");
        let create = json!({"path": path, "handle": "out", "replication": 1, "favored": [holder]});
        session.java()?.call("create", create)?;
        session.java()?.call("write", json!({"handle": "out", "seed": 4, "length": size}))?;
        session.java()?.call("close", json!({"handle": "out"}))?;
        everywhere(session, &path, &[(4, size)], 1)?;
        session.java()?.call("setrep", json!({"path": path, "replication": 3}))?;
    }
    for index in 0..ports.len() {
        let path = format!("/replication/{index}");
        settles(session, &path, &[(4, size)], 3)?;
        session.java()?.call("setrep", json!({"path": path, "replication": 2}))?;
    }
    for index in 0..ports.len() {
        settles(session, &format!("/replication/{index}"), &[(4, size)], 2)?;
    }
    Ok(())
}

/// DataNodes store the parts like any other block. Apache's client combines them, and tolerates the loss of one.
fn erasure_coded(session: &mut Session) -> Result<()> {
    session.java()?.call("mkdirs", json!({"path": "/coded"}))?;
    session.java()?.call("erasureCode", json!({"path": "/coded", "policy": "XOR-2-1-1024k"}))?;
    for size in [1, BLOCK, 3 * BLOCK + 70_001] {
        let path = format!("/coded/{size}");
        session.java()?.call("store", json!({"path": path, "seed": size, "length": size}))?;
        reads(session, &path, &[(size, size)])?;
    }
    let path = format!("/coded/{}", 3 * BLOCK + 70_001);
    session.cluster.datanodes[1].kill();
    reads(session, &path, &[(3 * BLOCK + 70_001, 3 * BLOCK + 70_001)])?;
    session.cluster.start_datanode(1)?;
    session.cluster.wait_ready()?;
    // The checksum of such a block group is not implemented, and the call must not hang.
    let checksum = session.java()?.call("checksum", json!({"path": path}));
    println!("checksum of an erasure-coded file: {checksum:?}");
    session.java()?.call("delete", json!({"path": "/coded", "recursive": true}))?;
    Ok(())
}

/// A writer vanishes after a flush. Its blocks are recovered by any DataNode that the NameNode chooses.
fn lease_recovery(session: &mut Session) -> Result<()> {
    let mut doomed = session.another_java()?;
    for file in 0..6 {
        let path = format!("/dead/{file}");
        let length = 70_000 + file * BLOCK / 4;
        doomed.call("create", json!({"path": path, "handle": path}))?;
        doomed.call("write", json!({"handle": path, "seed": file, "length": length}))?;
        doomed.call("hflush", json!({"handle": path}))?;
    }
    doomed.kill();
    for file in 0..6 {
        session.java()?.call("recoverLease", json!({"path": format!("/dead/{file}")}))?;
    }
    for file in 0..6 {
        let path = format!("/dead/{file}");
        closed(session, &path)?;
        settles(session, &path, &[(file, 70_000 + file * BLOCK / 4)], 3)?;
    }
    Ok(())
}

/// Several concurrent writers, so that the killed DataNode is the first in some pipelines, in the middle of others, and
/// the last in the rest.
fn writers_survive(session: &mut Session) -> Result<()> {
    const WRITERS: u64 = 8;
    let ports = transfer_addresses(session)?;
    for (victim, address) in ports.iter().enumerate() {
        let path = |writer: u64| format!("/killed/{victim}-{writer}");
        let mut positions = BTreeMap::new();
        for writer in 0..WRITERS {
            let handle = path(writer);
            session.java()?.call("create", json!({"path": path(writer), "handle": handle}))?;
            write_on(session, &handle, writer, 0, 300_000)?;
            session.java()?.call("hflush", json!({"handle": handle}))?;
            let pipeline = session.java()?.call("pipeline", json!({"handle": handle}))?;
            let position = pipeline.as_array().and_then(|pipeline| pipeline.iter().position(|at| *at == **address));
            *positions.entry(position.map_or(-1, |at| at as i64)).or_insert(0) += 1;
        }
        println!("datanode {victim} dies; its places in {WRITERS} pipelines: {positions:?}");
        session.cluster.datanodes[victim].kill();
        for writer in 0..WRITERS {
            let handle = path(writer);
            // The rest of this block, including the bytes that the dead DataNode never acknowledged, and one more
            // block.
            write_on(session, &handle, writer, 300_000, 2 * BLOCK - 300_000)?;
            session.java()?.call("close", json!({"handle": handle}))?;
            reads(session, &path(writer), &[(writer, 2 * BLOCK)])?;
        }
        session.cluster.start_datanode(victim)?;
        session.cluster.wait_ready()?;
        for writer in 0..WRITERS {
            settles(session, &path(writer), &[(writer, 2 * BLOCK)], 3)?;
        }
    }
    Ok(())
}

fn write_on(session: &mut Session, handle: &str, seed: u64, position: u64, length: u64) -> Result<()> {
    let write = json!({"handle": handle, "seed": seed, "position": position, "length": length});
    session.java()?.call("write", write)?;
    Ok(())
}

fn decommission(session: &mut Session) -> Result<()> {
    const FILES: u64 = 12;
    let size = BLOCK + 70_001;
    let ports = transfer_addresses(session)?;
    let path = |file: u64| format!("/decommissioned/{file}");
    for file in 0..FILES {
        let store = json!({"path": path(file), "seed": file, "length": size, "replication": 2});
        session.java()?.call("store", store)?;
    }
    // With three replicas of each block, the DataNode would have no target for them.
    for directory in ["/put", "/killed", "/dead", "/rust", "/flushed", "/truncated"] {
        session.java()?.call("delete", json!({"path": directory, "recursive": true}))?;
    }
    let excluded = session.cluster.directory().join(EXCLUDED);
    for node in &ports {
        fs::write(&excluded, format!("{node}\n"))?;
        session.java()?.call("refreshNodes", json!({}))?;
        wait_until(&format!("{node} to be decommissioned"), SETTLES_WITHIN, || {
            Ok((session.cluster.live_datanode(node)?["adminState"] == "Decommissioned").then_some(()))
        })?;
        for file in 0..FILES {
            let read = json!({"path": path(file), "avoid": node});
            let each = session.java()?.call("readEach", read)?;
            let each = each.as_array().context("a list of replicas")?;
            ensure!(each.len() == 2, "{} without {node}: {each:?}", path(file));
            let wanted = Content::new(file).sha256(0, size);
            ensure!(each.iter().all(|replica| replica["sha256"] == wanted), "{}: {each:?}", path(file));
        }
        // Back in service: excess replicas are deleted.
        fs::write(&excluded, "")?;
        session.java()?.call("refreshNodes", json!({}))?;
        wait_until(&format!("{node} to be in service again"), SETTLES_WITHIN, || {
            Ok((session.cluster.live_datanode(node)?["adminState"] == "In Service").then_some(()))
        })?;
        for file in 0..FILES {
            settles(session, &path(file), &[(file, size)], 2)?;
        }
    }
    Ok(())
}

/// A DataNode in maintenance is stopped for longer than the dead timeout. It keeps its replicas, nothing is copied, and
/// it comes back with them.
fn maintenance(session: &mut Session) -> Result<()> {
    const FILES: u64 = 12;
    // Each file has one block.
    const SIZE: u64 = BLOCK - 7;
    let path = |file: u64| format!("/maintained/{file}");
    for file in 0..FILES {
        session.java()?.call("store", json!({"path": path(file), "seed": file, "length": SIZE}))?;
    }
    for file in 0..FILES {
        everywhere(session, &path(file), &[(file, SIZE)], 2)?;
    }
    let addresses = transfer_addresses(session)?;
    let hosts = session.cluster.directory().join(HOSTS);
    let put_in = |session: &mut Session, state: &str| -> Result<()> {
        let entries = addresses.iter().enumerate().map(|(nth, address)| {
            let port: u16 = address.rsplit(':').next().unwrap_or_default().parse()?;
            let mut entry = json!({"hostName": "127.0.0.1", "port": port});
            if nth == 0 {
                entry["adminState"] = json!(state);
            }
            Ok(entry)
        });
        let entries: Vec<Value> = entries.collect::<Result<_>>()?;
        fs::write(&hosts, Value::Array(entries).to_string())?;
        session.java()?.call("refreshNodes", json!({}))?;
        Ok(())
    };
    let is = |session: &mut Session, state: &str, live: bool| -> Result<()> {
        wait_until(&format!("{} to be {state}, live: {live}", addresses[0]), SETTLES_WITHIN, || {
            let all = session.java()?.call("datanodes", json!({}))?;
            let node = all.as_array().context("a list")?.iter().find(|node| node["address"] == addresses[0].as_str());
            Ok(node.filter(|node| node["state"] == state && node["live"] == live).map(drop))
        })
    };
    // Replicas on other DataNodes, by file.
    let elsewhere = |session: &mut Session| -> Result<Vec<usize>> {
        let each = |file| -> Result<usize> {
            let read = session.java()?.call("readEach", json!({"path": path(file), "avoid": addresses[0].as_str()}))?;
            Ok(read.as_array().context("a list of replicas")?.len())
        };
        (0..FILES).map(each).collect()
    };
    put_in(session, "IN_MAINTENANCE")?;
    is(session, "IN_MAINTENANCE", true)?;
    let shown = session.cluster.live_datanode(&addresses[0])?;
    ensure!(shown["adminState"] == "In Maintenance", "{shown}");
    let before = elsewhere(session)?;
    ensure!(before.iter().any(|count| *count < 2), "nothing lies on {}: {before:?}", addresses[0]);
    session.cluster.datanodes[0].stop(SETTLES_WITHIN)?;
    is(session, "IN_MAINTENANCE", false)?;
    // Time in which the NameNode could order copies by mistake.
    std::thread::sleep(Duration::from_secs(5));
    ensure!(elsewhere(session)? == before, "replicas of a node in maintenance were copied");
    session.cluster.start_datanode(0)?;
    is(session, "IN_MAINTENANCE", true)?;
    put_in(session, "NORMAL")?;
    is(session, "NORMAL", true)?;
    for file in 0..FILES {
        settles(session, &path(file), &[(file, SIZE)], 2)?;
    }
    // Does not come back this time, so everything is copied.
    put_in(session, "IN_MAINTENANCE")?;
    is(session, "IN_MAINTENANCE", true)?;
    session.cluster.datanodes[0].stop(SETTLES_WITHIN)?;
    is(session, "IN_MAINTENANCE", false)?;
    put_in(session, "NORMAL")?;
    for file in 0..FILES {
        settles(session, &path(file), &[(file, SIZE)], 2)?;
    }
    ensure!(elsewhere(session)?.iter().all(|count| *count == 2), "not all is copied");
    Ok(())
}

/// Returns the number of replicas that Hearth's DataNodes have received from each other by streams.
fn streamed(session: &Session) -> Result<u64> {
    let ours = session.cluster.datanodes.iter().filter(|datanode| datanode.implementation() == Implementation::Hearth);
    ours.map(|datanode| {
        let page = get_text(datanode.port("dfs.datanode.http.address")?, "/metrics")?;
        let line = page.lines().find_map(|line| line.strip_prefix("hearth_stream_replicas_total "));
        Ok(line.context("no figure of streams")?.parse::<u64>()?)
    })
    .sum()
}

/// Starts with no files but some on one DataNode only, on disks so small that these count.
fn balancer(session: &mut Session) -> Result<()> {
    const FILES: u64 = 60;
    for directory in ["/replication", "/decommissioned"] {
        session.java()?.call("delete", json!({"path": directory, "recursive": true}))?;
    }
    let ports = transfer_addresses(session)?;
    for (round, full) in ports.iter().enumerate().take(2) {
        let path = |file: u64| format!("/balanced-{round}/{file}");
        for file in 0..FILES {
            let create = json!({"path": path(file), "handle": "out", "replication": 1, "favored": [full]});
            session.java()?.call("create", create)?;
            write_on(session, "out", file, 0, BLOCK)?;
            session.java()?.call("close", json!({"handle": "out"}))?;
        }
        wait_until("the heartbeat that reports all files", SETTLES_WITHIN, || {
            Ok((session.cluster.live_datanode(full)?["usedSpace"].as_u64() >= Some(FILES * BLOCK)).then_some(()))
        })?;
        let before = streamed(session)?;
        let runs = balance(session, session.cluster.conf(), &["-threshold", "1"])?;
        let mut moved = 0;
        for file in 0..FILES {
            settles(session, &path(file), &[(file, BLOCK)], 1)?;
            // A late report of a move shows two replicas, of which one is deleted soon.
            let replica = wait_until("the only replica", SETTLES_WITHIN, || {
                let mut each = read_each(session, &path(file))?;
                Ok(if each.len() == 1 { each.pop() } else { None })
            })?;
            moved += u64::from(!lies_at(&replica, full));
        }
        let streamed = streamed(session)? - before;
        println!("{moved} of {FILES} moved from {full}, in {runs} runs, {streamed} by streams");
        ensure!(moved >= FILES / 4, "the balancer moved {moved} of {FILES} files");
        let all_are_ours =
            session.cluster.datanodes.iter().all(|datanode| datanode.implementation() == Implementation::Hearth);
        ensure!(!all_are_ours || streamed >= moved, "{streamed} of {moved} were moved by streams");
        session.java()?.call("delete", json!({"path": format!("/balanced-{round}"), "recursive": true}))?;
        wait_until("the files' deletion", SETTLES_WITHIN, || {
            Ok((session.cluster.live_datanode(full)?["numBlocks"].as_u64() < Some(10)).then_some(()))
        })?;
    }
    Ok(())
}

fn healthy(session: &mut Session) -> Result<()> {
    session.java()?.call("store", json!({"path": "/last", "seed": 1, "length": 3 * BLOCK}))?;
    settles(session, "/last", &[(1, 3 * BLOCK)], 3)?;
    let fsck = session.cluster.apache()?.fsck(session.cluster.conf(), ["/"])?.success()?;
    ensure!(fsck.contains("is HEALTHY"), "{fsck}");
    let report = session.cluster.apache()?.dfsadmin(session.cluster.conf(), ["-report"])?.success()?;
    ensure!(report.contains("Live datanodes (3)"), "{report}");
    let problems =
        get_text(session.cluster.namenode_http_port(), "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystem")?;
    let problems: Value = serde_json::from_str(&problems)?;
    for figure in ["CorruptBlocks", "MissingBlocks"] {
        ensure!(problems["beans"][0][figure] == 0, "{figure}: {}", problems["beans"][0][figure]);
    }
    Ok(())
}

// --- One DataNode and its NameNode.

fn pages(session: &mut Session) -> Result<()> {
    session.java()?.call("store", json!({"path": "/pages", "seed": 1, "length": 3 * BLOCK}))?;
    let port = session.cluster.datanodes[0].port("dfs.datanode.http.address")?;
    let info = jmx_bean(port, "Hadoop:service=DataNode,name=DataNodeInfo")?;
    let inner = |key: &str| -> Result<Value> {
        let text = info[key].as_str().with_context(|| format!("{key} of {info}"))?;
        serde_json::from_str(text).with_context(|| format!("{key}: {text}"))
    };
    // The bean that Apache's datanode.html reads.
    let actors = inner("BPServiceActorInfo")?;
    let actor = &actors[0];
    ensure!(actor["NamenodeHaState"] == "active" && actor["ActorState"] == "RUNNING", "{actor}");
    for figure in ["LastHeartbeat", "LastHeartbeatResponseTime", "LastBlockReport"] {
        let seconds: i64 = actor[figure].as_str().context("a text")?.parse()?;
        ensure!((0..600).contains(&seconds), "{figure}: {seconds}");
    }
    ensure!(actor["BlockPoolID"].as_str().is_some_and(|pool| pool.starts_with("BP-")), "{actor}");
    let volumes = inner("VolumeInfo")?;
    let volume = volumes.as_object().and_then(|volumes| volumes.values().next()).context("a volume")?;
    ensure!(volume["numBlocks"] == 3 && volume["storageType"] == "DISK", "{volume}");
    ensure!(inner("NamenodeAddresses")?["127.0.0.1"].is_string(), "{info}");
    ensure!(info["ClusterId"].as_str().is_some_and(|id| id.starts_with("CID-")), "{info}");
    let state = jmx_bean(port, "Hadoop:service=DataNode,name=FSDatasetState")?;
    ensure!(state["Capacity"].as_u64() > Some(0) && state["DfsUsed"].as_u64() > Some(3 * BLOCK), "{state}");
    ensure!(state["NumFailedVolumes"] == 0 && state["CacheCapacity"] == CACHE, "{state}");
    for (path, says) in [("/metrics", "hearth_replicas 3"), ("/plain", "active"), ("/conf", "dfs.datanode.data.dir")] {
        let page = get_text(port, path)?;
        ensure!(page.contains(says), "{path} does not say {says:?}: {page}");
    }
    Ok(())
}

/// Command lines of `hdfs cacheadmin`, in order.
const CACHEADMIN: &[&str] = &[
    "-listPools",
    "-addPool one",
    "-addPool one",
    "-addPool two -owner ann -group staff -mode 0750 -limit 100000 -defaultReplication 2 -maxTtl 7d",
    "-addPool bad -limit -5",
    "-listPools -stats",
    "-modifyPool two -limit 2000000 -mode 0755",
    "-modifyPool none -limit 5",
    "-addDirective -path /admin -pool one",
    "-addDirective -path /admin/file -pool two",
    "-addDirective -path /admin/file -pool none",
    "-addDirective -path /admin/large -pool two",
    "-addDirective -path /admin/large -pool two -force -replication 1",
    "-addDirective -path relative -pool one",
    "-addDirective -path /admin -pool two -ttl 30d",
    "-addDirective -path /not/there -pool one -replication 3",
    "-listDirectives",
    "-listDirectives -stats -pool one",
    "-listDirectives -path /admin/file",
    "-listDirectives -id 3",
    "-listDirectives -id 77",
    "-modifyDirective -id 1 -replication 2",
    "-modifyDirective -id 77 -replication 2",
    "-listDirectives -pool one",
    "-removeDirective 2",
    "-removeDirective 2",
    "-removeDirectives -path /not/there",
    "-listDirectives",
    "-removePool two",
    "-removePool two",
    "-listDirectives",
    "-removePool one",
    "-listPools -stats",
];

fn cacheadmin(session: &mut Session) -> Result<()> {
    for (path, length) in [("/admin/file", 70_001), ("/admin/large", 3 * BLOCK), ("/admin/below/other", 5)] {
        session.java()?.call("store", json!({"path": path, "seed": 1, "length": length}))?;
    }
    let mut answers = Vec::new();
    for line in CACHEADMIN {
        let arguments: Vec<&str> = line.split(' ').collect();
        let call = json!({"class": "org.apache.hadoop.hdfs.tools.CacheAdmin", "arguments": arguments});
        let answer = session.java()?.call("tool", call)?;
        answers.push(json!([line, answer["code"], unhurried(&answer["out"]), unhurried(&answer["err"])]));
    }
    ensure!(answers[1][2][0].as_array().is_some_and(|words| !words.is_empty()), "no output: {}", answers[1]);
    for (nth, answer) in answers.into_iter().enumerate() {
        session.same_as_oracle(&format!("{nth}: {}", CACHEADMIN[nth]), answer)?;
    }
    Ok(())
}

/// Removes log lines, expiry times of directives, and the current amount of cached data.
fn unhurried(text: &Value) -> Vec<Vec<String>> {
    let lines = text.as_str().unwrap_or_default().lines();
    let said = lines.filter(|line| !line.contains("WARN") && !line.trim_start().starts_with("at "));
    let words = |line: &str| -> Vec<String> {
        let words = line.split_whitespace().map(|word| match word.starts_with("20") && word.contains('T') {
            true => "(a date)".to_owned(),
            false => word.to_owned(),
        });
        let mut words: Vec<String> = words.collect();
        // Statistics of a directive: id, pool, copies, expiry, path, bytes needed and cached, files needed and cached.
        if words.len() == 9 && words[0].parse::<u64>().is_ok() {
            words.remove(8);
            words.remove(6);
        }
        words
    };
    said.map(words).collect()
}

fn caching(session: &mut Session) -> Result<()> {
    let size = 3 * BLOCK + 70_001;
    session.java()?.call("store", json!({"path": "/hot", "seed": 2, "length": size}))?;
    let directive = session.java()?.call("cache", json!({"path": "/hot", "pool": "pool", "replication": 2}))?;
    let cached = |session: &mut Session| -> Result<(u64, u64)> {
        let answer = session.java()?.call("cached", json!({"id": directive}))?;
        Ok((answer["needed"].as_u64().context("needed")?, answer["cached"].as_u64().context("cached")?))
    };
    let all_cached = |session: &mut Session, bytes: u64| {
        wait_until("everything to be cached", SETTLES_WITHIN, || {
            let (needed, cached) = cached(session)?;
            ensure!((needed, cached) == (bytes, bytes), "{cached} bytes of {needed}, wanted {bytes}");
            Ok(Some(()))
        })
    };
    all_cached(session, 2 * size)?;
    let locations = session.java()?.call("locations", json!({"path": "/hot"}))?;
    let hosts = locations[0]["cached"].as_array().map_or(0, Vec::len);
    ensure!(hosts > 0, "the locations do not show the cached replica: {locations}");
    // Much more data than fits in memory is read; the cached file stays.
    for other in 0..40 {
        let store = json!({"path": format!("/passing/{other}"), "seed": other, "length": 2 * BLOCK});
        session.java()?.call("store", store)?;
    }
    let port = session.cluster.datanodes[0].port("dfs.datanode.http.address")?;
    let state = jmx_bean(port, "Hadoop:service=DataNode,name=FSDatasetState")?;
    ensure!(state["NumBlocksCached"] == 4, "{state}");
    reads(session, "/hot", &[(2, size)])?;
    // An append uncaches the last block, which is cached again when it is closed.
    session.java()?.call("extend", json!({"path": "/hot", "seed": 3, "length": 70_000}))?;
    all_cached(session, 2 * (size + 70_000))?;
    reads(session, "/hot", &[(2, size), (3, 70_000)])?;
    // Data beyond dfs.datanode.max.locked.memory is not cached, and does no harm.
    session.java()?.call("store", json!({"path": "/too-much", "seed": 4, "length": 2 * CACHE}))?;
    let more = session.java()?.call("cache", json!({"path": "/too-much", "pool": "pool"}))?;
    // Time in which the DataNode could cache it by mistake.
    std::thread::sleep(Duration::from_secs(3));
    let state = jmx_bean(port, "Hadoop:service=DataNode,name=FSDatasetState")?;
    ensure!(state["CacheUsed"].as_u64() <= Some(CACHE), "{state}");
    for id in [&more, &directive] {
        session.java()?.call("uncache", json!({"id": id}))?;
    }
    wait_until("nothing to be cached", SETTLES_WITHIN, || {
        let state = jmx_bean(port, "Hadoop:service=DataNode,name=FSDatasetState")?;
        ensure!(state["CacheUsed"] == 0, "{state}");
        Ok(Some(()))
    })
}

/// A directory with policy LAZY_PERSIST. Apache's NameNode names DISK for all replicas, and its client permits lazy
/// persistence.
fn lazy_persist(session: &mut Session) -> Result<()> {
    let node = 0;
    let disk = session.cluster.datanodes[node].setting("dfs.datanode.data.dir").context("it is set")?.to_owned();
    let ram = tempfile::Builder::new().prefix("hearth-test-").tempdir_in(TMPFS)?;
    let both = format!("{disk},[RAM_DISK]file://{}", ram.path().display());
    let restart = |session: &mut Session, dirs: &str, lazy_writer: &str| -> Result<()> {
        session.cluster.datanodes[node].stop(SETTLES_WITHIN)?;
        let changes = [("dfs.datanode.data.dir", dirs), ("dfs.datanode.lazywriter.interval.sec", lazy_writer)];
        session.cluster.datanodes[node].change(&changes)?;
        session.cluster.start_datanode(node)?;
        session.cluster.wait_ready()?;
        // Waits for the first heartbeat of the new process.
        std::thread::sleep(Duration::from_secs(3));
        session.cluster.wait_ready()
    };
    // Storage types of all replicas of the file.
    let types = |session: &mut Session| -> Result<Vec<String>> {
        let blocks = session.java()?.call("locations", json!({"path": "/lazy/file"}))?;
        let blocks = blocks.as_array().context("a list of blocks")?;
        let each = blocks.iter().flat_map(|block| {
            let types = block["types"].as_str().unwrap_or_default().trim_matches(['[', ']']);
            types.split(", ").map(str::to_owned).collect::<Vec<_>>()
        });
        Ok(each.collect())
    };
    restart(session, &both, "3600")?;
    session.java()?.call("mkdirs", json!({"path": "/lazy"}))?;
    session.java()?.call("policy", json!({"path": "/lazy", "policy": "LAZY_PERSIST"}))?;
    let parts: Parts = &[(9, 2 * BLOCK + 70_001)];
    session.java()?.call("store", json!({"path": "/lazy/file", "seed": 9, "length": parts[0].1}))?;
    // One replica of each block is on the DataNode that has a RAM disk.
    wait_until("the blocks to be reported on RAM_DISK", SETTLES_WITHIN, || {
        let types = types(session)?;
        let in_memory = types.iter().filter(|kind| *kind == "RAM_DISK").count();
        ensure!((types.len(), in_memory) == (6, 3), "{types:?}");
        Ok(Some(()))
    })?;
    everywhere(session, "/lazy/file", parts, 2)?;
    let port = session.cluster.datanodes[node].port("dfs.datanode.http.address")?;
    let state = jmx_bean(port, "Hadoop:service=DataNode,name=FSDatasetState")?;
    ensure!(state["CacheUsed"].as_u64() >= Some(parts[0].1), "{state}");

    restart(session, &both, "1")?;
    wait_until("the blocks to move to DISK", SETTLES_WITHIN, || {
        let types = types(session)?;
        ensure!(types.len() == 6 && types.iter().all(|kind| kind == "DISK"), "{types:?}");
        Ok(Some(()))
    })?;
    everywhere(session, "/lazy/file", parts, 2)?;
    // No replica survives if the memory is lost with the machine.
    restart(session, &disk, "60")?;
    everywhere(session, "/lazy/file", parts, 2)?;
    session.java()?.call("delete", json!({"path": "/lazy", "recursive": true}))?;
    Ok(())
}

fn administration(session: &mut Session) -> Result<()> {
    let ipc = format!("127.0.0.1:{}", session.cluster.datanodes[1].port("dfs.datanode.ipc.address")?);
    let admin = |session: &Session, arguments: &[&str]| -> Result<String> {
        let output = session.cluster.apache()?.dfsadmin(session.cluster.conf(), arguments)?;
        output.success().with_context(|| format!("hdfs dfsadmin {}", arguments.join(" ")))
    };
    session.java()?.call("store", json!({"path": "/administered", "seed": 2, "length": 3 * BLOCK}))?;
    let info = admin(session, &["-getDatanodeInfo", &ipc])?;
    ensure!(info.contains("Software version: 3.4.2"), "{info}");
    admin(session, &["-triggerBlockReport", &ipc])?;
    admin(session, &["-setBalancerBandwidth", "5000000"])?;
    wait_until("the balancer's bandwidth to be heard of", SETTLES_WITHIN, || {
        let said = admin(session, &["-getBalancerBandwidth", &ipc])?;
        ensure!(said.contains("5000000"), "{said}");
        Ok(Some(()))
    })?;
    admin(session, &["-evictWriters", &ipc])?;
    let volumes = admin(session, &["-getVolumeReport", &ipc])?;
    ensure!(volumes.contains("DISK"), "{volumes}");
    admin(session, &["-shutdownDatanode", &ipc])?;
    wait_until("the datanode's end", SETTLES_WITHIN, || {
        Ok(session.cluster.datanodes[1].check_alive().is_err().then_some(()))
    })?;
    let log = session.cluster.datanodes[1].process().context("it ran")?.log_text();
    ensure!(log.contains("everything is on disk"), "{log}");
    session.cluster.datanodes[1].kill();
    session.cluster.start_datanode(1)?;
    session.cluster.wait_ready()?;
    reads(session, "/administered", &[(2, 3 * BLOCK)])
}

fn protection_refused(session: &mut Session) -> Result<()> {
    session.cluster.datanodes[0].stop(SETTLES_WITHIN)?;
    let conf = session.cluster.datanodes[0].conf().to_owned();
    for (key, value, harmless) in
        [("dfs.encrypt.data.transfer", "true", "false"), ("dfs.data.transfer.protection", "privacy", "")]
    {
        session.cluster.datanodes[0].change(&[(key, value)])?;
        let output = Command::new(hearth_program()?).arg("datanode").env("HADOOP_CONF_DIR", &conf).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains(key), "with {key}={value}: {said}");
        session.cluster.datanodes[0].change(&[(key, harmless)])?;
    }
    session.cluster.start_datanode(0)?;
    session.cluster.wait_ready()
}

/// One of two storage directories fails during a write. The DataNode continues if one failure is tolerated, else it
/// stops.
fn failed_volume(session: &mut Session) -> Result<()> {
    let second = session.cluster.directory().join("second-disk");
    fs::create_dir_all(&second)?;
    if let Err(error) = ReadOnly::new(&second) {
        skip_or_fail(
            "a_failed_storage_directory_is_taken_out_of_service",
            error.context("no mount of a test's own (root may)"),
        );
        return Ok(());
    }
    let first = session.cluster.datanodes[0].setting("dfs.datanode.data.dir").context("it is set")?.to_owned();
    let both = format!("{first},file://{}", second.display());
    let node = transfer_addresses(session)?[0].clone();
    let store = |session: &mut Session, directory: &str| -> Result<()> {
        for file in 0..8 {
            let store = json!({"path": format!("{directory}/{file}"), "seed": file, "length": BLOCK});
            session.java()?.call("store", store)?;
        }
        Ok(())
    };
    let read = |session: &mut Session, directory: &str| -> Result<()> {
        (0..8).try_for_each(|file| reads(session, &format!("{directory}/{file}"), &[(file, BLOCK)]))
    };
    let restart = |session: &mut Session, dirs: &str, tolerated: &str| -> Result<()> {
        session.cluster.datanodes[0].kill();
        let changes = [("dfs.datanode.data.dir", dirs), ("dfs.datanode.failed.volumes.tolerated", tolerated)];
        session.cluster.datanodes[0].change(&changes)?;
        session.cluster.start_datanode(0)?;
        session.cluster.wait_ready()?;
        // Waits for the first heartbeat of the new process.
        std::thread::sleep(Duration::from_secs(3));
        session.cluster.wait_ready()
    };
    restart(session, &both, "1")?;
    store(session, "/two-disks")?;
    let failing = ReadOnly::new(&second.join("current"))?;
    store(session, "/one-disk")?;
    wait_until("the failure to be reported", SETTLES_WITHIN, || {
        let seen = session.cluster.live_datanode(&node)?;
        ensure!(seen["volfails"] == 1, "{seen}");
        Ok(Some(()))
    })?;
    read(session, "/two-disks")?;
    read(session, "/one-disk")?;
    store(session, "/after-the-failure")?;
    // Replicas of the failed disk are copied to the other one.
    for directory in ["/two-disks", "/one-disk", "/after-the-failure"] {
        (0..8).try_for_each(|file| settles(session, &format!("{directory}/{file}"), &[(file, BLOCK)], 2))?;
    }

    drop(failing);
    restart(session, &both, "0")?;
    store(session, "/again-two-disks")?;
    let failing = ReadOnly::new(&second.join("current"))?;
    store(session, "/again-one-disk")?;
    wait_until("the datanode's end", SETTLES_WITHIN, || {
        Ok(session.cluster.datanodes[0].check_alive().is_err().then_some(()))
    })?;
    let log = session.cluster.datanodes[0].process().context("it ran")?.log_text();
    ensure!(log.contains("too many storage directories have failed"), "{log}");
    drop(failing);
    restart(session, &both, "0")?;
    for directory in ["/two-disks", "/one-disk", "/after-the-failure", "/again-two-disks", "/again-one-disk"] {
        read(session, directory)?;
        (0..8).try_for_each(|file| settles(session, &format!("{directory}/{file}"), &[(file, BLOCK)], 2))?;
    }
    Ok(())
}

/// Changes one byte of one replica, in memory and on disk. Java's client reads it, then Hearth's.
fn spoiled(session: &mut Session) -> Result<()> {
    let local = session.local("spoiled")?;
    for client in ["java", "rust"] {
        let path = format!("/spoiled/{client}");
        let before = stored(session)?;
        session.java()?.call("store", json!({"path": path, "seed": 3, "length": BLOCK}))?;
        everywhere(session, &path, &[(3, BLOCK)], 2)?;
        let (block, datanode) = new_block(session, &before)?;
        let files = spoil(session, datanode, block)?;
        let got = local.join(client);
        let mut is_wrong = false;
        wait_until("the spoiled replica to be found and removed", SETTLES_WITHIN, || {
            let right = sha256_of(&[(3, BLOCK)]);
            is_wrong |= if client == "java" {
                session.java()?.call("read", json!({"path": path}))?["sha256"] != right
            } else {
                hearth_fs(session, &["-get", "-f", &path, text(&got)?])?;
                sha256_hex(&fs::read(&got)?) != right
            };
            Ok((is_wrong || !files.iter().any(|file| file.exists())).then_some(()))
        })?;
        ensure!(!is_wrong, "{client}: wrong bytes were read");
        settles(session, &path, &[(3, BLOCK)], 2)?;
        let said = session.cluster.apache()?.fsck(session.cluster.conf(), [&path])?.success()?;
        ensure!(said.contains("is HEALTHY"), "{said}");
    }
    Ok(())
}

/// Compares what fsck says about a file whose only replica is corrupt, and about its block.
fn corrupt_file(session: &mut Session) -> Result<()> {
    let local = session.local("corrupt-file")?.join("file");
    fs::write(&local, Content::new(3).bytes(0, BLOCK as usize))?;
    let before = stored(session)?;
    session.dfs(&["-mkdir", "/corrupt"])?;
    session.dfs(&["-D", "dfs.replication=1", "-put", text(&local)?, "/corrupt/file"])?;
    let (block, datanode) = new_block(session, &before)?;
    for line in ["-blockId BLOCK", "/corrupt -list-corruptfileblocks", "/corrupt -files -blocks"] {
        fsck_said(session, "before", line, block)?;
    }
    spoil(session, datanode, block)?;
    let mut is_read = false;
    wait_until("a reader to report the replica", SETTLES_WITHIN, || {
        is_read |= session.java()?.call("read", json!({"path": "/corrupt/file"})).is_ok();
        let listed = hearth_fsck(session, &["/corrupt", "-list-corruptfileblocks"].map(str::to_owned))?;
        Ok((is_read || listed.to_string().contains(&format!("blk_{block}"))).then_some(()))
    })?;
    ensure!(!is_read, "wrong bytes were read");
    for line in ["-blockId BLOCK", "/corrupt -list-corruptfileblocks", "/corrupt -files -blocks", "/corrupt"] {
        fsck_said(session, "corrupt", line, block)?;
    }
    fsck_said(session, "corrupt", "/corrupt -delete", block)?;
    for line in ["/corrupt/file", "/corrupt -files", "/corrupt -list-corruptfileblocks"] {
        fsck_said(session, "deleted", line, block)?;
    }
    session.dfs(&["-rm", "-r", "-skipTrash", "/corrupt"]).map(drop)
}

/// Compares what `fsck -move` says and leaves in `/lost+found`, by both tools: of a file of four blocks, the second of
/// which is corrupt.
fn moved_file(session: &mut Session) -> Result<()> {
    const SEED: u64 = 5;
    const LENGTH: u64 = 4 * BLOCK - 70_001;
    for tool in ["hdfs", "hearth"] {
        let (path, copies) = (format!("/moved/{tool}"), format!("/lost+found/moved/{tool}"));
        let store = json!({"path": path, "seed": SEED, "length": LENGTH, "replication": 1});
        session.java()?.call("store", store)?;
        let listed = session.tool(FSCK, &[path.as_str(), "-files", "-blocks"])?.success()?;
        let ids = listed.split(":blk_").skip(1).filter_map(|rest| rest.split('_').next()?.parse::<u64>().ok());
        let ids: Vec<u64> = ids.collect();
        ensure!(ids.len() == 4, "{listed}");
        let block = ids[1];
        let datanode = wait_until("the second block to be on a disk", SETTLES_WITHIN, || {
            Ok(stored(session)?.into_iter().find(|(found, _)| *found == block).map(|(_, datanode)| datanode))
        })?;
        // At the block's start: the packets of the two implementations differ in size, and so would the part before.
        spoil_at(session, datanode, block, 0)?;
        let mut is_read = false;
        wait_until("a reader to report the replica", SETTLES_WITHIN, || {
            is_read |= session.java()?.call("read", json!({"path": path})).is_ok();
            let listed = hearth_fsck(session, &[path.as_str(), "-list-corruptfileblocks"].map(str::to_owned))?;
            Ok((is_read || listed.to_string().contains(&format!("blk_{block}"))).then_some(()))
        })?;
        ensure!(!is_read, "wrong bytes were read");
        // The copy of the corrupt block fails. The second time nothing is copied, because the directory exists.
        for (when, line) in [("first", "-move"), ("second", "-move"), ("at last", "-move -delete")] {
            if line.contains("-delete") {
                session.java()?.call("delete", json!({"path": copies, "recursive": true}))?;
            }
            let words: Vec<String> = [path.as_str()].into_iter().chain(line.split(' ')).map(str::to_owned).collect();
            let said = match tool {
                "hdfs" => fsck_answer(&tool_said(session.java()?, FSCK, &words, "LOCAL")?)?,
                _ => hearth_fsck(session, &words)?,
            };
            // Both tools have the same oracle: the first tool on the first cluster.
            let said = masked(&said, block).to_string().replace(&path, "/moved/TOOL");
            session.same_as_oracle(&format!("fsck {line}, {when}"), serde_json::from_str(&said)?)?;
            let listed = session.tool("org.apache.hadoop.fs.FsShell", &["-ls", "-R", "/lost+found"])?.success()?;
            let lines = listed.lines().filter(|line| !line.contains("/moved/") || line.contains(&copies));
            let lines: Vec<String> = lines.map(|line| without_time(line).replace(&copies, "COPIES")).collect();
            session.same_as_oracle(&format!("/lost+found, {when}"), json!(lines))?;
            for (name, position, length) in [("0", 0, BLOCK), ("1", 2 * BLOCK, LENGTH - 2 * BLOCK)] {
                let found = session.java()?.call("read", json!({"path": format!("{copies}/{name}")}))?;
                let wanted = Content::new(SEED).sha256(position, length);
                ensure!(found["sha256"] == wanted, "{copies}/{name}, {when}, reads as {found}");
            }
        }
        let left = session.java()?.call("exists", json!({"path": path}))?;
        ensure!(left == json!(false), "{path} was not deleted");
    }
    for path in ["/moved", "/lost+found"] {
        session.java()?.call("delete", json!({"path": path, "recursive": true}))?;
    }
    Ok(())
}

/// Returns a line of `hdfs dfs -ls` without the time of modification.
fn without_time(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [mode, replication, owner, group, length, _, _, path] => {
            [*mode, *replication, *owner, *group, *length, *path].join(" ")
        }
        _ => line.to_owned(),
    }
}

/// Runs `fsck LINE` by Apache's tool, compares its output with that of the oracle, and unless it deletes with that of
/// `hearth fsck`. `BLOCK`: the block's name.
fn fsck_said(session: &mut Session, when: &str, line: &str, block: u64) -> Result<()> {
    let name = format!("blk_{block}");
    let words: Vec<String> = line.split(' ').map(|word| word.replace("BLOCK", &name)).collect();
    let said = fsck_answer(&tool_said(session.java()?, FSCK, &words, "LOCAL")?)?;
    if !line.contains("-delete") {
        let ours = hearth_fsck(session, &words)?;
        ensure!(said == ours, "fsck {line}, {when}: {ours}, but Apache's tool says {said}");
    }
    session.same_as_oracle(&format!("fsck {line}, {when}"), masked(&said, block))
}

/// Returns an answer of fsck without names that differ between clusters, and without the lines that only Hearth's
/// NameNode has: for each file that it copies, deletes or keeps.
fn masked(said: &Value, block: u64) -> Value {
    const ONLY_HEARTHS: [&str; 4] = ["FSCK copied ", "FSCK could not read ", "FSCK did not copy ", "FSCK deleted "];
    let mask = |text: &str| {
        let text = text.replace(&format!("blk_{block}"), "BLOCK");
        // Each cluster has its own pool.
        let pool = text.split("blockpool ").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned);
        pool.map_or_else(|| text.clone(), |pool| text.replace(&pool, "POOL"))
    };
    let lines = said[1].as_array().into_iter().flatten().filter_map(Value::as_str);
    let lines = lines.filter(|line| !ONLY_HEARTHS.iter().any(|start| line.starts_with(start)));
    json!([said[0], lines.map(mask).collect::<Vec<_>>(), mask(said[2].as_str().unwrap_or_default())])
}

fn hearth_fsck(session: &Session, words: &[String]) -> Result<Value> {
    let mut command = Command::new(hearth_program()?);
    let output = command.arg("fsck").args(words).env("HADOOP_CONF_DIR", session.cluster.conf()).output()?;
    fsck_answer(&program_said(&output, "LOCAL"))
}

/// Returns the exit code as the shell shows it, the output, and the error output without the NameNode's address.
fn fsck_answer(said: &Value) -> Result<Value> {
    let code = said[0].as_i64().context("an exit code")? & 255;
    let error = said[2].as_str().unwrap_or_default().split("Connecting to namenode").next().unwrap_or_default();
    Ok(json!([code, said[1], error]))
}

/// Returns the block that has come to a disk since `before`, and its DataNode.
fn new_block(session: &Session, before: &BTreeSet<(u64, usize)>) -> Result<(u64, usize)> {
    wait_until("the new block to be on a disk", SETTLES_WITHIN, || {
        // Compared by block id only, because a new replica of an earlier block may reach the disk only now.
        let is_new = |block| !before.iter().any(|(known, _)| *known == block);
        Ok(stored(session)?.into_iter().find(|(block, _)| is_new(*block)))
    })
}

/// Changes one byte of a replica, in memory and on disk. Returns its files.
fn spoil(session: &Session, datanode: usize, block: u64) -> Result<Vec<PathBuf>> {
    spoil_at(session, datanode, block, 100_000)
}

/// Changes the byte of a replica at `position`, in memory and on disk. Returns its files.
fn spoil_at(session: &Session, datanode: usize, block: u64, position: u64) -> Result<Vec<PathBuf>> {
    let files = files_of(session, datanode, block)?;
    for file in &files {
        let file = fs::File::options().read(true).write(true).open(file)?;
        let mut byte = [0];
        file.read_exact_at(&mut byte, position)?;
        file.write_all_at(&[byte[0] ^ 1], position)?;
    }
    Ok(files)
}

/// Returns the ids of blocks with data on disks, each with the DataNode.
fn stored(session: &Session) -> Result<BTreeSet<(u64, usize)>> {
    let mut found = BTreeSet::new();
    for (index, datanode) in session.cluster.datanodes.iter().enumerate() {
        for file in files_below(&datanode.data_directory().context("a DataNode has a disk")?) {
            let is_there = file.components().any(|part| part.as_os_str() == "finalized");
            found.extend(block_of(&file).filter(|_| is_there).map(|block| (block, index)));
        }
    }
    Ok(found)
}

/// Returns the files with the data of `block`: on disk, and in memory, which Java's DataNode does not have.
fn files_of(session: &Session, datanode: usize, block: u64) -> Result<Vec<PathBuf>> {
    let datanode = &session.cluster.datanodes[datanode];
    let mut files = files_below(&datanode.data_directory().context("a DataNode has a disk")?);
    if datanode.implementation() == Implementation::Hearth {
        let memory = files_below(Path::new(datanode.setting("hearth.memory.dir").context("it is set")?));
        ensure!(memory.iter().any(|file| block_of(file) == Some(block)), "not in memory: {memory:?}");
        files.extend(memory);
    }
    files.retain(|file| block_of(file) == Some(block));
    Ok(files)
}

/// Parses the id in `blk_7`, or in `blk_7_12.data` as in memory. `None` for a meta file.
fn block_of(file: &Path) -> Option<u64> {
    let name = file.file_name()?.to_str()?.strip_prefix("blk_")?;
    match name.strip_suffix(".data") {
        Some(name) => name.split('_').next()?.parse().ok(),
        None => name.parse().ok(),
    }
}

/// Runs for longer than any key is valid.
fn keys_roll_over(session: &mut Session) -> Result<()> {
    session.java()?.call("store", json!({"path": "/old", "seed": 1, "length": 2 * BLOCK}))?;
    session.java()?.call("open", json!({"path": "/old", "handle": "in"}))?;
    session.java()?.call("create", json!({"path": "/new", "handle": "out"}))?;
    const ROUNDS: u64 = 20;
    for round in 0..ROUNDS {
        write_on(session, "out", 2, round * 10_000, 10_000)?;
        session.java()?.call("hflush", json!({"handle": "out"}))?;
        let read = json!({"handle": "in", "position": round * 50_000, "length": 4096});
        let found = session.java()?.call("pread", read)?;
        ensure!(found["sha256"] == Content::new(1).sha256(round * 50_000, 4096), "round {round}: {found}");
        // All rounds together take longer than the NameNode's keys are valid.
        std::thread::sleep(Duration::from_secs(10));
    }
    session.java()?.call("close", json!({"handle": "out"}))?;
    everywhere(session, "/new", &[(2, ROUNDS * 10_000)], 3)?;
    everywhere(session, "/old", &[(1, 2 * BLOCK)], 3)
}

// --- Helpers of the checks.

/// Returns the size of the tmpfs.
fn tmpfs_bytes() -> u64 {
    let output = Command::new("df").args(["--block-size=1", "--output=size", TMPFS]).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().nth(1).and_then(|size| size.trim().parse().ok()).unwrap_or(CAPACITY)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a temporary path is text")
}

/// Seeds and lengths of the parts that a file was written in.
type Parts<'a> = &'a [(u64, u64)];

fn sha256_of(parts: Parts) -> String {
    let mut whole = Vec::new();
    for (seed, length) in parts {
        whole.extend(Content::new(*seed).bytes(0, *length as usize));
    }
    sha256_hex(&whole)
}

fn reads(session: &mut Session, path: &str, parts: Parts) -> Result<()> {
    let found = session.java()?.call("read", json!({"path": path}))?;
    ensure!(found["sha256"] == sha256_of(parts), "{path} reads as {found}");
    Ok(())
}

fn read_each(session: &mut Session, path: &str) -> Result<Vec<Value>> {
    let each = session.java()?.call("readEach", json!({"path": path}))?;
    each.as_array().cloned().context("a list of replicas")
}

/// Returns whether any block of this reading came from `datanode`.
fn lies_at(replica: &Value, datanode: &str) -> bool {
    replica["datanodes"].as_array().is_some_and(|datanodes| datanodes.iter().any(|at| *at == *datanode))
}

/// Checks that every block of the file has `replicas` equal replicas.
fn everywhere(session: &mut Session, path: &str, parts: Parts, replicas: usize) -> Result<()> {
    let wanted = sha256_of(parts);
    if parts.iter().all(|(_, length)| *length == 0) {
        // An empty file has no blocks.
        return reads(session, path, parts);
    }
    // The last replicas of a pipeline may be reported a moment later.
    let settled = wait_until("all replicas to be reported", SETTLES_WITHIN, || {
        let each = read_each(session, path)?;
        Ok((each.len() == replicas).then_some(each))
    });
    let each = match settled {
        Ok(each) => each,
        Err(error) => bail!("{path}: {error:#}; now {:?}", read_each(session, path)?),
    };
    ensure!(each.iter().all(|replica| replica["sha256"] == wanted), "{path} reads as {each:?}");
    Ok(())
}

/// Checks the same after the NameNode has had time to settle.
fn settles(session: &mut Session, path: &str, parts: Parts, replicas: usize) -> Result<()> {
    wait_until(&format!("{replicas} replicas of {path}"), SETTLES_WITHIN, || {
        let each = read_each(session, path)?;
        ensure!(each.len() == replicas, "{each:?}");
        Ok(Some(()))
    })?;
    everywhere(session, path, parts, replicas)
}

fn closed(session: &mut Session, path: &str) -> Result<()> {
    wait_until(&format!("{path} to be closed"), SETTLES_WITHIN, || {
        Ok(session.java()?.call("isClosed", json!({"path": path}))?.as_bool().unwrap_or(false).then_some(()))
    })
}

fn transfer_addresses(session: &Session) -> Result<Vec<String>> {
    let ports = session.cluster.datanodes.iter().map(|datanode| datanode.port("dfs.datanode.address"));
    ports.map(|port| Ok(format!("127.0.0.1:{}", port?))).collect()
}
