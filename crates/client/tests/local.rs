//! Reads of replicas on the same machine, against clusters of Hearth processes. Every path must return the same bytes,
//! whatever happens to the replica during the read.

mod common;

use std::time::Duration;

use hearth_client::{CreateOptions, DataPath, ErrorKind, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{
    Cluster, ClusterSpec, Content, Implementation, eventually, skip_or_fail, unshared_directory, until,
};

use common::{streamed, wait_closed};

type Outcome = anyhow::Result<()>;

const BLOCK: usize = 1 << 20;

/// A cluster whose datanodes listen on domain sockets. The sockets live as long as the directory.
struct Local {
    cluster: Cluster,
    _sockets: tempfile::TempDir,
}

fn start(datanodes: usize, settings: &[(&str, &str)]) -> Local {
    let sockets = tempfile::Builder::new().prefix("hearth-sockets-").tempdir().unwrap();
    let mut spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(datanodes)
        .set("dfs.domain.socket.path", sockets.path().join("dn_PORT").display())
        .set("dfs.domain.socket.disable.interval.seconds", 1)
        .set("dfs.client.retry.window.base", 100)
        .set("dfs.client.max.block.acquire.failures", 2);
    for (key, value) in settings {
        spec = spec.set(key, value);
    }
    Local { cluster: spec.start().unwrap(), _sockets: sockets }
}

impl Local {
    fn client(&self, settings: &[(&str, &str)]) -> FileSystem {
        let mut conf = Configuration::load_dir(self.cluster.conf(), Environment::empty()).unwrap();
        for (key, value) in settings {
            conf.set(key, (*value).to_owned());
        }
        // The user that runs the daemons: a superuser.
        FileSystem::connect(&conf, None, &hearth_client::os_user_name()).unwrap()
    }
}

fn run(test: impl Future<Output = Outcome>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test).unwrap_or_else(|error| panic!("{error:?}"));
}

async fn write(fs: &FileSystem, path: &str, content: Content, length: usize) -> Outcome {
    let mut writer = fs.create(path, CreateOptions { overwrite: true, ..CreateOptions::default() }).await?;
    writer.write(&content.bytes(0, length)).await?;
    writer.close().await?;
    Ok(())
}

/// Reads a file in all possible ways and compares the results.
async fn check(fs: &FileSystem, path: &str, content: Content, length: usize) -> Outcome {
    let expected = content.bytes(0, length);
    anyhow::ensure!(streamed(fs, path, |there| there.div_ceil(2)).await? == expected, "{path} streamed");
    let mut reader = fs.open(path).await?;
    let mut bytes = vec![0; length + 10];
    let filled = reader.read(&mut bytes).await?;
    anyhow::ensure!(filled == length && bytes[..length] == expected[..], "{path} read");
    let lengths = [1usize, 511, 512, 4096, 70_000, 3 << 20];
    for (index, at) in
        [0, 1, 511, 512, length / 3, BLOCK - 5, BLOCK, length.saturating_sub(600), length].iter().enumerate()
    {
        let (at, count) = ((*at).min(length), lengths[index % lengths.len()]);
        let end = (at + count).min(length);
        for again in 0..2 {
            let mut bytes = vec![0; count];
            let got = reader.read_at(at as u64, &mut bytes).await?;
            anyhow::ensure!(got == end - at && bytes[..got] == expected[at..end], "{path}: {count} at {at}, {again}");
        }
        let view = reader.view(at as u64, count).await?;
        view.verify()?;
        let view_end = end.min((at / BLOCK + 1) * BLOCK);
        anyhow::ensure!(view[..] == expected[at..view_end], "{path}: view of {count} at {at}");
    }
    reader.seek((length / 2) as u64).await?;
    let filled = reader.read(&mut bytes).await?;
    anyhow::ensure!(bytes[..filled] == expected[length / 2..], "wrong contents of {path} from its middle");
    Ok(())
}

