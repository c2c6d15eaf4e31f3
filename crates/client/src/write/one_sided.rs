//! One-sided writes: bytes are gathered in registered memory of this client, written from there into memory that the pipeline's first
//! datanode grants for the replica, and a small message behind them on the same connection says so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hearth_fabric::one_sided::{Connection, Error, Region, Transfer};
use hearth_types::{DatanodeUuid, ExtendedBlock};
use hearth_wire::data_transfer::{HEARTBEAT_SEQNO, PacketHeader};
use hearth_wire::rdma_control::{Grant, Slice, WriteMessage};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::packet::Packet;
use super::packets::{self, SetUp, first};
use super::pipeline::Failure;
use super::place::Ground;
use crate::DatanodeError;
use crate::file_system::Shared;
use crate::one_sided::{WriteBuffers, WriterConnections};

/// Writes that are posted and whose local memory is still in use. Beyond it the sender waits for the oldest.
const POSTED_MAX: usize = 16;

/// The way down.
pub(super) struct Link {
    way: Arc<Way>,
    /// The first grant ends there.
    granted: u64,
}

/// What both directions share.
pub(super) struct Way {
    connection: Arc<dyn Connection>,
    connections: Arc<WriterConnections>,
    datanode: DatanodeUuid,
    buffers: Arc<WriteBuffers>,
    timeout: Duration,
    /// The newest last: it counts where two overlap.
    grants: Mutex<Vec<Grant>>,
    granted: Notify,
    /// Where the next CRCs go, in the memory for them.
    checksums_at: Mutex<u64>,
    posted: tokio::sync::Mutex<VecDeque<BoxFuture<'static, Result<(), Error>>>>,
    /// The block's end is acknowledged: the connection is good for another.
    ended: AtomicBool,
}

impl Drop for Way {
    fn drop(&mut self) {
        if self.ended.load(Ordering::Acquire) {
            self.connections.keep(self.datanode.clone(), self.connection.clone());
            return;
        }
        // What is still on its way reads our memory: the connection ends, and until then holds it.
        let connection = self.connection.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { connection.close().await });
        }
    }
}

/// Asks the pipeline's first datanode over a one-sided connection. `None`: there is no such way to it.
pub(super) async fn set_up(shared: &Shared, spec: &SetUp<'_>) -> Result<Option<(Link, Acknowledgements)>, Failure> {
    let Some(head) = spec.targets.first() else { return Ok(None) };
    let datanode = &head.datanode.id;
    let Some((connection, connections, buffers)) = shared.one_sided.writer(shared, datanode).await else {
        return Ok(None);
    };
    let timeouts = shared.options.pipeline_timeouts(spec.targets.len());
    let request = WriteMessage::Open(Box::new(packets::message(shared, spec, head)));
    // A pipeline of hundreds of datanodes: not by this way.
    let Ok(request) = request.encode() else { return Ok(None) };
    let failed = |error: Error| first(error.into());
    match connection.send(request, timeouts.write).await {
        // It was kept from an earlier block and has just ended: that says nothing of the datanode.
        Err(Error::Closed { .. }) => return Ok(None),
        sent => sent.map_err(failed)?,
    }
    let message = connection.receive(timeouts.read).await.map_err(failed)?;
    let (answer, grant) = match WriteMessage::decode(&message) {
        Ok(WriteMessage::Opened { answer, grant }) => (answer, grant),
        _ => return Err(first(unexpected(&*connection))),
    };
    packets::check(spec, *answer)?;
    let Some(grant) = grant else { return Err(first(unexpected(&*connection))) };
    let way = Arc::new(Way {
        connection,
        connections,
        datanode: datanode.uuid.clone(),
        buffers,
        timeout: timeouts.read,
        grants: Mutex::new(vec![grant]),
        granted: Notify::new(),
        checksums_at: Mutex::new(0),
        posted: tokio::sync::Mutex::default(),
        ended: AtomicBool::new(false),
    });
    let link = Link { way: way.clone(), granted: grant.offset + grant.data.length };
    Ok(Some((link, Acknowledgements { way })))
}

fn unexpected(connection: &dyn Connection) -> DatanodeError {
    let what = "another message than was due from the datanode".to_owned();
    DatanodeError::OneSidedProtocol { peer: connection.peer(), what }
}

impl Link {
    pub(super) fn ground(&self) -> Ground {
        Ground::Remote { buffers: self.way.buffers.clone(), granted: self.granted, more: true }
    }

    pub(super) async fn send(&self, packet: &Packet) -> Result<(), DatanodeError> {
        let header = packet.header();
        if header.data_bytes == 0 {
            return self.post(Vec::new(), Slice { header, checksums_at: 0, checksum_bytes: 0 }).await;
        }
        let region = match packet.registered() {
            Some(region) => region.clone(),
            None => {
                let data = packet.data().map_err(|source| DatanodeError::Fetch { offset: packet.offset, source })?;
                let region = self.way.buffers.take()?;
                region.memory().write(0, &data);
                region
            }
        };
        let mut transfers = self.way.room(&region, header.offset, u64::from(header.data_bytes)).await?;
        let sums = packet.checksums();
        let mut slice = Slice { header, checksums_at: 0, checksum_bytes: sums.len() as u32 };
        if !sums.is_empty() {
            let at = self.way.buffers.data_bytes();
            region.memory().write(at, sums);
            let (remote, checksums_at) = self.way.place_checksums(sums.len() as u64)?;
            transfers.push(Transfer { local: region.clone(), offset: at, remote });
            slice.checksums_at = checksums_at;
        }
        self.post(transfers, slice).await
    }

