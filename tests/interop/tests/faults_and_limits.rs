//! Faults that a server meets on a real machine: peers that send garbage, a second process on its directory, a
//! directory of another cluster, a full disk, memory at its limit, very many very small files. Each must end in a clear
//! error, without a hang, a crash, or lost data.
//!
//! `HEARTH_BAD_INPUT_SEED=N` repeats a run of the bad input, `HEARTH_SMALL_FILES=N` changes the number of small files.

#![expect(clippy::disallowed_methods, reason = "it waits for other processes, in real time")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use hearth_client::{CreateOptions, FileSystem, os_user_name};
use hearth_config::{Configuration, Environment};
use hearth_interop::{Check, Mount, Session, Suite, run, slow};
use hearth_testkit::{
    Cluster, ClusterSpec, Content, Implementation, NodeProcess, Process, free_port, get_text, hearth_program,
    sha256_hex, skip_or_fail, usage, wait_until,
};

const MIB: u64 = 1 << 20;
/// Timeout in which a server must answer garbage or close the connection. It takes milliseconds; this is for a busy
/// machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(45);
/// Timeout in which a write must succeed or fail.
const WRITE_WITHIN: Duration = Duration::from_secs(180);
/// Number of connections with garbage to each port.
const ATTACKS: u64 = 150;
/// Memory that a server may keep after all of them.
const GROWTH_MAX: u64 = 64 * MIB;

/// Timeout of the close of a file whose block is on no DataNode any more.
const CLOSED_WITHIN: Duration = Duration::from_secs(180);

const SMALL_FILES: u64 = 15_000;
/// The same with `--cluster`.
const SMALL_FILES_SLOW: u64 = 100_000;
const SMALL_FILE_BYTES: u64 = 100;
const SMALL_FILE_MEMORY_MAX: u64 = 4096;

/// Maximum memory of both idle processes of the unoptimised program. The release build is limited to 60 MiB.
const IDLE_MAX: u64 = 120 * MIB;

const DISTURBANCES: &[Check] = &[
    ("pages_and_metrics_show_the_state", pages),
    ("garbage_is_answered_or_disconnected", bad_input),
    ("a_second_process_on_a_directory_is_refused", second_process),
    ("file_closes_after_loss_of_all_memory", lost_memory),
    ("incomplete_name_directory_is_refused_and_recovered", name_directory),
    ("a_directory_of_another_cluster_is_refused_and_untouched", foreign_directory),
];
const IDLE: &[Check] = &[("idle_pair_uses_little_memory", idle)];
const FULL_DISK: &[Check] = &[("a_full_disk_loses_nothing", full_disk)];
const FULL_MEMORY: &[Check] = &[("data_of_four_times_memory_is_kept", full_memory)];
const SMALL: &[Check] = &[("a_small_file_costs_at_most_4_kib", small_files)];

fn main() -> ExitCode {
    let hearth = || ClusterSpec::new(Implementation::Hearth, Implementation::Hearth);
    let suite = |name, cluster, checks| Suite { name, clusters: vec![cluster], checks };
    let little_memory = |bytes: u64| hearth().set("hearth.memory.limit", bytes).set("hearth.memory.flush.delay", 1);
    run(&[
        suite("idle", hearth(), IDLE),
        suite("disturbances", hearth(), DISTURBANCES),
        suite("full_disk", little_memory(16 * MIB), FULL_DISK),
        suite("full_memory", little_memory(64 * MIB), FULL_MEMORY),
        suite("small_files", hearth(), SMALL),
    ])
}

fn idle(session: &mut Session) -> Result<()> {
    let cluster = &mut session.cluster;
    cluster.datanodes[0].kill();
    cluster.namenode.kill();
    let started = Instant::now();
    cluster.start_namenode()?;
    // A client that finds no server sleeps a second before it retries, which must not be measured.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, cluster.namenode_rpc_port()));
    wait_until("the namenode's port", Duration::from_secs(60), || Ok(Some(TcpStream::connect(address)?)))?;
    cluster.start_datanode(0)?;
    cluster.wait_ready()?;
    with_fs(cluster, async |fs| put(fs, "/first", Content::new(1), 1000).await)?;
    let ready = started.elapsed();
    let (namenode, datanode) = (usage(cluster.namenode.id()?)?, usage(cluster.datanodes[0].id()?)?);
    let both = namenode.resident + datanode.resident;
    println!(
        "idle: namenode {} KiB + datanode {} KiB = {} KiB; first file closed {ready:?} after the start",
        namenode.resident / 1024,
        datanode.resident / 1024,
        both / 1024
    );
    ensure!(both <= IDLE_MAX, "{both} bytes resident");
    Ok(())
}

