//! Apache's Java client with the jar of Hearth's Java binding: it reads the memory of the DataNode on its machine, without
//! libhadoop. Where that is impossible, it reads as without the jar.
//!
//! The suites named `java` give the client single blocks (`LocalReplicaAccessorBuilder`). Those named `java_files` let it read
//! and write whole files by Hearth's client (`HearthFileSystem`).
//!
//! All checks run with Hearth's NameNode. With Apache's NameNode, which adds block tokens, the checks run that depend on what
//! a NameNode sends. `cargo xtask test --cluster` runs all checks there, too, and without tokens.

#![expect(clippy::disallowed_methods, reason = "it times answers of other processes, in real time")]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hearth_interop::{Check, Mount, Session, Suite, run, slow};
use hearth_testkit::{
    Apache, ClusterSpec, Content, Driver, DriverError, Implementation, NodeProcess, Process, files_below, get_text,
    hearth_jar, sha256_hex, skip_or_fail, usage, wait_until,
};
use serde_json::{Value, json};

const BLOCK: u64 = 1 << 20;

/// Sizes: replicas in slabs, one in a separate file, and several blocks with a short last chunk.
const SIZES: [u64; 5] = [1, 100, 60_000, 200_003, 3 * BLOCK + 70_001];

const CHECKS: &[Check] = &[
    ("every_byte_comes_from_memory", from_memory),
    ("buffers_of_every_kind_are_filled", buffers),
    ("positioned_reads_share_one_mapping", one_mapping),
    ("mapped_memory_is_bounded", mapped_memory),
    ("changed_file_is_read_with_new_content", changes),
    ("open_reader_keeps_its_replica", keeps),
    ("file_being_written_is_read_another_way", being_written),
    ("a_killed_datanode_comes_back", killed),
    ("other_users_read_from_memory_what_they_may", other_user),
    ("ten_thousand_opens_leave_nothing", leaks),
    ("killed_clients_leave_no_resources", nothing_left),
    ("each_class_loader_has_its_own_library", class_loaders),
    ("two_versions_of_the_jar_do_not_mix", two_versions),
    ("directory_without_execution_is_reported", no_execution),
    ("missing_library_falls_back_and_is_reported_once", no_library),
    ("library_is_kept_in_the_configured_directory", kept_library),
];

/// Checks of [`CHECKS`] that depend on block tokens or on the NameNode's answers. The others depend on the JVM.
const TOKEN_CHECKS: &[Check] = &[
    ("every_byte_comes_from_memory", from_memory),
    ("positioned_reads_share_one_mapping", one_mapping),
    ("changed_file_is_read_with_new_content", changes),
    ("file_being_written_is_read_another_way", being_written),
    ("a_killed_datanode_comes_back", killed),
    ("other_users_read_from_memory_what_they_may", other_user),
];

const MEMORY_CHECKS: &[Check] = &[("files_larger_than_memory_are_read_correctly", evicted)];

const SPOILED_CHECKS: &[Check] = &[("corrupt_replica_is_never_returned", spoiled)];

const TRUSTED_CHECKS: &[Check] = &[("streams_verify_what_they_copy", spoiled_end)];

const APACHE_CHECKS: &[Check] = &[
    ("apaches_datanodes_are_read_as_without_the_jar", as_without),
    ("required_path_fails_with_the_reason", required),
    ("files_on_apaches_datanodes_are_read_as_without_the_jar", files_as_without),
    ("files_on_apaches_datanodes_are_written_as_without_the_jar", files_written_as_without),
    ("many_files_on_apaches_datanodes_are_read_one_by_one", bulk_as_without),
    ("required_client_fails_with_the_reason", required_client),
];

/// Checks of streams that Hearth's client reads.
const FILE_CHECKS: &[Check] = &[
    ("every_byte_comes_from_memory", from_memory),
    ("buffers_of_every_kind_are_filled", buffers),
    ("every_read_is_as_hadoops", alike),
    ("contexts_read_by_hearths_client", contexts),
    ("every_write_is_as_hadoops", writes_alike),
    ("large_writes_go_to_the_datanodes_memory", written_to_memory),
    ("killed_writers_file_can_be_taken_over", killed_writer),
    ("interrupted_flush_leaves_a_writer_that_goes_on", interrupted_flush),
    ("calls_that_hang_can_be_interrupted", interrupted_while_hanging),
    ("memory_is_shown_without_copies", shown),
    ("threads_share_a_stream_until_it_is_closed", crowd),
    ("positioned_reads_share_one_mapping", one_mapping),
    ("mapped_memory_is_bounded", mapped_memory),
    ("yarns_containers_map_less", container),
    ("changed_file_is_read_with_new_content", changes),
    ("open_reader_keeps_its_replica", keeps),
    ("file_being_written_is_read_to_its_visible_length", growing),
    ("a_killed_datanode_comes_back", killed),
    ("failed_close_of_a_file_system_is_thrown_by_the_streams_close", failed_close),
    ("ten_thousand_opens_leave_nothing", leaks),
    ("two_thousand_creates_leave_nothing", creates),
    ("forgotten_contexts_leave_nothing", lost_contexts),
    ("killed_clients_leave_no_resources", nothing_left),
    ("each_class_loader_has_its_own_library", class_loaders),
    ("two_versions_of_the_jar_do_not_mix", two_versions),
    ("directory_without_execution_is_reported", no_execution),
    ("many_files_are_read_by_one_call", bulk),
    ("users_and_closed_file_systems_are_kept_apart", users),
    ("other_ways_are_taken_and_reported_once", file_fallbacks),
];

/// Checks of streams that Hearth's client reads over the network.
const REMOTE_CHECKS: &[Check] = &[
    ("bytes_take_the_configured_path", configured_path),
    ("vectored_reads_take_little_memory", vectored_memory),
    ("every_read_is_as_hadoops", alike),
    ("buffers_of_every_kind_are_filled", buffers),
    ("threads_share_a_stream_until_it_is_closed", crowd),
    ("many_files_are_read_by_one_call", bulk),
    ("one_of_two_datanodes_is_killed", one_killed),
    ("every_write_is_as_hadoops", writes_alike),
    ("calls_that_hang_can_be_interrupted", interrupted_while_hanging),
    ("datanodes_are_killed_during_a_write", written_through_a_kill),
];

/// Checks of [`FILE_CHECKS`] that depend on block tokens or on the NameNode's answers.
const FILE_TOKEN_CHECKS: &[Check] = &[
    ("every_byte_comes_from_memory", from_memory),
    ("positioned_reads_share_one_mapping", one_mapping),
    ("changed_file_is_read_with_new_content", changes),
    ("file_being_written_is_read_to_its_visible_length", growing),
    ("a_killed_datanode_comes_back", killed),
    ("many_files_are_read_by_one_call", bulk),
    // Quotas, leases and their exceptions are the NameNode's, and every pipeline has a token.
    ("every_write_is_as_hadoops", writes_alike),
    ("large_writes_go_to_the_datanodes_memory", written_to_memory),
    ("killed_writers_file_can_be_taken_over", killed_writer),
    ("users_and_closed_file_systems_are_kept_apart", users),
];

/// Checks of streams whose DataNodes hang. They take longer than the minute for which Hadoop's client then reads.
const SILENT_CHECKS: &[Check] = &[("stream_of_a_silent_datanode_is_read_from_memory_later", silent_datanode)];

const OLD_CHECKS: &[Check] = &[("older_hadoop_reads_and_writes_with_the_jar", older_hadoop)];

/// Version of Hadoop for [`OLD_CHECKS`].
const OLD_HADOOP: &str = "3.3.6";

const CODED_CHECKS: &[Check] = &[("erasure_coded_files_go_to_hadoops_client", erasure_coded)];