    pub(super) async fn send_heartbeat(&self) -> Result<(), DatanodeError> {
        let header = PacketHeader { offset: 0, seqno: HEARTBEAT_SEQNO, last: false, data_bytes: 0, sync: false };
        self.post(Vec::new(), Slice { header, checksums_at: 0, checksum_bytes: 0 }).await
    }

    /// Posts writes and the message behind them, in the order of the calls.
    async fn post(&self, transfers: Vec<Transfer>, slice: Slice) -> Result<(), DatanodeError> {
        let message = WriteMessage::Slice(slice).encode().map_err(|_| unexpected(&*self.way.connection))?;
        let mut posted = self.way.posted.lock().await;
        while posted.len() >= POSTED_MAX {
            if let Some(oldest) = posted.pop_front() {
                oldest.await?;
            }
        }
        let mut writing = self.way.connection.write(transfers, Some(message), self.way.timeout);
        // Once, so that it is posted before the next one; what is left of it is waited for when its turn comes.
        match std::future::poll_fn(|context| Poll::Ready(writing.as_mut().poll(context))).await {
            Poll::Ready(done) => Ok(done?),
            Poll::Pending => {
                posted.push_back(writing);
                Ok(())
            }
        }
    }
}

impl Way {
    /// `bytes` from the start of `region` as they go to `offset` of the block, once memory for them is granted: that comes with
    /// acknowledgements.
    async fn room(&self, region: &Arc<dyn Region>, offset: u64, bytes: u64) -> Result<Vec<Transfer>, DatanodeError> {
        loop {
            let granted = self.granted.notified();
            if let Some(transfers) = self.transfers(region, offset, bytes) {
                return Ok(transfers);
            }
            if tokio::time::timeout(self.timeout, granted).await.is_err() {
                let (peer, action, after) = (self.connection.peer(), "waiting for memory to write to", self.timeout);
                return Err(Error::TimedOut { peer, action, after }.into());
            }
        }
    }

    /// Over one grant or several. `None`: not all of it is granted.
    fn transfers(&self, region: &Arc<dyn Region>, offset: u64, bytes: u64) -> Option<Vec<Transfer>> {
        let grants = self.grants.lock();
        let mut transfers = Vec::new();
        let mut at = 0;
        while at < bytes {
            let from = offset + at;
            let grant =
                grants.iter().rev().find(|grant| (grant.offset..grant.offset + grant.data.length).contains(&from));
            let grant = grant?;
            let within = from - grant.offset;
            let length = (grant.data.length - within).min(bytes - at);
            let remote = grant.data.part(within, length)?;
            transfers.push(Transfer { local: region.clone(), offset: at, remote });
            at += length;
        }
        Some(transfers)
    }
}

impl Way {
    /// Room for `bytes` of CRCs, in turn: those there before are acknowledged long before their turn comes again.
    fn place_checksums(&self, bytes: u64) -> Result<(hearth_types::RemoteSlice, u64), DatanodeError> {
        let memory = self.grants.lock().last().map(|grant| grant.checksums);
        let Some(memory) = memory else { return Err(unexpected(&*self.connection)) };
        let mut next = self.checksums_at.lock();
        if *next + bytes > memory.length {
            *next = 0;
        }
        let at = *next;
        let Some(remote) = memory.part(at, bytes) else { return Err(unexpected(&*self.connection)) };
        *next += bytes;
        Ok((remote, at))
    }
}

/// The way up.
pub(super) struct Acknowledgements {
    way: Arc<Way>,
}

impl Acknowledgements {
    pub(super) async fn next(
        &mut self,
        oldest: Option<i64>,
        block: &ExtendedBlock,
    ) -> Result<packets::Reply, DatanodeError> {
        let message = match self.way.connection.receive(self.way.timeout).await {
            Err(Error::NoMessage { after, .. }) => {
                return Err(DatanodeError::AcknowledgementTimedOut {
                    sequence: oldest.unwrap_or(HEARTBEAT_SEQNO),
                    block: Box::new(block.clone()),
                    after,
                });
            }
            received => received?,
        };
        match WriteMessage::decode(&message) {
            Ok(WriteMessage::Acknowledged { seqno, replies, grant }) => {
                let granted = grant.map(|grant| grant.offset + grant.data.length);
                if let Some(grant) = grant {
                    self.way.grants.lock().push(grant);
                    self.way.granted.notify_waiters();
                }
                Ok(packets::Reply { sequence: seqno, granted, failed: packets::failed(&replies) })
            }
            _ => Err(unexpected(&*self.way.connection)),
        }
    }

    pub(super) fn unexpected(&self) -> DatanodeError {
        unexpected(&*self.way.connection)
    }

    /// The acknowledgement of the block's end has come.
    pub(super) fn ended(&self) {
        self.way.ended.store(true, Ordering::Release);
    }
}