// --- Garbage.

/// Protocol of a port.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    Rpc,
    Transfer,
    Http,
}

fn bad_input(session: &mut Session) -> Result<()> {
    let seed = match std::env::var("HEARTH_BAD_INPUT_SEED") {
        Ok(text) => text.parse().context("HEARTH_BAD_INPUT_SEED")?,
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    println!("HEARTH_BAD_INPUT_SEED={seed}");
    let cluster = &mut session.cluster;
    round_trip(cluster, "/before")?;
    let ids = (cluster.namenode.id()?, cluster.datanodes[0].id()?);
    let before = (usage(ids.0)?.resident, usage(ids.1)?.resident);

    let datanode = &cluster.datanodes[0];
    let ports = [
        ("the namenode's RPC", cluster.namenode_rpc_port(), Protocol::Rpc),
        ("the namenode's HTTP", cluster.namenode_http_port(), Protocol::Http),
        ("the datanode's transfer", datanode.port("dfs.datanode.address")?, Protocol::Transfer),
        ("the datanode's IPC", datanode.port("dfs.datanode.ipc.address")?, Protocol::Rpc),
        ("the datanode's HTTP", datanode.port("dfs.datanode.http.address")?, Protocol::Http),
    ];
    let mut random = Random::new(seed);
    let mut held = Vec::new();
    for (name, port, protocol) in ports {
        let started = Instant::now();
        for (what, bytes) in wrong_versions_and_sizes(protocol) {
            attack(port, &bytes, Ending::Waits).with_context(|| format!("{name} port: {what}"))?;
        }
        for number in 0..ATTACKS {
            let bytes = nonsense(protocol, &mut random);
            let said = || format!("{name} port, seed {seed}, number {number}, {} bytes", bytes.len());
            attack(port, &bytes, Ending::HangsUp).with_context(said)?;
            if number % 10 == 0 {
                // These connections stay open, with possibly incomplete requests. Other clients must not notice.
                held.push(send(port, &bytes).with_context(said)?);
            }
        }
        println!("{name} port: {ATTACKS} and more in {:?}", started.elapsed());
    }
    round_trip(cluster, "/besides")?;
    drop(held);
    round_trip(cluster, "/after")?;

    ensure!(ids == (cluster.namenode.id()?, cluster.datanodes[0].id()?), "not the same processes");
    let after = (usage(ids.0)?.resident, usage(ids.1)?.resident);
    println!(
        "resident KiB: namenode {} -> {}, datanode {} -> {}",
        before.0 >> 10,
        after.0 >> 10,
        before.1 >> 10,
        after.1 >> 10
    );
    ensure!(after.0 <= before.0 + GROWTH_MAX, "the namenode grew from {} to {} bytes", before.0, after.0);
    ensure!(after.1 <= before.1 + GROWTH_MAX, "the datanode grew from {} to {} bytes", before.1, after.1);
    for process in [&cluster.namenode, &cluster.datanodes[0]] {
        let log = process.process().context("it runs")?.log_text();
        let panic = log.lines().find(|line| line.contains("panicked"));
        ensure!(panic.is_none(), "it panicked: {panic:?}");
    }
    Ok(())
}

fn pages(session: &mut Session) -> Result<()> {
    let cluster = &session.cluster;
    round_trip(cluster, "/pages")?;
    let namenode = cluster.namenode_http_port();
    let datanode = cluster.datanodes[0].port("dfs.datanode.http.address")?;
    for (port, path, wanted) in [
        (namenode, "/metrics", "\nhearth_namenode_datanodes{state=\"live\"} 1\n"),
        (namenode, "/metrics", "\nhearth_namenode_missing_blocks 0\n"),
        (namenode, "/plain", "127.0.0.1"),
        (datanode, "/metrics", "\nhearth_datanode_written_bytes_total{path=\"packets\"} "),
        (datanode, "/metrics", "# TYPE hearth_memory_used_bytes gauge"),
        (datanode, "/plain", "BP-"),
    ] {
        let text = get_text(port, path)?;
        ensure!(text.contains(wanted), "{wanted:?} is not in {path} of port {port}: {text}");
    }
    Ok(())
}

/// Input that the server can reject without further data.
fn wrong_versions_and_sizes(protocol: Protocol) -> Vec<(&'static str, Vec<u8>)> {
    let joined = |parts: &[&[u8]]| parts.concat();
    let huge = (i32::MAX as u32).to_be_bytes();
    match protocol {
        Protocol::Rpc => vec![
            ("version 4", b"hrpc\x04\x00\x00".to_vec()),
            ("version 255", b"hrpc\xff\x00\x00".to_vec()),
            ("an unknown authentication", b"hrpc\x09\x00\x33".to_vec()),
            ("another protocol", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
            ("an oversized frame", joined(&[b"hrpc\x09\x00\x00", &huge])),
            ("a frame of negative length", joined(&[b"hrpc\x09\x00\x00", &[0xff; 4]])),
            ("a frame without a header", joined(&[b"hrpc\x09\x00\x00", &[0, 0, 0, 4], &[0xff; 4]])),
        ],
        Protocol::Transfer => vec![
            ("version 27", vec![0, 27, 81, 0]),
            ("version 29", vec![0, 29, 80, 0]),
            ("an unknown operation", vec![0, 28, 127, 0]),
            ("an oversized request", vec![0, 28, 80, 0xff, 0xff, 0xff, 0xff, 0x07]),
            ("an endless length", joined(&[&[0, 28, 81], &[0xff; 16]])),
            ("an empty write request", vec![0, 28, 80, 0]),
            ("an empty read request", vec![0, 28, 81, 0]),
        ],
        Protocol::Http => vec![
            ("no request at all", b"\x00\x01\x02\x03 nothing\r\n\r\n".to_vec()),
            ("HTTP/9.9", b"GET /jmx HTTP/9.9\r\nHost: x\r\n\r\n".to_vec()),
            ("a header of 1 MiB", joined(&[b"GET / HTTP/1.1\r\nX: ", &vec![b'x'; 1 << 20], b"\r\n\r\n"])),
            ("very many headers", joined(&[b"GET / HTTP/1.1\r\n", &b"a: b\r\n".repeat(5000), b"\r\n"])),
            ("a wrong length", b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_vec()),
        ],
    }
}

/// Random input: noise, noise after a valid beginning, and truncated valid beginnings.
fn nonsense(protocol: Protocol, random: &mut Random) -> Vec<u8> {
    let length = match random.below(4) {
        0 => random.below(8),
        1 => random.below(300),
        2 => random.below(5000),
        _ => random.below(200_000),
    };
    let noise = random.bytes(length as usize);
    let mut bytes = match (protocol, random.below(4)) {
        (_, 0) => Vec::new(),
        (Protocol::Rpc, 1) => b"hrpc\x09\x00\x00".to_vec(),
        // Frames of noise with correct lengths.
        (Protocol::Rpc, _) => {
            let mut bytes = b"hrpc\x09\x00\x00".to_vec();
            bytes.extend((length as u32).to_be_bytes());
            bytes
        }
        (Protocol::Transfer, _) => {
            let operation = [80, 81, 82, 83, 84, 85, 86, 87, 88, 127][random.below(10) as usize];
            let mut bytes = vec![0, 28, operation];
            if random.below(2) == 0 {
                // A request's length that fits in two bytes of a varint.
                let said = length.min(16_383);
                bytes.extend([said as u8 | 0x80, (said >> 7) as u8]);
            }
            bytes
        }
        (Protocol::Http, 1) => b"GET /jmx?qry=".to_vec(),
        (Protocol::Http, 2) => b"PUT /webhdfs/v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        (Protocol::Http, _) => b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n".to_vec(),
    };
    bytes.extend(noise);
    bytes
}

#[derive(PartialEq, Eq)]
enum Ending {
    /// This side stays open: the server must end the connection.
    Waits,
    HangsUp,
}

fn send(port: u16, bytes: &[u8]) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    stream.set_write_timeout(Some(ANSWER_WITHIN))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    match stream.write_all(bytes) {
        // The server may close the connection before everything is sent.
        Err(error) if hung_up(&error) => {}
        other => other.context("the server neither read nor hung up")?,
    }
    Ok(stream)
}

fn attack(port: u16, bytes: &[u8], ending: Ending) -> Result<()> {
    let mut stream = send(port, bytes)?;
    if ending == Ending::HangsUp {
        // Fails if the server has closed the connection first.
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = [0; 4096];
    match stream.read(&mut answer) {
        // End of the connection, or an answer.
        Ok(_) => Ok(()),
        Err(error) if hung_up(&error) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("neither answered nor closed within {ANSWER_WITHIN:?}")),
    }
}

fn hung_up(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::NotConnected)
}

