use hearth_types::{ChecksumSpec, DatanodeInfo, ExtendedBlock, GenerationStamp, StorageId, StorageType, Token};
use prost::Message;

use super::describe::Describe;
use super::read_many::ReadMany;
use super::replica_stream::ReplicaStream;
use super::short_circuit::{ShmId, ShmSlot};
use super::{Decoded, OPERATION_BYTES_MAX, VERSION};
use crate::convert::{ConvertError, storage_type_from_wire};
use crate::delimited::{self, DelimitedError, Framing};
use crate::proto::hdfs as proto;
use crate::proto::hdfs::BlockChecksumTypeProto;
use crate::trace::{self, SpanContext};

pub use crate::proto::hdfs::op_write_block_proto::BlockConstructionStage as Stage;

/// Operation code, the third byte of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum OpCode {
    WriteBlock = 80,
    ReadBlock = 81,
    /// Defined, but never used.
    ReadMetadata = 82,
    ReplaceBlock = 83,
    CopyBlock = 84,
    BlockChecksum = 85,
    TransferBlock = 86,
    RequestShortCircuitFds = 87,
    ReleaseShortCircuitFds = 88,
    RequestShortCircuitShm = 89,
    BlockGroupChecksum = 90,
    /// One of Hearth's own operations, like all from 160 up.
    Describe = 0xA0,
    WriteLocal = 0xA2,
    ReadMany = 0xA3,
    ReplicaStream = 0xA4,
    SendReplica = 0xA5,
    Custom = 127,
}

impl OpCode {
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            80 => Self::WriteBlock,
            81 => Self::ReadBlock,
            82 => Self::ReadMetadata,
            83 => Self::ReplaceBlock,
            84 => Self::CopyBlock,
            85 => Self::BlockChecksum,
            86 => Self::TransferBlock,
            87 => Self::RequestShortCircuitFds,
            88 => Self::ReleaseShortCircuitFds,
            89 => Self::RequestShortCircuitShm,
            90 => Self::BlockGroupChecksum,
            127 => Self::Custom,
            0xA0 => Self::Describe,
            0xA2 => Self::WriteLocal,
            0xA3 => Self::ReadMany,
            0xA4 => Self::ReplicaStream,
            0xA5 => Self::SendReplica,
            _ => return None,
        })
    }
}

/// One request to a DataNode.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    ReadBlock(ReadBlock),
    WriteBlock(Box<WriteBlock>),
    TransferBlock(TransferBlock),
    BlockChecksum(BlockChecksum),
    CopyBlock(CopyBlock),
    ReplaceBlock(Box<ReplaceBlock>),
    RequestShortCircuitFds(RequestShortCircuitFds),
    ReleaseShortCircuitFds(ShmSlot),
    RequestShortCircuitShm {
        client_name: String,
    },
    Describe(Describe),
    ReadMany(ReadMany),
    ReplicaStream(ReplicaStream),
    /// The same request as TRANSFER_BLOCK, sent by its only target, which a balancer has asked to fetch a finalized
    /// replica. It is answered when the target has the replica. After any other answer, the target must fetch it by
    /// COPY_BLOCK.
    SendReplica(TransferBlock),
    /// The same request as WRITE_BLOCK, from a writer that fills the replica's memory itself.
    WriteLocal(Box<WriteBlock>),
}

/// Page cache behaviour of the DataNode. `None` leaves it to the DataNode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CachingStrategy {
    pub drop_behind: Option<bool>,
    /// Readahead in bytes.
    pub readahead: Option<i64>,
}

/// READ_BLOCK. The answer is a [`super::BlockOpResponse`] with the checksum, then packets from a chunk boundary at or
/// before `offset`, then one empty packet. The reader's status ends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadBlock {
    /// The length is the one known to the client, and has no meaning here.
    pub block: ExtendedBlock,
    pub token: Token,
    pub client_name: String,
    /// First requested byte.
    pub offset: u64,
    /// Number of requested bytes. `None`: to the end of the visible data.
    pub length: Option<u64>,
    pub send_checksums: bool,
    pub caching: CachingStrategy,
}

