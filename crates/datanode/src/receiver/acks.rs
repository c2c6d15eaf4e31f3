//! Acknowledgements of packets that are stored here.

use hearth_blockstore::Acker;
use hearth_wire::data_transfer::{AckReply, PipelineAck};

use super::error::ReceiveError;
use super::packet::Pending;
use super::responder::{PacketResponder, ack};
use super::upstream::Upstream;

/// Destination of acknowledgements.
pub enum Acks<'a> {
    None,
    Direct {
        acker: Acker,
        own: AckReply,
        bytes: Vec<u8>,
        upstream: &'a Upstream,
    },
    /// Acknowledge only after the downstream DataNode has.
    Pipeline(&'a PacketResponder),
}

/// Acknowledges packets that are stored here, or queues them until they are acknowledged downstream too. The caller
/// acknowledges the last packet of a block.
pub async fn acknowledge(acks: &mut Acks<'_>, packets: impl Iterator<Item = Pending>) -> Result<(), ReceiveError> {
    match acks {
        Acks::None => Ok(()),
        Acks::Pipeline(pipeline) => {
            // Collected first, so that nothing is borrowed while this waits for space.
            let packets: Vec<Pending> = packets.collect();
            for pending in packets {
                pipeline.push(pending).await;
            }
            Ok(())
        }
        Acks::Direct { acker, own, bytes, upstream } => {
            bytes.clear();
            let mut end = 0;
            for pending in packets.filter(|pending| !pending.last) {
                end = end.max(pending.end);
                let ack = PipelineAck { granted: pending.granted, ..ack(pending.seqno, *own, Vec::new(), 0) };
                bytes.extend_from_slice(&ack.encode());
            }
            if bytes.is_empty() {
                return Ok(());
            }
            if end > 0 {
                acker.set(end)?;
            }
            upstream.send(bytes).await
        }
    }
}