struct Random(u64, u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed, 0)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let bytes = Content::new(self.0).bytes(self.1, count);
        self.1 += count.next_multiple_of(8) as u64;
        bytes
    }

    /// Returns a number from 0 to `bound - 1`.
    fn below(&mut self, bound: u64) -> u64 {
        u64::from_le_bytes(self.bytes(8).try_into().expect("eight bytes")) % bound
    }
}

// --- Directories.

fn second_process(session: &mut Session) -> Result<()> {
    let cluster = &session.cluster;
    let ids = (cluster.namenode.id()?, cluster.datanodes[0].id()?);
    let http = cluster.namenode_http_port();
    let rpc = cluster.namenode_rpc_port();
    let namenode = &cluster.namenode;
    let name_directory = namenode.data_directory().context("it has one")?;
    refused(cluster, "namenode", namenode, &[(http, free_port()), (rpc, free_port())], &name_directory)?;

    let datanode = &cluster.datanodes[0];
    let mut ports = Vec::new();
    for key in ["dfs.datanode.address", "dfs.datanode.ipc.address", "dfs.datanode.http.address"] {
        ports.push((datanode.port(key)?, free_port()));
    }
    refused(cluster, "datanode", datanode, &ports, &datanode.data_directory().context("it has one")?)?;

    round_trip(&session.cluster, "/with-a-second")?;
    ensure!(ids == (session.cluster.namenode.id()?, session.cluster.datanodes[0].id()?), "not the same processes");
    Ok(())
}

