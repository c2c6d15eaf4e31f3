use bytes::Bytes;
use hearth_types::{Access, LocatedBlocks};
use hearth_wire::proto::hdfs::{GetBlockLocationsRequestProto, GetBlockLocationsResponseProto};

use super::audited::Audited;
use crate::blocks::{ADVERTISEMENTS_PER_ANSWER_MAX, Now};
use crate::error::Error;
use crate::namespace::{InodeId, Need, Purpose};
use crate::state::{CallContext, Namenode, State, encode};

/// Returns the locations of a range of a file: the call with which a client opens a file.
pub async fn get_block_locations(
    namenode: &Namenode,
    context: &CallContext,
    request: GetBlockLocationsRequestProto,
) -> Result<Bytes, Error> {
    let range = (request.offset, request.length);
    let now = namenode.now();
    let (answer, access_time_due) = {
        let state = namenode.read();
        let (mut located, due) = locate(namenode, &state, context, &request.src, range, now)?;
        let mut room = ADVERTISEMENTS_PER_ANSWER_MAX;
        for block in &mut located.blocks {
            state.blocks.add_advertisements(block, now, &mut room);
        }
        (encode(&GetBlockLocationsResponseProto { locations: Some((&located).into()) }), due)
    };
    if let Some(id) = access_time_due {
        touch(namenode, id);
    }
    Ok(answer)
}

pub fn audit(request: &GetBlockLocationsRequestProto) -> Audited {
    Audited::on("open", &request.src)
}

/// Returns the locations of `range` (offset, length) of a file, and the file's id if its access time must be updated.
pub(super) fn locate(
    namenode: &Namenode,
    state: &State,
    context: &CallContext,
    path: &str,
    range: (u64, u64),
    now: Now,
) -> Result<(LocatedBlocks, Option<InodeId>), Error> {
    // Java's longs: a negative value arrives as a huge number.
    if (range.0 as i64) < 0 {
        return Err(Error::NegativeOffset { path: path.to_owned() });
    }
    if (range.1 as i64) < 0 {
        return Err(Error::NegativeLength { path: path.to_owned() });
    }
    let (trail, slot) = state.namespace.resolve_file(&context.caller, path, Purpose::Read)?;
    state.namespace.check(&context.caller, &trail, Need { target: Some(Access::READ), ..Need::default() })?;
    state.namespace.check_readable_by_superuser(&context.caller, slot)?;
    let located = namenode.located_for_reader(state, slot, range, trail.snapshot.is_some(), &context.caller, now);
    if state.blocks.in_safe_mode() && located.blocks.iter().any(|block| block.locations.is_empty()) {
        let what = format!("Zero blocklocations for {}", trail.path());
        return Err(namenode.safe_mode_error(state, now, what));
    }
    let due = trail.snapshot.is_none()
        && state.namespace.access_time_is_due(slot, now.wall_ms)
        && !state.blocks.in_safe_mode();
    Ok((located, due.then(|| state.namespace.inode(slot).id())))
}

/// Records the access time of a file. The caller does not wait until it is durable.
pub(super) fn touch(namenode: &Namenode, id: InodeId) {
    let mut state = namenode.state.write();
    let now = namenode.now();
    if let Some(slot) = state.namespace.slot(id) {
        // Another reader may have updated it in between.
        if state.namespace.access_time_is_due(slot, now.wall_ms) {
            state.namespace.inode_mut(slot).set_access_time_ms(now.wall_ms);
            drop(namenode.store.submit(state.namespace.take_changes()));
        }
    }
}
