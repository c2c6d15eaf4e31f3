//! Memory addresses of replicas that Hearth's namenode sends with the locations of blocks. A cold reader asks no
//! datanode for them. A replica that has changed since costs the reader a request, never a wrong byte or a false
//! report. Over TCP; the suite `paths` has the same tests over verbs.

mod common;

use std::time::Duration;

use bytes::Bytes;
use hearth_client::{CreateOptions, DataPath, FileSystem, Reader, Statistics};
use hearth_config::Configuration;
use hearth_protocol::rpc::{RpcClient, RpcClientOptions, Target};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, eventually, get_text, wait_until};
use hearth_types::{BlockId, GenerationStamp};
use hearth_wire::announcement::{AnnouncedReplica, Announcement, AnnouncementAck};
use hearth_wire::proto::hdfs::*;
use hearth_wire::rdma_control::Advertisement;
use hearth_wire::rpc::protocols;

use common::wait_closed;

type Outcome = anyhow::Result<()>;

const BLOCK: usize = 1 << 20;
const BLOCKS: usize = 8;
const LENGTH: usize = BLOCKS * BLOCK;
const LONG: Duration = Duration::from_secs(60);

fn cluster(datanodes: usize, settings: &[(&str, &str)]) -> Cluster {
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(datanodes)
        .set("dfs.replication", datanodes);
    let spec = spec.set("hearth.one-sided.transport", "tcp").set("dfs.heartbeat.interval", 1);
    settings.iter().fold(spec, |spec, (key, value)| spec.set(key, value)).start().unwrap()
}

