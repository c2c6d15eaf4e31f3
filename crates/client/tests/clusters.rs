//! Tests of the client against real clusters of Apache Hadoop and of Hearth. The first combination, Apache's own client
//! and servers, checks our reading of the protocol; Hearth's servers must look the same to it.

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use hearth_client::{
    CreateOptions, DatanodeReportKind, ErrorKind, FileSystem, MkdirsOptions, RenameOptions, SafeModeAction,
};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{
    Apache, Cluster, ClusterSpec, Content, Implementation, NodeProcess, eventually, files_below, jmx_bean, skip_or_fail,
};
use hearth_types::{Access, FileKind, FsPermission};

use common::{streamed, wait_closed};

type Outcome = anyhow::Result<()>;

/// Runs `test` with a client of each kind of cluster, which has one datanode and is shared with other tests.
fn on_clusters<F>(name: &str, test: impl Fn(FileSystem, Arc<Mutex<Cluster>>) -> F)
where
    F: Future<Output = Outcome>,
{
    for make in [Implementation::Apache, Implementation::Hearth] {
        match shared(make) {
            Ok(cluster) => run(name, make, &cluster, &test),
            Err(error) => not_started(name, make, error),
        }
    }
}

/// Like [`on_clusters`], on clusters that no other test uses.
fn on_own_clusters<F>(name: &str, datanodes: usize, test: impl Fn(FileSystem, Arc<Mutex<Cluster>>) -> F)
where
    F: Future<Output = Outcome>,
{
    for make in [Implementation::Apache, Implementation::Hearth] {
        match start(make, datanodes) {
            // A reference stays here, so that the cluster outlives a test that drops its own.
            Ok(cluster) => run(name, make, &cluster, &test),
            Err(error) => not_started(name, make, &error),
        }
    }
}

fn start(make: Implementation, datanodes: usize) -> anyhow::Result<Arc<Mutex<Cluster>>> {
    let spec = ClusterSpec::new(make, make).datanodes(datanodes).set("dfs.replication", datanodes.min(3));
    Ok(Arc::new(Mutex::new(spec.start()?)))
}

/// Returns the cluster that tests of this program share, because the start of two JVMs takes ten seconds of CPU time. Its
/// processes and directories end with this program.
fn shared(make: Implementation) -> Result<Arc<Mutex<Cluster>>, &'static anyhow::Error> {
    type Started = OnceLock<anyhow::Result<Arc<Mutex<Cluster>>>>;
    static APACHES: Started = OnceLock::new();
    static HEARTHS: Started = OnceLock::new();
    let started = match make {
        Implementation::Apache => &APACHES,
        Implementation::Hearth => &HEARTHS,
    };
    started.get_or_init(|| start(make, 1)).as_ref().map(Arc::clone)
}

/// Apache's servers may be missing here. Hearth's must start.
fn not_started(name: &str, make: Implementation, error: &anyhow::Error) {
    match make {
        Implementation::Apache => skip_or_fail(name, error),
        Implementation::Hearth => panic!("{name}: {error:#}"),
    }
}

fn run<F>(
    name: &str,
    make: Implementation,
    cluster: &Arc<Mutex<Cluster>>,
    test: &impl Fn(FileSystem, Arc<Mutex<Cluster>>) -> F,
) where
    F: Future<Output = Outcome>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let fs = client(&cluster.lock().unwrap());
    runtime.block_on(async {
        if let Err(error) = test(fs, Arc::clone(cluster)).await {
            // A cluster prints this when it is dropped, which a shared one is not.
            eprintln!("{}", cluster.lock().unwrap().log_tails());
            panic!("{name} on {make:?}: {error:?}");
        }
    });
}

fn client(cluster: &Cluster) -> FileSystem {
    let conf = Configuration::load_dir(cluster.conf(), Environment::empty()).unwrap();
    // The user that runs the daemons: a superuser.
    FileSystem::connect(&conf, None, &hearth_client::os_user_name()).unwrap()
}

async fn write(fs: &FileSystem, path: &str, content: Content, length: usize) -> Outcome {
    let mut writer = fs.create(path, CreateOptions { overwrite: true, ..CreateOptions::default() }).await?;
    writer.write(&content.bytes(0, length)).await?;
    anyhow::ensure!(writer.position() == length as u64);
    writer.close().await?;
    Ok(())
}

async fn read(fs: &FileSystem, path: &str) -> anyhow::Result<Vec<u8>> {
    streamed(fs, path, |there| there).await
}

