use bytes::Bytes;
use hearth_types::FsPermission;
use hearth_wire::proto::hdfs::{MkdirsRequestProto, MkdirsResponseProto};

use super::audited::Audited;
use crate::error::Error;
use crate::namespace::{Modes, is_within_limits};
use crate::state::{CallContext, Namenode, Remember};

/// Creates a directory, and its parents if requested. Answers true also if it existed.
pub async fn mkdirs(namenode: &Namenode, context: &CallContext, request: MkdirsRequestProto) -> Result<Bytes, Error> {
    if !is_within_limits(&request.src) {
        return Err(Error::PathTooLong { operation: "mkdirs" });
    }
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("create directory {}", request.src))?;
            let modes = Modes {
                masked: FsPermission::from(request.masked),
                unmasked: request.unmasked.map(FsPermission::from),
            };
            state.namespace.mkdirs(&context.caller, &request.src, modes, request.create_parent, now.wall_ms)?;
            Ok((MkdirsResponseProto { result: true }, Remember::Yes))
        })
        .await
}

pub fn audit(request: &MkdirsRequestProto) -> Audited {
    Audited::on("mkdirs", &request.src).changed()
}
