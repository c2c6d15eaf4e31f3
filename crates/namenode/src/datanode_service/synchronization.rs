use hearth_protocol::rpc::{RemoteError, application_error};
use hearth_types::{DatanodeId, ExtendedBlock, GenerationStamp, StorageId};
use hearth_wire::convert::ConvertError;
use hearth_wire::proto::hdfs::{CommitBlockSynchronizationRequestProto, CommitBlockSynchronizationResponseProto};
use hearth_wire::rpc::exceptions;

use super::{DatanodeService, malformed};

/// A primary datanode's result of a block recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synchronization {
    /// The block as in the recovery command.
    pub block: ExtendedBlock,
    /// The recovery id.
    pub new_stamp: GenerationStamp,
    /// Bytes.
    pub new_length: u64,
    pub close_file: bool,
    /// No replica has any data: remove the block from the file.
    pub delete_block: bool,
    /// The datanodes and storages that hold the recovered replica.
    pub holders: Vec<(DatanodeId, StorageId)>,
}

impl DatanodeService {
    pub(super) async fn commit_block_synchronization(
        &self,
        request: CommitBlockSynchronizationRequestProto,
    ) -> Result<CommitBlockSynchronizationResponseProto, RemoteError> {
        let report = decoded(request)?;
        (self.commit_synchronization)(report).await?;
        Ok(CommitBlockSynchronizationResponseProto {})
    }
}

fn decoded(request: CommitBlockSynchronizationRequestProto) -> Result<Synchronization, RemoteError> {
    let (expected, actual) = (request.new_targets.len(), request.new_target_storages.len());
    if expected != actual {
        let error = ConvertError::Count { field: "new target storages", expected, actual };
        return Err(application_error(exceptions::IO, error.to_string()));
    }
    let mut holders = Vec::with_capacity(expected);
    for (datanode, storage) in request.new_targets.into_iter().zip(request.new_target_storages) {
        // An all-empty entry stands for a missing one.
        if datanode.datanode_uuid.is_empty() || storage.is_empty() {
            continue;
        }
        holders.push((DatanodeId::try_from(datanode).map_err(malformed)?, StorageId(storage.into())));
    }
    Ok(Synchronization {
        block: request.block.try_into().map_err(malformed)?,
        new_stamp: GenerationStamp(request.new_gen_stamp),
        new_length: request.new_length,
        close_file: request.close_file,
        delete_block: request.delete_block,
        holders,
    })
}