#[test]
fn files_of_odd_lengths_round_trip() {
    on_clusters("lengths", |fs, _cluster| async move {
        let block = 1 << 20;
        let lengths = [0usize, 1, 511, 512, 513, 65536, block - 1, block, block + 1, 3 * block + 777];
        for (seed, length) in lengths.into_iter().enumerate() {
            let path = format!("/lengths/{length}");
            let content = Content::new(seed as u64);
            write(&fs, &path, content, length).await?;
            let status = fs.status(&path).await?;
            anyhow::ensure!(status.length == length as u64 && status.kind == FileKind::File, "{status:?}");
            anyhow::ensure!(read(&fs, &path).await? == content.bytes(0, length), "content of {path}");
            let reader = fs.open(&path).await?;
            for (at, count) in [(0usize, 1usize), (length / 2, 700), (length.saturating_sub(3), 100), (length, 1)] {
                let mut bytes = vec![0; count];
                let got = reader.read_at(at as u64, &mut bytes).await?;
                anyhow::ensure!(got == count.min(length.saturating_sub(at)), "{got} bytes at {at} of {path}");
                anyhow::ensure!(bytes[..got] == content.bytes(at as u64, got)[..], "bytes at {at} of {path}");
            }
        }
        Ok(())
    });
}

#[test]
fn reader_never_returns_bytes_of_a_replacing_file() {
    on_clusters("taken paths", |_, cluster| async move {
        let block = 1 << 20;
        // Only the first block is known from the call that opened the file.
        let conf = Configuration::load_dir(cluster.lock().unwrap().conf(), Environment::empty())?
            .with("dfs.client.read.prefetch.size", "1")
            .with("dfs.client.retry.window.base", "10");
        let fs = FileSystem::connect(&conf, None, &hearth_client::os_user_name())?;
        let (old, new) = (Content::new(21), Content::new(22));
        write(&fs, "/taken", old, 3 * block).await?;
        let reader = fs.open("/taken").await?;
        let mut bytes = vec![0; 1000];
        reader.read_at(10, &mut bytes).await?;
        anyhow::ensure!(bytes == old.bytes(10, 1000));
        write(&fs, "/taken", new, 3 * block).await?;
        // Read blocks that were never requested, and the known block after its replica was deleted.
        eventually("the end of the deleted file's blocks", async || {
            let mut refused = 0;
            for at in [10, block as u64 + 10, 2 * block as u64 + 10] {
                match reader.read_at(at, &mut bytes).await {
                    Ok(count) => assert!(bytes[..count] == old.bytes(at, count), "another file's bytes at {at}"),
                    Err(_) => refused += 1,
                }
            }
            (refused == 3).then_some(())
        })
        .await;
        anyhow::ensure!(read(&fs, "/taken").await? == new.bytes(0, 3 * block));
        Ok(())
    });
}

#[test]
fn flushed_bytes_are_visible_before_close() {
    on_clusters("flush", |fs, _cluster| async move {
        let content = Content::new(3);
        let mut writer = fs.create("/flushed", CreateOptions::default()).await?;
        let mut length = 0;
        for (step, sync) in [(700usize, false), (1, true), (511, false), (3, false), (100_000, true), (900_000, false)]
        {
            writer.write(&content.bytes(length as u64, step)).await?;
            length += step;
            if sync {
                writer.hsync().await?
            } else {
                writer.hflush().await?
            }
            let reader = fs.open("/flushed").await?;
            anyhow::ensure!(reader.length() == length as u64, "{} of {length} visible", reader.length());
            anyhow::ensure!(read(&fs, "/flushed").await? == content.bytes(0, length), "flushed content at {length}");
        }
        anyhow::ensure!(!fs.is_file_closed("/flushed").await?);
        writer.hflush().await?;
        writer.close().await?;
        anyhow::ensure!(fs.is_file_closed("/flushed").await?);
        anyhow::ensure!(fs.status("/flushed").await?.length == length as u64);
        anyhow::ensure!(read(&fs, "/flushed").await? == content.bytes(0, length), "closed content");
        Ok(())
    });
}

#[test]
fn appends_continue_blocks_and_chunks() {
    on_clusters("append", |fs, _cluster| async move {
        let content = Content::new(5);
        let mut length = 100;
        write(&fs, "/appended", content, length).await?;
        for step in [1usize, 411, 512, 1000, 24, (1 << 20) - 2048, 0, 1, 3 << 20] {
            let mut writer = fs.append("/appended").await?;
            anyhow::ensure!(writer.position() == length as u64, "{} instead of {length}", writer.position());
            writer.write(&content.bytes(length as u64, step / 2)).await?;
            writer.hflush().await?;
            writer.write(&content.bytes((length + step / 2) as u64, step - step / 2)).await?;
            writer.close().await?;
            length += step;
            anyhow::ensure!(fs.status("/appended").await?.length == length as u64);
            anyhow::ensure!(read(&fs, "/appended").await? == content.bytes(0, length), "content at {length}");
        }
        Ok(())
    });
}

