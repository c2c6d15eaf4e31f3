//! Renewal, takeover and release of leases.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use hearth_types::{Access, BlockId};
use hearth_wire::proto::hdfs::{
    ListOpenFilesRequestProto, ListOpenFilesResponseProto, OpenFilesBatchResponseProto, RecoverLeaseRequestProto,
    RecoverLeaseResponseProto, RenewLeaseRequestProto, RenewLeaseResponseProto,
};

use super::audited::Audited;
use crate::blocks::{BlockError, BlockState, Now};
use crate::error::Error;
use crate::leases::Leases;
use crate::namespace::{Caller, InodeId, Need, Purpose, RecordState, Slot, Writer};
use crate::state::{CallContext, Namenode, State, encode};

/// A client's request for a file that another client has open.
pub struct Takeover<'a> {
    /// Apache's name of the operation: `CREATE_FILE`, `APPEND_FILE`, `TRUNCATE_FILE`.
    pub operation: &'static str,
    pub path: &'a str,
    pub client: &'a str,
}

impl Takeover<'_> {
    fn refused(&self, caller: &Caller, reason: String) -> Error {
        Error::BeingCreated {
            operation: self.operation,
            path: self.path.into(),
            client: self.client.into(),
            machine: caller.machine.to_string(),
            reason,
        }
    }
}

/// The lease holder while the NameNode itself recovers a file.
pub const RECOVERING_HOLDER: &str = "HDFS_NameNode";

impl State {
    /// Takes a file over for another client. If the file is open, its writer must have been silent for the soft limit;
    /// then the file is closed, at once if possible. Returns successfully only if the file is closed.
    pub fn take_over(
        &mut self,
        namenode: &Namenode,
        caller: &Caller,
        slot: Slot,
        takeover: &Takeover<'_>,
        now: Now,
    ) -> Result<(), Error> {
        let file = self.namespace.inode(slot).as_file().expect("the caller has checked that it is a file");
        let Some(writer) = file.writer() else { return Ok(()) };
        if takeover.operation == "TRUNCATE_FILE" && writer.truncation.is_some() {
            return Err(takeover.refused(caller, format!("{} is being truncated.", takeover.path)));
        }
        if writer.client == takeover.client {
            let reason = format!("{} is already the current lease holder.", takeover.client);
            return Err(takeover.refused(caller, reason));
        }
        if self.leases.soft_limit_passed(&writer.client, now.monotonic) {
            if self.release(namenode, slot, None, now)? {
                return Ok(());
            }
            return Err(Error::RecoveryInProgress {
                operation: takeover.operation,
                path: takeover.path.into(),
                client: takeover.client.into(),
                machine: caller.machine.to_string(),
            });
        }
        let last = file.blocks().last().and_then(|last| self.blocks.state(last.id));
        if last == Some(BlockState::UnderRecovery) {
            return Err(Error::OtherRecoveryInProgress {
                operation: takeover.operation,
                path: takeover.path.into(),
                client: takeover.client.into(),
                machine: caller.machine.to_string(),
                holder: format!("{} on {}", writer.client, writer.machine),
            });
        }
        let reason = format!("this file lease is currently owned by {} on {}", writer.client, writer.machine);
        Err(takeover.refused(caller, reason))
    }

