//! Pipeline recovery of a writer: a new stamp for the block, then the nodes that continue.

use bytes::Bytes;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{Block, DatanodeId, StorageId};
use hearth_wire::proto::hdfs::{
    UpdateBlockForPipelineRequestProto, UpdateBlockForPipelineResponseProto, UpdatePipelineRequestProto,
    UpdatePipelineResponseProto,
};

use crate::blocks::{BlockState, StorageIndex};
use crate::error::Error;
use crate::namespace::{BlockRecord, InodeId, Slot};
use crate::state::{CallContext, Namenode, Remember, State, encode};

/// Returns the file to which `client` writes the block. `block` must be under construction.
///
/// Errors: `BlockMissing`, `BlockNotUnderConstruction`, `BlockOfClosedFile`, `LeaseMismatch`, `NotLastBlock`.
pub fn check_block(
    state: &State,
    namenode: &Namenode,
    block: Block,
    client: &str,
) -> Result<(Slot, BlockRecord), Error> {
    let pool = || namenode.identity.pool.clone();
    let current = state.blocks.state(block.id).ok_or_else(|| Error::BlockMissing { pool: pool(), block })?;
    if current != BlockState::UnderConstruction {
        let state = match current {
            BlockState::UnderRecovery => "UNDER_RECOVERY",
            BlockState::Committed => "COMMITTED",
            _ => "COMPLETE",
        };
        return Err(Error::BlockNotUnderConstruction { pool: pool(), block, state });
    }
    let slot = state.blocks.inode_of(block.id).and_then(|id| state.namespace.slot(InodeId(id)));
    let open = slot.and_then(|slot| {
        let file = state.namespace.inode(slot).as_file()?;
        Some((slot, file.writer()?, file.blocks().last()?))
    });
    let Some((slot, writer, last)) = open else { return Err(Error::BlockOfClosedFile { pool: pool(), block }) };
    if writer.client != client {
        return Err(Error::LeaseMismatch { pool: pool(), block, client: client.into() });
    }
    if last.id != block.id {
        return Err(Error::NotLastBlock { pool: pool(), old: block, last: last.block() });
    }
    Ok((slot, last))
}

/// Issues a new stamp for the last block of an open file. Nothing else changes yet.
pub async fn update_block_for_pipeline(
    namenode: &Namenode,
    context: &CallContext,
    request: UpdateBlockForPipelineRequestProto,
) -> Result<Bytes, Error> {
    let block = namenode.own_block(request.block.clone())?;
    let located = namenode
        .change(|state, now| {
            namenode.check_safe_mode(state, now, || {
                format!("get a new generation stamp and an access token for block {}", namenode.extended(block))
            })?;
            check_block(state, namenode, block, &request.client_name)?;
            let stamp = state.namespace.next_stamp();
            let block = namenode.extended(Block { stamp, ..block });
            let located = state.blocks.located_for_writer(block, u64::MAX, &[]);
            Ok(namenode.signed(located, AccessMode::Write, &context.caller, now))
        })
        .await?;
    Ok(encode(&UpdateBlockForPipelineResponseProto { block: (&located).into() }))
}

/// Continues the pipeline with a new stamp on these nodes.
pub async fn update_pipeline(
    namenode: &Namenode,
    context: &CallContext,
    request: UpdatePipelineRequestProto,
) -> Result<Bytes, Error> {
    let old = namenode.own_block(request.old_block.clone())?;
    let new = namenode.own_block(request.new_block.clone())?;
    if old.id != new.id {
        return Err(Error::CommitOtherBlock { given: new, expected: old });
    }
    let nodes: Vec<DatanodeId> =
        request.new_nodes.iter().filter_map(|node| DatanodeId::try_from(node.clone()).ok()).collect();
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || "update the pipeline".into())?;
            let pool = || namenode.identity.pool.clone();
            let (slot, last) = check_block(state, namenode, old, &request.client_name)?;
            if new.stamp <= last.stamp() {
                return Err(Error::StampNotLarger { pool: pool(), old, new, last: last.block() });
            }
            if new.stamp.0 > state.namespace.counters().last_stamp {
                return Err(Error::StampNeverGiven { pool: pool(), old, new });
            }
            if new.length < last.length {
                return Err(Error::PipelineShrinks {
                    pool: pool(),
                    old,
                    old_length: last.length,
                    new,
                    new_length: new.length,
                });
            }
            let limit = state.namespace.inode(slot).block_size();
            if new.length > limit {
                let path = state.namespace.path_of(slot);
                return Err(Error::CommitTooLong { given: new.length, limit, path });
            }
            let (mut storages, mut unknown): (Vec<StorageIndex>, Vec<StorageId>) = Default::default();
            for (node, storage) in nodes.iter().zip(&request.storage_ids) {
                let storage = StorageId(storage.as_str().into());
                match state.blocks.find_storage(node, &storage) {
                    Some(found) => storages.push(found),
                    None => unknown.push(storage),
                }
            }
            state
                .blocks
                .update_pipeline(old, new.stamp, new.length, &storages)
                .map_err(|error| namenode.refused(error))?;
            state.blocks.expect_unknown(old.id, unknown);
            state.namespace.written_mut(slot).change_last(|record| {
                record.set_stamp(new.stamp);
                record.length = new.length;
            });
            Ok((UpdatePipelineResponseProto {}, Remember::Yes))
        })
        .await
}