#[test]
fn names_are_created_listed_renamed_and_removed() {
    on_clusters("names", |fs, _cluster| async move {
        fs.mkdirs_with("/d/e", MkdirsOptions { permission: Some(FsPermission(0o775)), ..Default::default() }).await?;
        anyhow::ensure!(fs.status("/d/e").await?.permission == FsPermission(0o755));
        for index in 0..12 {
            write(&fs, &format!("/d/f{index:02}"), Content::new(index), 10).await?;
        }
        let names: Vec<_> =
            fs.list_all("/d").await?.into_iter().map(|status| String::from_utf8(status.local_name).unwrap()).collect();
        anyhow::ensure!(names.len() == 13 && names.is_sorted(), "{names:?}");
        anyhow::ensure!(fs.list_all("/nope").await.unwrap_err().kind() == ErrorKind::NotFound);
        anyhow::ensure!(fs.status("/nope").await.unwrap_err().kind() == ErrorKind::NotFound);
        anyhow::ensure!(fs.open("/nope").await.unwrap_err().kind() == ErrorKind::NotFound);
        let exists = fs.create("/d/f00", CreateOptions::default()).await.unwrap_err();
        anyhow::ensure!(exists.kind() == ErrorKind::AlreadyExists, "{exists}");
        anyhow::ensure!(fs.rename("/d/f00", "/d/e").await?);
        anyhow::ensure!(fs.exists("/d/e/f00").await? && !fs.exists("/d/f00").await?);
        anyhow::ensure!(!fs.rename("/nope", "/d/x").await?);
        let taken = fs.rename_to("/d/f01", "/d/f02", RenameOptions::default()).await.unwrap_err();
        anyhow::ensure!(taken.kind() == ErrorKind::AlreadyExists, "{taken}");
        fs.rename_to("/d/f01", "/d/f02", RenameOptions { overwrite: true, ..Default::default() }).await?;
        anyhow::ensure!(fs.delete("/d", false).await.unwrap_err().kind() == ErrorKind::DirectoryNotEmpty);
        fs.set_permission("/d/f02", FsPermission(0o600)).await?;
        fs.set_owner("/d/f02", Some("ada"), Some("staff")).await?;
        let at = |seconds| Some(UNIX_EPOCH + Duration::from_secs(seconds));
        fs.set_times("/d/f02", at(1000), at(2000)).await?;
        fs.check_access("/d/f02", Access::READ).await?;
        anyhow::ensure!(fs.set_replication("/d/f02", 2).await?);
        let status = fs.status("/d/f02").await?;
        anyhow::ensure!(
            (status.owner.as_str(), status.group.as_str(), status.permission) == ("ada", "staff", FsPermission(0o600))
        );
        anyhow::ensure!(
            (status.modification_time_ms, status.access_time_ms, status.replication) == (1_000_000, 2_000_000, 2)
        );
        let summary = fs.content_summary("/d").await?;
        anyhow::ensure!((summary.directories, summary.files, summary.length) == (2, 11, 110), "{summary:?}");
        anyhow::ensure!(fs.delete("/d", true).await?);
        anyhow::ensure!(!fs.delete("/d", true).await?);
        Ok(())
    });
}

#[test]
fn files_are_truncated_concatenated_and_checksummed() {
    on_clusters("cut", |fs, _cluster| async move {
        let content = Content::new(8);
        write(&fs, "/cut/a", content, 3_000_000).await?;
        let done = fs.truncate("/cut/a", 1 << 20).await?;
        anyhow::ensure!(done && fs.status("/cut/a").await?.length == 1 << 20);
        if !fs.truncate("/cut/a", 1000).await? {
            wait_closed(&fs, "/cut/a").await?;
        }
        anyhow::ensure!(read(&fs, "/cut/a").await? == content.bytes(0, 1000));
        let empty = "MD5-of-0MD5-of-0CRC32:00000000000000000000000070bc8f4b72a86921468bf8e8441dce51";
        write(&fs, "/cut/empty", content, 0).await?;
        anyhow::ensure!(fs.checksum("/cut/empty", None).await?.to_string() == empty);
        write(&fs, "/cut/b", content, 1000).await?;
        anyhow::ensure!(fs.checksum("/cut/a", None).await? == fs.checksum("/cut/b", None).await?);
        write(&fs, "/cut/c", content, 2_500_000).await?;
        let three_blocks = fs.checksum("/cut/c", None).await?;
        anyhow::ensure!(three_blocks.algorithm() == "MD5-of-2048MD5-of-512CRC32C", "{three_blocks}");
        fs.concat("/cut/c", &["/cut/a", "/cut/b"]).await?;
        anyhow::ensure!(fs.status("/cut/c").await?.length == 2_502_000);
        let mut expected = content.bytes(0, 2_500_000);
        expected.extend(content.bytes(0, 1000));
        expected.extend(content.bytes(0, 1000));
        anyhow::ensure!(read(&fs, "/cut/c").await? == expected);
        Ok(())
    });
}

