//! Hearth's client and DataNodes under an unmodified Apache NameNode, and under Hearth's. Each path between client and
//! DataNodes is used separately, for writing and for reading, and its byte counters are checked.
//!
//! In the virtual machine of `cargo xtask test` the one-sided path is RDMA; elsewhere it uses TCP.
//!
//! Apache's NameNode hands out block tokens here; `cargo xtask test --cluster` also runs it without them.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hearth_client::{CreateOptions, DataPath, FileSystem, os_user_name};
use hearth_config::{Configuration, Environment};
use hearth_interop::{Check, Session, Suite, run, slow};
use hearth_testkit::{ClusterSpec, Content, Implementation, eventually, get_text_at, in_virtual_machine, wait_until};
use serde_json::json;

const BLOCK: u64 = 4 << 20;

/// Sizes of less than one block in a separate file, of exactly one, and of several with a short last chunk.
const SIZES: [u64; 3] = [200_003, BLOCK, 3 * BLOCK + 777_001];

/// Size of a replica in a slab: its memory is never lent to a writer, but every reader can access it.
const SMALL: u64 = 60_000;

/// Timeout of a client for a one-sided connection or answer. After it, a client uses the next path, which is a failure
/// here. A busy machine may take longer than users would accept.
const PATIENCE: &str = "30s";

/// Time for which a client may use an advertisement of a replica's memory.
const LEASE: &str = "120s";

/// The address of the virtual machine's RDMA device.
const RDMA_ADDRESS: &str = "10.8.0.1";

const CHECKS: &[Check] = &[
    ("every_path_reads_data_of_every_path", each_by_each),
    ("small_files_are_read_by_each_path", small),
    ("shortest_available_path_is_used", shortest),
    ("client_without_settings_uses_shortest_path", told_nothing),
    ("offers_from_namenode_avoid_describe", offered),
    ("namenode_sends_advertisements_to_new_readers", handed_on),
];

fn main() -> ExitCode {
    let of = |namenode| {
        let spec = ClusterSpec::new(namenode, Implementation::Hearth)
            .datanodes(2)
            .set("dfs.replication", 2)
            .set("dfs.blocksize", BLOCK)
            .set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 2)
            .set("dfs.client.block.write.locateFollowingBlock.retries", 14)
            .set("hearth.client.one-sided.timeout", PATIENCE)
            // A third of it is the timeout of a batch of reads.
            .set("hearth.advertise.lease", LEASE)
            .set("hearth.announce.lease", LEASE)
            .short_circuit();
        match in_virtual_machine() {
            true => spec.at(RDMA_ADDRESS).labelled("RDMA"),
            false => spec.set("hearth.one-sided.transport", "tcp"),
        }
    };
    let label = if in_virtual_machine() { "RDMA+tokens" } else { "tokens" };
    let with_tokens = of(Implementation::Apache).set("dfs.block.access.token.enable", true).labelled(label);
    // Hearth's NameNode hands out none here, so both ways are taken anyway.
    let without_tokens = slow().then(|| of(Implementation::Apache));
    let clusters = without_tokens.into_iter().chain([with_tokens, of(Implementation::Hearth)]).collect();
    run(&[Suite { name: "paths", clusters, checks: CHECKS }])
}

