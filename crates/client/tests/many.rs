//! Many files opened and read by one call, over every path, from Hearth's servers. Without support for that call, they
//! are opened by concurrent calls.

use std::borrow::Cow;

use hearth_client::{CreateOptions, DataPath, ErrorKind, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, skip_or_fail, unshared_directory};
use hearth_types::ByteRange;

type Outcome = anyhow::Result<()>;

const BLOCK: usize = 1 << 20;

/// Lengths around the thresholds that decide how a file is read: empty, a slab, its limit, a file of its own, the
/// longest shared range, several blocks.
const LENGTHS: [usize; 9] = [0, 1, 511, 32 << 10, 64 << 10, (64 << 10) + 1, 256 << 10, 300_000, 2 * BLOCK + 77];

/// Creates a directory for domain sockets that no other user can write to.
fn sockets() -> (tempfile::TempDir, String) {
    let directory = tempfile::Builder::new().prefix("hearth-many-").tempdir_in(unshared_directory()).unwrap();
    let path = directory.path().join("dn_PORT").display().to_string();
    (directory, path)
}

fn client(cluster: &Cluster, settings: &[(&str, &str)]) -> FileSystem {
    let mut conf = Configuration::load_dir(cluster.conf(), Environment::empty()).unwrap();
    conf.set("dfs.blocksize", BLOCK.to_string());
    for (key, value) in settings {
        conf.set(key, (*value).to_owned());
    }
    FileSystem::connect(&conf, None, &hearth_client::os_user_name()).unwrap()
}

fn run(test: impl Future<Output = Outcome>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test).unwrap_or_else(|error| panic!("{error:?}"));
}

fn path(index: usize) -> String {
    format!("/many/{index}")
}

fn content(index: usize, offset: usize, length: usize) -> Vec<u8> {
    Content::new(index as u64).bytes(offset as u64, length)
}

async fn store(fs: &FileSystem, count: usize) -> Outcome {
    for index in 0..count {
        let mut writer = fs.create(&path(index), CreateOptions::default()).await?;
        writer.write(&content(index, 0, LENGTHS[index % LENGTHS.len()])).await?;
        writer.close().await?;
    }
    Ok(())
}

/// Reads all files, the middle of all files, and ranges of one. A missing file is an error at its index.
async fn check(fs: &FileSystem, count: usize) -> Outcome {
    let mut paths: Vec<String> = (0..count).map(path).collect();
    paths.insert(1, "/many/missing".to_owned());
    paths.insert(3, "not//a/../path".to_owned());
    let file = |place: usize| match place {
        1 | 3 => None,
        0 => Some(0),
        2 => Some(1),
        place => Some(place - 2),
    };
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    for (place, outcome) in fs.read_files(&paths).await.into_iter().enumerate() {
        match file(place) {
            Some(index) => anyhow::ensure!(outcome? == content(index, 0, LENGTHS[index % 9]), "file {index}"),
            None => anyhow::ensure!(outcome.is_err_and(|error| error.kind() != ErrorKind::Other), "place {place}"),
        }
    }
    let range = ByteRange::new(500, 40_000).expect("a range");
    let wanted: Vec<_> = paths.iter().map(|path| (*path, range)).collect();
    for (place, outcome) in fs.read_many(&wanted).await.into_iter().enumerate() {
        let Some(index) = file(place) else { continue };
        let end = LENGTHS[index % 9].min(40_000);
        anyhow::ensure!(outcome? == content(index, 500, end.saturating_sub(500)), "a part of file {index}");
    }
    // Visited in order of arrival, each once.
    let mut shown: Vec<Option<bool>> = vec![None; wanted.len()];
    let visit = |place: usize, outcome: Result<Cow<'_, [u8]>, hearth_client::Error>| {
        let right = match file(place) {
            Some(index) => {
                let end = LENGTHS[index % 9].min(40_000);
                outcome.is_ok_and(|bytes| *bytes == content(index, 500, end.saturating_sub(500)))
            }
            None => outcome.is_err_and(|error| error.kind() != ErrorKind::Other),
        };
        assert_eq!(shown[place].replace(right), None, "entry {place} was visited twice");
    };
    fs.visit_many(&wanted, visit).await;
    anyhow::ensure!(shown.iter().all(|right| *right == Some(true)), "{shown:?}");
    let readers = fs.open_many(&paths).await;
    let large = readers[10].as_ref().map_err(Clone::clone)?;
    assert_eq!(large.length() as usize, LENGTHS[8]);
    let ranges: Vec<_> =
        (0..200u64).map(|i| ByteRange::with_length(i * 10_500, 1000 + 997 * (i % 7)).unwrap()).collect();
    for (range, outcome) in ranges.iter().zip(large.read_ranges(&ranges).await) {
        let end = (range.end() as usize).min(LENGTHS[8]);
        let start = (range.start() as usize).min(end);
        anyhow::ensure!(outcome? == content(8, start, end - start), "{range:?}");
    }
    Ok(())
}

