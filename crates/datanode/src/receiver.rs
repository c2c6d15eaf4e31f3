//! Receives the packets of a block: checks them, forwards them downstream unchanged, hands them to the store, and
//! acknowledges them.
//!
//! Without a downstream DataNode one loop does everything: it receives a batch of packets, stores it, and acknowledges
//! it in one write. With one, a second loop ([`PacketResponder::respond`]) reads the downstream acknowledgements,
//! prepends this DataNode's reply, and sends them upstream; both loops run in the same task. A batch is sent downstream
//! before it is stored, unless its data is already in place in the replica's memory.
//!
//! Where the replica's memory allows it, data is received straight to its place there ([`in_place`]). Where the store
//! may have to wait for a disk, a blocking thread stores the batch.
//!
//! Packets of a local writer may lack their data, because the writer has put it into the replica's memory. The store
//! checks it there; only then is it sent downstream, straight from that memory.

mod acks;
mod batch_store;
mod error;
mod in_place;
mod packet;
mod receive_loop;
mod responder;
mod upstream;
mod writer_state;

use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::{Durability, ReplicaWriter};
use hearth_fabric::tcp::Connection;
use hearth_types::{ChecksumSpec, ExtendedBlock};
use hearth_wire::data_transfer::AckReply;
use tokio::sync::watch;

use self::acks::Acks;
use self::batch_store::BatchStore;
pub use self::error::ReceiveError;
use self::in_place::InPlaceProgress;
use self::receive_loop::ReceiveLoop;
use self::responder::{AckMetrics, PacketResponder, ack};
use self::upstream::Upstream;
use self::writer_state::WriterState;
use crate::forward::{Forwarder, Mirror};
use crate::grants::Grants;
use crate::metrics::Metrics;
use crate::session::Session;
use crate::throttle::Throttle;

/// Initial size of the receive buffer.
const BUFFER_BYTES: usize = 128 << 10;

/// Acknowledgements that the sender expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acknowledge {
    /// The sender is a client: every packet is acknowledged.
    Packets,
    /// The sender is a DataNode that copies a replica: nothing is acknowledged.
    Nothing,
}

/// Receiver of one block.
pub struct Receiver<'a> {
    pub block: ExtendedBlock,
    pub upstream: &'a mut Session,
    pub writer: ReplicaWriter,
    pub mirror: Option<Mirror>,
    pub acknowledge: Acknowledge,
    /// Checksum type of the sender's CRCs. The replica's own may differ when it is appended to.
    pub checksum: ChecksumSpec,
    /// True in the last DataNode of a pipeline, which verifies the CRCs; the others only forward.
    pub verify: bool,
    /// Maximum silence of the sender.
    pub read_timeout: Duration,
    /// This DataNode's reply in acknowledgements of success.
    pub own_reply: AckReply,
    pub throttle: Option<&'a Throttle>,
    /// Metrics to update with each batch of packets if the sender is a client.
    pub client_metrics: Option<&'a Metrics>,
    /// Address of the next DataNode's web port, by which its latencies are recorded, if they are.
    pub next: Option<String>,
    /// Memory grants for a local writer.
    pub grants: Option<Grants>,
    /// Becomes true once this DataNode is about to restart; the sender is then notified out of band.
    pub restarting: watch::Receiver<bool>,
}

/// A block that was received completely and is not yet finalized.
pub struct Received {
    pub writer: ReplicaWriter,
    /// `Disk` if the last packet requested it.
    pub durability: Durability,
    pub last_ack: LastAck,
}

/// Acknowledgement of a block's last packet. Sent when the replica is finalized and reported.
pub struct LastAck {
    bytes: Vec<u8>,
    upstream: Arc<Connection>,
    write_timeout: Duration,
}

impl LastAck {
    pub async fn send(self) -> Result<(), ReceiveError> {
        Ok(self.upstream.write_all(&self.bytes, self.write_timeout).await?)
    }
}

/// Failure to receive the whole block. All replies to the sender have already been sent.
pub struct ReceiveFailure {
    pub error: ReceiveError,
    /// Writer of the data received so far, all of which is stored. Dropping it treats the replica as its state
    /// requires. `None` if the state of the data is unknown.
    pub writer: Option<ReplicaWriter>,
}

impl Receiver<'_> {
    /// Receives packets up to the last one.
    pub async fn run(self) -> Result<Received, Box<ReceiveFailure>> {
        let write_timeout = self.upstream.write_timeout;
        let upstream = Upstream::new(self.upstream.connection.clone(), write_timeout);
        self.upstream.buffer.grow_to(BUFFER_BYTES);
        let acker = self.writer.acker();
        let batch_store = BatchStore {
            block: self.block,
            checksum: self.checksum,
            verify: self.verify,
            translate: self.writer.checksum() != self.checksum,
        };
        let mut receive_loop = ReceiveLoop {
            batch_store,
            upstream: self.upstream,
            writer: WriterState::Here(self.writer),
            read_timeout: self.read_timeout,
            throttle: self.throttle,
            client_metrics: self.client_metrics,
            grants: self.grants,
            batch: Vec::new(),
            may_receive_in_place: false,
            in_place: InPlaceProgress::default(),
            disk_write: None,
        };
        let own = self.own_reply;
        let ack_metrics = self.client_metrics.map(|metrics| AckMetrics { metrics, next: self.next.as_deref() });
        let receiving = async {
            match (self.mirror, self.acknowledge) {
                (None, Acknowledge::Packets) => {
                    let mut acks = Acks::Direct { acker, own, bytes: Vec::new(), upstream: &upstream };
                    let last = receive_loop.run(None, &mut acks).await;
                    last.map(|last| (last, ack(last.seqno, own, Vec::new(), 0).encode()))
                }
                (mirror, Acknowledge::Nothing) => {
                    let forward = mirror.as_ref().map(Forwarder::new);
                    receive_loop.run(forward.as_ref(), &mut Acks::None).await.map(|last| (last, Vec::new()))
                }
                (Some(mirror), Acknowledge::Packets) => {
                    let forward = Forwarder::new(&mirror);
                    let pipeline = PacketResponder::new(receive_loop.batch_store.block.clone());
                    let mut acks = Acks::Pipeline(&pipeline);
                    let respond = pipeline.respond(mirror, &forward, &upstream, &acker, own, ack_metrics);
                    async { tokio::try_join!(receive_loop.run(Some(&forward), &mut acks), respond) }.await
                }
            }
        };
        let telling = async {
            if self.acknowledge == Acknowledge::Packets {
                upstream.send_restart_oob(self.restarting).await;
            }
            std::future::pending().await
        };
        let received = tokio::select! {
            received = receiving => received,
            never = telling => never,
        };
        // After a broken pipeline a batch may still be on a blocking thread.
        let on_disk = async {
            receive_loop.join_store_task().await?;
            receive_loop.wait_for_disk_write().await
        };
        let on_disk = on_disk.await;
        let writer = receive_loop.writer.take().ok().filter(|_| on_disk.is_ok());
        match (received.and_then(|received| on_disk.map(|()| received)), writer) {
            (Ok((last, bytes)), Some(writer)) => {
                let durability = if last.sync { Durability::Disk } else { Durability::Memory };
                let upstream = upstream.connection().clone();
                Ok(Received { writer, durability, last_ack: LastAck { bytes, upstream, write_timeout } })
            }
            (Ok(_), None) => Err(Box::new(ReceiveFailure { error: ReceiveError::Interrupted, writer: None })),
            (Err(error), writer) => Err(Box::new(ReceiveFailure { error, writer })),
        }
    }
}
