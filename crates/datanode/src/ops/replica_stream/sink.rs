//! Receives a replica from another DataNode over a stream.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{Checksums, CompletedWrite, CreateKind, CreateOptions, Durability, ReplicaWriter, StoreError};
use hearth_protocol::replica_stream::{InPlace, NotAccepted, ReplicaSink, ReplicaStore};
use hearth_types::ReplicaState;
use hearth_wire::data_transfer::{OpenReplica, ReplicaRefusal, Status};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::datanode::Datanode;
use crate::metrics::{GaugeGuard, WritePath};
use crate::ops::OpError;
use crate::pool::Pool;
use crate::replica_service::ReplicaError;
use crate::reports::ReplicaEvent;
use crate::streams::ResumeKey;

/// Maximum size of a replica that is created without a blocking thread: it takes a slot in memory.
const SMALL_BYTES: u64 = 64 << 10;

/// Data handed to the store at once for a replica on disk: less than the store writes at once.
const DISK_STEP_BYTES: usize = 128 << 10;

/// Maximum wait for a broken connection to be noticed here, if its sender reconnects before that.
const RESUME_TIMEOUT: Duration = Duration::from_secs(5);
const RESUME_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Accepts replicas.
pub struct StreamStore {
    datanode: Arc<Datanode>,
}

impl StreamStore {
    pub fn new(datanode: &Arc<Datanode>) -> Arc<Self> {
        Arc::new(Self { datanode: datanode.clone() })
    }

    async fn open_sink(&self, request: OpenReplica) -> Result<StreamSink, OpError> {
        let datanode = &self.datanode;
        let pool = datanode.replicas.ready_pool(&request.block.pool).await?;
        let ids: Vec<_> = request.storage_id.iter().cloned().collect();
        pool.tokens.check_write(&request.token, &request.block, &[request.storage_type], &ids)?;
        let place = datanode.streams.acquire_incoming_permit(&datanode.replicas, &request.block).await?;
        let resume_key = ResumeKey { block: request.block.clone(), checksum: request.checksum };
        let deadline = Instant::now() + RESUME_TIMEOUT;
        let (writer, resumed) = loop {
            if let Some(writer) = datanode.streams.resumable.take(&resume_key) {
                break (writer, true);
            }
            match self.create(&request).await {
                Ok(writer) => break (writer, false),
                Err(ReplicaError::Store(StoreError::ReplicaExists { state: ReplicaState::Temporary, .. }))
                    if Instant::now() < deadline =>
                {
                    tokio::time::sleep(RESUME_POLL_INTERVAL).await;
                }
                Err(error) => return Err(error.into()),
            }
        };
        if resumed {
            tracing::info!(block = %request.block, received = writer.received(), "resuming a replica after a broken connection");
            datanode.replicas.metrics.record_stream_resumed(writer.received());
        }
        let is_move = datanode.streams.moves.has(&request.block);
        Ok(StreamSink {
            pool,
            resume_key,
            writer,
            disk_write: None,
            is_move,
            began: Instant::now(),
            _counted: datanode.replicas.metrics.count_operation(),
            _place: place,
            datanode: datanode.clone(),
        })
    }

    async fn create(&self, request: &OpenReplica) -> Result<ReplicaWriter, ReplicaError> {
        let (store, block) = (&self.datanode.replicas.store, request.block.clone());
        let options = CreateOptions {
            checksum: request.checksum,
            expected_bytes: block.length(),
            storage_type: request.storage_type,
        };
        if (1..=SMALL_BYTES).contains(&block.length())
            && !store.create_may_wait(&options)
            && store.replica(&block.pool, block.id()).is_none()
        {
            return Ok(store.create(&block, CreateKind::Temporary, &options)?);
        }
        self.datanode.replicas.run_blocking(move |store| store.create(&block, CreateKind::Temporary, &options)).await
    }
}

impl ReplicaStore for StreamStore {
    type Sink = StreamSink;

    async fn open(&self, request: OpenReplica) -> Result<StreamSink, ReplicaRefusal> {
        let block = request.block.clone();
        self.open_sink(request).await.map_err(|error| {
            tracing::info!(%block, error = &error as &dyn std::error::Error, "refusing a replica");
            let is_there = self
                .datanode
                .replicas
                .store
                .replica(&block.pool, block.id())
                .is_some_and(|there| there.state == ReplicaState::Finalized && there.block == block.block);
            refusal(&error, is_there)
        })
    }
}

/// Builds the refusal for the sender. `is_there`: this DataNode already has exactly this replica, complete.
fn refusal(error: &OpError, is_there: bool) -> ReplicaRefusal {
    let status = match error.status() {
        // A sender that repeats a replica after a broken connection takes ErrorExists for success.
        Status::ErrorExists if !is_there => Status::Error,
        status => status,
    };
    ReplicaRefusal::new(status, error.text())
}

/// Sink for one replica.
pub struct StreamSink {
    datanode: Arc<Datanode>,
    pool: Arc<Pool>,
    resume_key: ResumeKey,
    writer: ReplicaWriter,
    /// For a replica that goes straight to disk: the piece that is being written while the next one is received.
    disk_write: Option<JoinHandle<CompletedWrite>>,
    /// A balancer's move: its bytes count against the balancer's bandwidth.
    is_move: bool,
    began: Instant,
    _counted: GaugeGuard,
    _place: Option<OwnedSemaphorePermit>,
}

