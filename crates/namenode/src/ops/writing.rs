//! Common steps of a writer's operations: the check of its lease, and the commit of its last block.

use hearth_types::{Block, ExtendedBlock};
use hearth_wire::proto::hdfs::ExtendedBlockProto;

use crate::blocks::{BlockError, BlockState, Now};
use crate::error::Error;
use crate::namespace::{BlockRecord, Caller, InodeId, Purpose, RecordState, Slot};
use crate::state::{Namenode, State};

impl Namenode {
    /// Returns the block of a request, which must belong to this namespace's block pool.
    pub fn own_block(&self, block: ExtendedBlockProto) -> Result<Block, Error> {
        if block.pool_id != self.identity.pool.as_str() {
            return Err(Error::WrongPool { given: block.pool_id, expected: self.identity.pool.clone() });
        }
        let block = ExtendedBlock::try_from(block).map_err(|error| Error::Malformed(error.to_string()))?;
        Ok(block.block)
    }

    pub fn extended(&self, block: Block) -> ExtendedBlock {
        ExtendedBlock { pool: self.identity.pool.clone(), block }
    }

    /// Converts an error of the block map, which gives a block without its pool.
    pub fn refused(&self, error: BlockError) -> Error {
        let message = match &error {
            BlockError::UnknownBlock { .. }
            | BlockError::NotUnderConstruction { .. }
            | BlockError::NotComplete { .. } => {
                error.to_string().replacen("blk_", &format!("{}:blk_", self.identity.pool), 1)
            }
            _ => error.to_string(),
        };
        Error::Blocks { class: hearth_wire::rpc::exceptions::IO, message }
    }
}

impl State {
    /// Returns the open file that `client` writes: by inode id if the request has one, else by path.
    ///
    /// Errors: `WrittenFileMissing`, `WrittenNotAFile`, `NotOpen`, `NotLeaseOwner`.
    pub fn check_lease(&self, caller: &Caller, path: &str, inode: u64, client: &str) -> Result<Slot, Error> {
        let slot = if inode != 0 {
            self.namespace.slot(InodeId(inode))
        } else {
            self.namespace.resolve(caller, path, Purpose::Write)?.target()
        };
        let lease = || self.leases.describe(client);
        let Some(slot) = slot else {
            return Err(Error::WrittenFileMissing { path: path.into(), inode, lease: lease() });
        };
        let found = self.namespace.inode(slot);
        let (path, inode) = (|| self.namespace.path_of(slot), found.id().0);
        let Some(file) = found.as_file() else {
            return Err(Error::WrittenNotAFile { path: path(), inode, lease: lease() });
        };
        match file.writer() {
            None => Err(Error::NotOpen { path: path(), inode, lease: lease() }),
            Some(writer) if writer.client != client => Err(Error::NotLeaseOwner {
                client: client.into(),
                owner: writer.client.clone(),
                path: path(),
                inode,
                lease: lease(),
            }),
            Some(_) => Ok(slot),
        }
    }

    /// Makes the last block's length final as the writer reports it, if that has not happened yet.
    ///
    /// `last`: the last block from the writer's view; without it nothing is committed.
    pub fn commit_last(&mut self, namenode: &Namenode, slot: Slot, last: Option<Block>, now: Now) -> Result<(), Error> {
        let inode = self.namespace.inode(slot);
        let file = inode.as_file().expect("the caller has checked that it is a file");
        let (Some(last), Some(record)) = (last, file.blocks().last()) else { return Ok(()) };
        match self.blocks.state(record.id) {
            Some(BlockState::Complete) => return Ok(()),
            Some(BlockState::UnderRecovery) => {
                return Err(Error::Blocks {
                    class: hearth_wire::rpc::exceptions::IO,
                    message: format!("Commit or complete block {last}, whereas it is under recovery."),
                });
            }
            _ => {}
        }
        if last.id != record.id {
            return Err(Error::CommitOtherBlock { given: last, expected: record.block() });
        }
        if last.length > inode.block_size().max(record.length) {
            return Err(Error::CommitTooLong {
                given: last.length,
                limit: inode.block_size(),
                path: self.namespace.path_of(slot),
            });
        }
        let state = self.blocks.commit(last, now).map_err(|error| namenode.refused(error))?;
        self.namespace.written_mut(slot).change_last(|record| {
            record.length = last.length;
            record.set_stamp(last.stamp);
            record.state = if state == BlockState::Complete { RecordState::Complete } else { RecordState::Committed };
        });
        Ok(())
    }

    /// The first block of a file, before the last `open` ones, that too few datanodes have reported.
    pub fn first_incomplete(&self, slot: Slot, open: usize) -> Option<BlockRecord> {
        let file = self.namespace.inode(slot).as_file().expect("the caller has checked that it is a file");
        // Only the last two blocks can be incomplete, so a search from the end is enough.
        let mut settled = file.blocks().iter().rev().skip(open).take(2);
        settled.find(|block| self.blocks.state(block.id) != Some(BlockState::Complete))
    }

    /// Closes a file whose blocks are all complete: its lengths are those committed, and its lease is removed.
    pub fn close_file(&mut self, slot: Slot, now: Now) {
        let id = self.namespace.inode(slot).id();
        let inode = self.namespace.writing_mut(slot);
        inode.set_modification_time_ms(now.wall_ms);
        let file = inode.as_file_mut().expect("the caller has checked that it is a file");
        file.complete_blocks();
        if let Some(writer) = file.close() {
            self.leases.remove(&writer.client, id);
        }
        // The next client that opens the file must not be taken for the writer that went away.
        self.closing.remove(&id);
    }

    /// Removes deleted blocks and files from the block map and the leases.
    pub fn forget(&mut self, removed: crate::namespace::Removed) {
        for block in removed.blocks {
            self.blocks.remove(block);
        }
        for (file, holder) in removed.open_files {
            self.leases.remove(&holder, file);
        }
        self.unfinished.extend(removed.unfinished);
    }
}
