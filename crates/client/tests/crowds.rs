//! Tests of real server processes whose peers connect and stay silent, or begin long requests and do not finish them.

use std::future::Future;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use hearth_client::{CreateOptions, DataPath, FileSystem};
use hearth_config::Configuration;
use hearth_protocol::rpc::{ClientId, RpcClient, RpcClientOptions, RpcError, Target, raise_descriptor_limit};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, free_port, get_text, skip_or_fail, usage};
use hearth_wire::proto::hdfs::ExtendedBlockProto;
use hearth_wire::proto::hdfs::{GetFileInfoResponseProto, GetReplicaVisibleLengthResponseProto};
use hearth_wire::rpc::{AuthProtocol, ConnectionContext, ConnectionHeader, encode_context, protocols};
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// More connections than any port serves at once by default.
const SILENT: usize = 4500;

/// File descriptors that the test needs: those of silent connections, and its own.
const DESCRIPTORS: usize = SILENT + 500;

/// Number of connections with a long request each.
const LONG: usize = 200;
const ANNOUNCED_BYTES: u32 = 120 << 20;
const SENT_BYTES: usize = 100 << 20;

/// Limit of a server's resident memory under this load.
const RESIDENT_MAX: u64 = 512 << 20;

/// Time within which a client must be served.
const SERVED_WITHIN: Duration = Duration::from_secs(2);

/// Maximum number of attempts, one of which must be within that time: the test machine may stall for a moment.
const TRIES: usize = 5;

/// Time-out of operations without a bound of their own.
const WAIT: Duration = Duration::from_secs(120);

const LENGTH: usize = 100_000;
const CONTENT: Content = Content { seed: 36 };

fn cluster() -> Cluster {
    ClusterSpec::new(Implementation::Hearth, Implementation::Hearth)
        .short_circuit()
        .set("hearth.one-sided.transport", "tcp")
        .set("hearth.one-sided.address", format!("127.0.0.1:{}", free_port()))
        .start()
        .unwrap()
}

/// Creates a client without connections that reads by `path`.
fn client(cluster: &Cluster, path: DataPath) -> Result<FileSystem> {
    let mut conf = Configuration::empty()
        .with("dfs.replication", "1")
        .with("hearth.one-sided.transport", "tcp")
        .with("hearth.client.paths", path.to_string());
    if path == DataPath::Local {
        let socket = cluster.datanodes[0].setting("dfs.domain.socket.path").context("no domain socket")?;
        conf = conf.with("dfs.client.read.shortcircuit", "true").with("dfs.domain.socket.path", socket);
    }
    Ok(FileSystem::connect(&conf, Some(cluster.uri()), &hearth_client::os_user_name())?)
}

async fn write(fs: &FileSystem, path: &str) -> Result<()> {
    let mut writer = fs.create(path, CreateOptions { overwrite: true, ..CreateOptions::default() }).await?;
    writer.write(&CONTENT.bytes(0, LENGTH)).await?;
    writer.close().await?;
    Ok(())
}

/// Reads the file by `path`, and checks that no other path was used.
async fn read(cluster: &Cluster, path: DataPath) -> Result<()> {
    let fs = client(cluster, path)?;
    let mut reader = fs.open("/file").await?;
    let mut bytes = vec![0; LENGTH + 1];
    let count = reader.read(&mut bytes).await?;
    ensure!(count == LENGTH && bytes[..count] == CONTENT.bytes(0, LENGTH), "wrong contents read by {path}");
    ensure!(fs.statistics().read_bytes(path) == LENGTH as u64, "not read by {path}: {:?}", fs.statistics());
    Ok(())
}

fn run(test: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test).unwrap_or_else(|error| panic!("{error:?}"));
}

/// Retries until an operation completes within the time that a client may have to wait.
async fn served<F: Future<Output = Result<()>>>(what: &str, mut ask: impl FnMut() -> F) -> Result<()> {
    let mut slowest = Duration::ZERO;
    for _ in 0..TRIES {
        let began = Instant::now();
        let answer = tokio::time::timeout(WAIT, ask()).await.map_err(|_| anyhow!("{what}: no answer in {WAIT:?}"))?;
        let took = began.elapsed();
        answer.with_context(|| format!("{what} after {took:?}"))?;
        println!("{what}: served after {took:?}");
        if took <= SERVED_WITHIN {
            return Ok(());
        }
        slowest = slowest.max(took);
    }
    Err(anyhow!("{what}: served after {slowest:?}"))
}

