//! One pipeline: packets go down, acknowledgements come up, both at once. Which packets are on their way is kept in the
//! [`Unacknowledged`], which outlives the pipeline, so that another one can send them again.

use std::collections::VecDeque;
use std::time::Duration;

use hearth_types::{DatanodeInfo, ExtendedBlock, StorageId, StorageType};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::data_streamer::Progress;
use super::packet::Packet;
use super::packet_sender::{AckReceiver, PacketSender};
use super::packets::Reply;
use crate::statistics::Counters;
use crate::{DataPath, DatanodeError};

/// Packets that were taken from the writer and are not acknowledged, in order.
pub(super) struct Unacknowledged {
    inner: Mutex<Inner>,
    /// Signalled whenever a packet leaves.
    left: Notify,
}

struct Inner {
    packets: VecDeque<Arc<Packet>>,
    /// How many of them this pipeline was given.
    sent: usize,
    /// End of the highest byte that any pipeline of this block was given.
    sent_bytes: u64,
}

enum NextPacket {
    Send(Arc<Packet>),
    /// The block's end, which must wait until everything before it is acknowledged: a datanode that has seen it
    /// finalizes the replica, and a finalized one could not take part in recovery.
    AwaitEmpty,
    /// Everything is sent; `ended`: the block's end too.
    Nothing {
        ended: bool,
    },
}

impl Unacknowledged {
    pub(super) fn new(first: Arc<Packet>) -> Self {
        let inner = Inner { packets: VecDeque::from([first]), sent: 0, sent_bytes: 0 };
        Self { inner: Mutex::new(inner), left: Notify::new() }
    }

    fn push(&self, packet: Arc<Packet>) {
        self.inner.lock().packets.push_back(packet);
    }

    /// Data of the oldest packet: a sign of how large the block becomes.
    pub(super) fn first_bytes(&self) -> usize {
        self.inner.lock().packets.front().map_or(0, |packet| packet.data_bytes())
    }

    /// The next packet to send, counted as sent.
    fn next(&self) -> NextPacket {
        let mut inner = self.inner.lock();
        let Some(packet) = inner.packets.get(inner.sent).cloned() else {
            return NextPacket::Nothing { ended: inner.packets.back().is_some_and(|packet| packet.last) };
        };
        if packet.last && inner.sent > 0 {
            return NextPacket::AwaitEmpty;
        }
        inner.sent += 1;
        inner.sent_bytes = inner.sent_bytes.max(packet.end());
        NextPacket::Send(packet)
    }

    /// Takes the oldest packet out when it is `sequence`; else says which one it is.
    fn acknowledge(&self, sequence: i64) -> Result<Arc<Packet>, Option<i64>> {
        let mut inner = self.inner.lock();
        match inner.packets.front() {
            Some(front) if front.sequence == sequence && inner.sent > 0 => {
                inner.sent -= 1;
                let packet = inner.packets.pop_front();
                self.left.notify_one();
                packet.ok_or(None)
            }
            front => Err(front.map(|front| front.sequence)),
        }
    }

    /// All packets are to be sent again.
    pub(super) fn rewind(&self) {
        self.inner.lock().sent = 0;
    }

    /// Sequence number of the oldest packet.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.inner.lock().packets.front().map(|packet| packet.sequence)
    }

    /// True when nothing but the block's end is left.
    pub(super) fn only_end_left(&self) -> bool {
        self.inner.lock().packets.front().is_some_and(|packet| packet.last)
    }

    pub(super) fn take_end(&self) -> Option<Arc<Packet>> {
        let mut inner = self.inner.lock();
        inner.sent = 0;
        if inner.packets.front().is_some_and(|packet| packet.last) { inner.packets.pop_front() } else { None }
    }

    /// Bytes of the block that datanodes may have, acknowledged or not.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.inner.lock().sent_bytes
    }
}

/// One datanode of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub datanode: DatanodeInfo,
    pub storage: StorageId,
    pub storage_type: StorageType,
}

/// Why a pipeline broke, and what to blame.
#[derive(Debug)]
pub(super) struct PipelineFailure {
    /// Index of the datanode that it is about.
    pub bad: usize,
    pub blame: Blame,
    pub source: DatanodeError,
}

/// What a failure is laid to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blame {
    /// The datanode, which is left out.
    Datanode,
    /// The datanode said that it restarts: it may be waited for rather than left out.
    Restart,
    /// The path to the first datanode, which may be well: packets show it. They themselves are never blamed.
    Path(DataPath),
}

impl PipelineFailure {
    /// The first datanode could not be asked by `path`, or the connection to it broke.
    pub(super) fn of_first(path: DataPath, source: DatanodeError) -> Self {
        let blame = if path == DataPath::Packets { Blame::Datanode } else { Blame::Path(path) };
        Self { bad: 0, blame, source }
    }
}

impl std::fmt::Display for PipelineFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Blame::Path(path) = self.blame {
            write!(f, "path {path} to ")?;
        }
        write!(f, "datanode {} of the pipeline: {}", self.bad, self.source)
    }
}

pub(super) enum Ended {
    /// The block's end is acknowledged.
    Whole {
        length: u64,
    },
    /// The writer was dropped without `close`.
    WriterGone,
    Failed(PipelineFailure),
}

/// Where a block is being written to.
pub(super) struct Pipeline {
    packet_sender: PacketSender,
    acknowledgements: AckReceiver,
    /// With the stamp of this pipeline; the length counts acknowledged bytes.
    block: ExtendedBlock,
    pub(super) targets: Vec<Target>,
    heartbeat: Duration,
}

