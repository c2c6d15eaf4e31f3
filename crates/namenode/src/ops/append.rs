use bytes::Bytes;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{Access, LocatedBlock};
use hearth_wire::proto::hdfs::{AppendRequestProto, AppendResponseProto, CreateFlagProto};

use super::audited::Audited;
use super::lease::Takeover;
use super::status::file_status;
use super::storage_policy::LAZY_PERSIST;
use crate::blocks::BlockState;
use crate::error::Error;
use crate::namespace::{Need, Purpose, RecordState, Slot, Writer};
use crate::state::{CallContext, Namenode, Remember, State};

/// Reopens a file to append to it.
pub async fn append(namenode: &Namenode, context: &CallContext, request: AppendRequestProto) -> Result<Bytes, Error> {
    let new_block = request.flag.is_some_and(|flag| flag & CreateFlagProto::NewBlock as u32 != 0);
    let caller = &context.caller;
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("append to file{}", request.src))?;
            let trail = state.namespace.resolve(caller, &request.src, Purpose::Write)?;
            let path = trail.path();
            if trail.target().is_some_and(|slot| !state.namespace.is_file(slot)) {
                return Err(Error::AppendDirectory { path });
            }
            state.namespace.check(caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
            let Some(slot) = trail.target() else {
                return Err(Error::AppendMissing { path, machine: caller.machine.to_string() });
            };
            if state.namespace.storage_policy(slot).number == LAZY_PERSIST {
                return Err(Error::AppendLazyPersist { path });
            }
            let takeover = Takeover { operation: "APPEND_FILE", path: &path, client: &request.client_name };
            state.take_over(namenode, caller, slot, &takeover, now)?;
            check_last(state, slot, &path)?;
            if !new_block
                && let inode = state.namespace.inode(slot)
                && let Some(last) = inode.as_file().and_then(|file| file.blocks().last())
            {
                // A block being written counts with its full size until it is closed.
                state.namespace.check_space_quota(slot, inode.block_size().saturating_sub(last.length))?;
            }
            let block = open_again(state, namenode, slot, new_block)?
                .map(|block| namenode.signed(block, AccessMode::Write, caller, now));
            let id = state.namespace.inode(slot).id();
            let writer =
                Writer { client: request.client_name.clone(), machine: caller.machine.to_string(), truncation: None };
            state.namespace.open_file(slot, writer);
            state.leases.add(&request.client_name, id, now.monotonic);
            let stat = Some(file_status(&state.namespace, slot, &[]));
            Ok((AppendResponseProto { block: block.as_ref().map(Into::into), stat }, Remember::Yes))
        })
        .await
}

pub fn audit(request: &AppendRequestProto) -> Audited {
    Audited::on("append", &request.src)
}

/// Checks that the last block has the replicas needed for an append.
fn check_last(state: &State, slot: Slot, path: &str) -> Result<(), Error> {
    let file = state.namespace.inode(slot).as_file().expect("checked to be a file");
    let Some(last) = file.blocks().last() else { return Ok(()) };
    match state.blocks.state(last.id) {
        Some(BlockState::Committed) => Err(Error::AppendCommitted { block: last.block(), path: path.into() }),
        Some(BlockState::Complete) if state.blocks.is_minimally_replicated(last.id) => Ok(()),
        _ => Err(Error::AppendUnderReplicated { block: last.block(), path: path.into() }),
    }
}

/// Reopens the last block, if it has room and the writer wants to fill it.
fn open_again(
    state: &mut State,
    namenode: &Namenode,
    slot: Slot,
    new_block: bool,
) -> Result<Option<LocatedBlock>, Error> {
    let inode = state.namespace.inode(slot);
    let file = inode.as_file().expect("checked to be a file");
    let Some(last) = file.blocks().last() else { return Ok(None) };
    let block = namenode.extended(last.block());
    if new_block {
        // The writer only has to pass it along when it adds the next one.
        return Ok(Some(state.blocks.located_for_writer(block, u64::MAX, &[])));
    }
    if last.length == inode.block_size() {
        return Ok(None);
    }
    let offset = file.length() - last.length;
    let storages = state.blocks.reopen(last.id).map_err(|error| namenode.refused(error))?;
    state.namespace.file_mut(slot).change_last(|record| record.state = RecordState::UnderConstruction);
    Ok(Some(state.blocks.located_for_writer(block, offset, &storages)))
}
