use bytes::Bytes;
use hearth_types::{Access, Block};
use hearth_wire::proto::hdfs::{TruncateRequestProto, TruncateResponseProto};

use super::audited::Audited;
use super::lease::Takeover;
use super::storage_policy::LAZY_PERSIST;
use crate::blocks::{BlockState, Now};
use crate::error::Error;
use crate::namespace::{BlockRecord, Need, Purpose, RecordState, Slot, Truncation, Writer};
use crate::state::{CallContext, Namenode, Remember, State};

/// Truncates a file. Answers true if done; false if the datanodes are truncating its last block: the file closes when
/// they have finished.
pub async fn truncate(
    namenode: &Namenode,
    context: &CallContext,
    request: TruncateRequestProto,
) -> Result<Bytes, Error> {
    if (request.new_length as i64) < 0 {
        return Err(Error::TruncateNegative { length: request.new_length as i64 });
    }
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || format!("truncate for {}", request.src))?;
            let result = attempt(state, namenode, context, &request, now)?;
            // A second execution would cut bytes that another client has appended since.
            Ok((TruncateResponseProto { result }, Remember::Yes))
        })
        .await
}

pub fn audit(request: &TruncateRequestProto) -> Audited {
    Audited::on("truncate", &request.src).changed()
}

fn attempt(
    state: &mut State,
    namenode: &Namenode,
    context: &CallContext,
    request: &TruncateRequestProto,
    now: Now,
) -> Result<bool, Error> {
    let caller = &context.caller;
    let (trail, slot) = state.namespace.resolve_file(caller, &request.src, Purpose::Write)?;
    state.namespace.check(caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
    let path = trail.path();
    if state.namespace.storage_policy(slot).number == LAZY_PERSIST {
        return Err(Error::TruncateLazyPersist { path });
    }
    let file = state.namespace.inode(slot).as_file().expect("checked to be a file");
    if file
        .writer()
        .is_some_and(|writer| writer.truncation.is_some_and(|truncation| truncation.length == request.new_length))
    {
        return Ok(false);
    }
    let takeover = Takeover { operation: "TRUNCATE_FILE", path: &path, client: &request.client_name };
    state.take_over(namenode, caller, slot, &takeover, now)?;
    let inode = state.namespace.inode(slot);
    let file = inode.as_file().expect("checked to be a file");
    let (current, asked) = (file.length(), request.new_length);
    if asked == current {
        return Ok(true);
    }
    if asked > current {
        return Err(Error::TruncateLarger { current, asked });
    }
    // Number of blocks to keep, and the end of the last of them.
    let (mut keep, mut end) = (0, 0);
    let length_of = |place| file.blocks().get(place).expect("the file's length is the sum of its blocks'").length;
    while end < asked {
        end += length_of(keep);
        keep += 1;
    }
    let mut copied_from = None;
    if end > asked {
        let cut = file.blocks().get(keep - 1).expect("just seen");
        let block_size = inode.block_size();
        if state.blocks.state(cut.id) != Some(BlockState::Complete) || !state.blocks.is_minimally_replicated(cut.id) {
            return Err(Error::AppendUnderReplicated { block: cut.block(), path });
        }
        // An open block counts as a whole one; the bytes counted so far are freed, unless a snapshot keeps them.
        let freed = state.namespace.bytes_not_in_snapshots(slot, keep - 1);
        state.namespace.check_space_quota(slot, block_size.saturating_sub(freed))?;
        let length = cut.length - (end - asked);
        let stamp = state.namespace.next_stamp();
        if state.namespace.is_block_in_snapshot(slot, cut.id) {
            let copy = Block { id: state.namespace.next_block_id(), stamp, length };
            state.blocks.start_copying(cut.id, copy, now).map_err(|error| namenode.refused(error))?;
            // Snapshots keep the file's present state.
            state.namespace.inode_mut(slot);
            drop_behind(state, slot, keep - 1);
            let record = BlockRecord::new(Block { length: cut.length, ..copy }, RecordState::Complete);
            state.namespace.push_block(slot, record);
            copied_from = Some(cut.id);
        } else {
            state.blocks.start_truncation(cut.id, stamp, length, now).map_err(|error| namenode.refused(error))?;
        }
    }
    state.namespace.inode_mut(slot);
    drop_behind(state, slot, keep);
    let inode = state.namespace.inode_mut(slot);
    inode.set_modification_time_ms(now.wall_ms);
    if end == asked {
        return Ok(true);
    }
    let id = inode.id();
    let file = inode.as_file_mut().expect("checked to be a file");
    file.open(Writer {
        client: request.client_name.clone(),
        machine: caller.machine.to_string(),
        truncation: Some(Truncation {
            length: asked,
            told: if copied_from.is_some() { asked } else { end },
            copied_from,
        }),
    });
    file.change_last(|last| {
        last.state = RecordState::UnderConstruction;
        last.length -= end - asked;
    });
    state.leases.add(&request.client_name, id, now.monotonic);
    // The client need not do anything further, and need not ask for a recovery if the primary dies.
    state.closing.insert(id);
    Ok(false)
}

fn drop_behind(state: &mut State, slot: Slot, keep: usize) {
    while state.namespace.inode(slot).as_file().is_some_and(|file| file.blocks().len() > keep) {
        if let Some(block) = state.namespace.pop_block(slot)
            && !state.namespace.keeps_block(slot, block)
        {
            state.blocks.remove(block.id);
        }
    }
}