/// Starts another process like `node` on other ports. It must end with an error message.
fn refused(cluster: &Cluster, role: &str, node: &NodeProcess, ports: &[(u16, u16)], directory: &Path) -> Result<()> {
    let conf = cluster.directory().join(format!("second-{role}-conf"));
    fs::create_dir_all(&conf)?;
    for name in ["core-site.xml", "hdfs-site.xml"] {
        let mut text = fs::read_to_string(node.conf().join(name))?;
        for (from, to) in ports {
            text = text.replace(&format!("127.0.0.1:{from}<"), &format!("127.0.0.1:{to}<"));
        }
        fs::write(conf.join(name), text)?;
    }
    let log = cluster.directory().join(format!("second-{role}.log"));
    let mut second = start(role, &conf, &log)?;
    let status = second.wait(Duration::from_secs(120))?;
    let said = second.log_text();
    ensure!(!status.success(), "the second {role} ended with {status}: {said}");
    let named = directory.to_str().context("a temporary path is text")?;
    ensure!(said.contains(named) && said.contains("in use by another"), "the second {role} printed: {said}");
    println!("second {role}: {}", said.lines().last().unwrap_or_default());
    Ok(())
}

fn start(role: &str, conf: &Path, log: &Path) -> Result<Process> {
    let mut command = Command::new(hearth_program()?);
    Process::start(role, command.arg(role).env("HADOOP_CONF_DIR", conf), log)
}