fn main() -> ExitCode {
    use Implementation::{Apache, Hearth};
    let of = |namenode, datanode| {
        ClusterSpec::new(namenode, datanode)
            .hearth_jar()
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
            // A DataNode that was unavailable is soon asked for descriptors again.
            .set("dfs.domain.socket.disable.interval.seconds", 1)
            .set("log4j.logger.io.hearth", "DEBUG")
    };
    let with_tokens = |spec: ClusterSpec| spec.labelled("tokens").set("dfs.block.access.token.enable", true);
    let short_of_memory = of(Hearth, Hearth)
        .labelled("16MiB")
        .set("hearth.memory.limit", 16 << 20)
        .set("hearth.memory.flush.delay", "100ms");
    let unscanned = of(Hearth, Hearth)
        .labelled("unscanned")
        .set("dfs.datanode.scan.period.hours", -1)
        .set("dfs.client.retry.window.base", 10)
        .set("hearth.memory.flush.delay", 1);
    let files = |namenode, datanode| of(namenode, datanode).hearth_file_system();
    // The clusters on which all checks run, and those on which some do.
    let split = |ours: ClusterSpec, apaches: ClusterSpec| {
        let tokens = with_tokens(apaches.clone());
        if slow() { (vec![ours, apaches, tokens], Vec::new()) } else { (vec![ours], vec![tokens]) }
    };
    let (clusters, token_clusters) = split(of(Hearth, Hearth), of(Apache, Hearth));
    let (file_clusters, file_token_clusters) = split(files(Hearth, Hearth), files(Apache, Hearth));
    let files_short_of_memory = short_of_memory.clone().hearth_file_system();
    let files_unscanned = unscanned.clone().hearth_file_system();
    let trusted = files(Hearth, Hearth)
        .labelled("trusted")
        .set("hearth.local.write.trusted", true)
        .set("dfs.datanode.scan.period.hours", -1)
        .set("dfs.client.retry.window.base", 10)
        .set("hearth.memory.flush.delay", "1h");
    let remote = |label, paths: &str| {
        files(Hearth, Hearth)
            .labelled(label)
            .datanodes(2)
            .set("dfs.replication", 2)
            .set("hearth.client.paths", paths)
            .set("hearth.one-sided.transport", "tcp")
            // A third of it is the timeout of a batch of reads, after which a busy machine would send packets.
            .set("hearth.advertise.lease", "30s")
    };
    // Hearth's NameNode has no erasure coding.
    let coded = files(Apache, Hearth).datanodes(3).labelled("erasure-coded");
    let remote_clusters = vec![remote("packets", "packets"), remote("one-sided", "one-sided,packets")];
    let mut suites = vec![
        Suite { name: "java_files", clusters: file_clusters, checks: FILE_CHECKS },
        Suite { name: "java_files", clusters: file_token_clusters, checks: FILE_TOKEN_CHECKS },
        Suite { name: "java_files", clusters: remote_clusters, checks: REMOTE_CHECKS },
        Suite { name: "java_files", clusters: vec![coded], checks: CODED_CHECKS },
        Suite { name: "java_files", clusters: vec![files_short_of_memory], checks: MEMORY_CHECKS },
        Suite { name: "java_files", clusters: vec![files_unscanned], checks: SPOILED_CHECKS },
        Suite { name: "java_files", clusters: vec![trusted], checks: TRUSTED_CHECKS },
        Suite { name: "java", clusters, checks: CHECKS },
        Suite { name: "java", clusters: token_clusters, checks: TOKEN_CHECKS },
        Suite { name: "java", clusters: vec![short_of_memory], checks: MEMORY_CHECKS },
        Suite { name: "java", clusters: vec![unscanned], checks: SPOILED_CHECKS },
        Suite { name: "java", clusters: vec![of(Apache, Apache)], checks: APACHE_CHECKS },
    ];
    if slow() {
        let old = of(Apache, Hearth).apache_version(OLD_HADOOP).labelled(OLD_HADOOP);
        suites.push(Suite { name: "java", clusters: vec![old], checks: OLD_CHECKS });
        // Hearth's NameNode tells which DataNodes are Hearth's, so that they are not asked.
        let silent = files(Apache, Hearth).labelled("silent");
        suites.push(Suite { name: "java_files", clusters: vec![silent], checks: SILENT_CHECKS });
    }
    run(&suites)
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

/// Reads all of `path`, and checks its content. Returns how many bytes came from memory.
fn carried(java: &mut Driver, path: &str, parts: &[(u64, u64)]) -> Result<u64> {
    java.call("open", json!({"path": path, "handle": "checked"}))?;
    let read = java.call("read", json!({"handle": "checked"}));
    let statistics = java.call("statistics", json!({"handle": "checked"}));
    java.call("close", json!({"handle": "checked"}))?;
    let (read, statistics) = (read?, statistics?);
    ensure!(read["sha256"] == sha256_of(parts), "{path} reads as {read}");
    let length: u64 = parts.iter().map(|(_, length)| length).sum();
    ensure!(statistics["total"] == length, "{path}: {length} bytes arrived as {statistics}");
    statistics["shortCircuit"].as_u64().context("a number of bytes")
}

/// Like `carried`, and checks that all bytes came from memory.
fn reads(java: &mut Driver, path: &str, parts: &[(u64, u64)]) -> Result<()> {
    let length: u64 = parts.iter().map(|(_, length)| length).sum();
    let carried = carried(java, path, parts)?;
    ensure!(carried == length, "{carried} of {length} bytes of {path} came from memory");
    Ok(())
}

fn from_memory(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    for (seed, length) in (1..).zip(SIZES) {
        let path = format!("/read-{length}");
        store(java, &path, seed, length)?;
        // The first reads of short blocks come inline, the later ones from a mapping.
        for _ in 0..6 {
            reads(java, &path, &[(seed, length)])?;
        }
        for (position, count) in [(length / 3, length / 2), (0, length), (length - 1, 1)] {
            let read = java.call("pread", json!({"path": path, "position": position, "length": count}))?;
            let expected = Content::new(seed).bytes(position, count as usize);
            ensure!(read["sha256"] == sha256_hex(&expected), "{path}: {count} bytes at {position}: {read}");
        }
    }
    Ok(())
}

fn buffers(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    for (seed, length) in (5..).zip([60_000, 3 * BLOCK + 70_001]) {
        let path = format!("/buffers-{length}");
        store(java, &path, seed, length)?;
        let read = java.call("buffers", json!({"path": path}))?;
        let kinds = read.as_object().context("an answer for each kind")?;
        ensure!(kinds.len() == 8, "{read}");
        let expected = sha256_of(&[(seed, length)]);
        for (kind, sha256) in kinds {
            ensure!(*sha256 == expected, "{path}: {kind} differs");
        }
    }
    Ok(())
}

/// A positioned read opens the block anew each time. The DataNode must not notice.
fn one_mapping(session: &mut Session) -> Result<()> {
    store(session.java()?, "/positioned", 9, BLOCK)?;
    reads(session.java()?, "/positioned", &[(9, BLOCK)])?;
    let before = figure(session, "hearth_short_circuit_descriptors")?;
    let timed = json!({"path": "/positioned", "length": 4096, "count": 2000, "seed": 1});
    let answer = session.java()?.call("timedPreads", timed)?;
    ensure!(answer["shortCircuit"] == 2000 * 4096, "{answer}");
    let after = figure(session, "hearth_short_circuit_descriptors")?;
    ensure!(before == after, "{} descriptors were passed", after - before);
    Ok(())
}

/// A block of 1 MiB takes 8 KiB more, for its CRCs.
fn mapped_memory(session: &mut Session) -> Result<()> {
    const LENGTH: u64 = 16 * BLOCK;
    const MOST: u64 = 4 << 20;
    /// Slots of replicas, and the kernel's count is not exact.
    const REST: u64 = 1 << 20;
    store(session.java()?, "/mapped", 10, LENGTH)?;
    let expected = sha256_of(&[(10, LENGTH)]);
    let apache = session.cluster.apache()?.clone();
    let (mut unbounded, _) = logged(session, &apache, "mapped-unbounded", &[])?;
    let most = MOST.to_string();
    let (mut bounded, _) = logged(session, &apache, "mapped-bounded", &[("hearth.client.mapped.max", &most)])?;
    for round in 0..2 {
        for java in [&mut unbounded, &mut bounded] {
            for operation in ["read", "pread"] {
                let all = json!({"path": "/mapped", "position": 0, "length": LENGTH});
                let read = java.call(operation, all)?;
                ensure!(read["sha256"] == expected, "round {round}: {operation} answers {read}");
            }
        }
        let (all, some) = (usage(unbounded.id())?.shared_memory, usage(bounded.id())?.shared_memory);
        ensure!(all > LENGTH - REST, "round {round}: {all} bytes are mapped without the bound");
        ensure!((BLOCK..=MOST + REST).contains(&some), "round {round}: {some} bytes are mapped with the bound");
    }
    Ok(())
}

/// The jar's own bound in a container of YARN, which counts mapped bytes as the container's.
fn container(session: &mut Session) -> Result<()> {
    const LONG_BLOCK: u64 = 32 << 20;
    const MOST: u64 = 288 << 20;
    /// As in `mapped_memory`.
    const REST: u64 = 1 << 20;
    let arguments = json!({"path": "/by-container", "seed": 11, "length": 10 * LONG_BLOCK, "blockSize": LONG_BLOCK});
    session.java()?.call("store", arguments)?;
    let apache = session.cluster.apache()?.clone();
    let mut command = apache.our_java(session.cluster.conf(), "Driver")?;
    let mut java = Driver::start(command.env("CONTAINER_ID", "container_1700000000000_0001_01_000002"))?;
    java.call("cat", json!({"path": "/by-container"}))?;
    let mapped = usage(java.id())?.shared_memory;
    ensure!((MOST - LONG_BLOCK..=MOST + REST).contains(&mapped), "{mapped} bytes are mapped");
    session.java()?.call("delete", json!({"path": "/by-container"}))?;
    Ok(())
}

/// The reader has the old replica's mapping cached each time.
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
        wait_until("the truncation", Duration::from_secs(180), || {
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

fn being_written(session: &mut Session) -> Result<()> {
    let mut other = session.another_java()?;
    let java = session.java()?;
    other.call("create", json!({"path": "/growing", "handle": "writer"}))?;
    let mut written = 0;
    for length in [1000, 200_000, 50_000] {
        other.call("write", json!({"handle": "writer", "seed": 61, "position": written, "length": length}))?;
        other.call("hflush", json!({"handle": "writer"}))?;
        written += length;
        carried(java, "/growing", &[(61, written)])?;
    }
    other.call("close", json!({"handle": "writer"}))?;
    reads(java, "/growing", &[(61, written)])
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
    // A replica whose opening has failed is left alone for a minute.
    wait_until("reads from memory again", Duration::from_secs(240), || {
        Ok(reads(&mut java, "/survives", &[(50, 2 * BLOCK + 5)]).is_ok().then_some(()))
    })
}

/// The NameNode decides, and with block tokens the DataNode too. The same JVM has another user's file mapped.
fn other_user(session: &mut Session) -> Result<()> {
    let mut java = session.another_java()?;
    for (path, permission) in [("/for-all", "644"), ("/for-its-owner", "600")] {
        store(&mut java, path, 55, 200_003)?;
        java.call("chmod", json!({"path": path, "permission": permission}))?;
        reads(&mut java, path, &[(55, 200_003)])?;
    }
    // The other user is the first to read this one: inline, then from a mapping.
    store(&mut java, "/for-all-short", 56, 100)?;
    java.call("as", json!({"user": "somebody-else"}))?;
    let refusal = refused_open(&mut java, "/for-its-owner")?;
    for _ in 0..6 {
        reads(&mut java, "/for-all", &[(55, 200_003)])?;
        reads(&mut java, "/for-all-short", &[(56, 100)])?;
    }

    let apache = session.cluster.apache()?.clone();
    let without = [("dfs.client.replica.accessor.builder.classes", "")];
    let (mut stock, _) = logged(session, &apache, "other-user-stock", &without)?;
    stock.call("as", json!({"user": "somebody-else"}))?;
    ensure!(carried(&mut stock, "/for-all", &[(55, 200_003)])? == 0, "the jar is in use");
    let expected = refused_open(&mut stock, "/for-its-owner")?;
    ensure!(refusal == expected, "{refusal:?}, but without the jar {expected:?}");
    Ok(())
}

/// Returns class and message of the exception with which the NameNode forbids this user to open `path`.
fn refused_open(java: &mut Driver, path: &str) -> Result<(String, String)> {
    match java.call("open", json!({"path": path, "handle": "refused"})) {
        Err(DriverError::Thrown { class, message }) if class.ends_with("AccessControlException") => {
            Ok((class, message))
        }
        other => anyhow::bail!("another user's open of {path}: {other:?}"),
    }
}

/// Returns a metric of the first DataNode's /metrics.
fn figure(session: &Session, name: &str) -> Result<u64> {
    figure_of(&session.cluster.datanodes[0], name)
}

/// Returns a metric of a DataNode's /metrics.
fn figure_of(datanode: &NodeProcess, name: &str) -> Result<u64> {
    let page = get_text(datanode.port("dfs.datanode.http.address")?, "/metrics")?;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim_start_matches("_total").strip_prefix(' '));
    value.with_context(|| format!("no {name} in {page}"))?.parse().with_context(|| name.to_owned())
}

/// Open descriptors of a process, and mappings of replicas: files on a tmpfs, and memory files.
fn held(process: u32) -> Result<(usize, usize)> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"))?.count();
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    Ok((descriptors, maps.lines().filter(|line| line.contains("/dev/shm/") || line.contains("/memfd:hearth")).count()))
}

/// Starts a JVM whose heap is resident from its start, so that growth is of other memory.
fn measured_java(session: &Session) -> Result<Driver> {
    let options = ["-Xms128m", "-Xmx128m", "-XX:+AlwaysPreTouch"];
    let apache = options.iter().fold(session.cluster.apache()?.clone(), |apache, option| apache.with_option(option));
    Driver::java(&apache, session.cluster.conf())
}

/// Bytes of a JVM's direct buffers, and its resident bytes without shared memory.
fn memory(java: &mut Driver) -> Result<(u64, u64)> {
    let direct = java.call("directMemory", json!({}))?.as_u64().context("a number of bytes")?;
    let usage = usage(java.id())?;
    Ok((direct, usage.resident - usage.shared_memory))
}

/// Waits until a JVM has about as much memory as `before`. Java's sockets keep buffers for their threads. Compiled code,
/// and what the allocator keeps, are resident.
fn memory_is_back(java: &mut Driver, before: (u64, u64)) -> Result<()> {
    const DIRECT: u64 = 4 << 20;
    const RESIDENT: u64 = 32 << 20;
    wait_until("memory to be given back", Duration::from_secs(60), || {
        let now = memory(java)?;
        ensure!(now.0 <= before.0 + DIRECT && now.1 <= before.1 + RESIDENT, "before {before:?}, then {now:?}");
        Ok(Some(()))
    })
}

/// By the file system, which writes into the DataNode's memory.
fn creates(session: &mut Session) -> Result<()> {
    const LENGTH: u64 = 100_003;
    let mut java = measured_java(session)?;
    let create = |count: u32| json!({"path": "/created", "count": count, "length": LENGTH});
    // More than the replicas that a client keeps open.
    java.call("creates", create(300))?;
    let (held_before, memory_before) = (held(java.id())?, memory(&mut java)?);
    let by = java.call("creates", create(2000))?;
    ensure!(by.as_str().is_some_and(|by| by.contains(WRITTEN_BY_HEARTH)), "{by}");
    // Deleted replicas are unmapped a moment later.
    wait_until("descriptors and mappings to be given back", Duration::from_secs(60), || {
        let now = held(java.id())?;
        let is_back = now.0 <= held_before.0 + 8 && now.1 <= held_before.1 + 4;
        ensure!(is_back, "before 2,000 creates {held_before:?}, then {now:?}");
        Ok(Some(()))
    })?;
    memory_is_back(&mut java, memory_before)?;
    carried(&mut java, "/created", &[(1, LENGTH)])?;
    Ok(())
}

fn leaks(session: &mut Session) -> Result<()> {
    let mut java = measured_java(session)?;
    let length = 200_003;
    let files: Vec<String> = (0..4).map(|index| format!("/opened-{index}")).collect();
    for path in &files {
        store(&mut java, path, 80, length)?;
        java.call("opens", json!({"path": path, "count": 250}))?;
    }
    let (before, memory_before) = (held(java.id())?, memory(&mut java)?);
    for path in &files {
        java.call("opens", json!({"path": path, "count": 2500}))?;
    }
    let after = held(java.id())?;
    // Descriptors: connections of Hadoop's client to the NameNode may come and go.
    ensure!(after.0 <= before.0 + 8 && after.1 <= before.1, "before 10,000 opens {before:?}, then {after:?}");
    memory_is_back(&mut java, memory_before)?;
    // A deleted file's memory is returned, also if streams were forgotten: once the collector has found them.
    let lost = &files[0];
    java.call("lost", json!({"path": lost, "count": 50}))?;
    java.call("delete", json!({"path": lost}))?;
    wait_until("the forgotten replica to be unmapped", Duration::from_secs(60), || {
        java.call("lost", json!({"path": files[1], "count": 1}))?;
        Ok((held(java.id())?.1 < before.1).then_some(()))
    })
}

/// A context cannot be closed. The native client of its user ends once the collector has found it.
fn lost_contexts(session: &mut Session) -> Result<()> {
    const PATH: &str = "/lost-contexts";
    const DESCRIPTORS: &str = "hearth_short_circuit_descriptors";
    const USERS: u64 = 30;
    let mut java = measured_java(session)?;
    store(&mut java, PATH, 81, 200_003)?;
    java.call("chmod", json!({"path": PATH, "permission": "644"}))?;
    java.call("opens", json!({"path": PATH, "count": 1}))?;
    java.call("lostContexts", json!({"path": PATH, "count": 1, "users": "first-"}))?;
    let (before, passed) = (held(java.id())?, figure(session, DESCRIPTORS)?);
    java.call("lostContexts", json!({"path": PATH, "count": USERS, "users": "user-"}))?;
    let passed = figure(session, DESCRIPTORS)? - passed;
    ensure!(passed >= USERS, "{USERS} users mapped the replica by {passed} descriptors");
    // Descriptors: Hadoop's client keeps connections to the NameNode for ten seconds.
    wait_until("the native clients to end", Duration::from_secs(60), || {
        // The next stream gives up what the collector has found.
        java.call("lost", json!({"path": PATH, "count": 1}))?;
        let now = held(java.id())?;
        ensure!(now.0 <= before.0 + 8 && now.1 <= before.1 + 4, "before {USERS} users {before:?}, then {now:?}");
        Ok(Some(()))
    })
}

fn nothing_left(session: &mut Session) -> Result<()> {
    let mut clients = Vec::new();
    for client in 0..2 {
        let mut java = session.another_java()?;
        for index in 0..3 {
            let path = format!("/left-{client}-{index}");
            store(&mut java, &path, 60, 300_000)?;
            reads(&mut java, &path, &[(60, 300_000)])?;
        }
        java.call("open", json!({"path": format!("/left-{client}-0"), "handle": "open"}))?;
        java.call("read", json!({"handle": "open", "length": 10}))?;
        clients.push(java);
    }
    ensure!(figure(session, "hearth_short_circuit_slots")? >= 6, "slots");
    session.java()?.call("delete", json!({"path": "/left-0-0"}))?;
    clients.into_iter().for_each(Driver::kill);
    session.end_java();
    for name in [
        "hearth_short_circuit_slots",
        "hearth_short_circuit_segments",
        "hearth_shown_replicas",
        "hearth_memory_lingering_bytes",
    ] {
        wait_until(name, Duration::from_secs(120), || Ok((figure(session, name)? == 0).then_some(())))?;
    }
    Ok(())
}

fn class_loaders(session: &mut Session) -> Result<()> {
    let jar = hearth_jar()?;
    let java = session.java()?;
    store(java, "/two-loaders", 90, 200_003)?;
    reads(java, "/two-loaders", &[(90, 200_003)])?;
    for _ in 0..2 {
        let read = java.call("otherLoader", json!({"path": "/two-loaders", "jar": jar}))?;
        ensure!(read["sha256"] == sha256_of(&[(90, 200_003)]) && read["shortCircuit"] == 200_003, "{read}");
        reads(java, "/two-loaders", &[(90, 200_003)])?;
    }
    Ok(())
}

/// The version of the jar that is tested.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Each version finds its own library, also if they keep them in one directory.
fn two_versions(session: &mut Session) -> Result<()> {
    let (jar, other) = jar_of_other_version(session)?;
    let directory = session.local("two-versions")?;
    let text = directory.to_str().context("text")?.to_owned();
    let apache = session.cluster.apache()?.clone();
    let (mut java, log) = logged(session, &apache, "two-versions", &[("hearth.java.native.dir", text.as_str())])?;
    store(&mut java, "/two-versions", 94, 200_003)?;
    reads(&mut java, "/two-versions", &[(94, 200_003)])?;
    for _ in 0..2 {
        let read = java.call("otherLoader", json!({"path": "/two-versions", "jar": jar}))?;
        ensure!(read["sha256"] == sha256_of(&[(94, 200_003)]) && read["shortCircuit"] == 200_003, "{read}");
        ensure!(read["version"] == other && read["firstVersion"] == VERSION, "{read}");
        reads(&mut java, "/two-versions", &[(94, 200_003)])?;
    }
    let files = files_below(&directory);
    let names: Vec<_> = files.iter().filter_map(|file| file.file_name()?.to_str()).collect();
    let of = |version: &str| {
        let start = format!("libhearth_java-{version}-");
        names.iter().filter(|name| name.starts_with(&start)).count()
    };
    ensure!(names.len() == 2 && of(VERSION) == 1 && of(&other) == 1, "{names:?}");
    let reports = reports(&log)?;
    ensure!(!reports.iter().any(|line| line.contains("not used")), "{reports:?}");
    Ok(())
}

/// Makes a copy of the jar that has another version of the same length, in its properties and in its native libraries.
/// Returns the copy and the version.
fn jar_of_other_version(session: &Session) -> Result<(PathBuf, String)> {
    let (start, end) = VERSION.split_at(VERSION.len() - 1);
    let other = format!("{start}{}", if end == "9" { 8 } else { 9 });
    let unpacked = session.local("other-version")?;
    run_jar(Command::new("jar").arg("xf").arg(fs::canonicalize(hearth_jar()?)?).current_dir(&unpacked))?;
    let (mut properties, mut libraries) = (0, 0);
    for file in files_below(&unpacked) {
        let count = match file.file_name().and_then(|name| name.to_str()) {
            Some("hearth.properties") => &mut properties,
            Some("libhearth_java.so") => &mut libraries,
            _ => continue,
        };
        let mut bytes = fs::read(&file)?;
        *count += replace_all(&mut bytes, VERSION.as_bytes(), other.as_bytes());
        fs::write(&file, bytes)?;
    }
    ensure!(properties == 1 && libraries > 0, "{properties} properties and {libraries} texts have the version");
    let jar = session.local("other-jar")?.join("hearth-hdfs.jar");
    // With the manifest that it had.
    run_jar(Command::new("jar").arg("cfM").arg(&jar).arg("-C").arg(&unpacked).arg("."))?;
    Ok((jar, other))
}

fn run_jar(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot start jar, which is part of the JDK")?;
    ensure!(output.status.success(), "jar: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Puts `new`, of the same length, in the place of each `old`. Returns how many there were.
fn replace_all(bytes: &mut [u8], old: &[u8], new: &[u8]) -> usize {
    let (mut from, mut count) = (0, 0);
    while let Some(at) = bytes[from..].windows(old.len()).position(|found| found == old) {
        let end = from + at + old.len();
        bytes[from + at..end].copy_from_slice(new);
        (from, count) = (end, count + 1);
    }
    count
}

/// Starts a JVM whose error output goes to a file, which is returned too.
fn logged(session: &Session, apache: &Apache, name: &str, changes: &[(&str, &str)]) -> Result<(Driver, PathBuf)> {
    let conf = session.cluster.conf_with(name, changes)?;
    let log = session.local("java")?.join(format!("{name}.log"));
    let mut command = apache.our_java(&conf, "Driver")?;
    Ok((Driver::start(command.stderr(File::create(&log)?))?, log))
}

/// Returns the log's lines of level INFO and above that name the binding.
fn reports(log: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(log)?;
    let is_report = |line: &&str| line.contains("io.hearth") || line.contains("hearth.hdfs");
    Ok(text.lines().filter(is_report).filter(|line| !line.contains(" DEBUG ")).map(str::to_owned).collect())
}

/// A platform that the jar has no library for.
fn no_library(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone().with_option("-Dos.arch=pdp11");
    let (mut java, log) = logged(session, &apache, "no-library", &[])?;
    store(&mut java, "/no-library", 91, 200_003)?;
    for _ in 0..3 {
        ensure!(carried(&mut java, "/no-library", &[(91, 200_003)])? == 0, "bytes came from memory");
    }
    let reports = reports(&log)?;
    ensure!(reports.len() == 1 && reports[0].contains("none for linux-pdp11"), "{reports:?}");

    let (mut java, _) = logged(session, &apache, "required-library", &[("hearth.java.required", "true")])?;
    refused(&mut java, "/no-library", "none for linux-pdp11")
}

/// The log names the key, and with it the jar is used.
fn no_execution(session: &mut Session) -> Result<()> {
    let directory = session.local("noexec")?;
    let _mount = match Mount::tmpfs(&directory, "noexec") {
        Ok(mount) => mount,
        Err(error) => {
            let error = error.context("no file system of a test's own (root may)");
            skip_or_fail("directory_without_execution_is_reported", error);
            return Ok(());
        }
    };
    store(session.java()?, "/no-execution", 93, 200_003)?;
    let option = format!("-Djava.io.tmpdir={}", directory.display());
    let apache = session.cluster.apache()?.clone().with_option(&option);
    let (mut java, log) = logged(session, &apache, "no-execution", &[])?;
    for _ in 0..3 {
        ensure!(carried(&mut java, "/no-execution", &[(93, 200_003)])? == 0, "bytes came from memory");
        ensure!(read_by(&mut java, "/no-execution")? == BY_HADOOP, "not read by Hadoop's client");
    }
    let reports = reports(&log)?;
    let is_told = |line: &String| line.contains("INFO") && line.contains("noexec, set hearth.java.native.dir");
    ensure!(reports.len() == 1 && is_told(&reports[0]), "{reports:?}");
    ensure!(!files_below(&directory).iter().any(|file| is_library(file)), "the library is left behind");

    let libraries = session.local("with-execution")?;
    let text = libraries.to_str().context("text")?.to_owned();
    let changes = [("hearth.java.native.dir", text.as_str())];
    let (mut java, _) = logged(session, &apache, "with-execution", &changes)?;
    reads(&mut java, "/no-execution", &[(93, 200_003)])?;
    ensure!(files_below(&libraries).iter().any(|file| is_library(file)), "no library in {text}");
    Ok(())
}

fn is_library(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libhearth_java"))
}

/// Checks that a read of `path` fails at once, with a message that contains `reason`.
fn refused(java: &mut Driver, path: &str, reason: &str) -> Result<()> {
    for operation in ["read", "pread"] {
        match java.call(operation, json!({"path": path, "position": 0, "length": 10})) {
            Err(DriverError::Thrown { class, message }) => {
                let is_reason = message.contains("hearth.java.required") && message.contains(reason);
                ensure!(class == "java.lang.IllegalStateException" && is_reason, "{operation}: {class}: {message}");
            }
            other => anyhow::bail!("{operation} of {path}: {other:?}"),
        }
    }
    Ok(())
}

fn kept_library(session: &mut Session) -> Result<()> {
    let directory = session.local("libraries")?;
    let text = directory.to_str().context("text")?.to_owned();
    let apache = session.cluster.apache()?.clone();
    let changes = [("hearth.java.native.dir", text.as_str())];
    store(session.java()?, "/kept-library", 92, 200_003)?;
    let mut kept = Vec::new();
    for name in ["first-jvm", "second-jvm"] {
        let (mut java, log) = logged(session, &apache, name, &changes)?;
        reads(&mut java, "/kept-library", &[(92, 200_003)])?;
        let reports = reports(&log)?;
        ensure!(reports.len() == 1 && reports[0].contains("from their memory"), "{reports:?}");
        let files = files_below(&directory);
        ensure!(files.len() == 1, "{files:?}");
        let file = files[0].file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        ensure!(file.starts_with(&format!("libhearth_java-{VERSION}-")), "{file}");
        kept.push(fs::metadata(&files[0])?.ino());
        // A second loader in the same JVM needs a copy, which it removes.
        let jar = hearth_jar()?;
        let read = java.call("otherLoader", json!({"path": "/kept-library", "jar": jar}))?;
        ensure!(read["shortCircuit"] == 200_003 && files_below(&directory).len() == 1, "{read}");
    }
    ensure!(kept[0] == kept[1], "the second JVM has written the library again");
    // A damaged file is replaced.
    let file = &files_below(&directory)[0];
    fs::write(file, "damaged")?;
    let (mut java, _) = logged(session, &apache, "third-jvm", &changes)?;
    reads(&mut java, "/kept-library", &[(92, 200_003)])?;
    ensure!(fs::metadata(file)?.len() > 100_000, "the damaged library is still there");
    Ok(())
}

/// Reads 48 MiB with 16 MiB of memory.
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
            java.call("buffers", json!({"path": path}))?;
        }
    }
    ensure!(figure(session, "hearth_memory_evictions")? > 0, "nothing had to leave");
    Ok(())
}