/// Downstream DataNode of the pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PipelineTarget {
    pub datanode: DatanodeInfo,
    pub storage_type: StorageType,
    /// Missing in requests of old senders.
    pub storage_id: Option<StorageId>,
    /// The balancer must not move the replica.
    pub pinned: bool,
}

/// WRITE_BLOCK: sets up a pipeline. Packets follow, and acks are returned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteBlock {
    /// The stamp is the one before this set-up. The length is not that of the replica: Java sends the file's block size
    /// for appends and recoveries, other clients send the current length. It is an estimate of the needed space at
    /// best.
    pub block: ExtendedBlock,
    pub token: Token,
    /// Empty if the sender is a DataNode.
    pub client_name: String,
    /// Rest of the pipeline, without the receiver.
    pub targets: Vec<PipelineTarget>,
    /// Replicating DataNode.
    pub source: Option<DatanodeInfo>,
    pub stage: Stage,
    /// Number of DataNodes in the whole pipeline; 0 between DataNodes.
    pub pipeline_size: u32,
    /// Append and recovery: bytes of the replica, or acknowledged bytes.
    pub bytes_received_min: u64,
    /// Recovery: bytes that the client has sent.
    pub bytes_received_max: u64,
    /// Stamp after this set-up. 0, or the block's own stamp, for a new block.
    pub latest_stamp: GenerationStamp,
    pub checksum: ChecksumSpec,
    pub caching: CachingStrategy,
    /// Requested storage type of the receiver.
    pub storage_type: StorageType,
    pub storage_id: Option<StorageId>,
    pub allow_lazy_persist: bool,
    pub pinned: bool,
}

impl WriteBlock {
    /// Returns the first target, and the request to send to it: the same request without that target.
    pub fn downstream(&self) -> Option<(&DatanodeInfo, Self)> {
        let (next, rest) = self.targets.split_first()?;
        let request = Self {
            targets: rest.to_vec(),
            storage_type: next.storage_type,
            storage_id: next.storage_id.clone(),
            pinned: next.pinned,
            ..self.clone()
        };
        Some((&next.datanode, request))
    }

    /// Returns whether a client writes. Otherwise a DataNode replicates, and packets are not acknowledged.
    pub fn is_from_client(&self) -> bool {
        !self.client_name.is_empty()
    }
}

/// TRANSFER_BLOCK: a client asks a DataNode to copy its data to other DataNodes, which then join the pipeline.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferBlock {
    pub block: ExtendedBlock,
    pub token: Token,
    pub client_name: String,
    pub targets: Vec<PipelineTarget>,
}

/// BLOCK_CHECKSUM: the checksum of the first `block.length` bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockChecksum {
    pub block: ExtendedBlock,
    pub token: Token,
    pub options: BlockChecksumOptions,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockChecksumOptions {
    pub kind: BlockChecksumKind,
    /// Composite CRC only: number of bytes per CRC; 0: one CRC for all.
    pub stripe_length: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BlockChecksumKind {
    /// MD5 of the CRCs of all chunks.
    #[default]
    Md5Crc,
    /// CRC of the data itself, combined from the CRCs of the chunks.
    CompositeCrc,
}

/// COPY_BLOCK: sends a complete replica to another DataNode, for the balancer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyBlock {
    pub block: ExtendedBlock,
    pub token: Token,
}

/// REPLACE_BLOCK: copies a replica from `source`, and reports the one on `delete_hint` as excess.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplaceBlock {
    pub block: ExtendedBlock,
    pub token: Token,
    /// UUID of a DataNode.
    pub delete_hint: String,
    pub source: DatanodeInfo,
    pub storage_type: StorageType,
    pub storage_id: Option<StorageId>,
}

/// REQUEST_SHORT_CIRCUIT_FDS: requests file descriptors of a replica's data and meta files, over a Unix domain socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestShortCircuitFds {
    pub block: ExtendedBlock,
    pub token: Token,
    /// Highest version of the replica format that the client can read.
    pub version_max: u32,
    pub slot: Option<ShmSlot>,
    /// The client acknowledges the descriptors with one byte.
    pub supports_receipt_verification: bool,
}