#[test]
fn many_readers_share_a_file() {
    on_clusters("positioned", |fs, _cluster| async move {
        let content = Content::new(9);
        write(&fs, "/shared", content, 5 << 20).await?;
        let reader = fs.open("/shared").await?;
        let mut tasks = Vec::new();
        for task in 0..16u64 {
            let reader = reader.positioned();
            tasks.push(tokio::spawn(async move {
                for step in 0..40u64 {
                    let at = (task * 7919 + step * 104_729) % (5 << 20);
                    let mut bytes = vec![0; 5000];
                    let got = reader.read_at(at, &mut bytes).await?;
                    anyhow::ensure!(bytes[..got] == content.bytes(at, got)[..], "bytes at {at}");
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        let mut reader = fs.open("/shared").await?;
        let mut bytes = [0; 10];
        for position in [3_000_000u64, 100, 150, 70_000, 1 << 20, (5 << 20) - 10] {
            reader.seek(position).await?;
            anyhow::ensure!(reader.read(&mut bytes).await? == 10);
            anyhow::ensure!(bytes[..] == content.bytes(position, 10)[..], "bytes at {position}");
        }
        anyhow::ensure!(reader.seek((5 << 20) + 1).await.is_err());
        Ok(())
    });
}

/// Not on a shared cluster, because of the safe mode.
#[test]
fn the_cluster_reports_itself() {
    on_own_clusters("report", 1, |fs, _cluster| async move {
        let live = fs.datanodes(DatanodeReportKind::Live).await?;
        anyhow::ensure!(live.len() == 1 && live[0].capacity > 0, "{live:?}");
        let usage = fs.usage().await?;
        anyhow::ensure!(usage.capacity > 0 && usage.missing_blocks == 0, "{usage:?}");
        anyhow::ensure!(!fs.safe_mode(SafeModeAction::Get).await?);
        anyhow::ensure!(fs.safe_mode(SafeModeAction::Enter).await?);
        let refused = fs.mkdirs("/x").await.unwrap_err();
        anyhow::ensure!(refused.kind() == ErrorKind::SafeMode, "{refused}");
        anyhow::ensure!(!fs.safe_mode(SafeModeAction::Leave).await?);
        anyhow::ensure!(fs.server_defaults().await?.replication >= 1);
        fs.block_statistics().await?;
        fs.erasure_coded_block_statistics().await?;
        Ok(())
    });
}

#[test]
fn killed_pipeline_datanode_is_replaced_without_loss() {
    on_own_clusters("recovery", 5, |fs, cluster| async move {
        let content = Content::new(11);
        let mut writer = fs.create("/survivor", CreateOptions::default()).await?;
        writer.write(&content.bytes(0, 300_000)).await?;
        writer.hflush().await?;
        let located = fs.locations("/survivor", 0, 1).await?;
        let last = located.last_block.expect("a block");
        anyhow::ensure!(last.locations.len() == 3);
        for victim in [1, 0] {
            let port = last.locations[victim].id.transfer_port;
            {
                let mut cluster = cluster.lock().unwrap();
                let found = cluster
                    .datanodes
                    .iter()
                    .position(|datanode| datanode.port("dfs.datanode.address").ok() == Some(port));
                cluster.datanodes[found.expect("the datanode")].kill();
            }
            let at = writer.position();
            writer.write(&content.bytes(at, 200_000)).await?;
            writer.hflush().await?;
            anyhow::ensure!(read(&fs, "/survivor").await? == content.bytes(0, writer.position() as usize));
        }
        let at = writer.position();
        writer.write(&content.bytes(at, 2_000_000)).await?;
        let length = writer.position() as usize;
        writer.close().await?;
        anyhow::ensure!(read(&fs, "/survivor").await? == content.bytes(0, length));
        Ok(())
    });
}

/// Starts a Hearth cluster whose datanodes listen on domain sockets, and a client that uses `paths`.
fn local_cluster(datanodes: usize, paths: &str, settings: &[(&str, &str)]) -> (Cluster, FileSystem, tempfile::TempDir) {
    let sockets = tempfile::tempdir().unwrap();
    let mut spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(datanodes)
        .set("dfs.replication", datanodes.min(3))
        .set("dfs.blocksize", 6 << 20)
        .set("dfs.domain.socket.path", sockets.path().join("dn_PORT").display())
        .set("hearth.client.paths", paths);
    for (key, value) in settings {
        spec = spec.set(key, value);
    }
    let cluster = spec.start().unwrap();
    let fs = client(&cluster);
    (cluster, fs, sockets)
}

/// Packets of 64,512 data bytes, as in Apache's client. 1 MiB is not a multiple of that.
const APACHE_PACKETS: (&str, &str) = ("dfs.client-write-packet-size", "65536");

/// One-sided connections that need no RDMA card.
const TRANSPORT: (&str, &str) = ("hearth.one-sided.transport", "tcp");

/// Returns the number of bytes that clients have written directly into the memory of the cluster's datanodes.
fn committed(cluster: &Cluster) -> u64 {
    let mut sum = 0;
    for datanode in &cluster.datanodes {
        // A killed datanode does not answer.
        let bean = datanode
            .port("dfs.datanode.http.address")
            .and_then(|port| jmx_bean(port, "Hearth:service=DataNode,name=Memory"));
        sum += bean.ok().and_then(|bean| bean["CommittedBytes"].as_u64()).unwrap_or(0);
    }
    sum
}

fn block_on<F: Future<Output = Outcome>>(test: F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(test) {
        panic!("{error:?}");
    }
}

#[test]
fn every_write_path_stores_the_same_bytes() {
    for (paths, datanodes, settings, local) in [
        ("packets", 1, &[][..], false),
        ("local,packets", 1, &[("hearth.local.write.trusted", "true")], true),
        ("local,packets", 3, &[], true),
        // The memory is smaller than the files: the writer switches paths in the middle of blocks.
        ("local,packets", 2, &[("hearth.memory.limit", "16m")], true),
        ("one-sided,packets", 1, &[TRANSPORT], true),
        ("one-sided,packets", 3, &[TRANSPORT], true),
        ("one-sided,packets", 2, &[TRANSPORT, ("hearth.memory.limit", "16m")], true),
        ("one-sided,packets", 2, &[TRANSPORT, ("hearth.memory.limit", "16m"), APACHE_PACKETS], true),
    ] {
        let (cluster, fs, _sockets) = local_cluster(datanodes, paths, settings);
        block_on(async {
            let content = Content::new(21);
            // Written in one call, and in odd pieces with flushes between them.
            for length in [1usize, 70_000, 300_000, 6 << 20, 20_000_001] {
                write(&fs, &format!("/whole/{length}"), content, length).await?;
                anyhow::ensure!(read(&fs, &format!("/whole/{length}")).await? == content.bytes(0, length));
            }
            let mut writer = fs.create("/pieces", CreateOptions::default()).await?;
            let mut step = 1usize;
            while writer.position() < 14_000_000 {
                let piece = step * 7919 % 900_000 + 1;
                writer.write(&content.bytes(writer.position(), piece)).await?;
                // Also write with `space` instead of `write`.
                let at = writer.position();
                let space = writer.space().await?;
                let count = space.len().min(step * 31 % 5000);
                space[..count].copy_from_slice(&content.bytes(at, count));
                writer.advance(count).await?;
                match step % 4 {
                    0 => writer.hflush().await?,
                    1 if step.is_multiple_of(5) => writer.hsync().await?,
                    _ => {}
                }
                step += 1;
            }
            writer.hflush().await?;
            let length = writer.position() as usize;
            anyhow::ensure!(read(&fs, "/pieces").await? == content.bytes(0, length), "flushed, not closed");
            writer.close().await?;
            anyhow::ensure!(read(&fs, "/pieces").await? == content.bytes(0, length), "closed");
            let mut writer = fs.append("/pieces").await?;
            writer.write(&content.bytes(length as u64, 3_000_000)).await?;
            writer.close().await?;
            anyhow::ensure!(read(&fs, "/pieces").await? == content.bytes(0, length + 3_000_000), "appended");
            Ok(())
        });
        let in_place = committed(&cluster);
        assert_eq!(in_place > 0, local, "{in_place} bytes with {paths}");
        if local && !settings.iter().any(|(key, _)| *key == "hearth.memory.limit") {
            // Every file above 64 KiB counts. Its first packets and the append are not written in place.
            assert!(in_place > 35_000_000, "{in_place} bytes of some 40 million");
        }
    }
}

/// Packets that are filled before their path is known can end anywhere, including beyond the bytes that a datanode with
/// full memory grants at a time.
#[test]
fn packets_across_a_grant_boundary_are_split() {
    // Full from the start, and full in the middle of a block.
    for limit in ["1k", "8m"] {
        let settings = [TRANSPORT, APACHE_PACKETS, ("hearth.memory.limit", limit)];
        let (cluster, fs, _sockets) = local_cluster(1, "one-sided,packets", &settings);
        block_on(async {
            let (content, block, rest) = (Content::new(27), 6 << 20, 77_777);
            let mut writer = fs.create("/parts", CreateOptions::default()).await?;
            // A block with a small first write goes in packets. Meanwhile, packets of the next block are filled.
            writer.write(&content.bytes(0, 100)).await?;
            writer.hflush().await?;
            writer.write(&content.bytes(100, 3 * block + rest - 100)).await?;
            writer.close().await?;
            anyhow::ensure!(read(&fs, "/parts").await? == content.bytes(0, 3 * block + rest), "wrong bytes");
            let port = cluster.datanodes[0].port("dfs.datanode.http.address")?;
            let written = jmx_bean(port, "Hearth:service=DataNode,name=OneSided")?["BytesWritten"].as_u64();
            anyhow::ensure!(written == Some((2 * block + rest) as u64), "{limit}: {written:?} bytes one-sidedly");
            Ok(())
        });
    }
}

/// Synced replicas must be on the disk of every datanode of the pipeline, whichever path the bytes took to it.
#[test]
fn synced_replicas_are_on_disk_everywhere() {
    for (paths, transport, forward_local) in [
        ("packets", None, "false"),
        ("packets", None, "true"),
        ("local,packets", None, "true"),
        ("local,packets", None, "false"),
        ("one-sided,packets", Some(TRANSPORT), "false"),
    ] {
        // Nothing reaches the disk without a sync.
        let always = [("hearth.memory.flush.delay", "3600"), ("hearth.datanode.forward.local", forward_local)];
        let settings: Vec<_> = transport.into_iter().chain(always).collect();
        let (cluster, fs, _sockets) = local_cluster(3, paths, &settings);
        block_on(async {
            let content = Content::new(23);
            let on_disk = |length: usize| -> anyhow::Result<Vec<bool>> {
                let expected = content.bytes(0, length);
                let holds = |datanode: &NodeProcess| -> anyhow::Result<bool> {
                    let files = block_files(&datanode.data_directory().expect("a data directory"));
                    anyhow::ensure!(files.len() <= 1, "{files:?}");
                    Ok(files.first().map(std::fs::read).transpose()?.is_some_and(|bytes| bytes.starts_with(&expected)))
                };
                cluster.datanodes.iter().map(holds).collect()
            };
            let mut writer = fs.create("/synced", CreateOptions::default()).await?;
            writer.write(&content.bytes(0, 2_000_000)).await?;
            writer.hflush().await?;
            anyhow::ensure!(on_disk(2_000_000)? == [false; 3], "{paths}: flushed, and on disk already");
            writer.hsync().await?;
            anyhow::ensure!(on_disk(2_000_000)? == [true; 3], "{paths}: {:?}", on_disk(2_000_000)?);
            writer.write(&content.bytes(2_000_000, 777)).await?;
            writer.hsync().await?;
            anyhow::ensure!(on_disk(2_000_777)? == [true; 3], "{paths}, again: {:?}", on_disk(2_000_777)?);
            writer.close().await?;
            Ok(())
        });
        assert_eq!(committed(&cluster) > 0, (paths, forward_local) != ("packets", "false"), "{paths}");
    }
}

#[test]
fn blocks_after_hsync_are_synced_when_complete() {
    // Nothing reaches the disk without a sync.
    let (cluster, fs, _sockets) = local_cluster(1, "packets", &[("hearth.memory.flush.delay", "3600")]);
    block_on(async {
        let (content, block) = (Content::new(24), 1 << 20);
        let options = CreateOptions { block_size: Some(block as u64), ..CreateOptions::default() };
        let mut writer = fs.create("/several", options).await?;
        // One block that ends before the hsync, one that ends after it, and one that begins and ends after it.
        writer.write(&content.bytes(0, block + 1000)).await?;
        writer.hsync().await?;
        writer.write(&content.bytes(block as u64 + 1000, 2 * block)).await?;
        writer.hflush().await?;
        let files = block_files(&cluster.datanodes[0].data_directory().expect("a data directory"));
        let on_disk = files.iter().map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
        let whole = |index: usize| {
            let expected = content.bytes((index * block) as u64, block);
            on_disk.contains(&expected)
        };
        anyhow::ensure!([0, 1, 2, 3].map(whole) == [false, true, true, false], "{files:?}");
        writer.close().await?;
        Ok(())
    });
}

/// Reads data beyond the prefetched blocks and beyond the length that the first flush reported to the namenode.
#[test]
fn open_block_is_readable_to_visible_length() {
    on_clusters("open blocks", |writing, cluster| async move {
        let (content, block) = (Content::new(28), 1u64 << 20);
        let conf = Configuration::load_dir(cluster.lock().unwrap().conf(), Environment::empty())?
            .with("dfs.client.read.prefetch.size", "1");
        let reading = FileSystem::connect(&conf, None, &hearth_client::os_user_name())?;
        let options = CreateOptions { block_size: Some(block), ..CreateOptions::default() };
        let mut writer = writing.create("/open", options).await?;
        writer.write(&content.bytes(0, block as usize + 5000)).await?;
        writer.hflush().await?;
        writer.write(&content.bytes(block + 5000, 70_000)).await?;
        writer.hflush().await?;
        let reader = reading.open("/open").await?;
        anyhow::ensure!(reader.length() == block + 75_000, "{}", reader.length());
        let (at, mut bytes) = (block + 50_000, vec![0; 1000]);
        let count = reader.read_at(at, &mut bytes).await?;
        anyhow::ensure!(count == 1000 && bytes == content.bytes(at, 1000), "{count} bytes, or others");
        let mut reader = reading.open("/open").await?;
        reader.seek(at).await?;
        let next = reader.next().await?;
        let expected = content.bytes(at, next.len());
        anyhow::ensure!(!next.is_empty() && next == expected, "{} bytes, or others", next.len());
        writer.close().await?;
        Ok(())
    });
}

/// On the first look no datanode answers. On the second, the writer is one block further.
#[test]
fn open_file_length_includes_a_new_last_block() {
    // On a stalled machine the first look may come only when the datanode runs again, or the namenode may exceed the
    // short time-out.
    const TRIES: usize = 4;
    let (cluster, writing, _sockets) = local_cluster(1, "packets", &[]);
    let patience =
        [("ipc.client.rpc-timeout.ms", "1000"), ("dfs.client.retry.interval-ms.get-last-block-length", "15000")];
    let conf = cluster.conf_with("impatient", &patience).unwrap();
    let conf = Configuration::load_dir(&conf, Environment::empty()).unwrap();
    let reading = FileSystem::connect(&conf, None, &hearth_client::os_user_name()).unwrap();
    let datanode = cluster.datanodes[0].process().expect("it runs");
    block_on(async {
        let (content, block, length) = (Content::new(25), 1 << 20, (1 << 20) + 70_000);
        for attempt in 1..=TRIES {
            let path = format!("/growing{attempt}");
            let options = CreateOptions { block_size: Some(block as u64), ..CreateOptions::default() };
            let mut writer = writing.create(&path, options).await?;
            writer.write(&content.bytes(0, 5000)).await?;
            writer.hflush().await?;
            datanode.pause()?;
            let opening = tokio::spawn({
                let (reading, path) = (reading.clone(), path.clone());
                async move { reading.open(&path).await }
            });
            // Time for the reader to ask the stopped process, and to ask it again.
            tokio::time::sleep(Duration::from_secs(3)).await;
            datanode.resume()?;
            writer.write(&content.bytes(5000, length - 5000)).await?;
            writer.hflush().await?;
            let has_looked_once = opening.is_finished();
            let opened = opening.await?;
            writer.close().await?;
            if (has_looked_once || opened.is_err()) && attempt < TRIES {
                continue;
            }
            anyhow::ensure!(!has_looked_once, "the reader looked only once");
            let reader = opened?;
            anyhow::ensure!(reader.length() == length as u64, "{} of {length}", reader.length());
            let mut bytes = vec![0; length];
            reader.read_at(0, &mut bytes).await?;
            anyhow::ensure!(bytes == content.bytes(0, length), "wrong bytes");
            return Ok(());
        }
        unreachable!("the last try ends it")
    });
}

/// Returns the data files of blocks below `directory`.
fn block_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = files_below(directory);
    files.retain(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("blk_") && !name.ends_with(".meta")
    });
    files
}

#[test]
fn local_pipeline_is_recovered_over_packets() {
    loses_datanodes("local,packets", &[]);
}

#[test]
fn one_sided_pipeline_is_recovered_over_packets() {
    loses_datanodes("one-sided,packets", &[TRANSPORT]);
}

fn loses_datanodes(paths: &str, settings: &[(&str, &str)]) {
    let (mut cluster, fs, _sockets) = local_cluster(5, paths, settings);
    block_on(async {
        let content = Content::new(22);
        // Kill the first datanode of a pipeline, whose memory is being filled, and then one behind it.
        for (file, position) in [0usize, 1].into_iter().enumerate() {
            let path = format!("/survivor{file}");
            let mut writer = fs.create(&path, CreateOptions::default()).await?;
            writer.write(&content.bytes(0, 2_000_000)).await?;
            writer.hflush().await?;
            let before = committed(&cluster);
            anyhow::ensure!(before > 1_000_000, "{before} bytes in memory");
            let located = fs.locations(&path, 0, 1).await?;
            let last = located.last_block.expect("a block");
            let port = last.locations[position].id.transfer_port;
            // Data in transit when the datanode is killed.
            writer.write(&content.bytes(2_000_000, 1_500_000)).await?;
            let found = cluster.datanodes.iter().position(|node| node.port("dfs.datanode.address").ok() == Some(port));
            cluster.datanodes[found.expect("the datanode")].kill();
            writer.write(&content.bytes(3_500_000, 5_000_000)).await?;
            writer.hflush().await?;
            anyhow::ensure!(read(&fs, &path).await? == content.bytes(0, 8_500_000), "flushed");
            writer.write(&content.bytes(8_500_000, 3_000_000)).await?;
            writer.close().await?;
            anyhow::ensure!(read(&fs, &path).await? == content.bytes(0, 11_500_000), "closed");
        }
        Ok(())
    });
}

/// Files of Apache's namenode that this client cannot write stay unchanged, and no lease on them remains.
#[test]
fn unsupported_files_are_left_unchanged() {
    let keys = tempfile::tempdir().unwrap();
    let provider = format!("jceks://file{}/keys.jceks", keys.path().display());
    // The namenode looks for keys when it starts.
    let create_key = |apache: Apache| {
        let arguments = ["create", "key", "-provider", provider.as_str()];
        apache.run(keys.path(), "org.apache.hadoop.crypto.key.KeyShell", arguments)?.success()
    };
    let spec = ClusterSpec::new(Implementation::Apache, Implementation::Apache).datanodes(1).set("dfs.replication", 1);
    let spec = spec.set("hadoop.security.key.provider.path", &provider);
    let cluster = match Apache::find().and_then(create_key).and_then(|_| spec.start()) {
        Ok(cluster) => cluster,
        Err(error) => return skip_or_fail("unsupported_files_are_left_unchanged", &error),
    };
    let fs = client(&cluster);
    let tool = |main: &str, arguments: &[&str]| -> anyhow::Result<String> {
        cluster.apache()?.run(cluster.conf(), main, arguments)?.success()
    };
    let coding = |arguments: &[&str]| tool("org.apache.hadoop.hdfs.tools.ECAdmin", arguments);
    block_on(async {
        let content = Content::new(26);
        let old = |path: &str| path.replace("/new", "/old");
        // Encrypted: a zone must be empty when it is created, and renames into it are refused. Java's client writes the
        // files in it.
        fs.mkdirs("/encrypted").await?;
        tool("org.apache.hadoop.hdfs.tools.CryptoAdmin", &["-createZone", "-keyName", "key", "-path", "/encrypted"])?;
        let local = keys.path().join("file");
        std::fs::write(&local, content.bytes(0, 5000))?;
        let arguments = ["-put".as_ref(), local.as_os_str(), "/encrypted/old".as_ref()];
        cluster.apache()?.fs(cluster.conf(), arguments)?.success()?;
        // Erasure-coded: files that existed before the policy are not.
        write(&fs, "/coded/old", content, 5000).await?;
        coding(&["-enablePolicy", "-policy", "RS-3-2-1024k"])?;
        coding(&["-setPolicy", "-path", "/coded", "-policy", "RS-3-2-1024k"])?;
        cluster.apache()?.fs(cluster.conf(), ["-touchz", "/coded/coded"])?.success()?;
        // A replicated directory below it.
        fs.mkdirs("/coded/replicated").await?;
        coding(&["-setPolicy", "-replicate", "-path", "/coded/replicated"])?;
        for _ in 0..2 {
            write(&fs, "/coded/replicated/file", content, 100).await?;
        }

        for new in ["/encrypted/new", "/coded/new"] {
            let before = fs.status(&old(new)).await?;
            for (path, overwrite) in [(new, false), (new, true), (&old(new), true)] {
                let options = CreateOptions { overwrite, ..CreateOptions::default() };
                let refused = fs.create(path, options).await.map(drop).unwrap_err();
                anyhow::ensure!(refused.kind() == ErrorKind::Unsupported, "{path}: {refused:?}");
                let found = fs.status(new).await.map_err(|error| error.kind());
                anyhow::ensure!(found == Err(ErrorKind::NotFound), "{path}: {found:?}");
            }
            let after = fs.status(&old(new)).await?;
            anyhow::ensure!(after == before, "{before:?} {after:?}");
        }
        anyhow::ensure!(read(&fs, "/coded/old").await? == content.bytes(0, 5000));

        for (path, new_block) in [("/encrypted/old", false), ("/encrypted/old", true), ("/coded/coded", true)] {
            let before = fs.status(path).await?;
            // The second attempt finds the file closed.
            for _ in 0..2 {
                let refused = if new_block { fs.append_new_block(path).await } else { fs.append(path).await };
                let refused = refused.map(drop).unwrap_err();
                anyhow::ensure!(refused.kind() == ErrorKind::Unsupported, "{path}: {refused:?}");
            }
            anyhow::ensure!(fs.status(path).await?.length == before.length);
        }
        let encrypted = cluster.apache()?.fs(cluster.conf(), ["-cat", "/encrypted/old"])?;
        anyhow::ensure!(encrypted.code == 0, "{}", encrypted.stderr);
        Ok(())
    });
}
