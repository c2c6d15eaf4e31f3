use bytes::Bytes;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{DatanodeId, StorageId};
use hearth_wire::proto::hdfs::{
    DatanodeInfoProto, GetAdditionalDatanodeRequestProto, GetAdditionalDatanodeResponseProto,
};

use crate::blocks::{PlacementRequest, StorageIndex};
use crate::error::Error;
use crate::ops::update_pipeline::check_block;
use crate::state::{CallContext, Namenode, encode};

/// Limit of nodes that a writer may ask for at once; Java's client asks for one.
const ADDITIONAL_MAX: u32 = 64;

/// Adds datanodes to a running pipeline. If there are none the answer contains the existing ones only.
pub async fn get_additional_datanode(
    namenode: &Namenode,
    context: &CallContext,
    request: GetAdditionalDatanodeRequestProto,
) -> Result<Bytes, Error> {
    let block = namenode.own_block(request.blk.clone())?;
    let ids = |nodes: &[DatanodeInfoProto]| -> Vec<DatanodeId> {
        nodes.iter().filter_map(|node| DatanodeId::try_from(node.id.clone()).ok()).collect()
    };
    let (existing, excluded) = (ids(&request.existings), ids(&request.excludes));
    let located = namenode
        .change(|state, now| {
            namenode.check_safe_mode(state, now, || {
                format!("add datanode; src={}, blk={}", request.src, namenode.extended(block))
            })?;
            let slot = state.check_lease(&context.caller, &request.src, request.file_id(), &request.client_name)?;
            // The answer has a token to copy the block, so the block must belong to this file. (Apache's NameNode signs
            // any given block.)
            let (written, _) = check_block(state, namenode, block, &request.client_name)?;
            let inode = state.namespace.inode(slot);
            let file = inode.as_file().expect("check_lease has checked that it is a file");
            if written != slot {
                let pool = namenode.identity.pool.clone();
                return Err(match file.blocks().last() {
                    Some(last) => Error::NotLastBlock { pool, old: block, last: last.block() },
                    None => Error::BlockOfClosedFile { pool, block },
                });
            }
            let storages = request.existing_storage_uuids.iter();
            let mut chosen: Vec<StorageIndex> = existing
                .iter()
                .zip(storages)
                .filter_map(|(node, storage)| state.blocks.find_storage(node, &StorageId(storage.as_str().into())))
                .collect();
            let machine = file.writer().map(|writer| writer.machine.clone());
            // Nodes with an unknown storage are at least not chosen again.
            let excluded: Vec<DatanodeId> = excluded.iter().chain(&existing).cloned().collect();
            let placement = PlacementRequest {
                additional: request.num_additional_nodes.min(ADDITIONAL_MAX) as usize,
                block_size: inode.block_size(),
                writer: machine.as_deref(),
                excluded: &excluded,
                chosen: &chosen,
                policy: state.namespace.storage_policy(slot).number,
                at_any_load: true,
                ..PlacementRequest::default()
            };
            let more = state.blocks.additional_targets(&placement, now);
            chosen.extend(more);
            let located = state.blocks.located_for_writer(namenode.extended(block), u64::MAX, &chosen);
            Ok(namenode.signed(located, AccessMode::Copy, &context.caller, now))
        })
        .await?;
    Ok(encode(&GetAdditionalDatanodeResponseProto { block: (&located).into() }))
}