/// Like `check`, repeated until the file is read locally: after a failure, the client takes other paths for a while.
async fn check_locally(fs: &FileSystem, path: &str, content: Content, length: usize) -> Outcome {
    eventually(&format!("a local read of {path}"), async || {
        let local = || fs.statistics().read_bytes(DataPath::Local);
        let before = local();
        match check(fs, path, content, length).await {
            Ok(()) => (local() > before + length as u64).then_some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    })
    .await
}

const LENGTHS: [usize; 9] = [0, 1, 513, 65_536, 65_537, 200_000, BLOCK, BLOCK + 1, 3 * BLOCK + 777];

#[test]
fn every_path_reads_the_same_counted_bytes() {
    let cluster = start(1, &[]);
    run(async {
        let writer = cluster.client(&[]);
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            write(&writer, &format!("/{length}"), Content::new(seed as u64), length).await?;
        }
        for (paths, carries) in [
            ("local,one-sided,packets", DataPath::Local),
            ("local", DataPath::Local),
            ("packets", DataPath::Packets),
            ("packets,local", DataPath::Packets),
        ] {
            let fs = cluster.client(&[("hearth.client.paths", paths)]);
            for (seed, length) in LENGTHS.into_iter().enumerate() {
                check(&fs, &format!("/{length}"), Content::new(seed as u64), length).await?;
            }
            for path in DataPath::ALL {
                let bytes = fs.statistics().read_bytes(path);
                anyhow::ensure!((bytes > 0) == (path == carries), "{paths}: {bytes} by {path}");
            }
        }
        let fs = cluster.client(&[("dfs.client.read.shortcircuit", "false")]);
        check(&fs, "/200000", Content::new(5), 200_000).await?;
        anyhow::ensure!(fs.statistics().read_bytes(DataPath::Local) == 0);
        Ok(())
    });
}

#[test]
fn apaches_datanode_passes_its_file_descriptors() {
    // The directories above its socket must not be writable by other users, as /tmp is.
    let spec = ClusterSpec::new(Implementation::Apache, Implementation::Apache)
        .short_circuit()
        .within(&unshared_directory())
        .set("dfs.domain.socket.disable.interval.seconds", 1)
        // Enough retries until the restarted datanode has reported its blocks.
        .set("dfs.client.max.block.acquire.failures", 30)
        .set("dfs.client.retry.window.base", 100);
    let mut cluster = match spec.start() {
        Ok(cluster) => cluster,
        Err(error) => return skip_or_fail("apaches_datanode_passes_its_file_descriptors", &error),
    };
    run(async {
        let mut configuration = Configuration::load_dir(cluster.conf(), Environment::empty())?;
        let user = hearth_client::os_user_name();
        let free = FileSystem::connect(&configuration, None, &user)?;
        configuration.set("hearth.client.paths", "local".to_owned());
        let fs = FileSystem::connect(&configuration, None, &user)?;
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            write(&fs, &format!("/{length}"), Content::new(seed as u64), length).await?;
            check(&fs, &format!("/{length}"), Content::new(seed as u64), length).await?;
        }
        anyhow::ensure!(fs.statistics().read_bytes(DataPath::Packets) == 0);
        anyhow::ensure!(fs.statistics().read_bytes(DataPath::Local) > 0);
        // A datanode of another make may shorten its files, so they are not mapped.
        let reader = fs.open("/200000").await?;
        anyhow::ensure!(!reader.view(0, 1000).await?.is_shown());

        // Appended to and truncated while a reader has the file open.
        let content = Content::new(5);
        let mut writer = fs.append("/200000").await?;
        writer.write(&content.bytes(200_000, 50_000)).await?;
        writer.close().await?;
        check(&free, "/200000", content, 250_000).await?;
        check(&fs, "/200000", content, 250_000).await?;
        if !fs.truncate("/200000", 1000).await? {
            wait_closed(&fs, "/200000").await?;
        }
        check(&fs, "/200000", content, 1000).await?;

        // Killed and restarted: its slots end, and later reads are local again.
        cluster.datanodes[0].kill();
        cluster.start_datanode(0)?;
        cluster.wait_ready()?;
        check_locally(&free, "/65537", Content::new(4), 65_537).await?;
        check(&fs, "/65537", Content::new(4), 65_537).await?;
        Ok(())
    });
}

#[test]
fn a_view_is_the_datanodes_own_memory() {
    let cluster = start(1, &[]);
    run(async {
        let fs = cluster.client(&[]);
        let content = Content::new(2);
        write(&fs, "/viewed", content, 2 * BLOCK).await?;
        let reader = fs.open("/viewed").await?;
        let view = reader.view(100, BLOCK).await?;
        anyhow::ensure!(view.is_shown(), "{view:?}");
        anyhow::ensure!(view[..] == content.bytes(100, BLOCK - 100)[..]);
        // The same pages, not a copy.
        let again = reader.positioned().view(100, 5).await?;
        anyhow::ensure!(again.as_ptr() == view.as_ptr());
        let packets = cluster.client(&[("hearth.client.paths", "packets")]);
        let copied = packets.open("/viewed").await?.view(100, BLOCK).await?;
        anyhow::ensure!(!copied.is_shown() && copied[..] == view[..]);
        Ok(())
    });
}

