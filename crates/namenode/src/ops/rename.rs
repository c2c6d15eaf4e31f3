//! The old rename, which answers false on failure, and the new one, which returns the error.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{Rename2RequestProto, Rename2ResponseProto, RenameRequestProto, RenameResponseProto};

use crate::error::Error;
use crate::namespace::{Renamed, is_within_limits};
use crate::state::{CallContext, Namenode, Remember, State};

pub async fn rename(namenode: &Namenode, context: &CallContext, request: RenameRequestProto) -> Result<Bytes, Error> {
    if !is_within_limits(&request.dst) {
        return Err(Error::PathTooLong { operation: "rename" });
    }
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("rename {}", request.src))?;
            let renamed = state.namespace.rename_old(&context.caller, &request.src, &request.dst, now.wall_ms)?;
            let result = renamed.is_some();
            if let Some(renamed) = renamed {
                take_note(state, renamed);
            }
            let remember = if result { Remember::Yes } else { Remember::No };
            Ok((RenameResponseProto { result }, remember))
        })
        .await
}

pub async fn rename2(namenode: &Namenode, context: &CallContext, request: Rename2RequestProto) -> Result<Bytes, Error> {
    if !is_within_limits(&request.dst) {
        return Err(Error::PathTooLong { operation: "rename" });
    }
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("rename {}", request.src))?;
            let renamed = state.namespace.rename(
                &context.caller,
                &request.src,
                &request.dst,
                request.overwrite_dest,
                request.move_to_trash.unwrap_or(false),
                now.wall_ms,
            )?;
            take_note(state, renamed);
            Ok((Rename2ResponseProto {}, Remember::Yes))
        })
        .await
}

/// Applies a rename to the block map and the leases.
fn take_note(state: &mut State, renamed: Renamed) {
    if let Some(removed) = renamed.overwritten {
        state.forget(removed);
    }
    if let Some(slot) = renamed.other_policy {
        state.propagate_policy(slot);
    }
}