#[test]
fn many_files_are_read_together_over_every_path() {
    let (_directory, socket) = sockets();
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).set("dfs.replication", 1);
    let cluster = spec.set("dfs.domain.socket.path", socket).start().unwrap();
    run(async {
        store(&client(&cluster, &[]), 36).await?;
        let local = client(&cluster, &[("hearth.client.paths", "local")]);
        check(&local, 36).await?;
        assert!(local.statistics().read_bytes(DataPath::Local) > 0);
        let packets = client(&cluster, &[("hearth.client.paths", "packets")]);
        check(&packets, 36).await?;
        assert!(packets.statistics().read_bytes(DataPath::Packets) > 0);
        check(
            &client(&cluster, &[("hearth.client.paths", "packets"), ("hearth.client.multiplex.connections", "0")]),
            36,
        )
        .await?;
        // Sixty concurrent readers share the connections.
        let mut readers = tokio::task::JoinSet::new();
        for reader in 0..60usize {
            let fs = packets.clone();
            readers.spawn(async move {
                for index in (0..36).cycle().skip(reader).take(36) {
                    let mut bytes = vec![0; 32 << 10];
                    let count = fs.open(&path(index)).await?.read_at(0, &mut bytes).await?;
                    let wanted = LENGTHS[index % 9].min(32 << 10);
                    anyhow::ensure!(bytes[..count] == content(index, 0, wanted), "file {index}");
                }
                anyhow::Ok(())
            });
        }
        while let Some(outcome) = readers.join_next().await {
            outcome??;
        }
        Ok(())
    });
}

#[test]
fn reads_survive_a_datanode_restart() {
    let mut cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(2)
        .set("dfs.replication", 2)
        .start()
        .unwrap();
    run(async {
        store(&client(&cluster, &[]), 18).await?;
        let fs = client(&cluster, &[("hearth.client.paths", "packets")]);
        check(&fs, 18).await?;
        for round in 0..2 {
            cluster.datanodes[round].kill();
            check(&fs, 18).await?;
            cluster.start_datanode(round)?;
            cluster.wait_ready()?;
        }
        check(&fs, 18).await?;
        Ok(())
    });
}

#[test]
fn files_are_opened_concurrently_without_open_many() {
    // Apache's NameNode, if one is installed on this machine.
    let spec = ClusterSpec::mixed(Implementation::Apache, &[Implementation::Hearth]).set("dfs.replication", 1);
    let (_directory, socket) = sockets();
    let cluster = match spec.set("dfs.domain.socket.path", socket).start() {
        Ok(cluster) => cluster,
        Err(error) => {
            return skip_or_fail("files_are_opened_concurrently_without_open_many", &error);
        }
    };
    run(async {
        store(&client(&cluster, &[]), 18).await?;
        for paths in ["local", "packets"] {
            check(&client(&cluster, &[("hearth.client.paths", paths)]), 18).await?;
        }
        Ok(())
    });
}