/// All machines fail at once, and flushed data was only in memory.
fn lost_memory(session: &mut Session) -> Result<()> {
    let cluster = &mut session.cluster;
    with_fs(cluster, async |fs| {
        // Data of earlier checks is in memory, too: if its blocks were lost, the NameNode would stay in safe mode.
        for status in fs.list_all("/").await? {
            fs.delete(&format!("/{}", String::from_utf8_lossy(&status.local_name)), true).await?;
        }
        let mut writer = fs.create("/lost-memory", CreateOptions::default()).await?;
        writer.write(&[7; 100]).await?;
        writer.hflush().await?;
        // Its client vanishes too, and does not close the file.
        std::mem::forget(writer);
        Ok(())
    })?;
    let memory = memory_directory(&cluster.datanodes[0])?;
    cluster.namenode.kill();
    cluster.datanodes[0].kill();
    fs::remove_dir_all(&memory).with_context(|| format!("removing {}", memory.display()))?;
    fs::create_dir(&memory)?;
    cluster.start_namenode()?;
    cluster.start_datanode(0)?;
    cluster.wait_ready()?;
    let started = Instant::now();
    with_fs(cluster, async |fs| {
        while !fs.recover_lease("/lost-memory").await? {
            ensure!(started.elapsed() < CLOSED_WITHIN, "the file is open {CLOSED_WITHIN:?} after the start");
            // The pace of the requests: a DataNode recovers the last block.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("lost memory: the file is closed {:?} after the cluster was ready", started.elapsed());
        Ok(())
    })
}

/// A file of the name directory is missing: the NameNode names it, `-recover` reports it and then repairs the
/// directory.
fn name_directory(session: &mut Session) -> Result<()> {
    let images = session.local("images")?;
    let cluster = &mut session.cluster;
    let kept = Content::new(4);
    with_fs(cluster, async |fs| put(fs, "/before-recovery", kept, MIB).await)?;
    // For an image, the NameNode moves all changes from the journal to the tables: the lost file has nothing else.
    let mut fetch = Command::new(hearth_program()?);
    fetch.args(["dfsadmin", "-fetchImage"]).arg(&images).env("HADOOP_CONF_DIR", cluster.conf());
    let fetched = fetch.output().context("cannot start hearth")?;
    ensure!(fetched.status.success(), "{fetched:?}");
    cluster.namenode.kill();
    let current = cluster.namenode.data_directory().context("it has one")?.join("current");
    let lost = current.join("journal.0");
    fs::remove_file(&lost)?;
    let log = cluster.directory().join("namenode-without-journal.log");
    let mut refused = start("namenode", cluster.namenode.conf(), &log)?;
    let status = refused.wait(Duration::from_secs(120))?;
    let said = refused.log_text();
    let named = lost.to_str().context("a temporary path is text")?;
    ensure!(!status.success() && said.contains(named) && said.contains("is missing"), "it ended with {status}: {said}");
    ensure!(!lost.exists(), "the refused start has made {named}");
    let conf = cluster.namenode.conf().to_owned();
    let recover = |more: &[&str]| -> Result<(bool, String)> {
        let mut command = Command::new(hearth_program()?);
        let output = command.args(["namenode", "-recover"]).args(more).env("HADOOP_CONF_DIR", &conf).output()?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned()))
    };
    let (is_whole, said) = recover(&[])?;
    ensure!(!is_whole && said.contains(named) && said.contains("nothing was changed"), "it printed: {said}");
    ensure!(!lost.exists(), "looking has made {named}");
    let (is_done, said) = recover(&["-force"])?;
    ensure!(is_done && said.contains("recovered"), "it printed: {said}");
    println!("name directory: {}", said.lines().collect::<Vec<_>>().join("; "));
    cluster.start_namenode()?;
    cluster.wait_ready()?;
    with_fs(cluster, async |fs| reads_as(fs, "/before-recovery", kept, MIB).await)?;
    round_trip(cluster, "/after-recovery")
}

/// Must be the last check of its cluster, because it replaces the namespace.
fn foreign_directory(session: &mut Session) -> Result<()> {
    let cluster = &mut session.cluster;
    let kept = Content::new(3);
    with_fs(cluster, async |fs| put(fs, "/kept", kept, 3 * MIB).await)?;
    let saved = cluster.directory().join("namenode-saved");
    cluster.datanodes[0].stop(Duration::from_secs(180))?;
    cluster.namenode.stop(Duration::from_secs(180))?;
    let name_directory = cluster.namenode.data_directory().context("it has one")?;
    fs::rename(&name_directory, &saved)?;
    // Formats a new one.
    cluster.start_namenode()?;
    cluster.wait_ready()?;

    let data = cluster.datanodes[0].data_directory().context("it has one")?;
    let before = files_of(&data)?;
    ensure!(before.len() > 5, "hardly anything in {}: {before:?}", data.display());
    let log = cluster.directory().join("foreign-datanode.log");
    let mut datanode = start("datanode", cluster.datanodes[0].conf(), &log)?;
    let status = datanode.wait(Duration::from_secs(120))?;
    let said = datanode.log_text();
    ensure!(!status.success(), "a datanode with a foreign directory ended with {status}: {said}");
    let named = data.to_str().context("a temporary path is text")?;
    ensure!(said.contains(named) && said.contains("belongs to another"), "it printed: {said}");
    println!("foreign directory: {}", said.lines().last().unwrap_or_default());
    let after = files_of(&data)?;
    ensure!(before == after, "its files changed: {before:?}\nnow {after:?}");

    // With its own NameNode everything is readable again.
    cluster.namenode.kill();
    fs::remove_dir_all(&name_directory)?;
    fs::rename(&saved, &name_directory)?;
    cluster.start_namenode()?;
    cluster.start_datanode(0)?;
    cluster.wait_ready()?;
    with_fs(cluster, async |fs| reads_as(fs, "/kept", kept, 3 * MIB).await)
}