/// Error of an invalid request. Java closes the connection without an answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpError {
    #[error("data transfer version {found} instead of {VERSION}")]
    Version { found: u16 },
    #[error("unknown data transfer operation {code}")]
    UnknownOperation { code: u8 },
    #[error("data transfer operation {op:?} is not supported")]
    Unsupported { op: OpCode },
    #[error("unreadable {op:?}: {error}")]
    Unreadable { op: OpCode, error: DelimitedError },
    #[error("bad {op:?}: {error}")]
    Content { op: OpCode, error: ConvertError },
}

impl Operation {
    pub fn code(&self) -> OpCode {
        match self {
            Self::ReadBlock(_) => OpCode::ReadBlock,
            Self::WriteBlock(_) => OpCode::WriteBlock,
            Self::WriteLocal(_) => OpCode::WriteLocal,
            Self::TransferBlock(_) => OpCode::TransferBlock,
            Self::BlockChecksum(_) => OpCode::BlockChecksum,
            Self::CopyBlock(_) => OpCode::CopyBlock,
            Self::ReplaceBlock(_) => OpCode::ReplaceBlock,
            Self::RequestShortCircuitFds(_) => OpCode::RequestShortCircuitFds,
            Self::ReleaseShortCircuitFds(_) => OpCode::ReleaseShortCircuitFds,
            Self::RequestShortCircuitShm { .. } => OpCode::RequestShortCircuitShm,
            Self::Describe(_) => OpCode::Describe,
            Self::ReadMany(_) => OpCode::ReadMany,
            Self::ReplicaStream(_) => OpCode::ReplicaStream,
            Self::SendReplica(_) => OpCode::SendReplica,
        }
    }