/// `GetFileInfoRequestProto` with a field unknown to servers.
#[derive(Clone, PartialEq, Message)]
struct LongFileInfo {
    #[prost(string, required, tag = "1")]
    src: String,
    #[prost(bytes = "vec", tag = "100")]
    filling: Vec<u8>,
}

/// `GetReplicaVisibleLengthRequestProto` with a field unknown to servers.
#[derive(Clone, PartialEq, Message)]
struct LongVisibleLength {
    #[prost(message, required, tag = "1")]
    block: ExtendedBlockProto,
    #[prost(bytes = "vec", tag = "100")]
    filling: Vec<u8>,
}

/// One of the two RPC servers.
#[derive(Clone, Copy)]
struct Rpc {
    name: &'static str,
    port: u16,
    process: u32,
    protocol: &'static str,
}

impl Rpc {
    fn of(cluster: &Cluster) -> Result<[Self; 2]> {
        let datanode = &cluster.datanodes[0];
        Ok([
            Self {
                name: "NameNode",
                port: cluster.namenode_rpc_port(),
                process: cluster.namenode.id()?,
                protocol: protocols::CLIENT,
            },
            Self {
                name: "DataNode",
                port: datanode.port("dfs.datanode.ipc.address")?,
                process: datanode.id()?,
                protocol: protocols::CLIENT_DATANODE,
            },
        ])
    }

    /// Returns the resident bytes, without replicas.
    fn resident(&self) -> Result<u64> {
        let usage = usage(self.process)?;
        Ok(usage.resident - usage.shared_memory)
    }