/// Returns length, modification time and SHA-256 of every file below `directory`, except the lock, which even a refused
/// process takes.
fn files_of(directory: &Path) -> Result<BTreeMap<PathBuf, (u64, i64, String)>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                directories.push(path);
            } else if path.file_name().is_none_or(|name| name != "in_use.lock") {
                let sum = sha256_hex(&fs::read(&path)?);
                files.insert(path, (metadata.len(), metadata.mtime(), sum));
            }
        }
    }
    Ok(files)
}

// --- Space.

fn full_disk(session: &mut Session) -> Result<()> {
    const FILES: u64 = 96;
    let cluster = &mut session.cluster;
    let data = cluster.datanodes[0].data_directory().context("it has one")?;
    cluster.datanodes[0].kill();
    fs::rename(&data, cluster.directory().join("first-data"))?;
    fs::create_dir(&data)?;
    let mount = match Mount::tmpfs(&data, &format!("size={}", 48 * MIB)) {
        Ok(mount) => mount,
        Err(error) => {
            skip_or_fail("a_full_disk_loses_nothing", error.context("no file system of a test's own (root may)"));
            return Ok(());
        }
    };
    cluster.start_datanode(0)?;
    wait_writable(cluster)?;

    let (kept, refusals) = store_many(cluster, "/full", FILES)?;
    println!("full disk: {} of {FILES} files of 1 MiB acknowledged; e.g. {:?}", kept.len(), refusals.first());
    ensure!(!refusals.is_empty(), "{FILES} MiB were written to a disk of 48 MiB");
    ensure!(kept.len() >= 20, "only {} files were written", kept.len());
    read_all(cluster, "/full", &kept).context("on a full disk")?;
    cluster.datanodes[0].kill();
    cluster.start_datanode(0)?;
    wait_restarted(cluster)?;
    read_all(cluster, "/full", &kept).context("after a restart on a full disk")?;

    // Acknowledged while the disk had space, which is used up when the replica is flushed.
    with_fs(cluster, async |fs| {
        for number in &kept[..12] {
            ensure!(fs.delete(&format!("/full/{number}"), false).await?, "it was there");
        }
        Ok(())
    })?;
    wait_writable(cluster)?;
    let (late, _) = store_many(cluster, "/late", 6)?;
    let filler = data.join("filler");
    let filled = fill(&filler)?;
    // Time for the DataNode to try to flush the replicas.
    std::thread::sleep(Duration::from_secs(3));
    println!("{} files acknowledged, then {filled} bytes of a foreign file on the disk", late.len());
    let kept = &kept[12..];
    for round in ["before", "after"] {
        read_all(cluster, "/late", &late).with_context(|| format!("{round} a kill, disk full to the last byte"))?;
        read_all(cluster, "/full", kept).with_context(|| format!("{round} a kill, disk full to the last byte"))?;
        cluster.datanodes[0].kill();
        cluster.start_datanode(0)?;
        wait_restarted(cluster)?;
    }
    fs::remove_file(&filler)?;

    // After space was freed, it continues.
    let (gone, stay) = kept.split_at(kept.len() / 2);
    with_fs(cluster, async |fs| {
        for number in gone {
            ensure!(fs.delete(&format!("/full/{number}"), false).await?, "it was there");
        }
        Ok(())
    })?;
    wait_writable(cluster)?;
    read_all(cluster, "/full", stay).context("after making space")?;
    read_all(cluster, "/late", &late).context("after making space")?;
    cluster.datanodes[0].kill();
    drop(mount);
    Ok(())
}

fn full_memory(session: &mut Session) -> Result<()> {
    const FILES: u64 = 256;
    let cluster = &mut session.cluster;
    let started = Instant::now();
    let (kept, refusals) = store_many(cluster, "/much", FILES)?;
    println!("memory of 64 MiB: {} of {FILES} MiB acknowledged in {:?}", kept.len(), started.elapsed());
    ensure!(refusals.is_empty(), "refused with room on the disk: {refusals:?}");
    let memory = tree_bytes(&memory_directory(&cluster.datanodes[0])?)?;
    ensure!(memory <= 66 * MIB, "{memory} bytes of memory are taken, 64 MiB allowed");
    read_all(cluster, "/much", &kept)?;
    cluster.datanodes[0].kill();
    cluster.start_datanode(0)?;
    wait_restarted(cluster)?;
    read_all(cluster, "/much", &kept).context("after SIGKILL")
}

