//! Many connections on a few threads. Each has one open call at a time, like the clients of a cluster, or several, like
//! a client whose own threads share its connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::{Buf, Bytes, BytesMut};
use hearth_wire::rpc::{
    AuthProtocol, ClientId, ConnectionContext, ConnectionHeader, encode_context, frame_length, protocols,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::calls::{self, OPERATIONS, Operation};

/// Size of the receive buffer. It may hold several answers.
const RECEIVE_BYTES: usize = 16 << 10;

/// Maximum bytes of an answer. All answers are small.
const ANSWER_MAX: usize = 1 << 20;

/// Timeout of one call. Long enough for a garbage collection.
const PATIENCE: Duration = Duration::from_secs(60);

/// Costs of one operation over all connections together.
pub struct OperationTiming {
    pub operation: Operation,
    pub wall: Duration,
    /// Latency of each call, unordered.
    pub latencies: Vec<Duration>,
}

struct Connection {
    stream: TcpStream,
    client: ClientId,
    root: String,
    next_call: i32,
    /// Maximum number of open calls.
    open_calls: usize,
    /// Frames of the next calls, with their ids. They are made in advance, so that encoding does not compete with the
    /// NameNode for CPU.
    frames: Vec<(i32, Bytes)>,
    answers: BytesMut,
}

impl Connection {
    async fn open(address: SocketAddr, user: &str, number: usize, root: String, open_calls: usize) -> Result<Self> {
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
        let (frames, answers) = (Vec::new(), BytesMut::new());
        Ok(Self { stream, client, root, next_call: 0, open_calls, frames, answers })
    }

    fn prepare(&mut self, operation: Operation, count: usize) {
        self.frames = (0..count)
            .map(|which| {
                self.next_call += 1;
                (self.next_call, operation.call(&self.root, which, self.client, self.next_call))
            })
            .collect();
    }

    /// Receives the next answer.
    async fn answer(&mut self) -> Result<Bytes> {
        let work = async {
            loop {
                if let Some(prefix) = self.answers.first_chunk() {
                    let length = frame_length(*prefix, ANSWER_MAX)?;
                    if self.answers.len() >= prefix.len() + length {
                        self.answers.advance(prefix.len());
                        return anyhow::Ok(self.answers.split_to(length).freeze());
                    }
                }
                self.answers.reserve(RECEIVE_BYTES);
                ensure!(self.stream.read_buf(&mut self.answers).await? > 0, "the NameNode closed the connection");
            }
        };
        tokio::time::timeout(PATIENCE, work).await.context("a call took too long")?
    }

    async fn run(&mut self, operation: Operation) -> Result<Vec<Duration>> {
        let frames = std::mem::take(&mut self.frames);
        let mut latencies = Vec::with_capacity(frames.len());
        let mut next = frames.iter();
        let mut open: HashMap<i32, Instant> = HashMap::new();
        let mut sending = BytesMut::new();
        loop {
            sending.clear();
            while open.len() < self.open_calls
                && let Some((number, frame)) = next.next()
            {
                sending.extend_from_slice(frame);
                open.insert(*number, Instant::now());
            }
            if open.is_empty() {
                return Ok(latencies);
            }
            self.stream.write_all(&sending).await?;
            // Takes all answers that arrived together before further calls are sent.
            loop {
                let answer = self.answer().await?;
                let number = operation.check(answer)?;
                latencies.push(open.remove(&number).context("an answer without a call")?.elapsed());
                if self.answers.is_empty() || open.is_empty() {
                    break;
                }
            }
        }
    }

    async fn remove(&mut self) -> Result<()> {
        self.next_call += 1;
        let frame = calls::remove(&self.root, self.client, self.next_call);
        self.stream.write_all(&frame).await?;
        calls::success(self.answer().await?).map(drop)
    }
}

/// Connections of one thread.
struct Share {
    runtime: Runtime,
    connections: Vec<Connection>,
}

pub struct Load {
    shares: Vec<Share>,
    calls_each: usize,
}

impl Load {
    /// Opens `connections` connections, each with up to `open_calls` open calls. `directory`: parent of everything that
    /// is made.
    pub fn connect(
        address: SocketAddr,
        user: &str,
        directory: &str,
        threads: usize,
        (connections, open_calls): (usize, usize),
        operations: usize,
    ) -> Result<Self> {
        let mut shares = Vec::new();
        for thread in 0..threads {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let numbers = (0..connections).filter(|number| number % threads == thread);
            let open = async {
                let mut opened = Vec::new();
                for number in numbers {
                    let root = format!("{directory}/{number}");
                    opened.push(Connection::open(address, user, number, root, open_calls).await?);
                }
                anyhow::Ok(opened)
            };
            let connections = runtime.block_on(open)?;
            shares.push(Share { runtime, connections });
        }
        Ok(Self { shares, calls_each: operations.div_ceil(connections) })
    }

    /// Runs every operation, one after the other. `around` is called with each before it begins (false) and after it
    /// has ended (true).
    pub fn run(&mut self, mut around: impl FnMut(Operation, bool) -> Result<()>) -> Result<Vec<OperationTiming>> {
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
            all.push(OperationTiming { operation, wall, latencies: latencies.into_iter().flatten().collect() });
        }
        self.each(|connection| Box::pin(connection.remove()))?;
        Ok(all)
    }

    /// Runs the same on all connections at once, in their threads, which start together.
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