#[test]
fn unreachable_forced_path_is_reported() {
    let cluster = start(1, &[]);
    run(async {
        let fs = cluster.client(&[]);
        write(&fs, "/file", Content::new(1), 200_000).await?;
        for (settings, reason) in [
            (&[("hearth.client.paths", "one-sided")][..], "one-sided to 127.0.0.1"),
            (
                &[("hearth.client.paths", "local"), ("dfs.domain.socket.path", "")],
                "dfs.domain.socket.path is set to nothing",
            ),
        ] {
            let fs = cluster.client(settings);
            let error = fs.open("/file").await?.read_at(0, &mut [0; 10]).await.unwrap_err();
            anyhow::ensure!(error.to_string().starts_with("no path of"), "{error:?}");
            anyhow::ensure!(error.to_string().contains(reason), "{error}");
            anyhow::ensure!(error.kind() == ErrorKind::DataUnavailable);
        }
        // A socket without a listener. With the local path forced, the read fails. Otherwise the next path serves this
        // read and later ones.
        let dead = ("dfs.domain.socket.path", "/nonexistent/dn_PORT");
        let forced = cluster.client(&[dead, ("hearth.client.paths", "local")]);
        let error = forced.open("/file").await?.read_at(0, &mut [0; 10]).await.unwrap_err();
        anyhow::ensure!(error.to_string().starts_with("Could not obtain block"), "{error:?}");
        let free = cluster.client(&[dead]);
        check(&free, "/file", Content::new(1), 200_000).await?;
        anyhow::ensure!(free.statistics().read_bytes(DataPath::Local) == 0);
        // A file being written is not read through a descriptor.
        let mut writer = fs.create("/open", CreateOptions::default()).await?;
        writer.write(&Content::new(7).bytes(0, 100_000)).await?;
        writer.hflush().await?;
        check(&fs, "/open", Content::new(7), 100_000).await?;
        let forced = cluster.client(&[("hearth.client.paths", "local")]);
        let error = forced.open("/open").await?.read_at(0, &mut [0; 10]).await.unwrap_err();
        anyhow::ensure!(error.to_string().contains("being written"), "{error}");
        writer.close().await?;
        check(&forced, "/open", Content::new(7), 100_000).await?;
        Ok(())
    });
}

#[test]
fn open_readers_keep_the_old_contents() {
    let cluster = start(1, &[]);
    run(async {
        let fs = cluster.client(&[]);
        let content = Content::new(4);
        let length = 700_000;

        // The file is appended to.
        write(&fs, "/grown", content, length).await?;
        let reader = fs.open("/grown").await?;
        let view = reader.view(600_000, length).await?;
        let mut writer = fs.append("/grown").await?;
        writer.write(&content.bytes(length as u64, 400_000)).await?;
        writer.close().await?;
        view.verify()?;
        anyhow::ensure!(view[..] == content.bytes(600_000, 100_000)[..], "the view of the shorter file");
        let mut bytes = vec![0; 200_000];
        let got = reader.read_at(600_000, &mut bytes).await?;
        anyhow::ensure!(bytes[..got] == content.bytes(600_000, 100_000)[..], "the old reader's bytes");
        check(&fs, "/grown", content, length + 400_000).await?;

        // The file is truncated within a block. The view keeps the removed bytes.
        write(&fs, "/cut", content, length).await?;
        let reader = fs.open("/cut").await?;
        let view = reader.view(0, length).await?;
        if !fs.truncate("/cut", 300_000).await? {
            wait_closed(&fs, "/cut").await?;
        }
        view.verify()?;
        anyhow::ensure!(view[..] == content.bytes(0, length)[..], "the view of the longer file");
        check(&fs, "/cut", content, 300_000).await?;

        // The file is rewritten under the same name.
        let other = Content::new(40);
        write(&fs, "/cut", other, 500_000).await?;
        check(&fs, "/cut", other, 500_000).await?;
        anyhow::ensure!(view[..] == content.bytes(0, length)[..]);

        // The file is deleted. The reader is notified; an existing view stays valid.
        write(&fs, "/gone", content, length).await?;
        let reader = fs.open("/gone").await?;
        let view = reader.view(0, length).await?;
        fs.delete("/gone", false).await?;
        let mut byte = [0];
        until("the end of the deleted file", async || match reader.read_at(5, &mut byte).await {
            Ok(_) => {
                assert_eq!(byte[0], view[5]);
                false
            }
            Err(_) => true,
        })
        .await;
        anyhow::ensure!(reader.read_at(5, &mut byte).await.is_err(), "a deleted file can still be read");
        view.verify()?;
        anyhow::ensure!(view[..] == content.bytes(0, length)[..]);
        Ok(())
    });
}

