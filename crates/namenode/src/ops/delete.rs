use bytes::Bytes;
use hearth_wire::proto::hdfs::{DeleteRequestProto, DeleteResponseProto};

use crate::error::Error;
use crate::state::{Context, Namenode, Remember};

/// Removes a file or directory. False when there was nothing, and for the root.
pub async fn delete(namenode: &Namenode, context: &Context, request: DeleteRequestProto) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("delete {}", request.src))?;
            let removed = state.namespace.delete(&context.caller, &request.src, request.recursive, now.wall_ms)?;
            let Some(removed) = removed else { return Ok((DeleteResponseProto { result: false }, Remember::No)) };
            state.forget(removed);
            Ok((DeleteResponseProto { result: true }, Remember::Yes))
        })
        .await
}
