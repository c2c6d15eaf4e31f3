use hearth_types::{Block, BlockId};

use crate::blocks::{MissingBytes, Now, StorageIndex};
use crate::datanode_service::Synchronization;
use crate::error::Error;
use crate::namespace::{InodeId, RecordState};
use crate::state::{Namenode, State};

/// Applies a datanode's report that the replicas of an open file's last block have been brought to one length, and
/// closes the file.
///
/// A repetition for a file that is closed already does nothing: its answer was lost.
pub async fn synchronize_block(namenode: &Namenode, result: Synchronization) -> Result<(), Error> {
    if result.block.pool != namenode.identity.pool {
        return Err(Error::WrongPool {
            given: result.block.pool.as_str().into(),
            expected: namenode.identity.pool.clone(),
        });
    }
    namenode
        .change(|state, now| {
            namenode.check_safe_mode(state, now, || {
                format!("commitBlockSynchronization while in safe mode: {}", result.block)
            })?;
            attempt(state, namenode, &result, now)
        })
        .await
}

fn attempt(state: &mut State, namenode: &Namenode, result: &Synchronization, now: Now) -> Result<(), Error> {
    let block = result.block.block;
    let file = state.blocks.inode_of(block.id).map(InodeId);
    // A report about a copy gives the id of the source block.
    let is_meant =
        |state: &State, other: BlockId| other == block.id || state.blocks.copied_from(other) == Some(block.id);
    if let Some((file, kept)) = file.and_then(|file| Some((file, state.namespace.unfinished_snapshot_block(file)?)))
        && is_meant(state, kept)
    {
        // Some bytes of the block are known, otherwise no snapshot would contain it.
        let (whole, _) = settle(state, namenode, kept, result, now)?.ok_or(Error::MayHaveBytes { block })?;
        if let Some(source) = state.namespace.finish_snapshot_block(file, whole) {
            state.blocks.remove(source);
        }
        return Ok(());
    }
    let slot = file.and_then(|file| state.namespace.slot(file));
    let Some(slot) = slot else {
        // An earlier delivery of this report, with a deletion, removed the block.
        if result.delete_block {
            return Ok(());
        }
        return Err(Error::SynchronizedBlockMissing { block });
    };
    let file = state.namespace.inode(slot).as_file().ok_or(Error::SynchronizedBlockMissing { block })?;
    let last = file.blocks().last();
    if !file.is_open() {
        // An earlier delivery of this report closed the file.
        return match last {
            Some(last) if last.stamp() == result.new_stamp => Ok(()),
            _ => Err(Error::SynchronizedFileClosed { block, path: state.namespace.path_of(slot) }),
        };
    }
    let Some(last) = last.map(|last| last.id).filter(|last| is_meant(state, *last)) else {
        return Err(Error::SynchronizedBlockMissing { block });
    };
    match settle(state, namenode, last, result, now)? {
        None => state.drop_last(slot),
        Some((block, state_now)) => state.namespace.written_mut(slot).change_last(|record| {
            record.set_stamp(block.stamp);
            record.length = block.length;
            record.state = state_now;
        }),
    }
    if let Some(source) = state.namespace.release_copied(slot) {
        state.blocks.remove(source);
    }
    if result.close_file && state.first_incomplete(slot, 0).is_none() {
        state.close_file(slot, now);
    } else if result.close_file {
        // Too few holders are known yet. The lease monitor closes the file when they have reported.
        tracing::info!(path = state.namespace.path_of(slot), %block, "a recovered block waits for reports of its replicas");
        state.closing.insert(state.namespace.inode(slot).id());
    }
    Ok(())
}

/// Ends the recovery of an open block in the map. Returns the final block and its record state; `None`: no byte of it
/// was ever written, and it must be removed.
fn settle(
    state: &mut State,
    namenode: &Namenode,
    block: BlockId,
    result: &Synchronization,
    now: Now,
) -> Result<Option<(Block, RecordState)>, Error> {
    let refused = |error| namenode.refused(error);
    let (stamp, length) = (result.new_stamp, result.new_length);
    state.blocks.check_recovery(block, stamp).map_err(refused)?;
    if !result.delete_block {
        let holders: Vec<StorageIndex> =
            result.holders.iter().filter_map(|(node, storage)| state.blocks.find_storage(node, storage)).collect();
        match state.blocks.classify_missing_tail(block, length, &holders, now) {
            MissingBytes::Empty => {}
            MissingBytes::Unknown => return Err(Error::MayHaveMore { block: result.block.block, length }),
            MissingBytes::Lost { length: told } => {
                let path = path_of(state, block);
                tracing::error!(path, %block, length, told, "block has lost bytes: the recovered length is less than the writer reported");
            }
        }
        state.blocks.finish_recovery(block, stamp, length, &holders, now).map_err(refused)?;
        return Ok(Some((Block { id: block, stamp, length }, RecordState::Committed)));
    }
    match state.blocks.classify_missing_bytes(block, now) {
        MissingBytes::Empty => Ok(None),
        MissingBytes::Unknown => Err(Error::MayHaveBytes { block: result.block.block }),
        MissingBytes::Lost { length } => {
            let path = path_of(state, block);
            tracing::error!(path, %block, length, "block lost: none of its datanodes has it any more");
            state.blocks.give_up(block, length, now);
            Ok(state.blocks.block(block).map(|block| (block, RecordState::Complete)))
        }
    }
}

/// The path of a block's file, for the log.
fn path_of(state: &State, block: BlockId) -> String {
    let slot = state.blocks.inode_of(block).and_then(|file| state.namespace.slot(InodeId(file)));
    slot.map_or_else(|| "(in snapshots)".to_owned(), |slot| state.namespace.path_of(slot))
}