#[test]
fn files_beyond_the_memory_limit_are_read_locally() {
    // 16 files of 2 MiB, and room for 8 MiB: the first files leave memory once they are on disk.
    let settings = [("hearth.memory.limit", "8m"), ("hearth.memory.flush.delay", "0")];
    let cluster = start(1, &settings);
    run(async {
        let fs = cluster.client(&[("hearth.client.paths", "local")]);
        let first = Content::new(0);
        write(&fs, "/0", first, 2 * BLOCK).await?;
        let reader = fs.open("/0").await?;
        let mut bytes = vec![0; 5000];
        reader.read_at(70_000, &mut bytes).await?;
        for index in 1..16 {
            write(&fs, &format!("/{index}"), Content::new(index), 2 * BLOCK).await?;
            // A file that stays open reads correctly, in memory or not.
            reader.read_at(70_000, &mut bytes).await?;
            anyhow::ensure!(bytes[..] == first.bytes(70_000, 5000)[..], "after {index} files");
        }
        for _ in 0..2 {
            for index in 0..16 {
                check(&fs, &format!("/{index}"), Content::new(index), 2 * BLOCK).await?;
            }
        }
        Ok(())
    });
}

#[test]
fn restarted_datanode_is_read_locally_again() {
    let patience = [("dfs.client.max.block.acquire.failures", "100")];
    let mut cluster = start(1, &patience);
    run(async {
        let fs = cluster.client(&[]);
        let content = Content::new(6);
        write(&fs, "/file", content, 3 * BLOCK).await?;
        let mut reader = fs.open("/file").await?;
        let positioned = reader.positioned();
        let view = reader.view(0, BLOCK).await?;
        let mut bytes = vec![0; 3 * BLOCK];
        anyhow::ensure!(reader.read(&mut bytes[..BLOCK / 2]).await? == BLOCK / 2);

        cluster.cluster.datanodes[0].kill();
        anyhow::ensure!(view[..] == content.bytes(0, BLOCK)[..], "the view of a killed datanode");
        let restarted = tokio::task::spawn_blocking(move || {
            // Time for the reader to find no process.
            std::thread::sleep(Duration::from_millis(500));
            cluster.cluster.start_datanode(0)?;
            cluster.cluster.wait_ready()?;
            anyhow::Ok(cluster)
        });
        let filled = reader.read(&mut bytes[BLOCK / 2..]).await?;
        anyhow::ensure!(
            filled == 3 * BLOCK - BLOCK / 2 && bytes == content.bytes(0, 3 * BLOCK),
            "wrong contents read across the restart"
        );
        let mut piece = [0; 100];
        positioned.read_at(5, &mut piece).await?;
        anyhow::ensure!(piece[..] == content.bytes(5, 100)[..]);
        let _cluster = restarted.await??;
        check_locally(&fs, "/file", content, 3 * BLOCK).await
    });
}

