//! Acknowledgements of a pipeline: reads those of the downstream DataNode, prepends this DataNode's reply, and sends them
//! upstream.

use std::collections::VecDeque;
use std::time::Duration;

use hearth_blockstore::Acker;
use hearth_types::ExtendedBlock;
use hearth_wire::data_transfer::{AckReply, PipelineAck, Status, UNKNOWN_SEQNO};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::ReceiveError;
use super::packet::Pending;
use super::upstream::Upstream;
use crate::forward::{Forwarder, Mirror};
use crate::metrics::Metrics;

/// Maximum number of packets that wait for an acknowledgement from downstream. A client has at most 80 in flight;
/// beyond this bound the receiving loop waits.
const PENDING_MAX: usize = 1024;

/// Where the times of acknowledgements are recorded, if the sender is a client.
#[derive(Clone, Copy)]
pub struct AckMetrics<'a> {
    pub metrics: &'a Metrics,
    /// Address of the next DataNode's web port.
    pub next: Option<&'a str>,
}

impl AckMetrics<'_> {
    /// `behind`: the part of `took` for which the next DataNode waited for those behind it.
    fn record(&self, took: Duration, behind: Duration) {
        self.metrics.record_acknowledgement(took);
        if let Some(next) = self.next {
            self.metrics.record_peer(next, took.saturating_sub(behind));
        }
    }
}

/// Queue of packets that are stored here and await their acknowledgement from downstream.
pub struct PacketResponder {
    block: ExtendedBlock,
    pending: Mutex<VecDeque<Pending>>,
    added: Notify,
    taken: Notify,
}

impl PacketResponder {
    pub fn new(block: ExtendedBlock) -> Self {
        Self { block, pending: Mutex::new(VecDeque::new()), added: Notify::new(), taken: Notify::new() }
    }

    pub async fn push(&self, packet: Pending) {
        loop {
            {
                let mut pending = self.pending.lock();
                if pending.len() < PENDING_MAX {
                    pending.push_back(packet);
                    break;
                }
            }
            self.taken.notified().await;
        }
        self.added.notify_one();
    }

    async fn next(&self) -> Pending {
        loop {
            let next = self.pending.lock().pop_front();
            if let Some(packet) = next {
                self.taken.notify_one();
                return packet;
            }
            self.added.notified().await;
        }
    }

    fn has_pending(&self) -> bool {
        !self.pending.lock().is_empty()
    }

    /// Sends acknowledgements upstream in packet order. Returns the last packet's acknowledgement without sending it.
    pub async fn respond(
        &self,
        mut mirror: Mirror,
        forward: &Forwarder,
        upstream: &Upstream,
        acker: &Acker,
        own: AckReply,
        ack_metrics: Option<AckMetrics<'_>>,
    ) -> Result<Vec<u8>, ReceiveError> {
        let mut out = Vec::new();
        loop {
            let Some(ack) = self.downstream_ack(&mut mirror, forward).await? else {
                return self.respond_without_mirror(upstream, own).await;
            };
            if ack.seqno == UNKNOWN_SEQNO {
                // Out of band: a DataNode further downstream restarts, or has lost its own mirror.
                let nanos = ack.downstream_nanos;
                upstream.send(&ack.forwarded(own, nanos).encode()).await?;
                continue;
            }
            let packet = self.next().await;
            if packet.seqno != ack.seqno {
                return Err(ReceiveError::AckOutOfOrder {
                    block: self.block.clone(),
                    expected: packet.seqno,
                    actual: ack.seqno,
                });
            }
            if ack.replies.first().is_some_and(|reply| reply.status() == Status::ErrorChecksum) {
                // The forwarded data was corrupt on arrival, so this DataNode is at fault: close without a reply.
                return Err(ReceiveError::CorruptForDownstream { block: self.block.clone() });
            }
            if packet.end > 0 && ack.is_success() {
                acker.set(packet.end)?;
            }
            let took = packet.received.elapsed();
            if let Some(metrics) = ack_metrics {
                metrics.record(took, Duration::from_nanos(ack.downstream_nanos));
            }
            let nanos = took.as_nanos() as u64;
            let ack = PipelineAck { granted: packet.granted, ..ack.forwarded(own, nanos) };
            out.extend_from_slice(&ack.encode());
            if packet.last {
                if ack.is_success() {
                    mirror.ended();
                }
                return Ok(out);
            }
            // Acknowledgements that were received together are sent together.
            if !(self.has_pending() && mirror.has_ack()) {
                upstream.send(&out).await?;
                out.clear();
            }
        }
    }

    /// Returns the next acknowledgement from downstream; `None` when that DataNode is lost.
    async fn downstream_ack(
        &self,
        mirror: &mut Mirror,
        forward: &Forwarder,
    ) -> Result<Option<PipelineAck>, ReceiveError> {
        if forward.is_broken() {
            return Ok(None);
        }
        tokio::select! {
            biased;
            ack = mirror.next_ack() => match ack {
                Ok(ack) => Ok(Some(ack)),
                Err(error) => {
                    if forward.idle() > mirror.read_timeout() {
                        // The next DataNode may have timed out because this one sent nothing: the fault lies upstream.
                        return Err(error.into());
                    }
                    forward.note_broken(&error);
                    Ok(None)
                }
            },
            () = forward.broke.notified() => Ok(None),
        }
    }

    /// Handles the loss of the downstream DataNode: reports it at once, and again for each packet that still arrives.
    async fn respond_without_mirror(&self, upstream: &Upstream, own: AckReply) -> Result<Vec<u8>, ReceiveError> {
        let lost = |seqno| ack(seqno, own, vec![AckReply(Status::Error as u32)], 0).encode();
        let mut out = lost(UNKNOWN_SEQNO);
        loop {
            upstream.send(&out).await?;
            let packet = self.next().await;
            out = lost(packet.seqno);
            if packet.last {
                return Ok(out);
            }
        }
    }
}

/// Builds an acknowledgement with this DataNode's reply in front of the downstream replies.
pub fn ack(seqno: i64, own: AckReply, downstream: Vec<AckReply>, downstream_nanos: u64) -> PipelineAck {
    let mut replies = downstream;
    replies.insert(0, own);
    PipelineAck { seqno, replies, downstream_nanos, granted: None }
}
