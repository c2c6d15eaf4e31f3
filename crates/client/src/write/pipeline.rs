//! One pipeline: sends packets and receives acknowledgements concurrently. The packets in flight are in
//! [`Unacknowledged`], which outlives the pipeline, so that the next pipeline can send them again.

use std::collections::VecDeque;
use std::time::Duration;

use hearth_types::ExtendedBlock;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout_at};

use super::packet::Packet;
use super::packet_sender::{AckReceiver, PacketSender};
use super::packets::Reply;
use super::pipeline_set_up::{Blame, PipelineFailure, Target};
use super::progress::Progress;
use crate::statistics::Counters;
use crate::{DataPath, DatanodeError};

/// Packets that were taken from the writer and are not yet acknowledged, in order.
pub(super) struct Unacknowledged {
    inner: Mutex<Inner>,
    /// Signalled whenever a packet is removed.
    left: Notify,
}

struct Inner {
    packets: VecDeque<Arc<Packet>>,
    /// Number of them that were sent on this pipeline.
    sent: usize,
    /// End of the last byte that was sent on any pipeline of this block.
    sent_bytes: u64,
}

enum NextPacket {
    Send(Arc<Packet>),
    /// The next packet is the block's end, which must wait until everything before it is acknowledged. A datanode that
    /// has received it finalizes the replica, and a finalized replica could not take part in recovery.
    AwaitEmpty,
    /// Everything is sent; with `ended`, also the block's end.
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

    /// Returns the data bytes of the oldest packet, a hint of how large the block becomes.
    pub(super) fn first_bytes(&self) -> usize {
        self.inner.lock().packets.front().map_or(0, |packet| packet.data_bytes())
    }

    /// Returns the next packet to send, and counts it as sent.
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

    /// Removes the oldest packet if it is `sequence`; otherwise returns the expected sequence number.
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

    /// Marks all packets to be sent again.
    pub(super) fn rewind(&self) {
        self.inner.lock().sent = 0;
    }

    /// Returns the sequence number of the oldest packet.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.inner.lock().packets.front().map(|packet| packet.sequence)
    }

    /// Returns true when only the block's end is left.
    pub(super) fn only_end_left(&self) -> bool {
        self.inner.lock().packets.front().is_some_and(|packet| packet.last)
    }

    pub(super) fn take_end(&self) -> Option<Arc<Packet>> {
        let mut inner = self.inner.lock();
        inner.sent = 0;
        if inner.packets.front().is_some_and(|packet| packet.last) { inner.packets.pop_front() } else { None }
    }

    /// Returns the bytes of the block that datanodes may have, acknowledged or not.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.inner.lock().sent_bytes
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

/// Pipeline to which a block is being written.
pub(super) struct Pipeline {
    packet_sender: PacketSender,
    acknowledgements: AckReceiver,
    /// Block with the generation stamp of this pipeline; its length counts acknowledged bytes.
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

    /// Sends the unacknowledged packets and those that the writer queues, until the block ends or the pipeline fails.
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
                // An acknowledgement that names the failed datanode may still arrive: prefer it to a broken connection.
                Err(source) => match tokio::time::timeout(LAST_ACK_TIMEOUT, receiving).await {
                    Ok(received @ Err(_)) => ended(received),
                    _ => Ended::Failed(PipelineFailure::of_first(path, source)),
                },
            },
        }
    }
}

/// Time that a broken sender waits for an acknowledgement with the reason.
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
    // Counted from the last packet sent: acknowledgements that arrive slowly do not show the datanodes that the writer
    // is alive.
    let mut due = Instant::now() + heartbeat;
    loop {
        match unacknowledged.next() {
            NextPacket::Send(packet) => {
                packet_sender.send(&packet).await?;
                if packet.last {
                    return Ok(Sent::Everything);
                }
            }
            // Without heartbeats the datanodes would time out, and a healthy one would be blamed.
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

/// Receives acknowledgements. Returns the block's length once its end is acknowledged.
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
        // A chunk that was flushed unfinished is sent again in full, so count only new bytes.
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