    /// Ends a writer's lease on an open file. True: the file is closed now. False: its last block is being recovered,
    /// or waits for replicas; the file is closed later.
    ///
    /// `holder`: lease holder until then; `None` leaves the lease with the old holder.
    pub fn release(&mut self, namenode: &Namenode, slot: Slot, holder: Option<&str>, now: Now) -> Result<bool, Error> {
        let file = self.namespace.inode(slot).as_file().expect("the caller has checked that it is a file");
        let Some(last) = file.blocks().last() else {
            self.close_file(slot, now);
            return Ok(true);
        };
        self.give_up_committed(slot, now);
        let earlier = self.first_incomplete(slot, 1);
        match self.blocks.state(last.id) {
            Some(BlockState::Complete) if earlier.is_none() => {
                self.sync_last(slot);
                self.close_file(slot, now);
                Ok(true)
            }
            // Committed blocks complete by themselves when a replica is reported; the close is retried.
            Some(BlockState::Complete | BlockState::Committed) => Ok(false),
            None => {
                // The block map does not know the block: nothing can be recovered, and nothing was written.
                self.drop_last(slot);
                self.close_file(slot, now);
                Ok(true)
            }
            Some(BlockState::UnderConstruction | BlockState::UnderRecovery) => {
                if self.blocks.has_no_holder(last.id, now) {
                    if last.length == 0 && self.blocks.is_lost_and_empty(last.id, now) {
                        // The writer reported no bytes before it went away.
                        self.drop_last(slot);
                    } else {
                        self.give_up_last(slot, now);
                    }
                    if earlier.is_none() {
                        self.close_file(slot, now);
                        return Ok(true);
                    }
                    return Ok(false);
                }
                self.recover_if_due(last.id, now).map_err(|error| namenode.refused(error))?;
                self.reassign(slot, holder, now);
                // The writer cannot continue, and the new lease holder may keep renewing its lease for other files. So
                // the file is tracked in `closing` until it is closed. (After a restart the holder's lease or a new
                // request takes care of it.)
                self.closing.insert(self.namespace.inode(slot).id());
                Ok(false)
            }
        }
    }

    /// Returns true if the last block is being recovered, and no other attempt is due.
    pub fn is_recovery_running(&self, slot: Slot, now: Now) -> bool {
        let last = self.namespace.inode(slot).as_file().and_then(|file| file.blocks().last());
        last.is_some_and(|last| {
            self.blocks.state(last.id) == Some(BlockState::UnderRecovery)
                && !self.blocks.may_recover(last.id, now)
                && !self.blocks.has_no_holder(last.id, now)
        })
    }

    /// Moves the lease to `holder`, if one is given; it then counts as renewed.
    fn reassign(&mut self, slot: Slot, holder: Option<&str>, now: Now) {
        let id = self.namespace.inode(slot).id();
        let file = self.namespace.inode(slot).as_file().expect("the caller has checked that it is a file");
        let Some(writer) = file.writer() else { return };
        match holder {
            Some(holder) if holder != writer.client => {
                let new = Writer { client: holder.into(), ..writer.clone() };
                self.leases.remove(&writer.client, id);
                self.leases.add(holder, id, now.monotonic);
                self.namespace.change_writer(slot, new);
            }
            _ => self.leases.renew(&writer.client, now.monotonic),
        }
    }

    /// Removes the last block from a file and from the map.
    pub fn drop_last(&mut self, slot: Slot) {
        let Some(block) = self.namespace.pop_block(slot) else { return };
        if !self.namespace.keeps_block(slot, block) {
            self.blocks.abandon(block.id);
            // The copy that the block was to become is not made any more.
            if let Some(source) = self.namespace.release_copied(slot) {
                self.blocks.remove(source);
            }
        } else if block.state == RecordState::UnderConstruction {
            self.unfinished.insert(self.namespace.inode(slot).id());
        }
    }

    /// Gives up the last block of an open file, which no datanode has any more. The block stays in the file, complete
    /// and missing, with the length that its writer reported.
    fn give_up_last(&mut self, slot: Slot, now: Now) {
        let file = self.namespace.inode(slot).as_file().expect("the caller has checked that it is a file");
        let Some(last) = file.blocks().last() else { return };
        let path = self.namespace.path_of(slot);
        let Some(block) = self.give_up_block(last.id, last.length, now) else { return };
        tracing::error!(path, %block, "block lost: no datanode has it any more");
        self.namespace.file_mut(slot).change_last(|record| {
            record.set_stamp(block.stamp);
            record.length = block.length;
            record.state = RecordState::Complete;
        });
    }

