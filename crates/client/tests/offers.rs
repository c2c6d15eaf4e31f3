//! Offers of datanodes that a client receives from Hearth's namenode with the locations of blocks: the addresses of
//! their listeners for one-sided connections, and of their domain sockets.

use std::time::Duration;

use hearth_client::{CreateOptions, DataPath, FileSystem};
use hearth_config::Configuration;
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, eventually, get_text, jmx_bean, wait_until};

type Outcome = anyhow::Result<()>;

const BLOCK: usize = 1 << 20;
const LENGTH: usize = 3 * BLOCK + 777;

fn cluster(datanodes: usize, settings: &[(&str, &str)]) -> Cluster {
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .datanodes(datanodes)
        .set("dfs.replication", datanodes);
    settings.iter().fold(spec, |spec, (key, value)| spec.set(key, value)).start().unwrap()
}

/// Creates a client that knows only the namenode's address and `settings`.
fn client(cluster: &Cluster, settings: &[(&str, &str)]) -> FileSystem {
    let mut conf = Configuration::empty().with("dfs.blocksize", BLOCK.to_string());
    conf = conf.with("dfs.replication", cluster.datanodes.len().to_string());
    for (key, value) in settings {
        conf = conf.with(key, *value);
    }
    // The user that runs the daemons: a superuser.
    FileSystem::connect(&conf, Some(cluster.uri()), &hearth_client::os_user_name()).unwrap()
}

fn one_sided(cluster: &Cluster) -> FileSystem {
    // A long time-out, so that a datanode that stalls for a moment is not asked again.
    let patient = ("hearth.client.one-sided.timeout", "30");
    client(cluster, &[("hearth.client.paths", "one-sided"), ("hearth.one-sided.transport", "tcp"), patient])
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

async fn check(fs: &FileSystem, path: &str, content: Content, length: usize) -> Outcome {
    let mut reader = fs.open(path).await?;
    let mut bytes = vec![0; length + 1];
    let count = reader.read(&mut bytes).await?;
    anyhow::ensure!(count == length && bytes[..count] == content.bytes(0, length), "{path} reads otherwise");
    Ok(())
}

/// Reads a counter from the datanode's `/metrics`.
fn counted(cluster: &Cluster, datanode: usize, name: &str) -> anyhow::Result<u64> {
    let page = get_text(cluster.datanodes[datanode].port("dfs.datanode.http.address")?, "/metrics")?;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name}_total ")));
    line.ok_or_else(|| anyhow::anyhow!("no {name}"))?.parse().map_err(Into::into)
}

#[test]
fn cold_client_needs_no_describe_requests() {
    for tokens in ["false", "true"] {
        let cluster = cluster(2, &[("hearth.one-sided.transport", "tcp"), ("dfs.block.access.token.enable", tokens)]);
        run(async {
            let content = Content::new(1);
            // The write to the first datanode is one-sided, so it needs a connection too.
            write(&one_sided(&cluster), "/file", content, LENGTH).await?;
            write(&one_sided(&cluster), "/small", content, 5000).await?;
            // The first datanode has asked the next one, to which it forwards blocks.
            let asked = [counted(&cluster, 0, "hearth_descriptions")?, counted(&cluster, 1, "hearth_descriptions")?];
            anyhow::ensure!(asked[0] <= 1 && asked[1] <= 1, "datanodes were asked {asked:?} times, tokens {tokens}");
            for _ in 0..3 {
                let cold = one_sided(&cluster);
                check(&cold, "/file", content, LENGTH).await?;
                check(&cold, "/small", content, 5000).await?;
                let read = cold.statistics().read_bytes(DataPath::OneSided);
                anyhow::ensure!(read == (LENGTH + 5000) as u64, "{:?}", cold.statistics());
            }
            for (datanode, before) in asked.into_iter().enumerate() {
                let now = counted(&cluster, datanode, "hearth_descriptions")?;
                anyhow::ensure!(
                    now == before,
                    "datanode {datanode} was asked {before}, then {now} times, tokens {tokens}"
                );
            }
            // Each block was read from at least one of the two datanodes.
            let mut registered = 0;
            for datanode in &cluster.datanodes {
                let port = datanode.port("dfs.datanode.http.address")?;
                let bean = jmx_bean(port, "Hearth:service=DataNode,name=OneSided")?;
                anyhow::ensure!(bean["Descriptions"].as_u64().is_some_and(|asked| asked <= 1), "{bean}");
                registered += bean["RegisteredBytes"].as_u64().unwrap_or(0);
            }
            anyhow::ensure!(registered >= LENGTH as u64, "{registered} bytes are registered");
            Ok(())
        });
    }
}