    /// Makes a call whose request has `bytes` that the server does not look at. Accepts any answer.
    async fn call(&self, bytes: usize) -> Result<()> {
        let client = RpcClient::new(RpcClientOptions::default());
        let address = ([127, 0, 0, 1], self.port).into();
        let target = Target { address, protocol: self.protocol, user: "honest".into() };
        let filling = vec![0; bytes];
        let outcome = if self.protocol == protocols::CLIENT {
            let request = LongFileInfo { src: "/".to_owned(), filling };
            client.call::<GetFileInfoResponseProto>(&target, "getFileInfo", &request).await.map(drop)
        } else {
            let block = ExtendedBlockProto { block_id: 1, generation_stamp: 1, ..Default::default() };
            let request = LongVisibleLength { block, filling };
            let method = "getReplicaVisibleLength";
            client.call::<GetReplicaVisibleLengthResponseProto>(&target, method, &request).await.map(drop)
        };
        match outcome {
            Ok(()) | Err(RpcError::Remote(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins a long request and never ends it. Uses a new connection when the server closes one.
    async fn begin_long_request(self, sent: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
        let header = ConnectionHeader { service_class: 0, auth: AuthProtocol::Simple }.encode();
        let context = ConnectionContext {
            effective_user: "hostile".to_owned(),
            real_user: None,
            protocol: self.protocol.to_owned(),
        };
        let context = encode_context(ClientId([7; 16]), &context);
        let zeros = vec![0; 1 << 20];
        while !stop.load(Ordering::Relaxed) {
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)).await else { continue };
            let begun = [&header[..], &context[..], &ANNOUNCED_BYTES.to_be_bytes()].concat();
            let mut outcome = stream.write_all(&begun).await;
            for _ in 0..SENT_BYTES >> 20 {
                if outcome.is_err() {
                    break;
                }
                outcome = stream.write_all(&zeros).await;
                sent.fetch_add(1 << 20, Ordering::Relaxed);
            }
            if outcome.is_ok() {
                // Stay silent until the server closes the connection.
                let _ = stream.readable().await;
            }
        }
    }
}

async fn check_unfinished(cluster: &Cluster, rpc: Rpc) -> Result<()> {
    let fs = client(cluster, DataPath::Packets)?;
    write(&fs, "/file").await?;
    served(&format!("{}: a request of 100 MiB, alone", rpc.name), || rpc.call(SENT_BYTES)).await?;
    let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let hostile: Vec<_> = (0..LONG).map(|_| tokio::spawn(rpc.begin_long_request(sent.clone(), stop.clone()))).collect();
    let mut resident = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) || sent.load(Ordering::Relaxed) < 300 << 20 {
        ensure!(began.elapsed() < WAIT, "{} bytes were sent", sent.load(Ordering::Relaxed));
        served(&format!("{}: a call", rpc.name), || rpc.call(10)).await?;
        served(&format!("{}: a file", rpc.name), || async {
            write(&client(cluster, DataPath::Packets)?, "/file").await?;
            read(cluster, DataPath::Packets).await
        })
        .await?;
        resident = resident.max(rpc.resident()?);
        ensure!(resident < RESIDENT_MAX, "{}: {resident} bytes resident", rpc.name);
    }
    // Longer than a request that needs no memory of its own, shorter than those that the other peers send.
    served(&format!("{}: a request of 5 MiB", rpc.name), || rpc.call(5 << 20)).await?;
    resident = resident.max(rpc.resident()?);
    let sent = sent.load(Ordering::Relaxed) >> 20;
    println!("{}: {} MiB resident at most while {LONG} peers sent {sent} MiB", rpc.name, resident >> 20);
    ensure!(resident < RESIDENT_MAX, "{}: {resident} bytes resident", rpc.name);
    stop.store(true, Ordering::Relaxed);
    hostile.into_iter().for_each(|task| task.abort());
    served(&format!("{}: a request of 100 MiB, alone again", rpc.name), || rpc.call(SENT_BYTES)).await
}

#[test]
fn unfinished_requests_use_bounded_memory() {
    let cluster = cluster();
    run(async {
        for rpc in Rpc::of(&cluster)? {
            check_unfinished(&cluster, rpc).await?;
        }
        Ok(())
    });
}

/// Opens silent connections to a port.
async fn silent(port: u16) -> Result<Vec<std::net::TcpStream>> {
    let connect = move |_| std::net::TcpStream::connect(("127.0.0.1", port));
    tokio::task::spawn_blocking(move || Ok((0..SILENT).map(connect).collect::<Result<_, _>>()?)).await?
}

async fn check_silent(cluster: &Cluster) -> Result<()> {
    write(&client(cluster, DataPath::Packets)?, "/file").await?;
    let [namenode, ipc] = Rpc::of(cluster)?;
    let datanode = &cluster.datanodes[0];
    let page = |port: u16| async move { tokio::task::spawn_blocking(move || get_text(port, "/jmx").map(drop)).await? };
    let held = silent(namenode.port).await?;
    served("NameNode RPC", || namenode.call(10)).await?;
    drop(held);
    let held = silent(ipc.port).await?;
    served("DataNode IPC", || ipc.call(10)).await?;
    drop(held);
    for (name, port) in
        [("NameNode web", cluster.namenode_http_port()), ("DataNode web", datanode.port("dfs.datanode.http.address")?)]
    {
        let held = silent(port).await?;
        served(name, || page(port)).await?;
        drop(held);
    }
    let held = silent(datanode.port("dfs.datanode.address")?).await?;
    served("DataNode transfer", || read(cluster, DataPath::Packets)).await?;
    drop(held);
    let held = silent(datanode.port("hearth.one-sided.address")?).await?;
    served("DataNode one-sided", || read(cluster, DataPath::OneSided)).await?;
    drop(held);
    let path = datanode.setting("dfs.domain.socket.path").context("no domain socket")?;
    let path = path.replace("_PORT", &datanode.port("dfs.datanode.address")?.to_string());
    let held = (0..SILENT).map(|_| UnixStream::connect(&path)).collect::<Result<Vec<_>, _>>()?;
    served("DataNode domain socket", || read(cluster, DataPath::Local)).await?;
    drop(held);
    Ok(())
}

#[test]
fn silent_connections_do_not_lock_out_clients() {
    let descriptors = raise_descriptor_limit();
    if descriptors < DESCRIPTORS {
        let why = anyhow!(
            "{descriptors} descriptors are allowed, {DESCRIPTORS} are needed: raise the hard limit (ulimit -Hn)"
        );
        return skip_or_fail("silent_connections_do_not_lock_out_clients", &why);
    }
    let cluster = cluster();
    run(check_silent(&cluster));
}
