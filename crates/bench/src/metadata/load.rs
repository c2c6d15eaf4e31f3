//! Many connections of a few threads, each with one call open at a time, as the clients of a cluster are.

use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hearth_wire::rpc::{
    AuthProtocol, ClientId, ConnectionContext, ConnectionHeader, encode_context, frame_length, protocols,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::calls::{self, OPERATIONS, Operation};

/// Bytes of an answer; all of them are small.
const ANSWER_MAX: usize = 1 << 20;

/// Of one call. A collection of garbage takes a while.
const PATIENCE: Duration = Duration::from_secs(60);

/// What one operation of all connections together took.
pub struct Took {
    pub operation: Operation,
    pub wall: Duration,
    /// Of each call, in no order.
    pub latencies: Vec<Duration>,
}

struct Connection {
    stream: TcpStream,
    client: ClientId,
    root: String,
    next_call: i32,
    /// Of the calls to come: made before, so that it does not stand beside the NameNode's work.
    frames: Vec<Bytes>,
    answer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr, user: &str, number: usize, root: String) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await.context("connecting to the NameNode")?;
        stream.set_nodelay(true)?;
        let mut client = [0; 16];
        client[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        client[8..].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
        let client = ClientId(client);
        let header = ConnectionHeader { service_class: 0, auth: AuthProtocol::Simple };
        let context = ConnectionContext {
            effective_user: user.to_owned(),
            real_user: None,
            protocol: protocols::CLIENT.to_owned(),
        };
        stream.write_all(&header.encode()).await?;
        stream.write_all(&encode_context(client, &context)).await?;
        Ok(Self { stream, client, root, next_call: 0, frames: Vec::new(), answer: Vec::new() })
    }

    fn prepare(&mut self, operation: Operation, count: usize) {
        self.frames = (0..count)
            .map(|which| {
                self.next_call += 1;
                operation.call(&self.root, which, self.client, self.next_call)
            })
            .collect();
    }

    async fn call(&mut self, frame: &[u8]) -> Result<()> {
        let work = async {
            self.stream.write_all(frame).await?;
            self.answer.clear();
            loop {
                if let Some(prefix) = self.answer.first_chunk() {
                    let length = frame_length(*prefix, ANSWER_MAX)?;
                    if self.answer.len() >= prefix.len() + length {
                        return anyhow::Ok(());
                    }
                }
                ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "the NameNode hung up");
            }
        };
        tokio::time::timeout(PATIENCE, work).await.context("a call took too long")?
    }

    fn take_answer(&self) -> Bytes {
        Bytes::copy_from_slice(&self.answer[size_of::<u32>()..])
    }

    async fn run(&mut self, operation: Operation) -> Result<Vec<Duration>> {
        let frames = std::mem::take(&mut self.frames);
        let mut latencies = Vec::with_capacity(frames.len());
        for frame in frames {
            let started = Instant::now();
            self.call(&frame).await?;
            latencies.push(started.elapsed());
            operation.check(self.take_answer())?;
        }
        Ok(latencies)
    }

    async fn remove(&mut self) -> Result<()> {
        self.next_call += 1;
        let frame = calls::remove(&self.root, self.client, self.next_call);
        self.call(&frame).await?;
        calls::success(self.take_answer()).map(drop)
    }
}

/// Connections that are one thread's.
struct Share {
    runtime: Runtime,
    connections: Vec<Connection>,
}

pub struct Load {
    shares: Vec<Share>,
    calls_each: usize,
}

impl Load {
    /// Connects. `directory`: what is made lies below it.
    pub fn connect(
        address: SocketAddr,
        user: &str,
        directory: &str,
        threads: usize,
        connections: usize,
        operations: usize,
    ) -> Result<Self> {
        let mut shares = Vec::new();
        for thread in 0..threads {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let numbers = (0..connections).filter(|number| number % threads == thread);
            let open = async {
                let mut opened = Vec::new();
                for number in numbers {
                    opened.push(Connection::open(address, user, number, format!("{directory}/{number}")).await?);
                }
                anyhow::Ok(opened)
            };
            let connections = runtime.block_on(open)?;
            shares.push(Share { runtime, connections });
        }
        Ok(Self { shares, calls_each: operations.div_ceil(connections) })
    }

    /// Every operation after the other. `around`: called with each before it begins (false) and when it is over (true).
    pub fn run(&mut self, mut around: impl FnMut(Operation, bool) -> Result<()>) -> Result<Vec<Took>> {
        let mut all = Vec::new();
        for operation in OPERATIONS {
            for connection in self.shares.iter_mut().flat_map(|share| &mut share.connections) {
                connection.prepare(operation, self.calls_each);
            }
            around(operation, false)?;
            let started = Instant::now();
            let latencies = self.each(|connection| Box::pin(connection.run(operation)))?;
            let wall = started.elapsed();
            around(operation, true)?;
            all.push(Took { operation, wall, latencies: latencies.into_iter().flatten().collect() });
        }
        self.each(|connection| Box::pin(connection.remove()))?;
        Ok(all)
    }

    /// The same of all connections at once, in their threads, which begin together.
    fn each<T: Send>(
        &mut self,
        work: impl for<'a> Fn(&'a mut Connection) -> std::pin::Pin<Box<dyn Future<Output = Result<T>> + 'a>> + Sync,
    ) -> Result<Vec<T>> {
        let begin = Arc::new(Barrier::new(self.shares.len()));
        std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .shares
                .iter_mut()
                .map(|share| {
                    let (begin, work) = (begin.clone(), &work);
                    scope.spawn(move || {
                        begin.wait();
                        let all = futures_util::future::try_join_all(share.connections.iter_mut().map(work));
                        share.runtime.block_on(all)
                    })
                })
                .collect();
            let mut results = Vec::new();
            for thread in threads {
                results.extend(thread.join().expect("a thread does not panic")?);
            }
            Ok(results)
        })
    }
}
