//! One-sided reads of real clusters, over TCP if there is no RDMA card. Every byte takes that path and no other, unless
//! a test states otherwise.

mod common;

use hearth_client::{CreateOptions, DataPath, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation};

use common::streamed;

type Outcome = anyhow::Result<()>;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn cluster(datanodes: usize, settings: &[(&str, &str)]) -> Cluster {
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(datanodes)
        .set("dfs.replication", datanodes);
    let spec = spec.set("hearth.one-sided.transport", "tcp").set("dfs.blocksize", 4 << 20);
    settings.iter().fold(spec, |spec, (key, value)| spec.set(key, value)).start().unwrap()
}

/// Creates a client that reads by `paths` only.
fn client(cluster: &Cluster, paths: &str) -> FileSystem {
    let name = format!("client-{}", paths.replace(',', "-"));
    let conf = cluster.conf_with(&name, &[("hearth.client.paths", paths)]).unwrap();
    let conf = Configuration::load_dir(&conf, Environment::empty()).unwrap();
    FileSystem::connect(&conf, None, &hearth_client::os_user_name()).unwrap()
}

async fn write(fs: &FileSystem, path: &str, content: Content, length: usize) -> Outcome {
    let mut writer = fs.create(path, CreateOptions { overwrite: true, ..CreateOptions::default() }).await?;
    writer.write(&content.bytes(0, length)).await?;
    writer.close().await?;
    Ok(())
}

async fn read(fs: &FileSystem, path: &str) -> anyhow::Result<Vec<u8>> {
    let mut reader = fs.open(path).await?;
    let mut bytes = vec![0; reader.length() as usize];
    let count = reader.read(&mut bytes).await?;
    anyhow::ensure!(count == bytes.len(), "{count} of {} bytes", bytes.len());
    Ok(bytes)
}

#[test]
fn files_of_every_size_are_read_one_sidedly() {
    let cluster = cluster(1, &[]);
    let (writer, reader) = (client(&cluster, "packets"), client(&cluster, "one-sided"));
    let outcome: Outcome = runtime().block_on(async {
        let block = 4 << 20;
        let mut total = 0;
        // In slabs: within the answer, and written to the client. The larger ones are files of their own.
        for (seed, length) in
            [1, 700, 6000, 30_000, 65_536, 65_537, 1_000_001, block, 3 * block + 777].into_iter().enumerate()
        {
            let path = format!("/one-sided/{length}");
            let content = Content::new(seed as u64);
            write(&writer, &path, content, length).await?;
            let expected = content.bytes(0, length);
            anyhow::ensure!(read(&reader, &path).await? == expected, "{length} bytes");
            anyhow::ensure!(
                streamed(&reader, &path, |there| there.min(70_001)).await? == expected,
                "{length} bytes in pieces"
            );
            total += 2 * length as u64;
            let open = reader.open(&path).await?;
            // Often enough that the table of CRCs is kept.
            for round in 0..20 {
                let at = length * round / 21;
                let mut bytes = vec![0; 4096.min(length - at)];
                let count = open.read_at(at as u64, &mut bytes).await?;
                anyhow::ensure!(
                    count == bytes.len() && bytes == expected[at..at + count],
                    "{count} bytes at {at} of {path}"
                );
                total += count as u64;
            }
        }
        let statistics = reader.statistics();
        anyhow::ensure!(statistics.read_bytes(DataPath::OneSided) == total, "{statistics:?} of {total}");
        anyhow::ensure!(statistics.read_bytes(DataPath::Packets) == 0, "{statistics:?}");
        Ok(())
    });
    outcome.unwrap();
}