/// Writes a file until the disk is completely full. Returns its length.
fn fill(path: &Path) -> Result<u64> {
    let mut file = fs::File::create(path)?;
    let mut filled = 0;
    for piece in [vec![1; MIB as usize], vec![1; 4096], vec![1; 1]] {
        loop {
            match file.write(&piece) {
                Ok(count) => filled += count as u64,
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => return Err(error).context("filling the disk"),
            }
        }
    }
    Ok(filled)
}

/// Stores files of 1 MiB. Returns the numbers of acknowledged files, and the errors of the others.
fn store_many(cluster: &Cluster, directory: &str, count: u64) -> Result<(Vec<u64>, Vec<String>)> {
    let fs = connect(cluster)?;
    let next = Arc::new(AtomicU64::new(0));
    runtime()?.block_on(async {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                let (fs, next, directory) = (fs.clone(), next.clone(), directory.to_owned());
                tokio::spawn(async move {
                    let (mut kept, mut refused) = (Vec::new(), Vec::new());
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return Ok((kept, refused));
                        }
                        let path = format!("{directory}/{number}");
                        let writing = put(&fs, &path, Content::new(number), MIB);
                        match tokio::time::timeout(WRITE_WITHIN, writing).await {
                            Ok(Ok(())) => kept.push(number),
                            Ok(Err(error)) => refused.push(format!("{path}: {error:#}")),
                            Err(_) => bail!("{path} was neither written nor refused within {WRITE_WITHIN:?}"),
                        }
                        // A full disk stays full, so a few refusals are enough.
                        if refused.len() >= 3 {
                            return Ok((kept, refused));
                        }
                    }
                })
            })
            .collect();
        let (mut kept, mut refused) = (Vec::new(), Vec::new());
        for writer in writers {
            let (some_kept, some_refused) = writer.await??;
            kept.extend(some_kept);
            refused.extend(some_refused);
        }
        Ok((kept, refused))
    })
}

fn read_all(cluster: &Cluster, directory: &str, numbers: &[u64]) -> Result<()> {
    with_fs(cluster, async |fs| {
        for number in numbers {
            let path = format!("{directory}/{number}");
            let reading = reads_as(fs, &path, Content::new(*number), MIB);
            tokio::time::timeout(WRITE_WITHIN, reading).await.with_context(|| format!("reading {number} hangs"))??;
        }
        Ok(())
    })
}

/// Waits until a file of 1 MiB can be written, that is, until the DataNode has reported its free space.
fn wait_writable(cluster: &Cluster) -> Result<()> {
    let fs = connect(cluster)?;
    let runtime = runtime()?;
    wait_until("a write to succeed", Duration::from_secs(180), || {
        let _ = runtime.block_on(fs.delete("/probe", false));
        runtime.block_on(put(&fs, "/probe", Content::new(7), MIB))?;
        Ok(Some(()))
    })
}

/// After a kill and a restart of the DataNode, the NameNode still counts the old process as live. Only the new port
/// identifies the new one.
fn wait_restarted(cluster: &mut Cluster) -> Result<()> {
    let port = cluster.datanodes[0].port("dfs.datanode.address")?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_until("the datanode's port", Duration::from_secs(60), || Ok(Some(TcpStream::connect(address)?)))?;
    // Waits for its registration and block report.
    std::thread::sleep(Duration::from_secs(3));
    cluster.wait_ready()
}

// --- Small files.

