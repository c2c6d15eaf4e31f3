use bytes::Bytes;
use hearth_wire::proto::hdfs::{DeleteRequestProto, DeleteResponseProto};

use super::audited::{Audited, When};
use crate::blocks::Now;
use crate::error::Error;
use crate::namespace::Caller;
use crate::state::{CallContext, Namenode, Remember, State};

/// Removes a file or directory. Answers false if the path does not exist, and for the root.
pub async fn delete(namenode: &Namenode, context: &CallContext, request: DeleteRequestProto) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            let result = remove(namenode, state, now, &context.caller, &request)?;
            let remember = if result { Remember::Yes } else { Remember::No };
            Ok((DeleteResponseProto { result }, remember))
        })
        .await
}

pub fn audit(request: &DeleteRequestProto) -> Audited {
    Audited::on("delete", &request.src).when(When::Answered)
}

/// Does the same as part of a change.
pub fn remove(
    namenode: &Namenode,
    state: &mut State,
    now: Now,
    caller: &Caller,
    request: &DeleteRequestProto,
) -> Result<bool, Error> {
    namenode.check_safe_mode(state, now, || format!("delete {}", request.src))?;
    let removed = state.namespace.delete(caller, &request.src, request.recursive, now.wall_ms)?;
    let Some(removed) = removed else { return Ok(false) };
    state.forget(removed);
    Ok(true)
}
