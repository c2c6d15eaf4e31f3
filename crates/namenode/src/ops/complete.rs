use std::time::Duration;

use bytes::Bytes;
use hearth_types::{Block, BlockId};
use hearth_wire::proto::hdfs::{CompleteRequestProto, CompleteResponseProto};

use crate::blocks::{Now, ReplicaWait};
use crate::error::Error;
use crate::namespace::{InodeId, Purpose};
use crate::state::{CallContext, Namenode, State, encode};

/// Longest time that the answer is held until a datanode has reported the last block. Apache's clients sleep for 400 ms
/// after a "not yet", and the report mostly comes within a millisecond.
const REPORT_WAIT: Duration = Duration::from_millis(1000);

enum Step {
    Closed,
    /// Too few replicas are reported: wait for this and check again.
    Wait(Option<ReplicaWait>),
}

/// Commits the last block and closes the file. Answers false if its replicas are not reported yet: the client must ask
/// again.
pub async fn complete(
    namenode: &Namenode,
    context: &CallContext,
    request: CompleteRequestProto,
) -> Result<Bytes, Error> {
    let last = request.last.clone().map(|block| namenode.own_block(block)).transpose()?;
    let deadline = tokio::time::Instant::now() + REPORT_WAIT;
    loop {
        let step = namenode.change(|state, now| attempt(state, namenode, context, &request, last, now)).await?;
        let again = match step {
            Step::Closed => return Ok(encode(&CompleteResponseProto { result: true })),
            Step::Wait(Some(wait)) => matches!(tokio::time::timeout_at(deadline, wait).await, Ok(Ok(()))),
            // The block became complete while the commit was written.
            Step::Wait(None) => tokio::time::Instant::now() < deadline,
        };
        if !again {
            return Ok(encode(&CompleteResponseProto { result: false }));
        }
    }
}

fn attempt(
    state: &mut State,
    namenode: &Namenode,
    context: &CallContext,
    request: &CompleteRequestProto,
    last: Option<Block>,
    now: Now,
) -> Result<Step, Error> {
    namenode.check_safe_mode(state, now, || format!("complete file {}", request.src))?;
    let slot = match state.check_lease(&context.caller, &request.src, request.file_id(), &request.client_name) {
        Ok(slot) => slot,
        Err(error @ Error::NotOpen { .. }) if !is_repeated(state, context, request, last)? => return Err(error),
        Err(Error::NotOpen { .. }) => return Ok(Step::Closed),
        Err(error) => return Err(error),
    };
    if let Some(block) = state.first_incomplete(slot, 1) {
        return Ok(wait(state, block.id));
    }
    state.commit_last(namenode, slot, last, now)?;
    match state.first_incomplete(slot, 0) {
        Some(block) => Ok(wait(state, block.id)),
        None => {
            state.close_file(slot, now);
            Ok(Step::Closed)
        }
    }
}

fn wait(state: &mut State, block: BlockId) -> Step {
    Step::Wait(state.blocks.wait_for_replicas(block))
}

/// Returns true if this writer has closed the file before: the file's last block is the one that the writer gives.
fn is_repeated(
    state: &State,
    context: &CallContext,
    request: &CompleteRequestProto,
    last: Option<Block>,
) -> Result<bool, Error> {
    let slot = match request.file_id() {
        0 => state.namespace.resolve(&context.caller, &request.src, Purpose::Write)?.target(),
        id => state.namespace.slot(InodeId(id)),
    };
    let Some(file) = slot.and_then(|slot| state.namespace.inode(slot).as_file()) else { return Ok(false) };
    Ok(match (last, file.blocks().last()) {
        (None, None) => true,
        (Some(given), Some(record)) => given.id == record.id && given.stamp == record.stamp(),
        _ => false,
    })
}
