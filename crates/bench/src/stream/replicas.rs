//! Hearth's streams between two processes that keep their replicas in files.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use hearth_blockstore::Mapping;
use hearth_fabric::tcp::{self, Connection, Listener, ReceiveBuffer, SocketOptions};
use hearth_protocol::replica_stream::{
    self, InPlace, NotAccepted, ReplicaJob, ReplicaSink, ReplicaSource, ReplicaStore, SourceData, StreamTimeouts,
    receive_buffer,
};
use hearth_types::{
    Block, BlockId, BlockPoolId, ByteRange, ChecksumSpec, ExtendedBlock, GenerationStamp, StorageType, Token,
};
use hearth_wire::data_transfer::{
    Decoded, OpenReplica, Operation, ReplicaRefusal, ReplicaStream, Status, StreamLimits, StreamTerms,
};
use tokio::sync::{mpsc, oneshot};

use super::end::Plan;
use super::{checksums_name, grpc, into_name, open_into};

const WAIT: Duration = Duration::from_secs(60);
const WAITS: StreamTimeouts = StreamTimeouts { silence: WAIT, write: WAIT, idle: WAIT };

/// Limits of a DataNode, except for the number of replicas.
fn limits(streams: u64) -> StreamLimits {
    StreamLimits {
        window_bytes: 8 << 20,
        replica_window_bytes: 2 << 20,
        frame_bytes_max: 512 << 10,
        replicas_max: u32::try_from(streams).unwrap_or(u32::MAX).clamp(1, StreamLimits::MAX.replicas_max),
    }
}

pub fn listen(address: SocketAddr) -> Result<Listener> {
    Ok(Listener::bind(address, SocketOptions::default(), 16)?)
}

/// Accepts one connection, which carries all replicas.
pub async fn receive(listener: Listener, plan: &Arc<Plan>) -> Result<()> {
    let connection = listener.accept().await?;
    let mut buffer = receive_buffer();
    loop {
        match Operation::decode(buffer.available())? {
            Decoded::Complete(_, bytes) => break buffer.consume(bytes),
            Decoded::Needs(missing) => {
                let wanted = buffer.available().len() + missing;
                buffer.fill_to(&connection, wanted, WAIT).await?;
            }
        }
    }
    let limits = limits(plan.payload.streams);
    connection.write_all(&StreamTerms::Accepted(limits).encode(), WAIT).await?;
    let store = Arc::new(Folder { plan: plan.clone() });
    Ok(replica_stream::receive(&connection, &mut buffer, store, limits, WAITS).await?)
}

struct Folder {
    plan: Arc<Plan>,
}

impl ReplicaStore for Folder {
    type Sink = FileSink;

    async fn open(&self, request: OpenReplica) -> Result<FileSink, ReplicaRefusal> {
        let path = self.plan.folder.join(into_name(request.block.id().0 as u64));
        let file = open_into(&path).map_err(|error| failed(&error))?;
        let bytes = self.plan.payload.bytes;
        let mapped = Mapping::has_huge_pages(&file).then(|| Mapping::for_receiving(&file, bytes)).transpose();
        Ok(FileSink { mapped: mapped.map_err(|error| failed(&error))?, file, received: 0, plan: self.plan.clone() })
    }
}

fn failed(error: &std::io::Error) -> ReplicaRefusal {
    ReplicaRefusal::new(Status::Error, error.to_string())
}

struct FileSink {
    file: File,
    /// Mapping of the file, where a DataNode would receive in place.
    mapped: Option<Mapping>,
    received: u64,
    plan: Arc<Plan>,
}

impl InPlace for FileSink {
    fn receive(
        &mut self,
        offset: u64,
        length: usize,
        socket: BorrowedFd<'_>,
        behind: &mut [u8],
    ) -> Result<std::io::Result<usize>, ReplicaRefusal> {
        let gone = || ReplicaRefusal::new(Status::Error, "it is not mapped");
        Ok(self.mapped.as_ref().ok_or_else(gone)?.receive(offset, length, socket, behind))
    }