    /// Gives up committed blocks of an open file that every datanode lost before it reported them: no replica will
    /// come.
    fn give_up_committed(&mut self, slot: Slot, now: Now) {
        let file = self.namespace.inode(slot).as_file().expect("the caller has checked that it is a file");
        // Only the last two blocks can be incomplete.
        let lost: Vec<BlockId> = file.blocks().iter().rev().take(2).map(|block| block.id).collect();
        for block in lost.into_iter().filter(|block| self.blocks.is_committed_and_lost(*block, now)).collect::<Vec<_>>()
        {
            if let Some(given_up) = self.give_up_block(block, 0, now) {
                let path = self.namespace.path_of(slot);
                tracing::error!(path, block = %given_up, "block lost: no datanode has it any more");
            }
        }
    }

    fn give_up_block(&mut self, block: BlockId, length: u64, now: Now) -> Option<hearth_types::Block> {
        let told = self.blocks.block(block).map_or(0, |known| known.length);
        self.blocks.give_up(block, length.max(told), now);
        self.blocks.block(block)
    }

    /// Continues the recovery of an unfinished block that only snapshots keep; the file lost it while it was being
    /// written. Returns true if no such block exists (any more).
    pub fn recover_kept(&mut self, id: InodeId, now: Now) -> bool {
        let Some(block) = self.namespace.unfinished_snapshot_block(id) else { return true };
        if self.blocks.has_no_holder(block, now)
            && let Some(given_up) = self.give_up_block(block, 0, now)
        {
            tracing::error!(block = %given_up, "block of a snapshot lost: no datanode has it any more");
            if let Some(source) = self.namespace.finish_snapshot_block(id, given_up) {
                self.blocks.remove(source);
            }
            return false;
        }
        if let Err(error) = self.recover_if_due(block, now) {
            tracing::warn!(%block, %error, "cannot recover a block of a snapshot");
        }
        false
    }

    /// Begins an attempt to recover an open block, if one is due.
    fn recover_if_due(&mut self, block: BlockId, now: Now) -> Result<(), BlockError> {
        if self.blocks.may_recover(block, now) {
            let stamp = self.namespace.next_stamp();
            self.blocks.start_recovery(block, stamp, now)?;
        }
        Ok(())
    }

    /// Copies stamp and length of a block from the map, which is ahead of the namespace if datanodes finished the
    /// block.
    pub fn sync_last(&mut self, slot: Slot) {
        let file = self.namespace.inode(slot).as_file().expect("the caller has checked that it is a file");
        let Some(last) = file.blocks().last() else { return };
        if let Some(block) = self.blocks.block(last.id).filter(|block| *block != last.block()) {
            self.namespace.written_mut(slot).change_last(|record| {
                record.set_stamp(block.stamp);
                record.length = block.length;
            });
        }
    }

    /// Closes files whose writers have been silent for the hard limit. Part of the NameNode's periodic work. A file
    /// that cannot be closed yet moves to the NameNode's own lease and to `closing`, so that the next call examines
    /// further files.
    pub fn release_expired(&mut self, namenode: &Namenode, now: Now, limit: usize) {
        // Each holder, and whether one of its files has left its lease.
        let mut holders: BTreeMap<String, bool> = BTreeMap::new();
        for (holder, id) in self.leases.expired(now.monotonic, limit) {
            let has_left = match self.namespace.slot(id) {
                None => {
                    self.leases.remove(&holder, id);
                    true
                }
                Some(slot) => self.release_or_move(namenode, slot, &holder, now),
            };
            *holders.entry(holder).or_default() |= has_left;
        }
        for (holder, has_progress) in holders {
            // Without progress, its files are checked again after a while, not with every tick.
            if !has_progress && self.leases.has(&holder) {
                self.leases.renew_soft(&holder, now.monotonic);
            }
        }
    }

    /// Releases a file of a silent writer. Returns true if the file has left the lease of `holder`.
    fn release_or_move(&mut self, namenode: &Namenode, slot: Slot, holder: &str, now: Now) -> bool {
        let (id, path) = (self.namespace.inode(slot).id(), self.namespace.path_of(slot));
        match self.release(namenode, slot, Some(RECOVERING_HOLDER), now) {
            Ok(closed) => {
                tracing::info!(path, holder, closed, "released the lease of a silent writer");
                if !closed {
                    self.reassign(slot, Some(RECOVERING_HOLDER), now);
                    self.closing.insert(id);
                }
                closed || holder != RECOVERING_HOLDER
            }
            Err(error) => {
                tracing::warn!(path, holder, %error, "cannot release the lease of a silent writer");
                false
            }
        }
    }
}