/// Rule 4 with a whole client: a reader that knows the old memory sees rewritten data.
#[test]
fn reader_with_old_leases_sees_changed_files() {
    let cluster = cluster(1, &[]);
    let (writer, reader) = (client(&cluster, "packets"), client(&cluster, "one-sided,packets"));
    let outcome: Outcome = runtime().block_on(async {
        let content = Content::new(1);
        write(&writer, "/changing", content, 1_000_000).await?;
        let old = reader.open("/changing").await?;
        let mut bytes = vec![0; 1000];
        old.read_at(5000, &mut bytes).await?;
        anyhow::ensure!(bytes == content.bytes(5000, 1000));
        let mut more = writer.append("/changing").await?;
        more.write(&content.bytes(1_000_000, 500_000)).await?;
        more.close().await?;
        // By the old locations: the replica has a new stamp now, and its first bytes are the same.
        old.read_at(900_000, &mut bytes).await?;
        anyhow::ensure!(bytes == content.bytes(900_000, 1000));
        anyhow::ensure!(read(&reader, "/changing").await? == content.bytes(0, 1_500_000));
        let another = Content::new(2);
        for round in 0..5 {
            write(&writer, "/changing", another, 800_000 + round).await?;
            anyhow::ensure!(read(&reader, "/changing").await? == another.bytes(0, 800_000 + round));
        }
        anyhow::ensure!(reader.statistics().read_bytes(DataPath::OneSided) > 4_000_000, "{:?}", reader.statistics());
        Ok(())
    });
    outcome.unwrap();
}

/// A datanode is killed in the middle: its advertisements are void, and the next replica is read.
#[test]
fn reader_survives_a_killed_datanode() {
    let mut cluster = cluster(2, &[]);
    let (writer, reader) = (client(&cluster, "packets"), client(&cluster, "one-sided,packets"));
    let runtime = runtime();
    let content = Content::new(3);
    let length = 12 << 20;
    let outcome: anyhow::Result<hearth_client::Reader> = runtime.block_on(async {
        write(&writer, "/killed", content, length).await?;
        let mut open = reader.open("/killed").await?;
        let mut bytes = vec![0; 5 << 20];
        open.read(&mut bytes).await?;
        anyhow::ensure!(bytes == content.bytes(0, 5 << 20));
        Ok(open)
    });
    let mut open = outcome.unwrap();
    cluster.datanodes[0].kill();
    let outcome: Outcome = runtime.block_on(async {
        let mut bytes = vec![0; 7 << 20];
        open.read(&mut bytes).await?;
        anyhow::ensure!(bytes == content.bytes(5 << 20, 7 << 20));
        Ok(())
    });
    outcome.unwrap();
    cluster.start_datanode(0).unwrap();
    // Wait until it is ready: being counted as live is not enough, because the earlier incarnation may still be.
    cluster.wait_ready().unwrap();
    cluster.datanodes[1].kill();
    let outcome: Outcome = runtime.block_on(async {
        // Through an open file that knows the first incarnation of the restarted datanode.
        let mut bytes = vec![0; 1 << 20];
        open.read_at(1000, &mut bytes).await?;
        anyhow::ensure!(bytes == content.bytes(1000, 1 << 20));
        anyhow::ensure!(read(&reader, "/killed").await? == content.bytes(0, length));
        Ok(())
    });
    outcome.unwrap();
}

/// Twice as much data as the memory holds stays readable, whichever path it takes.
#[test]
fn working_set_of_twice_the_memory_is_readable() {
    let limit = 24 << 20;
    let settings = [
        ("hearth.memory.limit", &*limit.to_string()),
        ("hearth.memory.flush.delay", "1"),
        ("hearth.advertise.lease", "1"),
    ];
    let cluster = cluster(1, &settings);
    let (writer, reader) = (client(&cluster, "packets"), client(&cluster, "one-sided,packets"));
    let outcome: Outcome = runtime().block_on(async {
        for seed in 0..12 {
            write(&writer, &format!("/large/{seed}"), Content::new(seed), 4 << 20).await?;
        }
        for round in 0..3 {
            for seed in 0..12 {
                let bytes = read(&reader, &format!("/large/{seed}")).await?;
                anyhow::ensure!(bytes == Content::new(seed).bytes(0, 4 << 20), "file {seed}, round {round}");
            }
        }
        let statistics = reader.statistics();
        anyhow::ensure!(statistics.read_bytes(DataPath::OneSided) > 0, "{statistics:?}");
        Ok(())
    });
    outcome.unwrap();
}
