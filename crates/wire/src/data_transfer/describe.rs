//! DESCRIBE: additional features of a Hearth DataNode, compared with a standard DataNode.

use hearth_types::DatanodeUuid;

use super::{Decoded, MessageError, OpCode, RESPONSE_BYTES_MAX, decode_into};
use crate::convert::ConvertError;
use crate::delimited;
use crate::offer::Offer;
use crate::proto::hearth as proto;

/// Request. A DataNode that is not Hearth's closes the connection without an answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Describe {
    /// For the DataNode's log.
    pub client_name: String,
}

/// Answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatanodeDescription {
    pub datanode: DatanodeUuid,
    pub offer: Offer,
    /// Hearth's own operations that it serves on the connection of the request.
    pub operations: Vec<OpCode>,
}

impl Describe {
    pub(super) fn message(&self) -> proto::DescribeRequest {
        proto::DescribeRequest { client_name: Some(self.client_name.clone()) }
    }

    pub(super) fn from_message(message: proto::DescribeRequest) -> Self {
        Self { client_name: message.client_name.unwrap_or_default() }
    }
}

impl DatanodeDescription {
    pub fn serves(&self, op: OpCode) -> bool {
        self.operations.contains(&op)
    }

    /// Encodes the answer with a length prefix.
    pub fn encode(&self) -> Vec<u8> {
        delimited::to_vec(&proto::DescribeResponse {
            datanode_uuid: self.datanode.to_string(),
            offer: (&self.offer).into(),
            operations: self.operations.iter().map(|op| *op as u32).collect(),
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, MessageError> {
        decode_into::<proto::DescribeResponse, _, _>(bytes, RESPONSE_BYTES_MAX)
    }
}

impl TryFrom<proto::DescribeResponse> for DatanodeDescription {
    type Error = MessageError;

    /// Skips additions of later versions: unknown operations and unknown forms of addresses.
    fn try_from(message: proto::DescribeResponse) -> Result<Self, MessageError> {
        if message.datanode_uuid.is_empty() {
            return Err(ConvertError::Empty { field: "datanode uuid" }.into());
        }
        let known = |number: u32| u8::try_from(number).ok().and_then(OpCode::from_number);
        Ok(Self {
            datanode: DatanodeUuid(message.datanode_uuid.into()),
            offer: message.offer.into(),
            operations: message.operations.into_iter().filter_map(known).collect(),
        })
    }
}
