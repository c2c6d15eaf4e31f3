//! Set-up of a pipeline: the request to its first datanode, the check of the response, and the failures.

use hearth_types::{DatanodeInfo, ExtendedBlock, GenerationStamp, StorageId, StorageType, Token};
use hearth_wire::data_transfer::{
    BlockOpResponse, CachingStrategy, PipelineTarget, Stage as WireStage, Status, WriteBlock,
};

use crate::session::Session;
use crate::{DataPath, DatanodeError};

/// Purpose for which a pipeline is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Create,
    Append,
    AppendRecovery,
    StreamingRecovery,
    /// Everything was acknowledged except the block's end.
    CloseRecovery,
}

impl Stage {
    /// Returns the stage of the next attempt after a failed set-up.
    pub(super) fn after_failure(self) -> Self {
        match self {
            Self::Append => Self::AppendRecovery,
            stage => stage,
        }
    }

    fn to_wire(self) -> WireStage {
        match self {
            Self::Create => WireStage::PipelineSetupCreate,
            Self::Append => WireStage::PipelineSetupAppend,
            Self::AppendRecovery => WireStage::PipelineSetupAppendRecovery,
            Self::StreamingRecovery => WireStage::PipelineSetupStreamingRecovery,
            Self::CloseRecovery => WireStage::PipelineCloseRecovery,
        }
    }
}

/// Parameters of a pipeline set-up.
pub(super) struct SetUp<'a> {
    /// Block with the generation stamp that the replicas have now.
    pub block: &'a ExtendedBlock,
    pub token: &'a Token,
    pub targets: &'a [Target],
    pub stage: Stage,
    pub acknowledged_bytes: u64,
    pub sent_bytes: u64,
    /// Generation stamp that the replicas get; `None` for a new block.
    pub stamp: Option<GenerationStamp>,
    /// Block size of the file, which the datanodes reserve.
    pub block_size: u64,
}

/// One datanode of a pipeline.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub datanode: DatanodeInfo,
    pub storage: StorageId,
    pub storage_type: StorageType,
}

/// Cause of a broken pipeline, and the party to blame.
#[derive(Debug)]
pub(super) struct PipelineFailure {
    /// Index of the datanode concerned.
    pub bad: usize,
    pub blame: Blame,
    pub source: DatanodeError,
}

/// Party to which a failure is attributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blame {
    /// The datanode, which is then excluded.
    Datanode,
    /// The datanode announced a restart: the writer may wait for it instead of excluding it.
    Restart,
    /// The path to the first datanode, which may be healthy: a later attempt with packets shows it. Packets themselves
    /// are never blamed.
    Path(DataPath),
}

impl PipelineFailure {
    /// Failure to reach the first datanode by `path`, or of the connection to it.
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

/// Checks that the response to a set-up is a success; otherwise returns the datanode to blame.
pub(super) fn check(spec: &SetUp<'_>, response: BlockOpResponse) -> Result<(), PipelineFailure> {
    let bad_link = response.first_bad_link.as_deref().is_some_and(|link| !link.is_empty());
    if response.status == Status::Success && !bad_link { Ok(()) } else { Err(refused(spec, response)) }
}

/// Builds the request to the first datanode, `head`.
pub(super) fn message(session: &Session, spec: &SetUp<'_>, head: &Target) -> WriteBlock {
    let mut block = spec.block.clone();
    block.block.length = spec.block_size;
    WriteBlock {
        block,
        token: spec.token.clone(),
        client_name: session.client_name().to_owned(),
        targets: spec.targets[1..].iter().map(pipeline_target).collect(),
        source: None,
        stage: spec.stage.to_wire(),
        pipeline_size: spec.targets.len() as u32,
        bytes_received_min: spec.acknowledged_bytes,
        bytes_received_max: spec.sent_bytes,
        latest_stamp: spec.stamp.unwrap_or_default(),
        checksum: session.options.write.packets.checksum,
        caching: CachingStrategy::default(),
        storage_type: head.storage_type,
        storage_id: Some(head.storage.clone()),
        allow_lazy_persist: false,
        pinned: false,
    }
}

pub(super) fn pipeline_target(target: &Target) -> PipelineTarget {
    PipelineTarget {
        datanode: target.datanode.clone(),
        storage_type: target.storage_type,
        storage_id: Some(target.storage.clone()),
        pinned: false,
    }
}

/// Converts a refused set-up into the failure that names the datanode to blame.
pub(super) fn refused(spec: &SetUp<'_>, response: BlockOpResponse) -> PipelineFailure {
    let link = response.first_bad_link.unwrap_or_default();
    let bad = spec.targets.iter().position(|target| target.datanode.id.transfer_address() == link).unwrap_or(0);
    let block = Box::new(spec.block.clone());
    let source = match response.status {
        Status::ErrorAccessToken => DatanodeError::AccessToken { block },
        status => DatanodeError::BadLink {
            block,
            first_bad_link: link,
            status: format!("{status:?}"),
            message: response.message.unwrap_or_default(),
        },
    };
    let blame = if response.status == Status::OobRestart { Blame::Restart } else { Blame::Datanode };
    PipelineFailure { bad, blame, source }
}