    fn accept(&mut self, length: usize, checksums: &[u8]) -> Result<(), NotAccepted> {
        let look = |mapped: &Mapping| mapped.verify(self.received, length, ChecksumSpec::DEFAULT, checksums);
        let gone = || NotAccepted::Refused(ReplicaRefusal::new(Status::Error, "its memory is gone"));
        self.mapped.as_ref().and_then(look).ok_or_else(gone)?.map_err(NotAccepted::Corrupt)?;
        self.received += length as u64;
        self.plan.take(length as u64);
        Ok(())
    }
}

impl ReplicaSink for FileSink {
    fn received(&self) -> u64 {
        self.received
    }

    fn can_store_now(&self, _bytes: usize) -> bool {
        self.plan.slow.is_none()
    }

    fn in_place(&mut self, _end: u64) -> Option<&mut dyn InPlace> {
        if self.mapped.is_some() { Some(self) } else { None }
    }

    fn store_now(&mut self, offset: u64, data: &[u8], _checksums: &[u8]) -> Result<(), ReplicaRefusal> {
        self.file.write_all_at(data, offset).map_err(|error| failed(&error))?;
        self.received = offset + data.len() as u64;
        self.plan.take(data.len() as u64);
        Ok(())
    }

    async fn store(mut self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<Self, ReplicaRefusal> {
        if let Some(slow) = self.plan.slow {
            tokio::time::sleep(slow).await;
        }
        self.store_now(offset, data, checksums)?;
        Ok(self)
    }

    async fn finish(self) -> Result<(), ReplicaRefusal> {
        Ok(())
    }

    fn keep(self) {}
}

/// The other end, connected.
pub struct Sender {
    connection: Connection,
    buffer: ReceiveBuffer,
    limits: StreamLimits,
}

impl Sender {
    pub async fn connect(peer: SocketAddr, plan: &Plan) -> Result<Self> {
        let connection = tcp::connect(peer, None, SocketOptions::default(), WAIT).await?;
        let mut buffer = receive_buffer();
        let request = ReplicaStream { source_uuid: format!("{} replicas", plan.payload.streams) };
        let limits = replica_stream::negotiate(&connection, &mut buffer, request, &WAITS).await?;
        Ok(Self { connection, buffer, limits })
    }

    pub async fn send(mut self, plan: &Plan) -> Result<()> {
        let (jobs, mut queue) = mpsc::channel(plan.payload.streams as usize);
        let mut answers = Vec::new();
        for replica in 0..plan.payload.streams {
            let (done, answer) = oneshot::channel();
            let job = ReplicaJob { request: request(replica, plan), source: FileSource::open(replica, plan)?, done };
            jobs.send(job).await.ok().context("has room for all")?;
            answers.push(answer);
        }
        drop(jobs);
        replica_stream::send(&self.connection, &mut self.buffer, self.limits, WAITS, &mut queue).await?;
        for answer in answers {
            answer.await??;
        }
        Ok(())
    }
}

fn request(replica: u64, plan: &Plan) -> OpenReplica {
    let block = Block { id: BlockId(replica as i64), stamp: GenerationStamp(1), length: plan.payload.bytes };
    OpenReplica {
        block: ExtendedBlock { pool: BlockPoolId::new("BP-bench"), block },
        token: Token::default(),
        checksum: ChecksumSpec::DEFAULT,
        storage_type: StorageType::Disk,
        storage_id: None,
    }
}

struct FileSource {
    data: File,
    checksums: File,
}

impl FileSource {
    fn open(replica: u64, plan: &Plan) -> Result<Self> {
        let open = |name: String| File::open(plan.folder.join(name)).context("a replica");
        Ok(Self { data: open(grpc::file_name(replica))?, checksums: open(checksums_name(replica))? })
    }
}

impl ReplicaSource for FileSource {
    type Error = std::io::Error;

    fn checksums(&mut self, range: ByteRange, into: &mut Vec<u8>) -> std::io::Result<()> {
        let spec = ChecksumSpec::DEFAULT;
        let at = into.len();
        into.resize(at + spec.checksum_bytes(range.length()) as usize, 0);
        self.checksums.read_exact_at(&mut into[at..], spec.checksum_bytes(range.start()))
    }

    async fn data(&mut self, range: ByteRange) -> std::io::Result<SourceData<'_>> {
        Ok(SourceData::File { file: self.data.as_fd(), offset: range.start() })
    }
}