    /// Encodes the complete request: version, operation, delimited message.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_traced(None)
    }

    /// Like `encode`, with the sender's span if its trace is sampled. Operations without a block carry none.
    pub fn encode_traced(&self, trace: Option<SpanContext>) -> Vec<u8> {
        let code = self.code();
        let trace_info = trace.map(proto::DataTransferTraceInfoProto::from);
        match self {
            Self::ReadBlock(op) => {
                let mut message = proto::OpReadBlockProto::from(op);
                message.header.base_header.trace_info = trace_info;
                request(code, &message)
            }
            Self::WriteBlock(op) | Self::WriteLocal(op) => {
                let mut message = proto::OpWriteBlockProto::from(op.as_ref());
                message.header.base_header.trace_info = trace_info;
                request(code, &message)
            }
            Self::TransferBlock(op) | Self::SendReplica(op) => {
                let mut message = proto::OpTransferBlockProto::from(op);
                message.header.base_header.trace_info = trace_info;
                request(code, &message)
            }
            Self::BlockChecksum(op) => {
                let mut message = proto::OpBlockChecksumProto::from(op);
                message.header.trace_info = trace_info;
                request(code, &message)
            }
            Self::CopyBlock(op) => {
                let header = proto::BaseHeaderProto { trace_info, ..base_header(&op.block, &op.token) };
                request(code, &proto::OpCopyBlockProto { header })
            }
            Self::ReplaceBlock(op) => {
                let mut message = proto::OpReplaceBlockProto::from(op.as_ref());
                message.header.trace_info = trace_info;
                request(code, &message)
            }
            Self::RequestShortCircuitFds(op) => {
                let mut message = proto::OpRequestShortCircuitAccessProto::from(op);
                message.header.trace_info = trace_info;
                request(code, &message)
            }
            Self::ReleaseShortCircuitFds(slot) => {
                request(code, &proto::ReleaseShortCircuitAccessRequestProto { slot_id: slot.into() })
            }
            Self::RequestShortCircuitShm { client_name } => {
                request(code, &proto::ShortCircuitShmRequestProto { client_name: client_name.clone() })
            }
            Self::Describe(op) => request(code, &op.message()),
            Self::ReadMany(op) => request(code, &op.message()),
            Self::ReplicaStream(op) => request(code, &op.message()),
        }
    }

    /// Decodes the request at the start of `bytes`, once it is complete.
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>, OpError> {
        Ok(match Self::decode_traced(bytes)? {
            Decoded::Needs(missing) => Decoded::Needs(missing),
            Decoded::Complete((operation, _), length) => Decoded::Complete(operation, length),
        })
    }

    /// Like `decode`, with the sender's span if its trace is sampled.
    pub fn decode_traced(bytes: &[u8]) -> Result<Decoded<(Self, Option<SpanContext>)>, OpError> {
        // Version and operation are checked as soon as they have arrived, because an invalid one makes the rest
        // meaningless.
        if let [high, low, ..] = *bytes {
            let found = u16::from_be_bytes([high, low]);
            if found != VERSION {
                return Err(OpError::Version { found });
            }
        }
        let [_, _, code, message @ ..] = bytes else { return Ok(Decoded::Needs(4 - bytes.len())) };
        let op = OpCode::from_number(*code).ok_or(OpError::UnknownOperation { code: *code })?;
        if matches!(op, OpCode::ReadMetadata | OpCode::BlockGroupChecksum | OpCode::Custom) {
            return Err(OpError::Unsupported { op });
        }
        let unreadable = |error| OpError::Unreadable { op, error };
        let (start, end) = match delimited::find(message, OPERATION_BYTES_MAX).map_err(unreadable)? {
            Framing::Needs(missing) => return Ok(Decoded::Needs(missing)),
            Framing::Complete { start, end } => (start, end),
        };
        let decoded = Self::decode_message(op, &message[start..end])?;
        Ok(Decoded::Complete(decoded, 3 + end))
    }

    fn decode_message(op: OpCode, message: &[u8]) -> Result<(Self, Option<SpanContext>), OpError> {
        fn parse<M: Message + Default>(op: OpCode, message: &[u8]) -> Result<M, OpError> {
            M::decode(message).map_err(|error| OpError::Unreadable { op, error: error.into() })
        }
        let content = |error| OpError::Content { op, error };
        let span = |header: &proto::BaseHeaderProto| trace::of_data_transfer(header.trace_info.as_ref());
        let mut sender = None;
        let operation = match op {
            OpCode::ReadBlock => {
                let read: proto::OpReadBlockProto = parse(op, message)?;
                sender = span(&read.header.base_header);
                Self::ReadBlock(read_block(read).map_err(content)?)
            }
            OpCode::WriteBlock | OpCode::WriteLocal => {
                let write: proto::OpWriteBlockProto = parse(op, message)?;
                sender = span(&write.header.base_header);
                let write = Box::new(write_block(write).map_err(content)?);
                if op == OpCode::WriteBlock { Self::WriteBlock(write) } else { Self::WriteLocal(write) }
            }
            OpCode::TransferBlock | OpCode::SendReplica => {
                let transfer: proto::OpTransferBlockProto = parse(op, message)?;
                sender = span(&transfer.header.base_header);
                let transfer = transfer_block(transfer).map_err(content)?;
                if op == OpCode::TransferBlock { Self::TransferBlock(transfer) } else { Self::SendReplica(transfer) }
            }
            OpCode::BlockChecksum => {
                let checksum: proto::OpBlockChecksumProto = parse(op, message)?;
                sender = span(&checksum.header);
                Self::BlockChecksum(block_checksum(checksum).map_err(content)?)
            }
            OpCode::CopyBlock => {
                let copy: proto::OpCopyBlockProto = parse(op, message)?;
                sender = span(&copy.header);
                let (block, token) = from_base_header(copy.header).map_err(content)?;
                Self::CopyBlock(CopyBlock { block, token })
            }
            OpCode::ReplaceBlock => {
                let replace: proto::OpReplaceBlockProto = parse(op, message)?;
                sender = span(&replace.header);
                Self::ReplaceBlock(Box::new(replace_block(replace).map_err(content)?))
            }
            OpCode::RequestShortCircuitFds => {
                let request: proto::OpRequestShortCircuitAccessProto = parse(op, message)?;
                sender = span(&request.header);
                Self::RequestShortCircuitFds(request_fds(request).map_err(content)?)
            }
            OpCode::ReleaseShortCircuitFds => {
                let release: proto::ReleaseShortCircuitAccessRequestProto = parse(op, message)?;
                Self::ReleaseShortCircuitFds(release.slot_id.into())
            }
            OpCode::RequestShortCircuitShm => {
                let shm: proto::ShortCircuitShmRequestProto = parse(op, message)?;
                Self::RequestShortCircuitShm { client_name: shm.client_name }
            }
            OpCode::Describe => Self::Describe(Describe::from_message(parse(op, message)?)),
            OpCode::ReadMany => Self::ReadMany(ReadMany::from_message(parse(op, message)?)),
            OpCode::ReplicaStream => Self::ReplicaStream(ReplicaStream::from_message(parse(op, message)?)),
            OpCode::ReadMetadata | OpCode::BlockGroupChecksum | OpCode::Custom => {
                return Err(OpError::Unsupported { op });
            }
        };
        Ok((operation, sender))
    }
}

