//! The old rename, which answers false on failure, and the new one, which returns the error.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{Rename2RequestProto, Rename2ResponseProto, RenameRequestProto, RenameResponseProto};

use super::audited::{Audited, When};
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

/// Audit line, from the state before the operation: for a rename into an existing directory, the status is that of
/// the path in it. Apache's line has the directory as target nevertheless.
pub fn audit_rename(namenode: &Namenode, request: &RenameRequestProto) -> Audited {
    let state = namenode.read();
    let there = state.namespace.lookup(&request.dst);
    let inside = there.is_some_and(|slot| state.namespace.inode(slot).is_directory());
    let status_of = match request.src.rsplit_once('/') {
        Some((_, name)) if inside => format!("{}/{name}", request.dst.trim_end_matches('/')),
        _ => request.dst.clone(),
    };
    Audited::on("rename", &request.src).to(&request.dst).with_status_of(status_of).when(When::True)
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

pub fn audit_rename2(request: &Rename2RequestProto) -> Audited {
    let options = match (request.overwrite_dest, request.move_to_trash()) {
        (false, false) => "NONE",
        (true, false) => "OVERWRITE",
        (false, true) => "TO_TRASH",
        (true, true) => "OVERWRITE, TO_TRASH",
    };
    let command = format!("rename (options=[{options}])");
    Audited::on(command, &request.src).to(&request.dst).with_status_of(&request.dst)
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
