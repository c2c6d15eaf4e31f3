use bytes::Bytes;
use hearth_wire::proto::hdfs::{FsyncRequestProto, FsyncResponseProto};

use crate::error::Error;
use crate::state::{CallContext, Namenode, encode};

/// Makes the list of blocks durable, with the length of the last one if the writer gives it.
pub async fn fsync(namenode: &Namenode, context: &CallContext, request: FsyncRequestProto) -> Result<Bytes, Error> {
    namenode
        .change(|state, now| {
            namenode.check_safe_mode(state, now, || format!("fsync file {}", request.src))?;
            let slot = state.check_lease(&context.caller, &request.src, request.file_id(), &request.client)?;
            let Some(length) = u64::try_from(request.last_block_length()).ok().filter(|length| *length > 0) else {
                return Ok(());
            };
            let inode = state.namespace.inode(slot);
            let file = inode.as_file().expect("check_lease has checked that it is a file");
            let limit = inode.block_size();
            let Some(last) = file.blocks().last().filter(|last| length > last.length) else { return Ok(()) };
            if length > limit {
                return Err(Error::CommitTooLong { given: length, limit, path: state.namespace.path_of(slot) });
            }
            state.blocks.set_length(last.id, length).map_err(|error| namenode.refused(error))?;
            state.namespace.written_mut(slot).change_last(|record| record.length = length);
            Ok(())
        })
        .await?;
    Ok(encode(&FsyncResponseProto {}))
}