/// Creates a client that has read nothing yet and uses `paths` only.
fn cold(cluster: &Cluster, paths: &str) -> FileSystem {
    let conf = Configuration::empty()
        .with("dfs.blocksize", BLOCK.to_string())
        .with("dfs.replication", cluster.datanodes.len().to_string())
        .with("hearth.client.paths", paths)
        .with("hearth.one-sided.transport", "tcp")
        // A long time-out, so that a datanode that stalls for a moment is not asked again.
        .with("hearth.client.one-sided.timeout", "30");
    FileSystem::connect(&conf, Some(cluster.uri()), &hearth_client::os_user_name()).unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn run<T>(test: impl Future<Output = anyhow::Result<T>>) -> T {
    runtime().block_on(test).unwrap_or_else(|error| panic!("{error:?}"))
}

async fn write(fs: &FileSystem, path: &str, content: Content, length: usize) -> Outcome {
    let mut writer = fs.create(path, CreateOptions { overwrite: true, ..CreateOptions::default() }).await?;
    writer.write(&content.bytes(0, length)).await?;
    writer.close().await?;
    Ok(())
}

async fn read(reader: &Reader, offset: usize, length: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let count = reader.read_at(offset as u64, &mut bytes).await?;
    anyhow::ensure!(count == length, "{count} of {length} bytes");
    Ok(bytes)
}

async fn check(fs: &FileSystem, path: &str, content: Content, length: usize) -> Outcome {
    let reader = fs.open(path).await?;
    anyhow::ensure!(reader.length() == length as u64, "{path} has {} bytes", reader.length());
    anyhow::ensure!(read(&reader, 0, length).await? == content.bytes(0, length), "{path} reads otherwise");
    Ok(())
}

/// Waits until the namenode sends the memory address of every replica of the file.
async fn wait_piggybacked(fs: &FileSystem, path: &str, replicas: usize) -> Outcome {
    eventually(&format!("the memory of {path}"), async || match fs.locations(path, 0, u64::MAX >> 1).await {
        Ok(located) => located.blocks.iter().all(|block| block.advertisements.len() == replicas).then_some(Ok(())),
        Err(error) => Some(Err(error.into())),
    })
    .await
}

/// Reads a value from a daemon's `/metrics`.
fn figure(port: u16, name: &str) -> anyhow::Result<u64> {
    let page = get_text(port, "/metrics")?;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.ok_or_else(|| anyhow::anyhow!("no {name}"))?.parse().map_err(Into::into)
}

fn of_datanode(cluster: &Cluster, name: &str) -> anyhow::Result<u64> {
    figure(cluster.datanodes[0].port("dfs.datanode.http.address")?, name)
}

fn of_namenode(cluster: &Cluster, name: &str) -> anyhow::Result<u64> {
    figure(cluster.namenode_http_port(), name)
}

fn nothing_was_reported(cluster: &Cluster) -> Outcome {
    let corrupt = of_namenode(cluster, "hearth_namenode_corrupt_blocks")?;
    anyhow::ensure!(corrupt == 0, "{corrupt} blocks were reported corrupt");
    Ok(())
}

/// Returns the counts of replicas asked for, piggybacked and refused.
fn found(statistics: &Statistics) -> [u64; 3] {
    [statistics.replicas_asked_for(), statistics.replicas_piggybacked(), statistics.replicas_refused()]
}

#[test]
fn cold_reader_asks_no_datanode_for_addresses() {
    // Long enough that no lease ends before its use, even on a machine that stalls.
    let cluster = cluster(2, &[("hearth.announce.lease", "60")]);
    run(async {
        let content = Content::new(1);
        let writer = cold(&cluster, "packets");
        write(&writer, "/file", content, LENGTH).await?;
        wait_piggybacked(&writer, "/file", 2).await?;
        let leases = of_datanode(&cluster, "hearth_advertisements_total")?;
        for _ in 0..3 {
            let reader = cold(&cluster, "one-sided");
            check(&reader, "/file", content, LENGTH).await?;
            let statistics = reader.statistics();
            anyhow::ensure!(found(&statistics) == [0, BLOCKS as u64, 0], "{statistics:?}");
            anyhow::ensure!(statistics.read_bytes(DataPath::OneSided) == LENGTH as u64, "{statistics:?}");
            // Read again, by the leases that it already has.
            check(&reader, "/file", content, LENGTH).await?;
            anyhow::ensure!(found(&reader.statistics())[0] == 0, "{:?}", reader.statistics());
        }
        anyhow::ensure!(of_datanode(&cluster, "hearth_advertisements_total")? == leases, "a datanode was asked");
        anyhow::ensure!(of_datanode(&cluster, "hearth_announced_replicas")? == BLOCKS as u64);
        anyhow::ensure!(of_namenode(&cluster, "hearth_namenode_advertisements")? == 2 * BLOCKS as u64);
        anyhow::ensure!(of_namenode(&cluster, "hearth_namenode_advertisements_handed_on_total")? >= 3 * BLOCKS as u64);
        // A client that uses another path gets the addresses too, and ignores them.
        check(&cold(&cluster, "packets"), "/file", content, LENGTH).await?;
        writer.delete("/file", false).await?;
        Ok(())
    });
    let none = || Ok((of_namenode(&cluster, "hearth_namenode_advertisements")? == 0).then_some(()));
    wait_until("the memory of deleted replicas is no longer sent", LONG, none).unwrap();
}

/// The lease from the namenode ends, and the datanode renews it.
#[test]
fn reader_continues_after_the_lease_ends() {
    let cluster = cluster(1, &[("hearth.announce.lease", "4")]);
    run(async {
        let content = Content::new(2);
        let writer = cold(&cluster, "packets");
        write(&writer, "/file", content, LENGTH).await?;
        wait_piggybacked(&writer, "/file", 1).await?;
        let mut attempts = 0;
        let (fs, reader) = loop {
            let fs = cold(&cluster, "one-sided");
            let reader = fs.open("/file").await?;
            anyhow::ensure!(read(&reader, 0, BLOCK).await? == content.bytes(0, BLOCK));
            // On a machine that stalls, the lease may end before its first use.
            attempts += 1;
            if found(&fs.statistics()) == [0, 1, 0] || attempts == 10 {
                break (fs, reader);
            }
        };
        // The leases of the other replicas end unused.
        tokio::time::sleep(Duration::from_secs(5)).await;
        anyhow::ensure!(read(&reader, 0, LENGTH).await? == content.bytes(0, LENGTH), "wrong bytes");
        let [asked, used, refused] = found(&fs.statistics());
        // A machine that stalls again causes one more request.
        let is_right = (BLOCKS as u64..2 * BLOCKS as u64).contains(&asked) && (used, refused) == (1, BLOCKS as u64 - 1);
        anyhow::ensure!(is_right, "{:?}", fs.statistics());
        Ok(())
    });
}

#[test]
fn no_addresses_with_tokens_or_when_disabled() {
    for (key, value) in [
        ("dfs.block.access.token.enable", "true"),
        ("hearth.announce.lease", "0"),
        ("hearth.namenode.advertisements.max", "0"),
    ] {
        let cluster = cluster(1, &[(key, value)]);
        run(async {
            let content = Content::new(3);
            let fs = cold(&cluster, "one-sided,packets");
            write(&fs, "/file", content, 2 * BLOCK).await?;
            // Allow a few heartbeats.
            tokio::time::sleep(Duration::from_secs(4)).await;
            let reader = cold(&cluster, "one-sided");
            check(&reader, "/file", content, 2 * BLOCK).await?;
            anyhow::ensure!(found(&reader.statistics()) == [2, 0, 0], "{key}: {:?}", reader.statistics());
            anyhow::ensure!(of_namenode(&cluster, "hearth_namenode_advertisements")? == 0, "{key}");
            anyhow::ensure!(of_datanode(&cluster, "hearth_announced_replicas")? == 0, "{key}");
            Ok(())
        });
    }
}

/// Readers received the memory addresses of replicas and have not read them yet when the memory is reused or freed.
#[test]
fn stale_addresses_never_return_wrong_bytes() {
    let settings = [("hearth.memory.limit", "64m"), ("hearth.memory.flush.delay", "1"), ("hearth.announce.max", "32m")];
    let cluster = cluster(1, &settings);
    run(async {
        let writer = cold(&cluster, "packets");
        let content = Content::new(4);
        for path in ["/appended", "/cut", "/deleted", "/replaced", "/evicted"] {
            write(&writer, path, content, 2 * BLOCK).await?;
        }
        for path in ["/appended", "/cut", "/deleted", "/replaced", "/evicted"] {
            wait_piggybacked(&writer, path, 1).await?;
        }
        let fs = cold(&cluster, "one-sided,packets");
        let [appended, cut, deleted, replaced, evicted] = [
            fs.open("/appended").await?,
            fs.open("/cut").await?,
            fs.open("/deleted").await?,
            fs.open("/replaced").await?,
            fs.open("/evicted").await?,
        ];
        anyhow::ensure!(found(&fs.statistics()) == [0, 0, 0]);
        // An append gives the block a new stamp; a truncation makes a copy.
        let mut more = writer.append("/appended").await?;
        more.write(&content.bytes(2 * BLOCK as u64, 1000)).await?;
        more.close().await?;
        if !writer.truncate("/cut", BLOCK as u64 + 1000).await? {
            wait_closed(&writer, "/cut").await?;
        }
        writer.delete("/deleted", false).await?;
        let another = Content::new(5);
        write(&writer, "/replaced", another, 2 * BLOCK).await?;
        // At once, and again when the deleted file is gone.
        for round in 0..2 {
            anyhow::ensure!(read(&appended, 0, 2 * BLOCK).await? == content.bytes(0, 2 * BLOCK), "appended, {round}");
            anyhow::ensure!(read(&cut, 0, BLOCK + 1000).await? == content.bytes(0, BLOCK + 1000), "cut, {round}");
            for (reader, what) in [(&deleted, "deleted"), (&replaced, "replaced"), (&cut, "cut")] {
                // An error is also correct.
                if let Ok(bytes) = read(reader, BLOCK, BLOCK).await {
                    anyhow::ensure!(bytes == content.bytes(BLOCK as u64, BLOCK), "{what}: wrong bytes, {round}");
                }
            }
            if round == 0 {
                // Time for the other process to delete the replicas, which it may do at any moment.
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        }
        // Later writes push the files out of memory.
        for seed in 0..4 {
            write(&writer, &format!("/pressure/{seed}"), Content::new(seed), 20 * BLOCK).await?;
        }
        anyhow::ensure!(read(&evicted, 0, 2 * BLOCK).await? == content.bytes(0, 2 * BLOCK), "evicted");
        // New readers see the current contents.
        let fs = cold(&cluster, "one-sided,packets");
        check(&fs, "/appended", content, 2 * BLOCK + 1000).await?;
        check(&fs, "/cut", content, BLOCK + 1000).await?;
        check(&fs, "/replaced", another, 2 * BLOCK).await?;
        for seed in 0..4 {
            check(&fs, &format!("/pressure/{seed}"), Content::new(seed), 20 * BLOCK).await?;
        }
        nothing_was_reported(&cluster)
    });
}

/// Keys of an earlier incarnation may belong to other memory by now.
#[test]
fn memory_of_an_earlier_incarnation_is_not_read() {
    let mut cluster = cluster(1, &[]);
    let runtime = runtime();
    let contents = [Content::new(6), Content::new(7)];
    let readers = runtime
        .block_on(async {
            let writer = cold(&cluster, "packets");
            let mut readers = Vec::new();
            for (index, content) in contents.into_iter().enumerate() {
                write(&writer, &format!("/{index}"), content, LENGTH).await?;
                wait_piggybacked(&writer, &format!("/{index}"), 1).await?;
            }
            for index in 0..contents.len() {
                let fs = cold(&cluster, "one-sided");
                readers.push((fs.open(&format!("/{index}")).await?, fs));
            }
            anyhow::Ok(readers)
        })
        .unwrap();
    cluster.datanodes[0].kill();
    cluster.start_datanode(0).unwrap();
    let answers = || of_datanode(&cluster, "hearth_replicas").map(Some);
    wait_until("the datanode answers", LONG, answers).unwrap();
    runtime
        .block_on(async {
            // Other replicas are registered first now, perhaps with the same numbers.
            let other = cold(&cluster, "one-sided");
            check(&other, "/1", contents[1], LENGTH).await?;
            for (content, (reader, fs)) in contents.into_iter().zip(&readers) {
                anyhow::ensure!(read(reader, 0, LENGTH).await? == content.bytes(0, LENGTH), "wrong bytes");
                let [asked, used, refused] = found(&fs.statistics());
                anyhow::ensure!((asked, used, refused) == (BLOCKS as u64, 0, BLOCKS as u64), "{:?}", fs.statistics());
            }
            nothing_was_reported(&cluster)
        })
        .unwrap();
}

/// Peer that speaks to the namenode as the only datanode.
struct Impostor {
    rpc: RpcClient,
    target: Target,
    registration: DatanodeRegistrationProto,
}

impl Impostor {
    async fn new(cluster: &Cluster, fs: &FileSystem) -> anyhow::Result<Self> {
        let rpc = RpcClient::new(RpcClientOptions::default());
        let address = ([127, 0, 0, 1], cluster.namenode_rpc_port()).into();
        let target = Target { address, protocol: protocols::DATANODE, user: "hdfs".into() };
        let version: VersionResponseProto = rpc.call(&target, "versionRequest", &VersionRequestProto {}).await?;
        let located = fs.locations("/a", 0, 1).await?;
        let registration = DatanodeRegistrationProto {
            datanode_id: (&located.blocks[0].locations[0].id).into(),
            storage_info: version.info.storage_info,
            keys: Default::default(),
            software_version: "3.4.2".into(),
        };
        Ok(Self { rpc, target, registration })
    }

    async fn beat(&self, announcement: Option<Announcement>) -> anyhow::Result<AnnouncementAck> {
        let request = HeartbeatRequestProto {
            registration: self.registration.clone(),
            hearth_announcement: announcement.map(|announcement| announcement.encode()),
            ..Default::default()
        };
        let answer: HeartbeatResponseProto = self.rpc.call(&self.target, "sendHeartbeat", &request).await?;
        let word = answer.hearth_word.and_then(|word| AnnouncementAck::decode(&word));
        word.ok_or_else(|| anyhow::anyhow!("the namenode sends no word"))
    }

    /// Makes the namenode send `advertisement` with the locations of a block.
    async fn announce(&self, block: (BlockId, GenerationStamp), advertisement: Bytes) -> Outcome {
        for _ in 0..20 {
            let word = self.beat(None).await?.word;
            let added = vec![AnnouncedReplica { block: block.0, stamp: block.1, advertisement: advertisement.clone() }];
            let lease = Duration::from_secs(60);
            // The datanode itself may have announced in between.
            if self.beat(Some(Announcement { word, lease, anew: false, added, withdrawn: Vec::new() })).await?.taken {
                return Ok(());
            }
        }
        anyhow::bail!("the namenode accepts no announcement")
    }
}

/// Whatever memory address the namenode sends: bytes that do not match are requested from the datanode before they are
/// reported corrupt.
#[test]
fn wrong_advertisement_is_not_reported_as_corruption() {
    // A long interval, so that the datanode does not correct the announcement in between.
    let cluster = cluster(1, &[("dfs.heartbeat.interval", "3")]);
    run(async {
        let writer = cold(&cluster, "packets");
        let contents = [Content::new(8), Content::new(9)];
        for (path, content) in ["/a", "/b"].into_iter().zip(contents) {
            write(&writer, path, content, BLOCK).await?;
            wait_piggybacked(&writer, path, 1).await?;
        }
        let impostor = Impostor::new(&cluster, &writer).await?;
        let mut real = Vec::new();
        for path in ["/a", "/b"] {
            let located = writer.locations(path, 0, 1).await?;
            let block = &located.blocks[0];
            anyhow::ensure!(block.advertisements.len() == 1, "the memory of {path} is no longer sent");
            real.push((block.block.clone(), Advertisement::decode(&block.advertisements[0].advertisement)?));
        }
        let (block, a) = real[0].clone();
        let b = real[1].1.clone();
        let mut key = a.clone();
        key.data.key ^= 0x5a5a;
        let wrong = [
            ("CRCs of another replica", Advertisement { checksums: b.checksums, ..a.clone() }),
            ("bytes of another replica", Advertisement { data: b.data, ..a.clone() }),
            ("the record of another replica", Advertisement { shown: b.shown, ..a.clone() }),
            ("a key that opens nothing", key),
            ("another replica", b.clone()),
            ("another life", Advertisement { incarnation: a.incarnation ^ 1, ..a.clone() }),
        ];
        for (what, advertisement) in wrong {
            let doctored = advertisement.encode();
            impostor.announce((block.id(), block.stamp()), doctored.clone()).await?;
            let said = writer.locations("/a", 0, 1).await?;
            if said.blocks[0].advertisements.first().is_none_or(|handed_on| handed_on.advertisement != doctored) {
                println!("{what}: the datanode announced first");
                continue;
            }
            let reader = cold(&cluster, "one-sided");
            check(&reader, "/a", contents[0], BLOCK).await?;
            // An invalid key ends the connection, and the datanode may already have been asked over it.
            let most = if what == "a key that opens nothing" { 2 } else { 1 };
            let [asked, used, _] = found(&reader.statistics());
            anyhow::ensure!((1..=most).contains(&asked) && used <= 1, "{what}: {:?}", reader.statistics());
        }
        impostor.announce((block.id(), block.stamp()), Bytes::from_static(b"no advertisement")).await?;
        check(&cold(&cluster, "one-sided"), "/a", contents[0], BLOCK).await?;
        // Allow time for a report to arrive.
        tokio::time::sleep(Duration::from_secs(1)).await;
        nothing_was_reported(&cluster)
    });
}
