use std::time::Duration;

use bytes::Bytes;
use hearth_protocol::block_token::AccessMode;
use hearth_types::{Block, DatanodeId, LocatedBlock};
use hearth_wire::proto::hdfs::{AddBlockFlagProto, AddBlockRequestProto, AddBlockResponseProto};

use crate::blocks::{BlockError, BlockState, Now, PlacementRequest, ReplicaWait};
use crate::error::Error;
use crate::namespace::{BlockRecord, RecordState, Slot};
use crate::state::{CallContext, Namenode, State, encode};

/// Longest time that a call waits for the block before the last one to be reported. Without the wait the writer would
/// sleep for 400 ms or more.
const REPORT_WAIT: Duration = Duration::from_millis(1000);

/// Time-out of a name lookup; a name without an answer counts as unknown.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of lookups per call; further names stay as they are.
const LOOKUPS_MAX: usize = 16;

/// Result of an attempt.
enum Step {
    Allocated(Box<LocatedBlock>),
    /// An earlier block is not complete: wait for this and try again.
    Wait(Option<ReplicaWait>),
}

/// Commits the last block of an open file and adds another one, with the datanodes that shall receive it.
pub async fn add_block(
    namenode: &Namenode,
    context: &CallContext,
    request: AddBlockRequestProto,
) -> Result<Bytes, Error> {
    let previous = request.previous.clone().map(|block| namenode.own_block(block)).transpose()?;
    let excluded: Vec<DatanodeId> =
        request.exclude_nodes.iter().filter_map(|node| DatanodeId::try_from(node.id.clone()).ok()).collect();
    let favored = by_address(namenode, &request.favored_nodes).await;
    let request = AddBlockRequestProto { favored_nodes: favored, ..request };
    let deadline = tokio::time::Instant::now() + REPORT_WAIT;
    loop {
        let step =
            namenode.change(|state, now| attempt(state, namenode, context, &request, previous, &excluded, now)).await?;
        match step {
            Step::Allocated(located) => {
                let located = namenode.signed(*located, AccessMode::Write, &context.caller, namenode.now());
                return Ok(encode(&AddBlockResponseProto { block: (&located).into() }));
            }
            Step::Wait(wait) => {
                let waited = match wait {
                    Some(wait) => matches!(tokio::time::timeout_at(deadline, wait).await, Ok(Ok(()))),
                    None => tokio::time::Instant::now() < deadline,
                };
                if !waited {
                    return Err(Error::NotReplicatedYet { path: request.src });
                }
            }
        }
    }
}

fn attempt(
    state: &mut State,
    namenode: &Namenode,
    context: &CallContext,
    request: &AddBlockRequestProto,
    previous: Option<Block>,
    excluded: &[DatanodeId],
    now: Now,
) -> Result<Step, Error> {
    namenode.check_safe_mode(state, now, || format!("add block to {}", request.src))?;
    let slot = state.check_lease(&context.caller, &request.src, request.file_id(), &request.client_name)?;
    let orphan = match retried(state, namenode, slot, previous)? {
        Repetition::Answered(again) => return Ok(Step::Allocated(again)),
        Repetition::Orphan => true,
        Repetition::No => false,
    };
    state.namespace.check_object_limit()?;
    // The last block may wait for its replicas, but the one before it must have them.
    if let Some(block) = state.first_incomplete(slot, 1) {
        return Ok(Step::Wait(state.blocks.wait_for_replicas(block.id)));
    }
    allocate(state, namenode, slot, request, previous, orphan, excluded, now)
        .map(|located| Step::Allocated(Box::new(located)))
}

/// Converts the names or addresses in a client's request to those of datanodes: a name that is no datanode's is
/// resolved, for example `localhost:9866`.
async fn by_address(namenode: &Namenode, favored: &[String]) -> Vec<String> {
    let mut lookups = 0;
    let mut found = Vec::with_capacity(favored.len());
    for name in favored {
        let is_known = namenode.read().blocks.is_called(name);
        let parts = name.rsplit_once(':').filter(|(host, _)| host.parse::<std::net::IpAddr>().is_err());
        let (Some((host, port)), false, true) = (parts, is_known, lookups < LOOKUPS_MAX) else {
            found.push(name.clone());
            continue;
        };
        lookups += 1;
        match tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, 0))).await {
            Ok(Ok(addresses)) => {
                found.extend(addresses.map(|address| format!("{}:{port}", address.ip().to_canonical())));
            }
            _ => tracing::warn!(name, "a favored datanode is unknown"),
        }
    }
    found
}

/// Result of the check for a repeated call whose answer was lost.
enum Repetition {
    No,
    /// The original answer.
    Answered(Box<LocatedBlock>),
    /// The block was allocated before a restart, and its targets are lost. It gets new targets.
    Orphan,
}