pub async fn recover_lease(
    namenode: &Namenode,
    context: &CallContext,
    request: RecoverLeaseRequestProto,
) -> Result<Bytes, Error> {
    let result = namenode
        .change(|state, now| {
            namenode.check_safe_mode(state, now, || format!("recover the lease of {}", request.src))?;
            let (trail, slot) = state.namespace.resolve_file(&context.caller, &request.src, Purpose::Write)?;
            if !state.namespace.inode(slot).as_file().is_some_and(|file| file.is_open()) {
                return Ok(true);
            }
            state.namespace.check(&context.caller, &trail, Need { target: Some(Access::WRITE), ..Need::default() })?;
            state.release(namenode, slot, Some(&request.client_name), now)
        })
        .await?;
    Ok(encode(&RecoverLeaseResponseProto { result }))
}

/// Renews the lease for all files that a client has open. Needs only read access to the namespace, but changes the
/// lease.
pub async fn renew_lease(
    namenode: &Namenode,
    _: &CallContext,
    request: RenewLeaseRequestProto,
) -> Result<Bytes, Error> {
    if !request.namespaces.is_empty() {
        return Err(Error::Namespaces { namespaces: request.namespaces.join(", ") });
    }
    let mut state = namenode.state.write();
    let now = namenode.now();
    namenode.check_safe_mode(&state, now, || format!("renew lease for {}", request.client_name))?;
    state.leases.renew(&request.client_name, now.monotonic);
    Ok(encode(&RenewLeaseResponseProto {}))
}

/// Pages through the open files of all leases, in the order of their ids: there may be millions.
struct OpenFiles<'a> {
    leases: &'a Leases,
    after: InodeId,
    read: std::vec::IntoIter<(InodeId, Arc<str>)>,
}

impl Iterator for OpenFiles<'_> {
    type Item = (InodeId, Arc<str>);

    fn next(&mut self) -> Option<Self::Item> {
        const AT_ONCE: usize = 1000;
        if self.read.len() == 0 {
            self.read = self.leases.open_files_after(self.after, AT_ONCE).into_iter();
        }
        let file = self.read.next()?;
        self.after = file.0;
        Some(file)
    }
}

pub async fn list_open_files(
    namenode: &Namenode,
    context: &CallContext,
    request: ListOpenFilesRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    state.namespace.require_superuser(&context.caller, "listOpenFiles")?;
    let after = InodeId(u64::try_from(request.id).unwrap_or(0));
    let prefix = request.path().trim_end_matches('/').to_owned();
    let below = |path: &str| prefix.is_empty() || path == prefix || crate::namespace::is_below(path, &prefix);
    let mut answer = ListOpenFilesResponseProto { types: request.types.clone(), ..Default::default() };
    let open_files = OpenFiles { leases: &state.leases, after, read: Vec::new().into_iter() };
    for (id, holder) in open_files {
        let Some(slot) = state.namespace.slot(id) else { continue };
        let path = state.namespace.path_of(slot);
        if !below(&path) {
            continue;
        }
        if answer.entries.len() == namenode.settings.open_files_max {
            answer.has_more = true;
            break;
        }
        let writer = state.namespace.inode(slot).as_file().and_then(|file| file.writer());
        let machine = writer.map(|writer| writer.machine.clone()).unwrap_or_default();
        answer.entries.push(OpenFilesBatchResponseProto {
            id: id.0 as i64,
            path,
            client_name: holder.to_string(),
            client_machine: machine,
        });
    }
    Ok(encode(&answer))
}

pub fn audit(request: &ListOpenFilesRequestProto) -> Audited {
    Audited { source_refused: request.path.clone(), ..Audited::new("listOpenFiles") }
}