#[test]
fn many_readers_share_open_replicas() {
    let settings = [
        ("dfs.replication", "3"),
        ("dfs.client.read.shortcircuit.streams.cache.size", "4"),
        ("dfs.block.access.token.enable", "true"),
    ];
    let cluster = start(3, &settings);
    run(async {
        let fs = cluster.client(&[]);
        let contents: Vec<_> = (0..3).map(Content::new).collect();
        let length = 3 * BLOCK + 100;
        for (index, content) in contents.iter().enumerate() {
            write(&fs, &format!("/{index}"), *content, length).await?;
        }
        let mut tasks = Vec::new();
        for task in 0..24u64 {
            let (fs, content) = (fs.clone(), contents[task as usize % 3]);
            tasks.push(tokio::spawn(async move {
                let reader = fs.open(&format!("/{}", task % 3)).await?;
                let mut bytes = vec![0; 9000];
                for step in 0..200u64 {
                    let at = (task * 7919 + step * 104_729) % length as u64;
                    let got = reader.read_at(at, &mut bytes).await?;
                    anyhow::ensure!(bytes[..got] == content.bytes(at, got)[..], "bytes at {at}");
                    if step % 50 == 0 {
                        let view = reader.view(at, 9000).await?;
                        anyhow::ensure!(view[..] == content.bytes(at, view.len())[..], "view at {at}");
                    }
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        anyhow::ensure!(fs.statistics().read_bytes(DataPath::Packets) == 0);
        Ok(())
    });
}

/// The NameNode's order of DataNodes at the same distance is random.
#[test]
fn one_mapping_of_a_block_serves_all_readers() {
    let cluster = start(3, &[("dfs.replication", "3")]);
    run(async {
        let fs = cluster.client(&[("hearth.client.paths", "local")]);
        let content = Content::new(3);
        write(&fs, "/file", content, 4 * BLOCK).await?;
        let mut mapped = Vec::new();
        for round in 0..10 {
            let reader = fs.open("/file").await?;
            for block in 0..4 {
                let at = block * BLOCK;
                let view = reader.view(at as u64, BLOCK).await?;
                anyhow::ensure!(view.is_shown() && view[..] == content.bytes(at as u64, BLOCK)[..], "block {block}");
                if round == 0 {
                    mapped.push(view.as_ptr() as usize);
                }
                anyhow::ensure!(view.as_ptr() as usize == mapped[block], "block {block} was mapped twice");
            }
        }
        Ok(())
    });
}

#[test]
fn many_small_files_are_read_concurrently() {
    let cluster = start(2, &[]);
    run(async {
        let fs = cluster.client(&[("hearth.client.paths", "local")]);
        let sizes = [1usize, 40, 511, 512, 513, 2000, 60_000];
        let mut tasks = tokio::task::JoinSet::new();
        for index in 0..210u64 {
            let fs = fs.clone();
            tasks.spawn(async move {
                write(&fs, &format!("/small/{index}"), Content::new(index), sizes[index as usize % sizes.len()]).await
            });
            if tasks.len() == 16 {
                tasks.join_next().await.expect("a task is running")??;
            }
        }
        while let Some(written) = tasks.join_next().await {
            written??;
        }
        write(&fs, "/small/empty", Content::new(0), 0).await?;
        write(&fs, "/small/large", Content::new(1000), 2 * BLOCK).await?;
        let mut names: Vec<String> = (0..210).map(|index| format!("/small/{index}")).collect();
        names.extend(["/small/empty", "/small/large", "/small/none", ""].map(str::to_owned));
        let paths: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut contents = fs.read_files(&paths).await;
        anyhow::ensure!(contents.pop().unwrap().unwrap_err().kind() == ErrorKind::InvalidPath);
        anyhow::ensure!(contents.pop().unwrap().unwrap_err().kind() == ErrorKind::NotFound);
        anyhow::ensure!(contents.pop().unwrap()? == Content::new(1000).bytes(0, 2 * BLOCK));
        anyhow::ensure!(contents.pop().unwrap()?.is_empty());
        for (index, bytes) in contents.into_iter().enumerate() {
            let expected = Content::new(index as u64).bytes(0, sizes[index % sizes.len()]);
            anyhow::ensure!(bytes? == expected, "file {index}");
        }
        let statistics = fs.statistics();
        anyhow::ensure!(statistics.read_bytes(DataPath::Packets) == 0, "{statistics:?}");
        // Read in parts too. Bytes that are fetched ahead are counted once.
        let before = statistics.read_bytes(DataPath::Local);
        let mut stream = fs.open("/small/6").await?;
        let (mut piece, mut read) = ([0; 1000], Vec::new());
        loop {
            match stream.read(&mut piece).await? {
                0 => break,
                count => read.extend_from_slice(&piece[..count]),
            }
        }
        anyhow::ensure!(read == Content::new(6).bytes(0, 60_000));
        let counted = fs.statistics().read_bytes(DataPath::Local) - before;
        anyhow::ensure!(counted == 60_000, "{counted} bytes counted");
        let reader = fs.open("/small/6").await?;
        let mut bytes = [0; 700];
        anyhow::ensure!(reader.read_at(33_333, &mut bytes).await? == 700);
        anyhow::ensure!(bytes[..] == Content::new(6).bytes(33_333, 700)[..]);
        Ok(())
    });
}
