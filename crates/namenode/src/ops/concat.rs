use bytes::Bytes;
use hearth_wire::proto::hdfs::{ConcatRequestProto, ConcatResponseProto};

use super::audited::Audited;
use crate::error::Error;
use crate::state::{CallContext, Namenode, Remember};

/// Appends the blocks of files to another one and removes those files.
pub async fn concat(namenode: &Namenode, context: &CallContext, request: ConcatRequestProto) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("concat {}", request.trg))?;
            let (target, moved) = state.namespace.concat(&context.caller, &request.trg, &request.srcs, now.wall_ms)?;
            let id = state.namespace.inode(target).id().0;
            let replication = state.namespace.replication_with_snapshots(target);
            let policy = state.namespace.storage_policy(target).number;
            for block in moved {
                state.blocks.set_inode(block, id);
                state.blocks.set_policy(block, policy);
                state.blocks.set_replication(block, replication, now);
            }
            Ok((ConcatResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit(request: &ConcatRequestProto) -> Audited {
    let joined = format!("[{}]", request.srcs.join(", "));
    Audited::on("concat", joined).to(&request.trg).with_status_of(&request.trg)
}