fn request<M: Message>(code: OpCode, message: &M) -> Vec<u8> {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(3 + 5 + length);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.push(code as u8);
    bytes.extend_from_slice(&delimited::to_vec(message));
    bytes
}

pub(super) fn base_header(block: &ExtendedBlock, token: &Token) -> proto::BaseHeaderProto {
    proto::BaseHeaderProto { block: block.into(), token: Some(token.into()), trace_info: None }
}

pub(super) fn from_base_header(header: proto::BaseHeaderProto) -> Result<(ExtendedBlock, Token), ConvertError> {
    Ok((header.block.try_into()?, header.token.map(Token::from).unwrap_or_default()))
}

fn client_header(block: &ExtendedBlock, token: &Token, client_name: &str) -> proto::ClientOperationHeaderProto {
    proto::ClientOperationHeaderProto { base_header: base_header(block, token), client_name: client_name.to_owned() }
}

impl From<CachingStrategy> for Option<proto::CachingStrategyProto> {
    fn from(caching: CachingStrategy) -> Self {
        Some(proto::CachingStrategyProto { drop_behind: caching.drop_behind, readahead: caching.readahead })
    }
}

fn caching(message: Option<proto::CachingStrategyProto>) -> CachingStrategy {
    let message = message.unwrap_or_default();
    CachingStrategy { drop_behind: message.drop_behind, readahead: message.readahead }
}

/// Converts a storage id. An absent id and an empty one are equivalent.
fn storage_id(text: Option<String>) -> Option<StorageId> {
    text.filter(|text| !text.is_empty()).map(|text| StorageId(text.into()))
}

/// Combines the parallel lists of a message. Old senders omit lists; missing entries get default values.
fn targets(
    datanodes: Vec<proto::DatanodeInfoProto>,
    types: &[i32],
    ids: Vec<String>,
    pinned: &[bool],
) -> Result<Vec<PipelineTarget>, ConvertError> {
    let mut ids = ids.into_iter();
    datanodes
        .into_iter()
        .enumerate()
        .map(|(index, datanode)| {
            Ok(PipelineTarget {
                datanode: datanode.try_into()?,
                storage_type: types.get(index).map_or(StorageType::Disk, |number| storage_type_from_wire(*number)),
                storage_id: storage_id(ids.next()),
                pinned: pinned.get(index).copied().unwrap_or(false),
            })
        })
        .collect()
}

/// Returns the storage ids of all targets, or an empty list if any is missing: receivers match them by position.
fn target_ids(targets: &[PipelineTarget]) -> Vec<String> {
    if targets.iter().all(|target| target.storage_id.is_none()) {
        return Vec::new();
    }
    targets.iter().map(|target| target.storage_id.as_ref().map_or_else(String::new, |id| id.to_string())).collect()
}

impl From<&ReadBlock> for proto::OpReadBlockProto {
    fn from(op: &ReadBlock) -> Self {
        Self {
            header: client_header(&op.block, &op.token, &op.client_name),
            offset: op.offset,
            len: op.length.unwrap_or(u64::MAX),
            send_checksums: Some(op.send_checksums),
            caching_strategy: op.caching.into(),
        }
    }
}

