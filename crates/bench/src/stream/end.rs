//! One end of the load generator, in its own process. It reports readiness and progress on standard output, and starts
//! on a command from its parent.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::set_tcp_congestion;
use tokio::net::{TcpListener, TcpSocket};

use super::{Carrier, Payload, grpc, into_name, raw, replicas};

/// Interval between progress reports of the receiver.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Interval between checks for completion. The measured time ends with the report of it.
const LOOKED_EVERY: Duration = Duration::from_millis(5);

#[derive(clap::Args)]
pub struct Arguments {
    role: Role,
    #[arg(long, value_enum)]
    carrier: Carrier,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    streams: u64,
    #[arg(long)]
    bytes: u64,
    #[arg(long)]
    slow_ms: Option<u64>,
    /// Address where the other end listens; without it this end listens
    #[arg(long)]
    peer: Option<SocketAddr>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    Send,
    Receive,
}

/// Role of this end, and its data.
pub struct Plan {
    pub folder: PathBuf,
    pub payload: Payload,
    pub slow: Option<Duration>,
    /// Bytes that the receiver has stored.
    pub taken: Arc<AtomicU64>,
}

impl Plan {
    pub fn take(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let plan = Arc::new(Plan {
        folder: arguments.folder.clone(),
        payload: Payload { streams: arguments.streams, bytes: arguments.bytes },
        slow: arguments.slow_ms.map(Duration::from_millis),
        taken: Arc::default(),
    });
    let (taken, all) = (plan.taken.clone(), arguments.streams * arguments.bytes);
    if arguments.role == Role::Receive {
        std::thread::spawn(move || tell(&taken, all));
    }
    if arguments.peer.is_none() {
        // A listening end gets no further input and could wait for ever: an end of the input means that the parent is
        // gone. A connecting end ends without the other end.
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::exit(1);
        });
    }
    // A DataNode has a single-threaded event loop for each of its connections for replicas.
    let mut builder = match arguments.carrier {
        Carrier::Streams => tokio::runtime::Builder::new_current_thread(),
        Carrier::Grpc | Carrier::Sendfile | Carrier::Memory => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let (carrier, peer) = (arguments.carrier, arguments.peer);
    // Spawned as in a DataNode. In a runtime with several threads, this one would have to be woken each time.
    let work = runtime.spawn(async move {
        match peer {
            None => listen(carrier, &plan).await,
            Some(peer) => connect(carrier, &plan, peer).await,
        }
    });
    runtime.block_on(work)??;
    // Waits until the parent has read the resource usage, or is gone.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn tell(taken: &AtomicU64, all: u64) {
    let mut told: Option<Instant> = None;
    loop {
        let bytes = taken.load(Ordering::Relaxed);
        if bytes >= all {
            return say(&format!("done {bytes}"));
        }
        if told.is_none_or(|told| told.elapsed() >= TOLD_EVERY) {
            say(&format!("taken {bytes}"));
            told = Some(Instant::now());
        }
        std::thread::sleep(LOOKED_EVERY);
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If the parent is gone, this process will be ended, too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn listen(carrier: Carrier, plan: &Arc<Plan>) -> Result<()> {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    match carrier {
        Carrier::Streams => {
            let listener = replicas::listen(any)?;
            say(&format!("listening {}", listener.address()));
            replicas::receive(listener, plan).await
        }
        Carrier::Sendfile => {
            let listener = unpaced_listener(any)?.into_std()?;
            listener.set_nonblocking(false)?;
            say(&format!("listening {}", listener.local_addr()?));
            let plan = plan.clone();
            tokio::task::spawn_blocking(move || raw::receive(&listener, &plan)).await?
        }
        Carrier::Grpc => {
            let listener = unpaced_listener(any)?;
            say(&format!("listening {}", listener.local_addr()?));
            grpc::serve(listener, plan.folder.clone()).await
        }
        Carrier::Memory => bail!("its ends are DataNodes"),
    }
}

async fn connect(carrier: Carrier, plan: &Arc<Plan>, peer: SocketAddr) -> Result<()> {
    match carrier {
        Carrier::Streams => {
            let sender = replicas::Sender::connect(peer, plan).await?;
            begin().await?;
            sender.send(plan).await
        }
        Carrier::Sendfile => {
            let stream = unpaced()?.connect(peer).await?.into_std()?;
            stream.set_nonblocking(false)?;
            let plan = plan.clone();
            tokio::task::spawn_blocking(move || {
                wait_for_go()?;
                raw::send(&stream, &plan)
            })
            .await?
        }
        Carrier::Grpc => {
            let receiver = grpc::Receiver::connect(peer).await?;
            begin().await?;
            let mut downloads = tokio::task::JoinSet::new();
            for replica in 0..plan.payload.streams {
                let (mut receiver, plan) = (receiver.clone(), plan.clone());
                downloads.spawn(async move {
                    let into = plan.folder.join(into_name(replica));
                    receiver.download(replica, &into, plan.slow, |bytes| plan.take(bytes)).await
                });
            }
            while let Some(download) = downloads.join_next().await {
                download??;
            }
            Ok(())
        }
        Carrier::Memory => bail!("its ends are DataNodes"),
    }
}

/// Creates a socket. Within a machine Hearth's connections are not paced, whatever the system's default is. The
/// references are not paced either.
fn unpaced() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    set_tcp_congestion(&socket, "reno")?;
    Ok(socket)
}

fn unpaced_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = unpaced()?;
    socket.bind(address)?;
    socket.listen(16)
}

async fn begin() -> Result<()> {
    tokio::task::spawn_blocking(wait_for_go).await?
}

/// Reports readiness, and waits for the parent's command.
fn wait_for_go() -> Result<()> {
    say("ready");
    let mut line = String::new();
    let bytes = std::io::stdin().read_line(&mut line)?;
    (bytes > 0).then_some(()).context("the load generator has ended")
}