impl Pipeline {
    pub(super) fn new(
        (packet_sender, acknowledgements): (PacketSender, AckReceiver),
        block: ExtendedBlock,
        targets: Vec<Target>,
        heartbeat: Duration,
    ) -> Self {
        Self { packet_sender, acknowledgements, block, targets, heartbeat }
    }

    pub(super) fn block(&self) -> &ExtendedBlock {
        &self.block
    }

    pub(super) fn block_with(&self, length: u64) -> ExtendedBlock {
        let mut block = self.block.clone();
        block.block.length = length;
        block
    }

    /// Sends what is unacknowledged and what else the writer queues, until the block ends or something fails.
    pub(super) async fn exchange(
        &mut self,
        unacknowledged: &Unacknowledged,
        packets: &mut mpsc::Receiver<Arc<Packet>>,
        progress: &watch::Sender<Progress>,
        counters: &Counters,
    ) -> Ended {
        let Self { packet_sender, acknowledgements, block, targets, heartbeat, .. } = self;
        let path = packet_sender.path();
        let sending = send(packet_sender, unacknowledged, packets, *heartbeat);
        let counting = |bytes| counters.count_written(path, bytes);
        let receiving = receive(acknowledgements, path, unacknowledged, block, targets, progress, counting);
        tokio::pin!(receiving);
        tokio::select! {
            biased;
            received = &mut receiving => ended(received),
            sent = sending => match sent {
                Ok(Sent::Everything) => ended(receiving.await),
                Ok(Sent::WriterGone) => Ended::WriterGone,
                // An acknowledgement that names the culprit may be on its way: prefer it to "the connection broke".
                Err(source) => match tokio::time::timeout(LAST_ACK_TIMEOUT, receiving).await {
                    Ok(received @ Err(_)) => ended(received),
                    _ => Ended::Failed(PipelineFailure::of_first(path, source)),
                },
            },
        }
    }
}

/// How long a broken sender waits for an acknowledgement that says why.
const LAST_ACK_TIMEOUT: Duration = Duration::from_secs(3);

fn ended(received: Result<u64, PipelineFailure>) -> Ended {
    match received {
        Ok(length) => Ended::Whole { length },
        Err(failure) => Ended::Failed(failure),
    }
}

enum Sent {
    Everything,
    WriterGone,
}

async fn send(
    packet_sender: &PacketSender,
    unacknowledged: &Unacknowledged,
    packets: &mut mpsc::Receiver<Arc<Packet>>,
    heartbeat: Duration,
) -> Result<Sent, DatanodeError> {
    // Counted from what was sent last: of acknowledgements that come meanwhile, slowly, datanodes learn nothing about us.
    let mut due = Instant::now() + heartbeat;
    loop {
        match unacknowledged.next() {
            NextPacket::Send(packet) => {
                packet_sender.send(&packet).await?;
                if packet.last {
                    return Ok(Sent::Everything);
                }
            }
            // Datanodes that hear nothing meanwhile give up, and one that is well is blamed.
            NextPacket::AwaitEmpty => match timeout_at(due, unacknowledged.left.notified()).await {
                Ok(()) => continue,
                Err(_) => packet_sender.send_heartbeat().await?,
            },
            NextPacket::Nothing { ended: true } => return Ok(Sent::Everything),
            NextPacket::Nothing { ended: false } => match timeout_at(due, packets.recv()).await {
                Ok(Some(packet)) => {
                    unacknowledged.push(packet);
                    continue;
                }
                Ok(None) => return Ok(Sent::WriterGone),
                Err(_) => packet_sender.send_heartbeat().await?,
            },
        }
        due = Instant::now() + heartbeat;
    }
}

/// The block's length, once its end is acknowledged.
async fn receive(
    acknowledgements: &mut AckReceiver,
    path: DataPath,
    unacknowledged: &Unacknowledged,
    block: &mut ExtendedBlock,
    targets: &[Target],
    progress: &watch::Sender<Progress>,
    count: impl Fn(u64),
) -> Result<u64, PipelineFailure> {
    loop {
        let Reply { sequence, granted, failed } = acknowledgements
            .next(unacknowledged.oldest(), block)
            .await
            .map_err(|source| PipelineFailure::of_first(path, source))?;
        if let Some(failed) = failed {
            let bad = failed.index.min(targets.len() - 1);
            let source = DatanodeError::Acknowledgement {
                datanode: Box::new(targets[bad].datanode.id.clone()),
                status: failed.status,
                sequence,
                block: Box::new(block.clone()),
            };
            let blame = if failed.restarting { Blame::Restart } else { Blame::Datanode };
            return Err(PipelineFailure { bad, blame, source });
        }
        if let Some(granted) = granted {
            progress.send_modify(|progress| progress.granted_memory.grant(granted));
        }
        if sequence == HEARTBEAT_SEQUENCE {
            continue;
        }
        let packet = unacknowledged
            .acknowledge(sequence)
            .map_err(|expected| PipelineFailure::of_first(path, acknowledgements.unexpected(sequence, expected)))?;
        // A chunk that was flushed unfinished comes again, whole.
        let new_bytes = packet.end().saturating_sub(block.block.length);
        block.block.length += new_bytes;
        count(new_bytes);
        progress.send_modify(|progress| progress.acknowledged = sequence);
        if packet.last {
            acknowledgements.ended();
            return Ok(packet.end());
        }
    }
}

pub(super) const HEARTBEAT_SEQUENCE: i64 = -1;
