//! No leaks of descriptors, mappings and slots of local reads, on either side, as counted by the operating system. The
//! test is a program of its own, so that resources of other tests are not counted.

use std::path::PathBuf;
use std::time::Duration;

use hearth_client::{CreateOptions, DataPath, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, wait_until};

const LENGTH: usize = 300_000;
const FILES: u64 = 40;

/// Counts of the resources of local reads that a process has open.
#[derive(Clone, Copy, Debug)]
struct Held {
    descriptors: usize,
    mappings: usize,
}

impl Held {
    fn is_within(self, other: Self) -> bool {
        self.descriptors <= other.descriptors && self.mappings <= other.mappings
    }
}

/// Counts Unix sockets, shared memory, and files on the tmpfs.
fn held(process: &str) -> anyhow::Result<Held> {
    let ours = |target: &str| ["memfd:", "/dev/shm/"].iter().any(|part| target.contains(part));
    let unix: Vec<String> = std::fs::read_to_string(format!("/proc/{process}/net/unix"))?
        .lines()
        .filter_map(|line| line.split_whitespace().nth(6).map(|inode| format!("socket:[{inode}]")))
        .collect();
    let mut descriptors = 0;
    for entry in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        // An entry closed during the scan is not counted.
        let target = std::fs::read_link(entry?.path()).unwrap_or_else(|_| PathBuf::new());
        let target = target.to_string_lossy().into_owned();
        descriptors += usize::from(ours(&target) || unix.contains(&target));
    }
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    Ok(Held { descriptors, mappings: maps.lines().filter(|line| ours(line)).count() })
}

async fn read_everything(fs: &FileSystem) -> anyhow::Result<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8u64 {
        let fs = fs.clone();
        tasks.spawn(async move {
            for index in 0..FILES {
                let (content, reader) = (Content::new(index), fs.open(&format!("/{index}")).await?);
                let at = (task * 31_337) % 200_000;
                let mut bytes = vec![0; 50_000];
                reader.read_at(at, &mut bytes).await?;
                anyhow::ensure!(bytes == content.bytes(at, 50_000), "file {index}");
                let view = reader.view(at, 1000).await?;
                anyhow::ensure!(view.is_shown() && view[..] == content.bytes(at, 1000)[..], "view of file {index}");
                if index % 7 == task {
                    // Cancelled in the middle.
                    let _ = tokio::time::timeout(Duration::from_micros(50), reader.view(at, 1000)).await;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

fn start(sockets: &std::path::Path) -> anyhow::Result<(Cluster, Configuration)> {
    let cluster = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .set("dfs.domain.socket.path", sockets.join("dn_PORT").display())
        // Do not count files that the DataNode itself keeps open between short reads.
        .set("hearth.storage.open.max", 0)
        .set("dfs.client.read.shortcircuit.streams.cache.size", 10)
        .set("dfs.client.read.shortcircuit.streams.cache.expiry.ms", 300)
        .start()?;
    let mut configuration = Configuration::load_dir(cluster.conf(), Environment::empty())?;
    configuration.set("hearth.client.paths", "local".to_owned());
    Ok((cluster, configuration))
}

#[test]
fn local_reads_leak_no_resources() {
    let sockets = tempfile::Builder::new().prefix("hearth-sockets-").tempdir().unwrap();
    let (cluster, configuration) = start(sockets.path()).unwrap();
    let datanode = cluster.datanodes[0].id().unwrap().to_string();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let user = hearth_client::os_user_name();
    let connect = || FileSystem::connect(&configuration, None, &user).unwrap();
    runtime
        .block_on(async {
            let writer = connect();
            for index in 0..FILES {
                let mut file = writer.create(&format!("/{index}"), CreateOptions::default()).await?;
                file.write(&Content::new(index).bytes(0, LENGTH)).await?;
                file.close().await?;
            }
            anyhow::Ok(())
        })
        .unwrap();
    let settled = |what: &str, ours: Held, theirs: Held| {
        wait_until(what, Duration::from_secs(120), || {
            // Fewer of ours once the runtime is gone, because the runtime has a socket of its own.
            let done = held("self")?.is_within(ours) && held(&datanode)?.is_within(theirs);
            Ok(done.then_some(()))
        })
        .unwrap_or_else(|error| {
            let now = (held("self").unwrap(), held(&datanode).unwrap());
            panic!("{error:#}: {now:?} instead of {:?}", (ours, theirs))
        });
    };
    let (ours, theirs) = (held("self").unwrap(), held(&datanode).unwrap());

    // The file system stays, and the resources that it holds expire.
    let fs = connect();
    for round in 0..3 {
        // Open resources expire soon; a stalled machine may look too late, so retry.
        let is_open = (0..20).any(|_| {
            runtime.block_on(read_everything(&fs)).unwrap();
            held("self").unwrap().mappings > ours.mappings
        });
        assert!(is_open, "round {round}: no resources are open");
        settled("open resources to expire", ours, theirs);
    }
    assert_eq!(fs.statistics().read_bytes(DataPath::Packets), 0);

    // The file system is dropped.
    runtime.block_on(read_everything(&fs)).unwrap();
    drop(fs);
    settled("open resources to be closed with the file system", ours, theirs);

    // The runtime is dropped, so no task can notify the datanode.
    let fs = connect();
    runtime.block_on(read_everything(&fs)).unwrap();
    drop(runtime);
    drop(fs);
    settled("open resources to be closed with the runtime", ours, theirs);
}