/// Changes one byte of the only replica, in memory and on disk. Apache's client then finds the corruption by its own path
/// and reports it.
fn spoiled(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    store(java, "/good", 1, BLOCK)?;
    for (round, is_mapped) in [(2, false), (3, true)] {
        let path = format!("/spoiled-{round}");
        store(session.java()?, &path, round, BLOCK)?;
        if is_mapped {
            reads(session.java()?, &path, &[(round, BLOCK)])?;
        }
        // A file can be renamed between its finding and its opening: the next search finds it again.
        let files: Vec<File> = wait_until("the block to be on the disk", Duration::from_secs(60), || {
            let found = replica_files(session, &Content::new(round).bytes(0, BLOCK as usize))?;
            let open = |file| File::options().read(true).write(true).open(file);
            match found.iter().map(open).collect::<io::Result<Vec<File>>>() {
                Ok(opened) => Ok((opened.len() >= 2).then_some(opened)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            }
        })?;
        for file in &files {
            let mut byte = [0];
            file.read_exact_at(&mut byte, 100_000)?;
            file.write_all_at(&[byte[0] ^ 1], 100_000)?;
        }
        let java = session.java()?;
        for operation in ["read", "pread"] {
            match java.call(operation, json!({"path": path, "position": 0, "length": BLOCK})) {
                Err(DriverError::Thrown { .. }) => {}
                other => anyhow::bail!("{operation} of a corrupt file: {other:?}"),
            }
        }
        reads(java, "/good", &[(1, BLOCK)])?;
    }
    Ok(())
}

/// The DataNode does not vouch for memory that its writer may still change, so the client verifies. Bad bytes at the end of
/// a block do not matter to a program that reads its start, and are never returned to one that reads them.
fn spoiled_end(session: &mut Session) -> Result<()> {
    const PATH: &str = "/spoiled-end";
    const WRITTEN: &str = "hearth_datanode_written_bytes_total{path=\"local\"}";
    // The first file makes the connections.
    store(session.java()?, "/first-trusted", 1, BLOCK)?;
    let before = figure(session, WRITTEN)?;
    store(session.java()?, PATH, 2, BLOCK)?;
    let written = figure(session, WRITTEN)? - before;
    ensure!(written == BLOCK, "{written} bytes went directly to the DataNode's memory");
    // The DataNode verifies a replica when it shows it first.
    reads(session.java()?, PATH, &[(2, BLOCK)])?;
    let content = Content::new(2).bytes(0, BLOCK as usize);
    let files = replica_files(session, &content)?;
    ensure!(!files.is_empty(), "no file has the block's bytes");
    for file in files {
        let byte = content[BLOCK as usize - 100] ^ 1;
        File::options().write(true).open(file)?.write_all_at(&[byte], BLOCK - 100)?;
    }

    let java = session.java()?;
    java.call("open", json!({"path": PATH, "handle": "start"}))?;
    let read = java.call("read", json!({"handle": "start", "length": 4096}))?;
    let statistics = java.call("statistics", json!({"handle": "start"}))?;
    ensure!(read["sha256"] == sha256_hex(&content[..4096]), "{read}");
    ensure!(statistics["shortCircuit"] == 4096 && statistics["total"] == 4096, "{statistics}");
    ensure!(figure(session, "hearth_short_circuit_anchored")? == 0, "the DataNode vouches for the bytes");
    let java = session.java()?;
    java.call("close", json!({"handle": "start"}))?;

    // A program that refuses verification gets the bytes as they are.
    let unverified = json!({"path": PATH, "piece": BLOCK, "skipChecksums": true});
    let shown = java.call("zeroCopyRead", unverified)?;
    ensure!(shown["zeroCopy"] == BLOCK && shown["sha256"] != sha256_hex(&content), "{shown}");
    let verified = json!({"path": PATH, "piece": BLOCK, "skipChecksums": false});
    let last = json!({"path": PATH, "position": BLOCK - 512, "length": 512});
    for (operation, arguments) in [("read", last), ("read", json!({"path": PATH})), ("zeroCopyRead", verified)] {
        match java.call(operation, arguments) {
            Err(DriverError::Thrown { .. }) => {}
            other => anyhow::bail!("{operation} of corrupt bytes: {other:?}"),
        }
    }
    Ok(())
}

/// Returns the files of the DataNode, on its disk and in its memory, that contain these bytes.
fn replica_files(session: &Session, bytes: &[u8]) -> Result<Vec<PathBuf>> {
    let datanode = &session.cluster.datanodes[0];
    let mut files = files_below(&datanode.data_directory().context("a DataNode has a disk")?);
    files.extend(files_below(Path::new(datanode.setting("hearth.memory.dir").context("it is set")?)));
    files.retain(|file| fs::read(file).is_ok_and(|found| found == bytes));
    Ok(files)
}

fn as_without(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone();
    let (mut java, log) = logged(session, &apache, "stock", &[])?;
    for (seed, length) in (1..).zip(SIZES) {
        let path = format!("/stock-{length}");
        store(&mut java, &path, seed, length)?;
        ensure!(carried(&mut java, &path, &[(seed, length)])? == 0, "bytes came from memory");
        java.call("buffers", json!({"path": path}))?;
    }
    let reports = reports(&log)?;
    ensure!(reports.len() == 1 && reports[0].contains("no Hearth DataNode answers"), "{reports:?}");
    Ok(())
}

fn required(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone();
    store(session.java()?, "/required", 1, 1000)?;
    let (mut java, _) = logged(session, &apache, "required", &[("hearth.java.required", "true")])?;
    refused(&mut java, "/required", "no Hearth DataNode answers")?;
    let changes = [("hearth.java.required", "true"), ("dfs.domain.socket.path", "")];
    let (mut java, _) = logged(session, &apache, "required-socket", &changes)?;
    refused(&mut java, "/required", "dfs.domain.socket.path is not set")
}

/// Class of streams that Hearth's client reads, and of Hadoop's own.
const BY_HEARTH: &str = "VectoredInputStream";
const BY_HADOOP: &str = "DFSInputStream";

/// Returns the class that reads the bytes of a file.
fn read_by(java: &mut Driver, path: &str) -> Result<String> {
    let class = java.call("readBy", json!({"path": path}))?;
    Ok(class.as_str().context("a class")?.to_owned())
}

fn alike(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    // Chunks have 512 bytes, and blocks 1 MiB. Short replicas share memory with others.
    let sizes = [0, 1, 511, 512, 513, 60_000, 65_536, 65_537, 200_003, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 70_001];
    for (seed, length) in (100..).zip(sizes) {
        let path = format!("/alike-{length}");
        store(java, &path, seed, length)?;
        let reader = if length == 0 { BY_HADOOP } else { BY_HEARTH };
        ensure!(read_by(java, &path)? == reader, "{path} is not read by {reader}");
        let compared = java.call("alike", json!({"path": path, "block": BLOCK}))?;
        ensure!(compared.as_u64().is_some_and(|compared| compared > 200), "{compared} comparisons");
    }
    Ok(())
}

fn contexts(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    let length = 2 * BLOCK + 70_001;
    store(java, "/by-context", 7, length)?;
    let answer = java.call("contextRead", json!({"path": "/by-context"}))?;
    ensure!(answer["by"] == BY_HEARTH && answer["read"]["sha256"] == sha256_of(&[(7, length)]), "{answer}");
    Ok(())
}

fn shown(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    let length = 2 * BLOCK + 70_001;
    store(java, "/shown", 8, length)?;
    for skip in [false, true] {
        let wanted = json!({"path": "/shown", "piece": 300_000, "skipChecksums": skip});
        let answer = java.call("zeroCopyRead", wanted)?;
        let is_right = answer["sha256"] == sha256_of(&[(8, length)]) && answer["zeroCopy"] == length;
        ensure!(is_right, "without checksums {skip}: {answer}");
    }
    Ok(())
}

fn crowd(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    store(java, "/crowd", 9, 5 * BLOCK + 70_001)?;
    java.call("crowd", json!({"path": "/crowd", "seed": 9, "threads": 8, "count": 200}))?;
    Ok(())
}

fn bulk(session: &mut Session) -> Result<()> {
    let java = session.java()?;
    // A replica in memory that others share, and one in a separate file.
    for (directory, length) in [("/bulk-small", 3001), ("/bulk-large", 100_003)] {
        let files = json!({"dir": directory, "count": 150, "threads": 4, "seed": 3000, "length": length});
        java.call("storeMany", files.clone())?;
        java.call("bulk", files)?;
    }
    Ok(())
}

fn growing(session: &mut Session) -> Result<()> {
    let mut other = session.another_java()?;
    let java = session.java()?;
    other.call("create", json!({"path": "/growing-file", "handle": "writer"}))?;
    let mut written = 0;
    for length in [1000, 200_000, 2 * BLOCK, 50_000] {
        other.call("write", json!({"handle": "writer", "seed": 61, "position": written, "length": length}))?;
        other.call("hflush", json!({"handle": "writer"}))?;
        written += length;
        carried(java, "/growing-file", &[(61, written)])?;
        ensure!(read_by(java, "/growing-file")? == BY_HEARTH, "after {written} bytes");
        // The visible length is that of the time when the file was opened.
        java.call("open", json!({"path": "/growing-file", "handle": "early"}))?;
        let more = json!({"handle": "writer", "seed": 61, "position": written, "length": 700});
        other.call("write", more)?;
        other.call("hflush", json!({"handle": "writer"}))?;
        let early = java.call("read", json!({"handle": "early"}));
        java.call("close", json!({"handle": "early"}))?;
        let early = early?;
        ensure!(early["sha256"] == sha256_of(&[(61, written)]), "opened at {written}: {early}");
        written += 700;
    }
    other.call("close", json!({"handle": "writer"}))?;
    reads(java, "/growing-file", &[(61, written)])
}

fn users(session: &mut Session) -> Result<()> {
    let mut java = session.another_java()?;
    store(&mut java, "/mine", 5, 200_003)?;
    java.call("chmod", json!({"path": "/mine", "permission": "600"}))?;
    java.call("open", json!({"path": "/mine", "handle": "mine"}))?;
    java.call("read", json!({"handle": "mine", "length": 10}))?;
    // A stream fails as Hadoop's when its file system is closed.
    java.call("reopen", json!({}))?;
    match java.call("read", json!({"handle": "mine", "length": 10})) {
        Err(DriverError::Thrown { class, message }) if message == "Filesystem closed" => {
            ensure!(class == "java.io.IOException", "{class}");
        }
        other => anyhow::bail!("a read after the file system was closed: {other:?}"),
    }
    reads(&mut java, "/mine", &[(5, 200_003)])?;
    java.call("as", json!({"user": "somebody-else"}))?;
    match java.call("open", json!({"path": "/mine", "handle": "theirs"})) {
        Err(DriverError::Thrown { class, .. }) if class.ends_with("AccessControlException") => Ok(()),
        other => anyhow::bail!("another user's open: {other:?}"),
    }
}

/// The only DataNode hangs when it is asked whether it is Hearth's. That does not make it another vendor's. Where
/// Hearth's client is required, the read fails with this reason.
fn silent_datanode(session: &mut Session) -> Result<()> {
    const LENGTH: u64 = 200_003;
    store(session.java()?, "/silent", 95, LENGTH)?;
    let apache = session.cluster.apache()?.clone();
    let whole = json!({"handle": "silent", "position": 0, "length": LENGTH});
    let mut javas = Vec::new();
    for required in ["true", "false"] {
        let changes = [
            ("hearth.java.required", required),
            ("dfs.client.socket-timeout", "5000"),
            ("dfs.client.retry.window.base", "10"),
        ];
        let (mut java, log) = logged(session, &apache, &format!("silent-datanode-{required}"), &changes)?;
        java.set_answer_timeout(Duration::from_secs(300));
        java.call("open", json!({"path": "/silent", "handle": "silent"}))?;
        javas.push((java, log, required == "true"));
    }
    each_datanode(session, Process::pause)?;
    // Without the key, Hadoop's client tries it too.
    let reads: Vec<_> = javas.iter_mut().map(|(java, _, _)| java.call("pread", whole.clone())).collect();
    each_datanode(session, Process::resume)?;
    for (read, (_, log, required)) in reads.into_iter().zip(&javas) {
        match read {
            Err(DriverError::Thrown { message, .. }) if is_unidentified(&message) == *required => {}
            other => anyhow::bail!("a read from a DataNode that hangs, required {required}: {other:?}"),
        }
        let reports = reports(log)?;
        let is_told = |line: &&String| line.contains("INFO") && line.contains("Hadoop's client does so for a minute: ");
        let told = reports.iter().filter(is_told).count();
        ensure!(told == usize::from(!required), "required {required}: {reports:?}");
    }
    session.cluster.wait_ready()?;
    for (java, _, required) in &mut javas {
        wait_until("the same stream to be read from memory", Duration::from_secs(180), || {
            let read = match java.call("pread", whole.clone()) {
                // The DataNode is not asked again for a minute.
                Err(DriverError::Thrown { message, .. }) if *required && is_unidentified(&message) => return Ok(None),
                read => read?,
            };
            ensure!(read["sha256"] == sha256_of(&[(95, LENGTH)]), "{read}");
            let statistics = java.call("statistics", json!({"handle": "silent"}))?;
            Ok(statistics["shortCircuit"].as_u64().filter(|bytes| *bytes >= LENGTH))
        })?;
    }
    Ok(())
}

/// Returns whether a read was refused because Hearth's client is required and the DataNodes do not answer.
fn is_unidentified(message: &str) -> bool {
    message.contains("hearth.java.required") && message.contains("cannot tell whether a Hearth datanode has")
}

fn file_fallbacks(session: &mut Session) -> Result<()> {
    store(session.java()?, "/fallback", 91, 200_003)?;
    let apache = session.cluster.apache()?.clone();
    let elsewhere = apache.clone().with_option("-Dos.arch=pdp11");
    let hedged = ("dfs.client.hedged.read.threadpool.size", "2");
    let encrypted = ("dfs.data.transfer.protection", "authentication");
    type Changes<'a> = &'a [(&'a str, &'a str)];
    // Over the sockets of Hadoop's own factory for SOCKS, which have no channel, its client reads no block.
    let factory = ("hadoop.rpc.socket.factory.class.ClientProtocol", "OwnSocketFactory");
    let cases: [(&str, &Apache, Changes, &str); 4] = [
        ("files-no-library", &elsewhere, &[], "none for linux-pdp11"),
        ("files-hedged", &apache, &[hedged], "hedged reads"),
        ("files-own-sockets", &apache, &[factory], "hadoop.rpc.socket.factory.class.ClientProtocol"),
        ("files-protected", &apache, &[encrypted], "dfs.data.transfer.protection"),
    ];
    for (name, apache, changes, reason) in cases {
        if !name.ends_with("protected") {
            let (mut java, log) = logged(session, apache, name, changes)?;
            for _ in 0..3 {
                carried(&mut java, "/fallback", &[(91, 200_003)])?;
                ensure!(read_by(&mut java, "/fallback")? == BY_HADOOP, "{name}");
                java.call("reopen", json!({}))?;
            }
            let reports = reports(&log)?;
            ensure!(reports.len() == 1 && reports[0].contains(reason), "{name}: {reports:?}");
        }
        let mut required = changes.to_vec();
        required.push(("hearth.java.required", "true"));
        let (mut java, _) = logged(session, apache, &format!("{name}-required"), &required)?;
        refused_client(&mut java, "/fallback", reason)?;
    }
    let (mut java, log) = logged(session, &apache, "files-used", &[])?;
    for _ in 0..3 {
        reads(&mut java, "/fallback", &[(91, 200_003)])?;
    }
    let reports = reports(&log)?;
    ensure!(reports.len() == 1 && reports[0].contains("Hearth's client reads the files of hdfs://"), "{reports:?}");
    Ok(())
}

/// Checks that a read of `path` fails, because Hearth's client is required and cannot be used for this reason.
fn refused_client(java: &mut Driver, path: &str, reason: &str) -> Result<()> {
    match java.call("read", json!({"path": path, "length": 10})) {
        Err(DriverError::Thrown { message, .. }) => {
            let is_reason = message.contains("hearth.java.required") && message.contains(reason);
            ensure!(is_reason, "{message}");
            Ok(())
        }
        other => anyhow::bail!("read of {path}: {other:?}"),
    }
}

/// Part of a stream's description that tells who writes.
const WRITTEN_BY_HEARTH: &str = "by Hearth's client";
const WRITTEN_BY_HADOOP: &str = "by Hadoop's client";

/// Compares every kind of write with that of Hadoop's own file system. `writer`: text that names the expected writer; empty accepts both.
fn compare_writes(java: &mut Driver, directory: &str, writer: &str) -> Result<()> {
    java.set_answer_timeout(Duration::from_secs(600));
    let compared = java.call("alikeWrites", json!({"path": directory, "block": BLOCK, "writer": writer}))?;
    ensure!(compared.as_u64().is_some_and(|compared| compared > 700), "{compared} comparisons");
    Ok(())
}

fn writes_alike(session: &mut Session) -> Result<()> {
    compare_writes(&mut session.another_java()?, "/written-alike", WRITTEN_BY_HEARTH)
}

fn written_to_memory(session: &mut Session) -> Result<()> {
    const WRITTEN: &str = "hearth_datanode_written_bytes_total{path=\"local\"}";
    let apache = session.cluster.apache()?.clone();
    let (mut java, log) = logged(session, &apache, "written-to-memory", &[("hearth.java.required", "true")])?;
    store(&mut java, "/written-to-memory", 1, BLOCK)?;
    let before = figure(session, WRITTEN)?;
    store(&mut java, "/written-to-memory", 2, 3 * BLOCK)?;
    let written = figure(session, WRITTEN)? - before;
    ensure!(written == 3 * BLOCK, "{written} bytes went directly to the DataNode's memory");
    carried(&mut java, "/written-to-memory", &[(2, 3 * BLOCK)])?;
    let reports = reports(&log)?;
    let says = |text: &str| reports.iter().filter(|line| line.contains(text)).count();
    let of_files = ["Hearth's client writes the files of hdfs://", "Hearth's client reads the files of hdfs://"];
    ensure!(reports.len() == 2 && of_files.iter().all(|text| says(text) == 1), "{reports:?}");
    Ok(())
}

/// Another client recovers the lease. Flushed bytes are there, and no byte is wrong.
fn killed_writer(session: &mut Session) -> Result<()> {
    for (seed, flushed) in [(51, 700), (52, 200_003), (53, BLOCK + 5)] {
        let path = format!("/killed-writer-{flushed}");
        let mut writer = session.another_java()?;
        writer.call("create", json!({"path": path, "handle": "writer"}))?;
        writer.call("write", json!({"handle": "writer", "seed": seed, "position": 0, "length": flushed}))?;
        writer.call("hflush", json!({"handle": "writer"}))?;
        let by = writer.call("writtenBy", json!({"handle": "writer"}))?;
        ensure!(by.as_str().is_some_and(|by| by.contains(WRITTEN_BY_HEARTH)), "{by}");
        writer.call("write", json!({"handle": "writer", "seed": seed, "position": flushed, "length": 300_000}))?;
        writer.kill();
        let java = session.java()?;
        wait_until("the file to be taken over", Duration::from_secs(180), || {
            let is_recovered = java.call("recoverLease", json!({"path": path}))?.as_bool().unwrap_or(false);
            Ok((is_recovered || java.call("isClosed", json!({"path": path}))? == true).then_some(()))
        })?;
        let read = java.call("read", json!({"path": path}))?;
        let length = read["length"].as_u64().context("a length")?;
        ensure!((flushed..=flushed + 300_000).contains(&length), "{length} bytes of {path}");
        ensure!(read["sha256"] == sha256_of(&[(seed, length)]), "{path}: other bytes");
        java.call("extend", json!({"path": path, "seed": 54, "length": 1000}))?;
        carried(java, &path, &[(seed, length), (54, 1000)])?;
    }
    Ok(())
}

/// The file system closes a stream that has lost its only DataNode. The file lacks bytes, so the stream's own close
/// must fail.
fn failed_close(session: &mut Session) -> Result<()> {
    let (path, seed) = ("/failed-close", 57);
    let mut java = session.another_java()?;
    java.set_answer_timeout(Duration::from_secs(300));
    java.call("create", json!({"path": path, "handle": "writer"}))?;
    java.call("write", json!({"handle": "writer", "seed": seed, "position": 0, "length": 70_001}))?;
    java.call("hflush", json!({"handle": "writer"}))?;
    let by = java.call("writtenBy", json!({"handle": "writer"}))?;
    ensure!(by.as_str().is_some_and(|by| by.contains(WRITTEN_BY_HEARTH)), "{by}");
    java.call("write", json!({"handle": "writer", "seed": seed, "position": 70_001, "length": 1000}))?;
    session.cluster.datanodes[0].kill();
    let file_system = java.call("reopen", json!({}));
    let stream = java.call("close", json!({"handle": "writer"}));
    session.cluster.start_datanode(0)?;
    session.cluster.wait_ready()?;
    java.call("delete", json!({"path": path}))?;
    file_system?;
    match stream {
        Err(DriverError::Thrown { class, .. }) if class == "java.io.IOException" => Ok(()),
        other => anyhow::bail!("close of a stream that has lost its DataNode: {other:?}"),
    }
}

/// As with Hadoop's stream, the exception takes the place of the thread's interrupt, so that the file can be closed.
fn interrupted_flush(session: &mut Session) -> Result<()> {
    let mut java = session.another_java()?;
    let (path, seed, early, late) = ("/interrupted-flush", 55, 700, 100_000);
    java.call("create", json!({"path": path, "handle": "writer"}))?;
    java.call("write", json!({"handle": "writer", "seed": seed, "position": 0, "length": early}))?;
    java.call("hflush", json!({"handle": "writer"}))?;
    let datanode = session.cluster.datanodes[0].process().context("a DataNode")?;
    datanode.pause()?;
    let written = java.call("write", json!({"handle": "writer", "seed": seed, "position": early, "length": late}));
    let flushed = java.call("interruptedFlush", json!({"handle": "writer"}));
    datanode.resume()?;
    written?;
    let flushed = flushed?;
    ensure!(flushed == json!({"fails": true, "interrupted": false}), "{flushed}");
    java.call("hflush", json!({"handle": "writer"}))?;
    let by = java.call("writtenBy", json!({"handle": "writer"}))?;
    ensure!(by.as_str().is_some_and(|by| by.contains(WRITTEN_BY_HEARTH)), "{by}");
    java.call("close", json!({"handle": "writer"}))?;
    carried(&mut java, path, &[(seed, early + late)])?;
    Ok(())
}

/// All DataNodes hang. An interrupted write fails the stream, and its close leaves the file open. The JVM ends with failed
/// streams open. Another client takes the files over: flushed bytes are there, and no byte is wrong.
fn interrupted_while_hanging(session: &mut Session) -> Result<()> {
    const SEED: u64 = 56;
    const FLUSHED: u64 = 70_001;
    const MORE: u64 = 1000;
    let mut java = session.another_java()?;
    // Handles, which name the files, and the bytes that are flushed before the DataNodes hang.
    let files = [("write", FLUSHED), ("hflush", FLUSHED), ("close", FLUSHED), ("left", FLUSHED), ("late", 0)];
    let path_of = |handle: &str| format!("/interrupted-{handle}");
    for (handle, flushed) in files {
        java.call("create", json!({"path": path_of(handle), "handle": handle}))?;
        if flushed > 0 {
            java.call("write", json!({"handle": handle, "seed": SEED, "position": 0, "length": flushed}))?;
            java.call("hflush", json!({"handle": handle}))?;
            let by = java.call("writtenBy", json!({"handle": handle}))?;
            ensure!(by.as_str().is_some_and(|by| by.contains(WRITTEN_BY_HEARTH)), "{by}");
        }
    }
    for handle in ["hflush", "close"] {
        java.call("write", json!({"handle": handle, "seed": SEED, "position": FLUSHED, "length": MORE}))?;
    }
    each_datanode(session, Process::pause)?;
    let outcome = interrupted_calls(java);
    each_datanode(session, Process::resume)?;
    outcome?;
    session.cluster.wait_ready()?;

    // The JVM has ended.
    let java = session.java()?;
    for (handle, flushed) in files {
        let path = path_of(handle);
        let write_failed = !matches!(handle, "hflush" | "close");
        if write_failed {
            let is_closed = java.call("isClosed", json!({"path": path}))?;
            ensure!(is_closed == false, "{path} is complete, although bytes of it are missing");
        }
        wait_until("the file to be taken over", Duration::from_secs(180), || {
            let is_recovered = java.call("recoverLease", json!({"path": path}))?.as_bool().unwrap_or(false);
            Ok((is_recovered || java.call("isClosed", json!({"path": path}))? == true).then_some(()))
        })?;
        let read = java.call("read", json!({"path": path}))?;
        let length = read["length"].as_u64().context("a length")?;
        let most = if write_failed { flushed + HANGING_BYTES } else { flushed + MORE };
        ensure!((flushed..=most).contains(&length), "{length} bytes of {path}");
        // The writes that were interrupted had zeros.
        let content = if write_failed { flushed } else { length };
        let mut bytes = Content::new(SEED).bytes(0, content as usize);
        bytes.resize(length as usize, 0);
        ensure!(read["sha256"] == sha256_hex(&bytes), "{path}: other bytes");
    }
    Ok(())
}

/// Most bytes that the driver's `interruptHanging` writes.
const HANGING_BYTES: u64 = 256 << 20;

fn each_datanode(session: &Session, does: fn(&Process) -> Result<()>) -> Result<()> {
    session.cluster.datanodes.iter().try_for_each(|datanode| does(datanode.process().context("a DataNode")?))
}

/// Interrupts calls of a JVM while the DataNodes hang, and ends the JVM.
fn interrupted_calls(mut java: Driver) -> Result<()> {
    // A busy machine needs some of it. A DataNode that hangs is given up after a minute.
    const SOON: Duration = Duration::from_secs(20);
    java.set_answer_timeout(Duration::from_secs(90));
    let calls = [
        // It needs a block, which the NameNode refuses once it counts the DataNodes as dead: after 14 seconds.
        ("late", "write"),
        ("write", "write"),
        ("hflush", "hflush"),
        ("hflush", "close"),
        ("close", "close"),
        ("left", "write"),
    ];
    for (handle, does) in calls {
        let outcome = java.call("interruptHanging", json!({"handle": handle, "does": does}))?;
        ensure!(outcome["hangs"] == true, "{does} does not hang: {outcome}");
        // The exception takes the place of the interrupt.
        let is_thrown = outcome["error"] == "java.io.InterruptedIOException" && outcome["interrupted"] == false;
        ensure!(outcome["ends"] == true && is_thrown, "{does}: {outcome}");
        let took = outcome["milliseconds"].as_u64().map(Duration::from_millis).context("a time")?;
        ensure!(took < SOON, "{does} took {took:?} to notice the interrupt");
    }
    for operation in ["hflush", "close"] {
        let started = Instant::now();
        match java.call(operation, json!({"handle": "write"})) {
            Err(DriverError::Thrown { message, .. }) if message.contains("an earlier write") => {}
            other => anyhow::bail!("{operation} after an interrupted write: {other:?}"),
        }
        ensure!(started.elapsed() < SOON, "{operation} of a failed stream took {:?}", started.elapsed());
    }
    // Hadoop closes the streams of a JVM that ends, and interrupts what takes longer than 30 seconds.
    match java.call("exit", json!({})) {
        Err(DriverError::Broken { .. }) => Ok(()),
        other => anyhow::bail!("the JVM does not end: {other:?}"),
    }
}

/// What was acknowledged stays, and the writer goes on with the other DataNode.
fn written_through_a_kill(session: &mut Session) -> Result<()> {
    for victim in 0..2 {
        let mut java = session.another_java()?;
        let (path, seed) = (format!("/written-through-{victim}"), 60 + victim as u64);
        java.call("create", json!({"path": path, "handle": "writer"}))?;
        let mut written = 0;
        for (number, length) in [700_000, 2 * BLOCK, 70_001].into_iter().enumerate() {
            let more = json!({"handle": "writer", "seed": seed, "position": written, "length": length});
            java.call("write", more)?;
            java.call("hflush", json!({"handle": "writer"}))?;
            written += length;
            if number == 0 {
                let pipeline = java.call("pipeline", json!({"handle": "writer"}))?;
                ensure!(pipeline.as_array().is_some_and(|datanodes| datanodes.len() == 2), "{pipeline}");
                session.cluster.datanodes[victim].kill();
            }
        }
        let by = java.call("writtenBy", json!({"handle": "writer"}))?;
        ensure!(by.as_str().is_some_and(|by| by.contains(WRITTEN_BY_HEARTH)), "{by}");
        java.call("close", json!({"handle": "writer"}))?;
        carried(&mut java, &path, &[(seed, written)])?;
        session.cluster.start_datanode(victim)?;
        session.cluster.wait_ready()?;
        carried(&mut java, &path, &[(seed, written)])?;
    }
    Ok(())
}

fn files_written_as_without(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone();
    let (mut java, log) = logged(session, &apache, "files-stock-writes", &ClusterSpec::HEARTH_FILE_SYSTEM)?;
    java.call("create", json!({"path": "/files-stock-written", "handle": "writer"}))?;
    java.call("write", json!({"handle": "writer", "seed": 1, "position": 0, "length": 200_003}))?;
    let by = java.call("writtenBy", json!({"handle": "writer"}))?;
    ensure!(by.as_str().is_some_and(|by| by.contains(WRITTEN_BY_HADOOP)), "{by}");
    java.call("close", json!({"handle": "writer"}))?;
    carried(&mut java, "/files-stock-written", &[(1, 200_003)])?;
    compare_writes(&mut java, "/files-stock-writes", "")?;
    // Streams that a file system cannot close are errors.
    let mut reports = reports(&log)?;
    reports.retain(|line| line.contains(" INFO "));
    ensure!(reports.len() == 1 && reports[0].contains("no DataNode with the first block"), "{reports:?}");
    let mut changes = ClusterSpec::HEARTH_FILE_SYSTEM.to_vec();
    changes.push(("hearth.java.required", "true"));
    let (mut java, _) = logged(session, &apache, "files-required-writes", &changes)?;
    match java.call("store", json!({"path": "/files-required", "seed": 1, "length": 10})) {
        Err(DriverError::Thrown { message, .. }) if message.contains("hearth.java.required") => Ok(()),
        other => anyhow::bail!("a required write: {other:?}"),
    }
}

/// By single blocks, and by whole files.
fn older_hadoop(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone();
    for (name, by) in [("older-blocks", BY_HADOOP), ("older-files", BY_HEARTH)] {
        let changes: &[(&str, &str)] = if by == BY_HEARTH { &ClusterSpec::HEARTH_FILE_SYSTEM } else { &[] };
        let (mut java, log) = logged(session, &apache, name, changes)?;
        let version = java.call("hadoopVersion", json!({}))?;
        ensure!(version == OLD_HADOOP, "Hadoop {version}");
        for (seed, length) in (1..).zip(SIZES) {
            let path = format!("/{name}-{length}");
            java.call("create", json!({"path": path, "handle": "writer"}))?;
            java.call("write", json!({"handle": "writer", "seed": seed, "length": length}))?;
            java.call("hflush", json!({"handle": "writer"}))?;
            let writer = java.call("writtenBy", json!({"handle": "writer"}))?;
            java.call("close", json!({"handle": "writer"}))?;
            let is_ours = writer.as_str().is_some_and(|writer| writer.contains(WRITTEN_BY_HEARTH));
            ensure!(is_ours == (by == BY_HEARTH), "{path} was written by {writer}");
            for _ in 0..3 {
                reads(&mut java, &path, &[(seed, length)])?;
            }
            ensure!(read_by(&mut java, &path)? == by, "{path} is not read by {by}");
            java.call("extend", json!({"path": path, "seed": seed + 100, "length": 1000}))?;
            reads(&mut java, &path, &[(seed, length), (seed + 100, 1000)])?;
        }
        let looked = java.call("methods", json!({}))?;
        let is_whole = looked["classes"].as_u64().is_some_and(|classes| classes > 20);
        ensure!(is_whole && looked["failures"] == json!([]), "{looked}");
        let reports = reports(&log)?;
        ensure!(!reports.is_empty(), "the log does not say that the jar is used");
        ensure!(!reports.iter().any(|line| line.contains("not used")), "{reports:?}");
    }
    Ok(())
}

/// Bytes that the DataNodes have counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// Written into their memory by clients and by other DataNodes.
    placed: u64,
    /// In finalized replicas that came from clients, by path.
    written_one_sided: u64,
    written_in_packets: u64,
    /// Sent to readers. One-sided reads pass no DataNode's counter.
    read_in_packets: u64,
}

