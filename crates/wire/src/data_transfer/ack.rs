use super::{Decoded, MessageError, Status, decode_into};
use crate::delimited;
use crate::proto::hdfs::PipelineAckProto;

/// Sequence number of heartbeat packets and their acks, which only show that a writer is alive.
pub const HEARTBEAT_SEQNO: i64 = -1;

/// Sequence number of acks without a packet: a failed mirror, a restart.
pub const UNKNOWN_SEQNO: i64 = -2;

/// Longest acknowledgement accepted, in bytes: thousands of DataNodes.
const ACK_BYTES_MAX: usize = 64 << 10;

/// Reports upstream that a packet has arrived at this DataNode and at all downstream ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PipelineAck {
    /// Sequence number of the packet; see also [`HEARTBEAT_SEQNO`], [`UNKNOWN_SEQNO`].
    pub seqno: i64,
    /// One per DataNode: the sender first, then the downstream ones in order.
    pub replies: Vec<AckReply>,
    /// Time that the sender waited for the ack of the next DataNode downstream, in nanoseconds.
    pub downstream_nanos: u64,
    /// For a local writer: bytes of the block up to which it may fill the replica's memory itself. `Some(0)`: the limit
    /// stays as granted before, because there is no more memory.
    pub granted: Option<u64>,
}

/// Reply of one DataNode for a packet, with the bits of the wire format.
///
/// ```text
/// bits 0-3 status | 4 reserved | 5-6 congestion | 7-8 slow
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckReply(pub u32);

/// Bits 5 and 6 of a reply. Only with `dfs.pipeline.ecn`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CongestionState {
    Disabled = 0,
    Supported = 1,
    Supported2 = 2,
    /// The client should reduce its rate.
    Congested = 3,
}

/// Bits 7 and 8 of a reply. Only with `dfs.pipeline.slownode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlowState {
    Disabled = 0,
    Normal = 1,
    /// The client may exclude the DataNode.
    Slow = 2,
    Reserved = 3,
}

impl AckReply {
    pub const SUCCESS: Self = Self(0);

    pub fn new(status: Status, congestion: CongestionState, slow: SlowState) -> Self {
        Self(status as u32 | (congestion as u32) << 5 | (slow as u32) << 7)
    }

    /// Returns the status. A status that no Hadoop version has counts as an error.
    pub fn status(self) -> Status {
        Status::try_from((self.0 & 0xf) as i32).unwrap_or(Status::Error)
    }

    pub fn congestion(self) -> CongestionState {
        match self.0 >> 5 & 3 {
            0 => CongestionState::Disabled,
            1 => CongestionState::Supported,
            2 => CongestionState::Supported2,
            _ => CongestionState::Congested,
        }
    }

    pub fn slow(self) -> SlowState {
        match self.0 >> 7 & 3 {
            0 => SlowState::Disabled,
            1 => SlowState::Normal,
            2 => SlowState::Slow,
            _ => SlowState::Reserved,
        }
    }
}

impl From<Status> for AckReply {
    fn from(status: Status) -> Self {
        Self::new(status, CongestionState::Disabled, SlowState::Disabled)
    }
}

impl PipelineAck {
    /// Returns the ack of the last DataNode of a pipeline.
    pub fn last(seqno: i64, status: Status) -> Self {
        Self { seqno, replies: vec![status.into()], downstream_nanos: 0, granted: None }
    }

    /// Returns the ack that the next DataNode upstream sends: its own reply is put in front.
    ///
    /// `nanos`: the time that it waited for this ack.
    pub fn forwarded(mut self, own: AckReply, nanos: u64) -> Self {
        self.replies.insert(0, own);
        self.downstream_nanos = nanos;
        // The grant was for the memory of the downstream DataNode.
        self.granted = None;
        self
    }

    pub fn is_success(&self) -> bool {
        self.replies.iter().all(|reply| reply.status() == Status::Success)
    }

    /// Encodes the ack with a length prefix.
    pub fn encode(&self) -> Vec<u8> {
        delimited::to_vec(&PipelineAckProto {
            seqno: self.seqno,
            // Java reads `flag` if it is present; other clients read `reply`.
            reply: self.replies.iter().map(|reply| (reply.0 & 0xf) as i32).collect(),
            downstream_ack_time_nanos: Some(self.downstream_nanos),
            flag: self.replies.iter().map(|reply| reply.0).collect(),
            hearth_granted: self.granted,
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<PipelineAckProto, _, _>(bytes, ACK_BYTES_MAX)
    }
}

impl TryFrom<PipelineAckProto> for PipelineAck {
    type Error = MessageError;

    fn try_from(message: PipelineAckProto) -> Result<Self, MessageError> {
        let downstream_nanos = message.downstream_ack_time_nanos();
        let granted = message.hearth_granted;
        let replies = if message.flag.is_empty() {
            let reply = |number: &i32| Status::try_from(*number).unwrap_or(Status::Error).into();
            message.reply.iter().map(reply).collect()
        } else {
            message.flag.into_iter().map(AckReply).collect()
        };
        Ok(Self { seqno: message.seqno, replies, downstream_nanos, granted })
    }
}