/// The reader's locations, and their offers of the datanode, are from an earlier incarnation.
#[test]
fn restarted_datanode_is_found_at_its_new_address() {
    let mut cluster = cluster(1, &[("hearth.one-sided.transport", "tcp")]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let content = Content::new(2);
    let (reader, open) = runtime
        .block_on(async {
            write(&client(&cluster, &[]), "/file", content, LENGTH).await?;
            let reader = one_sided(&cluster);
            let open = reader.open("/file").await?;
            let mut bytes = vec![0; 1000];
            open.read_at(5, &mut bytes).await?;
            anyhow::ensure!(bytes == content.bytes(5, 1000));
            anyhow::Ok((reader, open))
        })
        .unwrap();
    cluster.datanodes[0].kill();
    cluster.start_datanode(0).unwrap();
    let answers = || counted(&cluster, 0, "hearth_descriptions").map(Some);
    wait_until("the datanode answers", Duration::from_secs(60), answers).unwrap();
    runtime
        .block_on(async {
            // One client that never connected and has the old locations, and one that was connected.
            let mut bytes = vec![0; LENGTH];
            open.read_at(0, &mut bytes).await?;
            anyhow::ensure!(bytes == content.bytes(0, LENGTH), "wrong bytes");
            check(&reader, "/file", content, LENGTH).await?;
            let read = reader.statistics().read_bytes(DataPath::OneSided);
            anyhow::ensure!(read == (1000 + 2 * LENGTH) as u64, "{:?}", reader.statistics());
            let asked = counted(&cluster, 0, "hearth_descriptions")?;
            anyhow::ensure!(asked == 1, "the datanode was asked {asked} times");
            // The namenode sends the next client the offer of the new incarnation.
            let is_sent = async || {
                let before = counted(&cluster, 0, "hearth_descriptions")?;
                check(&one_sided(&cluster), "/file", content, LENGTH).await?;
                anyhow::Ok(counted(&cluster, 0, "hearth_descriptions")? == before)
            };
            // The datanode may not have registered again yet.
            eventually("the offer from the namenode", async || match is_sent().await {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            })
            .await
        })
        .unwrap();
}

#[test]
fn local_paths_need_no_configured_socket() {
    let sockets = tempfile::Builder::new().prefix("hearth-sockets-").tempdir().unwrap();
    let path = sockets.path().join("dn_PORT").display().to_string();
    let cluster = cluster(1, &[("dfs.domain.socket.path", &path)]);
    run(async {
        let content = Content::new(3);
        let fs = client(&cluster, &[]);
        write(&fs, "/file", content, LENGTH).await?;
        let placed = counted(&cluster, 0, "hearth_committed_bytes")?;
        // The end of a file may be too short for this path.
        anyhow::ensure!(placed >= 3 * BLOCK as u64, "{placed} bytes were put in place");
        write(&fs, "/small", content, 5000).await?;
        check(&fs, "/file", content, LENGTH).await?;
        let read = fs.read_files(&["/small"]).await.remove(0)?;
        anyhow::ensure!(read == content.bytes(0, 5000));
        let local = fs.statistics().read_bytes(DataPath::Local);
        anyhow::ensure!(local == (LENGTH + 5000) as u64, "{:?}", fs.statistics());
        // A client can disable local reads.
        let without = client(&cluster, &[("dfs.domain.socket.path", "")]);
        check(&without, "/file", content, LENGTH).await?;
        anyhow::ensure!(without.statistics().read_bytes(DataPath::Local) == 0, "{:?}", without.statistics());
        Ok(())
    });
}