impl Counted {
    /// Returns the sums over all DataNodes.
    fn now(session: &Session) -> Result<Self> {
        let sum = |name: &str| {
            session.cluster.datanodes.iter().map(|datanode| figure_of(datanode, name)).sum::<Result<u64>>()
        };
        let read = |path: &str| sum(&format!("hearth_datanode_read_bytes_total{{path=\"{path}\"}}"));
        let written = |path: &str| sum(&format!("hearth_datanode_written_bytes_total{{path=\"{path}\"}}"));
        Ok(Self {
            placed: sum("hearth_one_sided_written_bytes")?,
            written_one_sided: written("one-sided")?,
            written_in_packets: written("packets")?,
            read_in_packets: read("packets")? + read("multiplexed")?,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            placed: self.placed - before.placed,
            written_one_sided: self.written_one_sided - before.written_one_sided,
            written_in_packets: self.written_in_packets - before.written_in_packets,
            read_in_packets: self.read_in_packets - before.read_in_packets,
        }
    }
}

/// The class of a stream does not tell the path of its bytes. The DataNodes count them.
fn configured_path(session: &mut Session) -> Result<()> {
    const LENGTH: u64 = 3 * BLOCK;
    let is_one_sided = session.cluster.namenode.setting("hearth.client.paths").context("it is set")? != "packets";
    let apache = session.cluster.apache()?.clone();
    let patient = [("hearth.client.one-sided.timeout", "30s")];
    let (mut java, _) = logged(session, &apache, "configured-path", &patient)?;
    // The first file makes the connections.
    store(&mut java, "/first-by-path", 1, BLOCK)?;
    carried(&mut java, "/first-by-path", &[(1, BLOCK)])?;

    let before = Counted::now(session)?;
    // Between two DataNodes of one machine the bytes would take another path.
    java.call("create", json!({"path": "/by-path", "handle": "writer", "replication": 1}))?;
    java.call("write", json!({"handle": "writer", "seed": 2, "length": LENGTH}))?;
    let by = java.call("writtenBy", json!({"handle": "writer"}))?;
    java.call("close", json!({"handle": "writer"}))?;
    ensure!(by.as_str().is_some_and(|by| by.contains(WRITTEN_BY_HEARTH)), "{by}");
    let written = Counted::now(session)?.since(before);
    let (ours, other) = match is_one_sided {
        true => (written.written_one_sided, written.written_in_packets),
        false => (written.written_in_packets, written.written_one_sided),
    };
    ensure!((ours, other) == (LENGTH, 0), "of {LENGTH} bytes: {written:?}");
    // More than all of them if some were sent again.
    let is_placed = if is_one_sided { written.placed >= LENGTH } else { written.placed == 0 };
    ensure!(is_placed, "of {LENGTH} bytes: {written:?}");

    let before = Counted::now(session)?;
    let from_memory = carried(&mut java, "/by-path", &[(2, LENGTH)])?;
    ensure!(read_by(&mut java, "/by-path")? == BY_HEARTH, "not read by Hearth's client");
    ensure!(from_memory == 0, "{from_memory} bytes came from this machine's memory");
    if is_one_sided {
        let read = Counted::now(session)?.since(before);
        ensure!(read.read_in_packets == 0, "of {LENGTH} bytes: {read:?}");
        return Ok(());
    }
    // Bytes are counted after they were sent.
    wait_until("the DataNodes to count what they sent", Duration::from_secs(60), || {
        let read = Counted::now(session)?.since(before);
        ensure!(read.read_in_packets >= LENGTH, "of {LENGTH} bytes: {read:?}");
        Ok(Some(()))
    })
}

/// The direct buffers are memory enough, for a few long ranges and for many shorter ones.
fn vectored_memory(session: &mut Session) -> Result<()> {
    const LENGTH: u64 = 256 << 20;
    /// For what the client reads at a time, what allocators keep for their threads, and code that the JVM compiles. Less
    /// than a second copy.
    const REST: u64 = 192 << 20;
    let options = ["-Xms128m", "-Xmx128m", "-XX:+AlwaysPreTouch", "-XX:MaxDirectMemorySize=320m"];
    let apache = options.iter().fold(session.cluster.apache()?.clone(), |apache, option| apache.with_option(option));
    let mut java = Driver::java(&apache, session.cluster.conf())?;
    java.set_answer_timeout(Duration::from_secs(300));
    let file = json!({"path": "/vectored", "seed": 12, "length": LENGTH, "blockSize": 32 << 20, "replication": 1});
    java.call("store", file)?;
    ensure!(read_by(&mut java, "/vectored")? == BY_HEARTH, "not read by Hearth's client");
    let read = |ranges: u64| json!({"path": "/vectored", "seed": 12, "ranges": ranges, "length": LENGTH / ranges});
    // The connections and their buffers are made.
    java.call("vectored", json!({"path": "/vectored", "seed": 12, "ranges": 4, "length": 1 << 20}))?;
    let before = usage(java.id())?.resident_max;
    for ranges in [4, 32] {
        java.call("vectored", read(ranges))?;
        let grown = usage(java.id())?.resident_max - before;
        ensure!(grown < LENGTH + REST, "{ranges} ranges took {grown} bytes of memory");
    }
    java.call("delete", json!({"path": "/vectored"}))?;
    Ok(())
}

/// Hearth's client goes on with the other replica, in the middle of a block and with open streams.
fn one_killed(session: &mut Session) -> Result<()> {
    let mut java = session.another_java()?;
    let length = 4 * BLOCK + 5;
    store(&mut java, "/two-replicas", 50, length)?;
    java.call("open", json!({"path": "/two-replicas", "handle": "open"}))?;
    java.call("read", json!({"handle": "open", "length": 1000}))?;
    session.cluster.datanodes[0].kill();
    let rest = java.call("read", json!({"handle": "open", "length": length - 1000}))?;
    ensure!(rest["sha256"] == sha256_hex(&Content::new(50).bytes(1000, length as usize - 1000)), "{rest}");
    carried(&mut java, "/two-replicas", &[(50, length)])?;
    session.cluster.start_datanode(0)?;
    session.cluster.wait_ready()?;
    session.cluster.datanodes[1].kill();
    carried(&mut java, "/two-replicas", &[(50, length)])?;
    session.cluster.start_datanode(1)?;
    session.cluster.wait_ready()
}

fn files_as_without(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone();
    let (mut java, log) = logged(session, &apache, "files-stock", &ClusterSpec::HEARTH_FILE_SYSTEM)?;
    for (seed, length) in (1..).zip(SIZES) {
        let path = format!("/files-stock-{length}");
        store(&mut java, &path, seed, length)?;
        ensure!(carried(&mut java, &path, &[(seed, length)])? == 0, "bytes came from memory");
        java.call("buffers", json!({"path": path}))?;
        java.call("alike", json!({"path": path, "block": BLOCK}))?;
    }
    let reports = reports(&log)?;
    ensure!(reports.len() == 1 && reports[0].contains("no DataNode with the first block"), "{reports:?}");
    Ok(())
}

/// The log says so once. If Hearth's client is required, each file has the reason.
fn bulk_as_without(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone();
    let files = json!({"dir": "/files-stock-many", "count": 20, "threads": 2, "seed": 3000, "length": 3001});
    let mut changes = ClusterSpec::HEARTH_FILE_SYSTEM.to_vec();
    // So that the call reads none of them, and is not tried again for long.
    changes.extend([("hearth.client.paths", "local"), ("dfs.client.retry.window.base", "10")]);
    let (mut java, log) = logged(session, &apache, "files-stock-bulk", &changes)?;
    java.call("storeMany", files.clone())?;
    for _ in 0..2 {
        java.call("bulk", files.clone())?;
        java.call("reopen", json!({}))?;
    }
    let reports = reports(&log)?;
    let told: Vec<&String> = reports.iter().filter(|line| line.contains("a call could not read any of")).collect();
    // One more file than `count`: one that does not exist.
    let is_told = |line: &String| line.contains("INFO") && line.contains(" 21 files; they are read one by one: ");
    ensure!(told.len() == 1 && is_told(told[0]), "{reports:?}");
    changes.push(("hearth.java.required", "true"));
    let (mut java, _) = logged(session, &apache, "files-required-bulk", &changes)?;
    match java.call("bulk", files) {
        Err(DriverError::Thrown { message, .. }) if message.contains("hearth.java.required") => Ok(()),
        other => anyhow::bail!("a required read of many files: {other:?}"),
    }
}

fn required_client(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone();
    store(session.java()?, "/required-client", 1, 1000)?;
    let mut changes = ClusterSpec::HEARTH_FILE_SYSTEM.to_vec();
    changes.push(("hearth.java.required", "true"));
    let (mut java, _) = logged(session, &apache, "required-client", &changes)?;
    refused_client(&mut java, "/required-client", "no DataNode with the first block")
}

/// The jar neither writes nor reads them: their blocks contain parts, which only Hadoop's client puts together.
fn erasure_coded(session: &mut Session) -> Result<()> {
    let apache = session.cluster.apache()?.clone();
    let (mut java, log) = logged(session, &apache, "erasure-coded", &[])?;
    store(&mut java, "/replicated", 1, BLOCK)?;
    carried(&mut java, "/replicated", &[(1, BLOCK)])?;
    ensure!(read_by(&mut java, "/replicated")? == BY_HEARTH, "the jar is not in use");

    java.call("mkdirs", json!({"path": "/coded"}))?;
    java.call("erasureCode", json!({"path": "/coded", "policy": "XOR-2-1-1024k"}))?;
    for (seed, length) in (2..).zip([1, 60_000, BLOCK, 5 * BLOCK + 70_001]) {
        let path = format!("/coded/{length}");
        java.call("create", json!({"path": path, "handle": "writer"}))?;
        java.call("write", json!({"handle": "writer", "seed": seed, "length": length}))?;
        let by = java.call("writerClass", json!({"handle": "writer"}))?;
        java.call("close", json!({"handle": "writer"}))?;
        ensure!(by == "DFSStripedOutputStream", "{path} was written by {by}");
        let read = java.call("read", json!({"path": path}))?;
        ensure!(read["sha256"] == sha256_of(&[(seed, length)]), "{path} reads as {read}");
        let by = read_by(&mut java, &path)?;
        ensure!(by == "DFSStripedInputStream", "{path} is read by {by}");
        for (position, count) in [(length / 3, length / 2), (length - 1, 1)] {
            let read = java.call("pread", json!({"path": path, "position": position, "length": count}))?;
            let expected = Content::new(seed).bytes(position, count as usize);
            ensure!(read["sha256"] == sha256_hex(&expected), "{path}: {count} bytes at {position}: {read}");
        }
    }
    // One call for many files, which Hearth's client would read without a stream of Hadoop's.
    let files = json!({"dir": "/coded/many", "count": 6, "threads": 2, "seed": 3000, "length": 3001});
    java.call("storeMany", files.clone())?;
    java.call("bulk", files)?;

    // A file that the jar failed to open would be reported.
    let reports = reports(&log)?;
    let says = |text: &str| reports.iter().filter(|line| line.contains(text)).count();
    let of_files = ["Hearth's client writes the files of hdfs://", "Hearth's client reads the files of hdfs://"];
    ensure!(reports.len() == 2 && of_files.iter().all(|text| says(text) == 1), "{reports:?}");
    Ok(())
}