fn read_block(message: proto::OpReadBlockProto) -> Result<ReadBlock, ConvertError> {
    let send_checksums = message.send_checksums();
    let (block, token) = from_base_header(message.header.base_header)?;
    Ok(ReadBlock {
        block,
        token,
        client_name: message.header.client_name,
        offset: message.offset,
        // A negative Java long means all available data.
        length: (message.len as i64 >= 0).then_some(message.len),
        send_checksums,
        caching: caching(message.caching_strategy),
    })
}

impl From<&WriteBlock> for proto::OpWriteBlockProto {
    fn from(op: &WriteBlock) -> Self {
        Self {
            header: client_header(&op.block, &op.token, &op.client_name),
            targets: op.targets.iter().map(|target| (&target.datanode).into()).collect(),
            source: op.source.as_ref().map(Into::into),
            stage: op.stage as i32,
            pipeline_size: op.pipeline_size,
            min_bytes_rcvd: op.bytes_received_min,
            max_bytes_rcvd: op.bytes_received_max,
            latest_generation_stamp: op.latest_stamp.0,
            requested_checksum: (&op.checksum).into(),
            caching_strategy: op.caching.into(),
            storage_type: Some(op.storage_type as i32),
            target_storage_types: op.targets.iter().map(|target| target.storage_type as i32).collect(),
            allow_lazy_persist: Some(op.allow_lazy_persist),
            pinning: Some(op.pinned),
            target_pinnings: op.targets.iter().map(|target| target.pinned).collect(),
            storage_id: op.storage_id.as_ref().map(ToString::to_string),
            target_storage_ids: target_ids(&op.targets),
        }
    }
}

fn write_block(message: proto::OpWriteBlockProto) -> Result<WriteBlock, ConvertError> {
    let stage = Stage::try_from(message.stage)
        .map_err(|_| ConvertError::UnknownNumber { field: "pipeline stage", number: message.stage })?;
    let (storage_type, allow_lazy_persist, pinned) =
        (message.storage_type(), message.allow_lazy_persist(), message.pinning());
    let (block, token) = from_base_header(message.header.base_header)?;
    Ok(WriteBlock {
        block,
        token,
        client_name: message.header.client_name,
        targets: targets(
            message.targets,
            &message.target_storage_types,
            message.target_storage_ids,
            &message.target_pinnings,
        )?,
        // Java's DataNodes forward a missing source of a client as one without an identity.
        source: message
            .source
            .filter(|source| !source.id.datanode_uuid.is_empty())
            .map(DatanodeInfo::try_from)
            .transpose()?,
        stage,
        pipeline_size: message.pipeline_size,
        bytes_received_min: message.min_bytes_rcvd,
        bytes_received_max: message.max_bytes_rcvd,
        latest_stamp: GenerationStamp(message.latest_generation_stamp),
        checksum: message.requested_checksum.try_into()?,
        caching: caching(message.caching_strategy),
        storage_type: storage_type_from_wire(storage_type as i32),
        storage_id: storage_id(message.storage_id),
        allow_lazy_persist,
        pinned,
    })
}

impl From<&TransferBlock> for proto::OpTransferBlockProto {
    fn from(op: &TransferBlock) -> Self {
        Self {
            header: client_header(&op.block, &op.token, &op.client_name),
            targets: op.targets.iter().map(|target| (&target.datanode).into()).collect(),
            target_storage_types: op.targets.iter().map(|target| target.storage_type as i32).collect(),
            target_storage_ids: target_ids(&op.targets),
        }
    }
}

fn transfer_block(message: proto::OpTransferBlockProto) -> Result<TransferBlock, ConvertError> {
    let (block, token) = from_base_header(message.header.base_header)?;
    Ok(TransferBlock {
        block,
        token,
        client_name: message.header.client_name,
        targets: targets(message.targets, &message.target_storage_types, message.target_storage_ids, &[])?,
    })
}