/// Checks `previous`. A repetition of a call whose answer was lost gets the same block again.
fn retried(state: &State, namenode: &Namenode, slot: Slot, previous: Option<Block>) -> Result<Repetition, Error> {
    let inode = state.namespace.inode(slot);
    let file = inode.as_file().expect("check_lease has checked that it is a file");
    let same = |given: Option<Block>, record: Option<BlockRecord>| match (given, record) {
        (None, None) => true,
        (Some(given), Some(record)) => given.id == record.id && given.stamp == record.stamp(),
        _ => false,
    };
    let last = file.blocks().last();
    if same(previous, last) {
        return Ok(Repetition::No);
    }
    let complete = |record: BlockRecord| state.blocks.state(record.id) == Some(BlockState::Complete);
    // An append that starts on a block boundary.
    if previous.is_none() && last.is_some_and(|last| last.length >= inode.block_size() && complete(last)) {
        return Ok(Repetition::No);
    }
    let penultimate = file.blocks().len().checked_sub(2).and_then(|place| file.blocks().get(place));
    if let Some(last) = last.filter(|_| same(previous, penultimate)) {
        if last.length == 0 && !complete(last) {
            let storages = state.blocks.expected_storages(last.id);
            let block = namenode.extended(last.block());
            let offset = file.length() - last.length;
            if storages.is_empty() {
                return Ok(Repetition::Orphan);
            }
            let again = state.blocks.located_for_writer(block, offset, &storages);
            return Ok(Repetition::Answered(Box::new(again)));
        }
        return Err(Error::Blocks {
            class: hearth_wire::rpc::exceptions::IO,
            message: format!(
                "Request looked like a retry to allocate block {} but it already contains {} bytes",
                last.block(),
                last.length
            ),
        });
    }
    Err(Error::PreviousMismatch {
        path: state.namespace.path_of(slot),
        previous: previous.map_or("null".into(), |previous| namenode.extended(previous).to_string()),
        last: last.map_or("null".into(), |last| last.block().to_string()),
    })
}

#[expect(clippy::too_many_arguments, reason = "one operation, split where its changes begin")]
fn allocate(
    state: &mut State,
    namenode: &Namenode,
    slot: Slot,
    request: &AddBlockRequestProto,
    previous: Option<Block>,
    orphan: bool,
    excluded: &[DatanodeId],
    now: Now,
) -> Result<LocatedBlock, Error> {
    let inode = state.namespace.inode(slot);
    let file = inode.as_file().expect("check_lease has checked that it is a file");
    let limit = state.namespace.limits.blocks_per_file_max;
    if file.blocks().len() >= limit && !orphan {
        return Err(Error::TooManyBlocks { count: file.blocks().len(), limit });
    }
    if !orphan {
        state.namespace.check_space_quota(slot, inode.block_size())?;
    }
    let has = |flag: AddBlockFlagProto| request.flags.contains(&(flag as i32));
    let policy = state.namespace.storage_policy(slot).number;
    let machine = file.writer().map(|writer| writer.machine.clone());
    let placement = PlacementRequest {
        additional: usize::from(inode.replication()),
        block_size: inode.block_size(),
        writer: machine.as_deref(),
        excluded,
        favored: &request.favored_nodes,
        policy,
        avoid_local_node: has(AddBlockFlagProto::NoLocalWrite),
        ignore_locality: has(AddBlockFlagProto::IgnoreClientLocality),
        ..PlacementRequest::default()
    };
    let (id, replication) = (inode.id(), inode.replication());
    let targets = state.blocks.allocate_targets(&placement, now).map_err(|error| match error {
        BlockError::NotEnoughTargets { found, minimum, running, excluded } => Error::NoTargets {
            path: state.namespace.path_of(slot),
            found,
            minimum: usize::from(minimum),
            running,
            excluded: if excluded == 0 { "no".into() } else { excluded.to_string() },
        },
        other => namenode.refused(other),
    })?;
    if orphan {
        let file = state.namespace.inode(slot).as_file().expect("check_lease has checked that it is a file");
        let last = file.blocks().last().expect("it was allocated").block();
        let offset = file.length() - last.length;
        state.blocks.expect_at(last.id, &targets);
        return Ok(state.blocks.located_for_writer(namenode.extended(last), offset, &targets));
    }
    state.commit_last(namenode, slot, previous, now)?;
    let block = Block { id: state.namespace.next_block_id(), stamp: state.namespace.next_stamp(), length: 0 };
    let offset = state.namespace.inode(slot).as_file().map_or(0, |file| file.length());
    state.blocks.begin(block, id.0, replication, policy, &targets);
    state.namespace.push_block(slot, BlockRecord::new(block, RecordState::UnderConstruction));
    Ok(state.blocks.located_for_writer(namenode.extended(block), offset, &targets))
}