fn small_files(session: &mut Session) -> Result<()> {
    let count = match std::env::var("HEARTH_SMALL_FILES") {
        Ok(text) => text.parse().context("HEARTH_SMALL_FILES")?,
        Err(_) if slow() => SMALL_FILES_SLOW,
        Err(_) => SMALL_FILES,
    };
    let cluster = &session.cluster;
    let memory = memory_directory(&cluster.datanodes[0])?;
    let id = cluster.datanodes[0].id()?;
    // So that one-time costs of the first file (threads, buffers) are not counted for the many.
    with_fs(cluster, async |fs| put_small(fs.clone(), "/warm".to_owned(), 500, 64).await)?;
    let own = || -> Result<u64> { usage(id).map(|usage| usage.resident - usage.shared_memory) };
    let (resident, in_memory) = (own()?, tree_bytes(&memory)?);
    let namenode = usage(cluster.namenode.id()?)?.resident;

    let started = Instant::now();
    with_fs(cluster, async |fs| put_small(fs.clone(), "/small".to_owned(), count, 64).await)?;
    let seconds = started.elapsed().as_secs_f64();
    let resident = own()?.saturating_sub(resident);
    let in_memory = tree_bytes(&memory)?.saturating_sub(in_memory);
    let namenode = usage(cluster.namenode.id()?)?.resident.saturating_sub(namenode);
    let each = (resident + in_memory) / count;
    println!(
        "{count} files of {SMALL_FILE_BYTES} bytes in {seconds:.1} s: {each} bytes of the datanode each \
         ({} of its process, {} of its tmpfs), {} of the namenode",
        resident / count,
        in_memory / count,
        namenode / count
    );
    ensure!(each <= SMALL_FILE_MEMORY_MAX, "{each} bytes for a file of {SMALL_FILE_BYTES}");
    with_fs(cluster, async |fs| {
        for number in (0..count).step_by(997) {
            reads_as(fs, &format!("/small/{}/{number}", number % 64), Content::new(number), SMALL_FILE_BYTES).await?;
        }
        Ok(())
    })
}

async fn put_small(fs: FileSystem, directory: String, count: u64, writers: u64) -> Result<()> {
    let writing: Vec<_> = (0..writers)
        .map(|writer| {
            let (fs, directory) = (fs.clone(), directory.clone());
            tokio::spawn(async move {
                for number in (writer..count).step_by(writers as usize) {
                    let path = format!("{directory}/{writer}/{number}");
                    put(&fs, &path, Content::new(number), SMALL_FILE_BYTES).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for writer in writing {
        writer.await??;
    }
    Ok(())
}

/// Returns the `hearth.memory.dir` of a DataNode.
fn memory_directory(datanode: &NodeProcess) -> Result<PathBuf> {
    let configuration = Configuration::load_dir(datanode.conf(), Environment::empty())?;
    let directory = configuration.get(hearth_config::keys::HEARTH_MEMORY_DIR)?;
    Ok(directory.context("the testkit sets it")?.into())
}

/// Returns the bytes used by everything below `directory`.
fn tree_bytes(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
            let path = entry?.path();
            // Files may be deleted during the count.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            sum += metadata.blocks() * 512;
            if metadata.is_dir() {
                directories.push(path);
            }
        }
    }
    Ok(sum)
}

// --- The client.

fn connect(cluster: &Cluster) -> Result<FileSystem> {
    let configuration = Configuration::load_dir(cluster.conf(), Environment::empty())?;
    Ok(FileSystem::connect(&configuration, None, &os_user_name())?)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn with_fs(cluster: &Cluster, work: impl AsyncFnOnce(&FileSystem) -> Result<()>) -> Result<()> {
    let runtime = runtime()?;
    runtime.block_on(async { work(&connect(cluster)?).await })
}

fn round_trip(cluster: &Cluster, path: &str) -> Result<()> {
    let (content, length) = (Content::new(path.len() as u64), 3 * MIB + 70_001);
    let both = with_fs(cluster, async |fs| {
        let both = async {
            put(fs, path, content, length).await?;
            reads_as(fs, path, content, length).await
        };
        tokio::time::timeout(WRITE_WITHIN, both).await.with_context(|| format!("not done within {WRITE_WITHIN:?}"))?
    });
    both.with_context(|| format!("putting and getting {path}"))
}

async fn put(fs: &FileSystem, path: &str, content: Content, length: u64) -> Result<()> {
    let mut writer = fs.create(path, CreateOptions::default()).await?;
    writer.write(&content.bytes(0, length as usize)).await?;
    writer.close().await?;
    Ok(())
}

async fn reads_as(fs: &FileSystem, path: &str, content: Content, length: u64) -> Result<()> {
    let mut reader = fs.open(path).await?;
    let mut found = Vec::new();
    loop {
        let next = reader.next().await.with_context(|| format!("reading {path} at {}", found.len()))?;
        if next.is_empty() {
            break;
        }
        found.extend_from_slice(next);
        let count = next.len();
        reader.consume(count);
    }
    ensure!(found == content.bytes(0, length as usize), "{path} differs; it has {} bytes", found.len());
    Ok(())
}