impl From<BlockChecksumOptions> for proto::BlockChecksumOptionsProto {
    fn from(options: BlockChecksumOptions) -> Self {
        let kind = match options.kind {
            BlockChecksumKind::Md5Crc => BlockChecksumTypeProto::Md5crc,
            BlockChecksumKind::CompositeCrc => BlockChecksumTypeProto::CompositeCrc,
        };
        Self { block_checksum_type: Some(kind as i32), stripe_length: Some(options.stripe_length) }
    }
}

impl TryFrom<proto::BlockChecksumOptionsProto> for BlockChecksumOptions {
    type Error = ConvertError;

    fn try_from(message: proto::BlockChecksumOptionsProto) -> Result<Self, ConvertError> {
        let kind = match message.block_checksum_type.map(BlockChecksumTypeProto::try_from) {
            None | Some(Ok(BlockChecksumTypeProto::Md5crc)) => BlockChecksumKind::Md5Crc,
            Some(Ok(BlockChecksumTypeProto::CompositeCrc)) => BlockChecksumKind::CompositeCrc,
            Some(Err(_)) => {
                let number = message.block_checksum_type.unwrap_or_default();
                return Err(ConvertError::UnknownNumber { field: "block checksum type", number });
            }
        };
        Ok(Self { kind, stripe_length: message.stripe_length() })
    }
}

impl From<&BlockChecksum> for proto::OpBlockChecksumProto {
    fn from(op: &BlockChecksum) -> Self {
        Self { header: base_header(&op.block, &op.token), block_checksum_options: Some(op.options.into()) }
    }
}

fn block_checksum(message: proto::OpBlockChecksumProto) -> Result<BlockChecksum, ConvertError> {
    let (block, token) = from_base_header(message.header)?;
    let options = message.block_checksum_options.map(TryInto::try_into).transpose()?.unwrap_or_default();
    Ok(BlockChecksum { block, token, options })
}

impl From<&ReplaceBlock> for proto::OpReplaceBlockProto {
    fn from(op: &ReplaceBlock) -> Self {
        Self {
            header: base_header(&op.block, &op.token),
            del_hint: op.delete_hint.clone(),
            source: (&op.source).into(),
            storage_type: Some(op.storage_type as i32),
            storage_id: op.storage_id.as_ref().map(ToString::to_string),
        }
    }
}

fn replace_block(message: proto::OpReplaceBlockProto) -> Result<ReplaceBlock, ConvertError> {
    let storage_type = storage_type_from_wire(message.storage_type() as i32);
    let (block, token) = from_base_header(message.header)?;
    Ok(ReplaceBlock {
        block,
        token,
        delete_hint: message.del_hint,
        source: message.source.try_into()?,
        storage_type,
        storage_id: storage_id(message.storage_id),
    })
}

impl From<&RequestShortCircuitFds> for proto::OpRequestShortCircuitAccessProto {
    fn from(op: &RequestShortCircuitFds) -> Self {
        Self {
            header: base_header(&op.block, &op.token),
            max_version: op.version_max,
            slot_id: op.slot.as_ref().map(Into::into),
            supports_receipt_verification: Some(op.supports_receipt_verification),
        }
    }
}

fn request_fds(message: proto::OpRequestShortCircuitAccessProto) -> Result<RequestShortCircuitFds, ConvertError> {
    let supports_receipt_verification = message.supports_receipt_verification();
    let (block, token) = from_base_header(message.header)?;
    Ok(RequestShortCircuitFds {
        block,
        token,
        version_max: message.max_version,
        slot: message.slot_id.map(Into::into),
        supports_receipt_verification,
    })
}

impl From<&ShmSlot> for proto::ShortCircuitShmSlotProto {
    fn from(slot: &ShmSlot) -> Self {
        Self { shm_id: slot.segment.into(), slot_idx: slot.index }
    }
}

impl From<proto::ShortCircuitShmSlotProto> for ShmSlot {
    fn from(message: proto::ShortCircuitShmSlotProto) -> Self {
        Self { segment: ShmId { high: message.shm_id.hi, low: message.shm_id.lo }, index: message.slot_idx }
    }
}