impl StreamSink {
    fn write(&mut self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<(), OpError> {
        let before = self.writer.received();
        let received = self.writer.write(offset, data, Checksums::Given(checksums))?;
        self.datanode.replicas.metrics.record_stream_stored(received - before);
        Ok(())
    }

    /// Like `write`, for a write that may wait for a disk. Never waits on a thread that serves connections.
    async fn write_and_wait(mut self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<Self, OpError> {
        let spec = self.resume_key.checksum;
        let chunk = spec.bytes_per_chunk as usize;
        let step = (DISK_STEP_BYTES / chunk).max(1) * chunk;
        let mut checksums = checksums;
        if self.is_move {
            self.datanode.replicas.balance_throttle.pass(data.len() as u64).await;
        }
        for (index, data) in data.chunks(step).enumerate() {
            if self.writer.makes_piece_due(data.len()) {
                self.wait_for_disk_write().await?;
            }
            let (own, rest) = checksums.split_at(spec.checksum_bytes(data.len() as u64) as usize);
            let at = offset + (index * step) as u64;
            if self.writer.write_may_wait(data.len() as u64) {
                self = self.write_blocking(at, data.to_vec(), own.to_vec()).await?;
            } else {
                self.write(at, data, own)?;
            }
            checksums = rest;
            if let Some(piece) = self.writer.take_pending_write() {
                self.wait_for_disk_write().await?;
                self.disk_write = Some(tokio::task::spawn_blocking(move || piece.write()));
            }
        }
        Ok(self)
    }

    /// Like `write`, on a blocking thread.
    async fn write_blocking(mut self, offset: u64, data: Vec<u8>, checksums: Vec<u8>) -> Result<Self, OpError> {
        let writing = tokio::task::spawn_blocking(move || self.write(offset, &data, &checksums).map(|()| self));
        writing.await.map_err(|_| OpError::Interrupted)?
    }

    /// Waits until no data of this replica is being written to disk.
    async fn wait_for_disk_write(&mut self) -> Result<(), OpError> {
        let Some(running) = self.disk_write.take() else { return Ok(()) };
        let written = running.await.map_err(|_| OpError::Interrupted)?;
        Ok(self.writer.complete_write(written)?)
    }

    async fn end(mut self) -> Result<(), OpError> {
        self.wait_for_disk_write().await?;
        let Self { datanode, pool, writer, began, .. } = self;
        let replica = if writer.waits_at_end() {
            datanode.replicas.run_blocking(move |_| writer.finalize(Durability::Memory)).await?
        } else {
            writer.finalize(Durability::Memory)?
        };
        datanode.replicas.metrics.record_write(WritePath::Stream, replica.block.length(), began.elapsed());
        datanode.replicas.metrics.record_stream_received();
        let delete_hint = datanode.streams.moves.delete_hint(&replica.block);
        pool.notify(&replica.storage, replica.block.block, ReplicaEvent::Received { delete_hint });
        datanode.replicas.note_finalized(&replica.block);
        Ok(())
    }
}

impl InPlace for StreamSink {
    fn receive(
        &mut self,
        offset: u64,
        length: usize,
        socket: BorrowedFd<'_>,
        behind: &mut [u8],
    ) -> Result<io::Result<usize>, ReplicaRefusal> {
        self.writer.receive(offset, length, socket, behind).map_err(|error| refusal(&error.into(), false))
    }

    fn accept(&mut self, length: usize, checksums: &[u8]) -> Result<(), NotAccepted> {
        match self.writer.accept(length as u64, checksums) {
            Ok(_) => self.datanode.replicas.metrics.record_stream_stored(length as u64),
            Err(StoreError::BadCommit { source, .. }) => return Err(NotAccepted::Corrupt(source)),
            Err(error) => return Err(NotAccepted::Refused(refusal(&error.into(), false))),
        }
        Ok(())
    }
}

impl ReplicaSink for StreamSink {
    fn received(&self) -> u64 {
        self.writer.received()
    }

    fn can_store_now(&self, bytes: usize) -> bool {
        let is_quick = self.writer.is_in_memory() && !self.writer.write_may_wait(bytes as u64);
        self.disk_write.is_none() && !self.is_move && is_quick
    }

    fn in_place(&mut self, end: u64) -> Option<&mut dyn InPlace> {
        if self.writer.receives_in_place(end) { Some(self) } else { None }
    }

    fn store_now(&mut self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<(), ReplicaRefusal> {
        self.write(offset, data, checksums).map_err(|error| refusal(&error, false))
    }

    async fn store(self, offset: u64, data: &[u8], checksums: &[u8]) -> Result<Self, ReplicaRefusal> {
        self.write_and_wait(offset, data, checksums).await.map_err(|error| refusal(&error, false))
    }

    async fn finish(self) -> Result<(), ReplicaRefusal> {
        self.end().await.map_err(|error| refusal(&error, false))
    }

    fn keep(mut self) {
        if self.disk_write.is_none() {
            let Self { datanode, resume_key, writer, .. } = self;
            datanode.streams.put_resumable(resume_key, writer);
            return;
        }
        tokio::spawn(async move {
            if self.wait_for_disk_write().await.is_ok() {
                let Self { datanode, resume_key, writer, .. } = self;
                datanode.streams.put_resumable(resume_key, writer);
            }
        });
    }
}
