//! WRITE_LOCAL: a WRITE_BLOCK over the DataNode's Unix socket, whose writer fills the replica's memory itself.
//!
//! ```text
//! request    as WRITE_BLOCK                                                      [Operation::WriteLocal]
//! answer     as to WRITE_BLOCK; after a success [LocalGrant], and unless that is 0,
//!            attached to its first byte, a descriptor to write the data file with
//! packet     as in a pipeline, with or without the data                          [PacketHead::decode_local]
//! ack        as in a pipeline, with further grants                               [PipelineAck::granted]
//! ```
//!
//! [Operation::WriteLocal]: super::Operation::WriteLocal
//! [PacketHead::decode_local]: super::PacketHead::decode_local
//! [PipelineAck::granted]: super::PipelineAck

/// Offset in the block up to which the writer may fill memory. 0: no memory, so packets must carry their data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalGrant(pub u64);

impl LocalGrant {
    pub const BYTES: usize = 8;

    pub fn encode(self) -> [u8; Self::BYTES] {
        self.0.to_be_bytes()
    }

    pub fn decode(bytes: [u8; Self::BYTES]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }
}
