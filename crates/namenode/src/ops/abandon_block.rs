use bytes::Bytes;
use hearth_wire::proto::hdfs::{AbandonBlockRequestProto, AbandonBlockResponseProto};

use crate::error::Error;
use crate::state::{CallContext, Namenode, encode};

/// Abandons the writer's last block. No error if the block is gone already.
pub async fn abandon_block(
    namenode: &Namenode,
    context: &CallContext,
    request: AbandonBlockRequestProto,
) -> Result<Bytes, Error> {
    let block = namenode.own_block(request.b.clone())?;
    namenode
        .change(|state, now| {
            namenode.check_safe_mode(state, now, || format!("abandon block {block} for file {}", request.src))?;
            let slot = state.check_lease(&context.caller, &request.src, request.file_id(), &request.holder)?;
            let file = state.namespace.inode(slot).as_file().expect("check_lease has checked that it is a file");
            if file.blocks().last().is_some_and(|last| last.id == block.id) {
                state.drop_last(slot);
            }
            Ok(())
        })
        .await?;
    Ok(encode(&AbandonBlockResponseProto {}))
}