/// Returns a new client without any traffic, which may use only `paths`.
fn client(session: &Session, paths: &str) -> Result<FileSystem> {
    let mut conf = Configuration::load_dir(session.cluster.conf(), Environment::empty())?;
    conf.set("hearth.client.paths", paths.to_owned());
    Ok(FileSystem::connect(&conf, None, &os_user_name())?)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

async fn write(fs: &FileSystem, path: &str, content: Content, length: u64) -> Result<()> {
    let mut writer = fs.create(path, CreateOptions::default()).await?;
    // In pieces that do not end at a boundary.
    let mut at = 0;
    while at < length {
        let piece = (length - at).min(700_001);
        writer.write(&content.bytes(at, piece as usize)).await?;
        at += piece;
    }
    writer.close().await?;
    Ok(())
}

/// Reads everything in order, then ranges at unaligned offsets. Returns the number of bytes.
async fn read(fs: &FileSystem, path: &str, content: Content, length: u64) -> Result<u64> {
    let mut reader = fs.open(path).await?;
    ensure!(reader.length() == length, "{path} has {} of {length} bytes", reader.length());
    let mut bytes = vec![0; length as usize];
    let count = reader.read(&mut bytes).await?;
    ensure!(count == bytes.len() && bytes == content.bytes(0, count), "{count} bytes of {path}, or wrong ones");
    let mut total = length;
    for at in [1, length / 2, length - 3001] {
        let mut bytes = vec![0; 3000];
        let count = reader.read_at(at, &mut bytes).await?;
        ensure!(count == 3000 && bytes == content.bytes(at, count), "{count} bytes at {at} of {path}, or wrong ones");
        total += count as u64;
    }
    Ok(total)
}

/// Checks that all bytes of `fs` used `path`, and no other path.
fn all_by(path: DataPath, total: u64, bytes: impl Fn(DataPath) -> u64) -> Result<()> {
    for any in DataPath::ALL {
        let expected = if any == path { total } else { 0 };
        ensure!(bytes(any) == expected, "{} bytes by {any}, of {total} that should go by {path}", bytes(any));
    }
    Ok(())
}

fn each_by_each(session: &mut Session) -> Result<()> {
    let runtime = runtime()?;
    for (seed, by) in (1..).zip(DataPath::ALL) {
        let content = Content::new(seed);
        for length in SIZES {
            let path = format!("/{by}/{length}");
            let writer = client(session, by.name())?;
            runtime.block_on(write(&writer, &path, content, length)).with_context(|| format!("{path} by {by}"))?;
            all_by(by, length, |any| writer.statistics().written_bytes(any))
                .with_context(|| format!("writing {path}"))?;
            for from in DataPath::ALL {
                let reader = client(session, from.name())?;
                let read = runtime.block_on(read(&reader, &path, content, length));
                let total = read.with_context(|| format!("{path} by {from}"))?;
                all_by(from, total, |any| reader.statistics().read_bytes(any))
                    .with_context(|| format!("reading {path}"))?;
            }
            // Apache's client must read the same content. In the virtual machine there are no compiled Java classes.
            if !in_virtual_machine() {
                // One of the two replicas may be reported a moment later.
                let replicas = wait_until(&format!("both replicas of {path}"), Duration::from_secs(120), || {
                    let read = session.java()?.call("readEach", json!({"path": path}))?;
                    let replicas = read.as_array().context("a list of replicas")?;
                    Ok((replicas.len() == 2).then(|| replicas.clone()))
                })?;
                let wanted = content.sha256(0, length);
                ensure!(replicas.iter().all(|each| each["sha256"] == wanted), "{path}: {replicas:?}");
            }
        }
    }
    Ok(())
}

fn small(session: &mut Session) -> Result<()> {
    let runtime = runtime()?;
    for (seed, by) in (11..).zip(DataPath::ALL) {
        let (content, path) = (Content::new(seed), format!("/small/{by}"));
        let writer = client(session, by.name())?;
        runtime.block_on(write(&writer, &path, content, SMALL))?;
        all_by(DataPath::Packets, SMALL, |any| writer.statistics().written_bytes(any))?;
        for from in DataPath::ALL {
            let reader = client(session, from.name())?;
            let total = runtime.block_on(read(&reader, &path, content, SMALL)).with_context(|| format!("by {from}"))?;
            all_by(from, total, |any| reader.statistics().read_bytes(any))?;
        }
    }
    Ok(())
}

/// With the default configuration of clients.
fn shortest(session: &mut Session) -> Result<()> {
    let (runtime, content, length) = (runtime()?, Content::new(20), 2 * BLOCK + 300_001);
    let fs = client(session, "local,one-sided,packets")?;
    runtime.block_on(write(&fs, "/shortest", content, length))?;
    let total = runtime.block_on(read(&fs, "/shortest", content, length))?;
    all_by(DataPath::Local, length, |any| fs.statistics().written_bytes(any))?;
    all_by(DataPath::Local, total, |any| fs.statistics().read_bytes(any))
}

/// Returns a client that has the address of the NameNode and no settings for DataNodes.
fn stranger(session: &Session, paths: &str) -> Result<FileSystem> {
    let settings = [
        ("dfs.blocksize", BLOCK.to_string()),
        ("dfs.replication", "2".to_owned()),
        ("hearth.client.one-sided.timeout", PATIENCE.to_owned()),
    ];
    let mut conf = Configuration::empty();
    for (key, value) in settings {
        conf.set(key, value);
    }
    conf.set("hearth.client.paths", paths.to_owned());
    if !in_virtual_machine() {
        conf.set("hearth.one-sided.transport", "tcp".to_owned());
    }
    Ok(FileSystem::connect(&conf, Some(session.cluster.uri()), &os_user_name())?)
}

fn told_nothing(session: &mut Session) -> Result<()> {
    let (runtime, content, length) = (runtime()?, Content::new(30), 2 * BLOCK + 300_001);
    for path in [DataPath::Local, DataPath::OneSided] {
        let file = format!("/told-nothing/{path}");
        let fs = stranger(session, if path == DataPath::Local { "local,packets" } else { path.name() })?;
        runtime.block_on(write(&fs, &file, content, length))?;
        all_by(path, length, |any| fs.statistics().written_bytes(any)).with_context(|| format!("writing {file}"))?;
        let total = runtime.block_on(read(&fs, &file, content, length))?;
        all_by(path, total, |any| fs.statistics().read_bytes(any)).with_context(|| format!("reading {file}"))?;
    }
    Ok(())
}

/// Returns the number of clients so far that have sent DESCRIBE to the DataNodes.
fn descriptions(session: &Session) -> Result<u64> {
    let host = if in_virtual_machine() { RDMA_ADDRESS.parse()? } else { Ipv4Addr::LOCALHOST };
    let mut sum = 0;
    for datanode in &session.cluster.datanodes {
        let page = get_text_at(host, datanode.port("dfs.datanode.http.address")?, "/metrics")?;
        let count = page.lines().find_map(|line| line.strip_prefix("hearth_descriptions_total "));
        sum += count.context("no hearth_descriptions")?.parse::<u64>()?;
    }
    Ok(sum)
}

/// Hearth's NameNode sends the offers in additional fields, which Java's client ignores.
fn offered(session: &mut Session) -> Result<()> {
    let (runtime, content, length) = (runtime()?, Content::new(40), BLOCK + 1);
    runtime.block_on(write(&client(session, "packets")?, "/offered/file", content, length))?;
    let before = descriptions(session)?;
    runtime.block_on(read(&stranger(session, "one-sided")?, "/offered/file", content, length))?;
    let asked = descriptions(session)? - before;
    let ours = session.cluster.namenode.implementation() == Implementation::Hearth;
    ensure!((asked == 0) == ours, "datanodes were asked {asked} times");
    if !in_virtual_machine() {
        let java = session.java()?;
        let listed = java.call("list", json!({"path": "/offered"}))?;
        ensure!(listed.to_string().contains("file"), "{listed}");
        let located = java.call("locations", json!({"path": "/offered/file"}))?;
        let blocks = located.as_array().context("a list of blocks")?;
        ensure!(blocks.len() == 2, "{located}");
        let read = java.call("read", json!({"path": "/offered/file"}))?;
        ensure!(read["sha256"] == content.sha256(0, length), "{read}");
    }
    Ok(())
}

/// Waits until the NameNode knows both replicas of each block, and passes on their memory advertisements. An Apache
/// NameNode does not.
async fn wait_handed_on(fs: &FileSystem, path: &str) -> Result<()> {
    eventually(&format!("the advertisements of {path}"), async || match fs.locations(path, 0, u64::MAX >> 1).await {
        Ok(located) => {
            let mut blocks = located.blocks.iter();
            blocks.all(|block| block.locations.len() == 2 && block.advertisements.len() == 2).then_some(Ok(()))
        }
        Err(error) => Some(Err(error.into())),
    })
    .await
}

/// Hearth's NameNode sends the advertisements in additional fields, too, which Java's client ignores.
fn handed_on(session: &mut Session) -> Result<()> {
    const BLOCKS: u64 = 8;
    let (runtime, content, length) = (runtime()?, Content::new(50), BLOCKS * BLOCK);
    let (ours, path) = (session.cluster.namenode.implementation() == Implementation::Hearth, "/handed-on/file");
    let writer = client(session, "packets")?;
    runtime.block_on(write(&writer, path, content, length))?;
    if ours {
        runtime.block_on(wait_handed_on(&writer, path))?;
    }
    let reader = client(session, "one-sided")?;
    let total = runtime.block_on(read(&reader, path, content, length))?;
    let statistics = reader.statistics();
    all_by(DataPath::OneSided, total, |any| statistics.read_bytes(any))?;
    let found = (statistics.replicas_asked_for(), statistics.replicas_piggybacked());
    println!("{BLOCKS} blocks read cold: {} asked for, {} handed on", found.0, found.1);
    match ours {
        true => ensure!(found.0 == 0 && found.1 >= BLOCKS, "{statistics:?}"),
        false => ensure!(found.0 >= BLOCKS && found.1 == 0, "{statistics:?}"),
    }
    if !in_virtual_machine() {
        let java = session.java()?;
        let located = java.call("locations", json!({"path": path}))?;
        ensure!(located.as_array().is_some_and(|blocks| blocks.len() as u64 == BLOCKS), "{located}");
        let read = java.call("read", json!({"path": path}))?;
        ensure!(read["sha256"] == content.sha256(0, length), "{read}");
    }
    Ok(())
}
