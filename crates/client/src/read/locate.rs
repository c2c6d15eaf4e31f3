//! Cache of a file's blocks and the locations of their replicas. Prefetches locations, and fetches them again when they
//! are stale.

use std::sync::Arc;

use hearth_types::{LocatedBlock, LocatedBlocks};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::datanode::{Datanodes, VisibleLength};
use crate::error::Failure;
use crate::session::Session;
use crate::{DataPath, Error};

#[derive(Debug)]
pub(super) struct Locations {
    session: Arc<Session>,
    path: String,
    length: u64,
    /// The block that is being written, with its visible length when the file was opened.
    open_block: Option<LocatedBlock>,
    /// In order of offset, not overlapping, possibly with gaps. Always contains the open block.
    blocks: Mutex<Vec<Arc<LocatedBlock>>>,
}

impl Locations {
    /// Creates the cache from `located`, the response that opened a file without an open block.
    pub(super) fn of(session: Arc<Session>, path: String, located: LocatedBlocks) -> Self {
        let length = located.file_length;
        Self::new(session, path, length, None, located.blocks)
    }

    /// Creates the cache from `located`, the response that opened the file. Asks the datanodes of an open block for its
    /// visible length.
    pub(super) async fn open(session: Arc<Session>, path: String, mut located: LocatedBlocks) -> Result<Self, Error> {
        let mut length = located.file_length;
        let mut open_block = None;
        if located.has_open_block()
            && let Some(last) = located.last_block.take()
        {
            let (mut last, visible) = length_of_open_block(&session, &path, last).await?;
            // The last block may be another one by now.
            length = length.max(last.offset) + visible;
            last.block.block.length = visible;
            open_block = (visible > 0).then_some(last);
        }
        Ok(Self::new(session, path, length, open_block, located.blocks))
    }

    /// Creates the cache from `located`, which the caller got from the namenode. An open block has its visible length.
    pub(super) fn located(session: Arc<Session>, path: String, mut located: LocatedBlocks) -> Self {
        let last = if located.has_open_block() { located.last_block.take() } else { None };
        let open_block = last.filter(|last| last.block.length() > 0);
        let length = match &open_block {
            Some(last) => located.file_length.max(last.offset) + last.block.length(),
            None => located.file_length,
        };
        Self::new(session, path, length, open_block, located.blocks)
    }

    fn new(
        session: Arc<Session>,
        path: String,
        length: u64,
        open_block: Option<LocatedBlock>,
        blocks: Vec<LocatedBlock>,
    ) -> Self {
        // Includes the open block, even if it is far behind the requested range: the namenode sends it with every
        // response.
        let known = blocks.into_iter().chain(open_block.clone()).collect();
        let locations = Self { session, path, length, open_block, blocks: Mutex::new(Vec::new()) };
        locations.keep(known);
        locations
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if the block was being written when the file was opened.
    pub(super) fn is_being_written(&self, block: &LocatedBlock) -> bool {
        self.open_block.as_ref().is_some_and(|open| open.block.id() == block.block.id())
    }

    /// Returns the block with the byte at `position`, which must be within the file.
    pub(super) async fn block_at(&self, position: u64) -> Result<Arc<LocatedBlock>, Error> {
        if let Some(block) = self.known(position) {
            return Ok(block);
        }
        self.refresh(position).await
    }

    /// Like `block_at`, but always asks the namenode.
    ///
    /// Errors: `FileChanged`, also if another file has taken the path, because its bytes at `position` are not those of
    /// the opened file.
    pub(super) async fn refresh(&self, position: u64) -> Result<Arc<LocatedBlock>, Error> {
        let prefetch = self.session.options.read.prefetch_bytes;
        // If a known block is near, start from it: in the same response, it shows whether the other blocks belong to
        // the same file.
        let start = self.neighbour(position).filter(|start| position - start <= prefetch).unwrap_or(position);
        let length = (position - start).saturating_add(prefetch);
        let mut located = self.session.locate(&self.path, start, length).await?;
        self.add_open_block(&mut located);
        let changed = |why: &str| Failure::FileChanged { path: self.path.clone(), why: why.to_owned() }.into();
        let another = || changed("its blocks have changed");
        if !self.same_file(&located.blocks).ok_or_else(another)? {
            // All returned blocks are unknown, for example after a jump. A known block, requested after them, shows
            // whether they belong to the same file.
            let witness = self.blocks.lock().first().map(|block| block.offset);
            if let Some(offset) = witness {
                let located = self.session.locate(&self.path, offset, 1).await?;
                if self.same_file(&located.blocks) != Some(true) {
                    return Err(another());
                }
            }
        }
        self.keep(located.blocks);
        self.known(position).ok_or_else(|| changed("the namenode returns no block at this position"))
    }

    /// Adds the block that was open when the file was opened to the other blocks. The namenode usually knows its length
    /// only from the first flush, so it returns no block for a range behind that.
    ///
    /// Source: `DFSInputStream.getBlockAt`, which has such offsets in the last located block.
    fn add_open_block(&self, located: &mut LocatedBlocks) {
        if let Some(open) = &self.open_block
            && let Some(mut last) = located.last_block.take_if(|last| last.block.id() == open.block.id())
        {
            last.offset = open.offset;
            located.blocks.push(last);
        }
    }

    /// Returns the last offset, at most `position`, that is in a known block.
    fn neighbour(&self, position: u64) -> Option<u64> {
        let blocks = self.blocks.lock();
        let after = blocks.partition_point(|block| block.offset <= position);
        let known = &blocks[after.checked_sub(1)?];
        Some((known.offset + known.block.length().saturating_sub(1)).min(position))
    }

    /// Returns true if one of these blocks is known at its offset, and `None` if a different block is known there.
    ///
    /// Source: `DFSInputStream.fetchAndCheckLocatedBlocks`, "Blocklist for ... has changed!"
    fn same_file(&self, located: &[LocatedBlock]) -> Option<bool> {
        let blocks = self.blocks.lock();
        let mut met = false;
        for block in located {
            match blocks.binary_search_by_key(&block.offset, |known| known.offset) {
                Ok(at) if blocks[at].block.id() != block.block.id() => return None,
                Ok(_) => met = true,
                Err(_) => {}
            }
        }
        Some(met)
    }

    fn known(&self, position: u64) -> Option<Arc<LocatedBlock>> {
        let blocks = self.blocks.lock();
        let after = blocks.partition_point(|block| block.offset <= position);
        let block = blocks.get(after.checked_sub(1)?)?;
        (position < block.offset + block.block.length()).then(|| Arc::clone(block))
    }

    fn keep(&self, located: Vec<LocatedBlock>) {
        let mut blocks = self.blocks.lock();
        for mut block in located {
            block.locations.iter().for_each(|datanode| self.session.datanodes.offers.note(datanode));
            if let Some(open) = &self.open_block
                && open.block.id() == block.block.id()
            {
                // A longer length now would expose bytes beyond the length that this reader reported.
                block.block.block.length = open.block.length();
                if block.locations.is_empty() {
                    block.locations = open.locations.clone();
                }
            }
            let at = blocks.partition_point(|known| known.offset < block.offset);
            match blocks.get_mut(at) {
                Some(known) if known.offset == block.offset => *known = Arc::new(block),
                _ => blocks.insert(at, Arc::new(block)),
            }
        }
    }
}

impl Session {
    /// Locates the blocks of a file for a reader. Memory addresses of replicas that arrive with the answer are
    /// stored for one-sided reads.
    pub(crate) async fn locate(&self, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Error> {
        // The lease of a memory address counts from before the request.
        let asked = Instant::now();
        let mut located = self.namenode.block_locations(path, offset, length).await?;
        self.take_piggybacked(&mut located, asked);
        Ok(located)
    }

    /// Stores the memory addresses of replicas that arrived with `located`, for use by one-sided reads. `asked`: the
    /// time at which the request was sent, or earlier.
    pub(crate) fn take_piggybacked(&self, located: &mut LocatedBlocks, asked: Instant) {
        let wanted = self.options.read.paths.iter().any(|path| path == DataPath::OneSided);
        for block in located.blocks.iter_mut().filter(|block| !block.advertisements.is_empty()) {
            if wanted {
                self.one_sided.note(block, asked);
            }
            block.advertisements = Vec::new();
        }
    }
}

/// Asks the datanodes of a block that is being written for the length that readers may see.
///
/// Returns the block too: it is located again if the namenode had no datanodes for it at first.
async fn length_of_open_block(
    session: &Session,
    path: &str,
    mut last: LocatedBlock,
) -> Result<(LocatedBlock, u64), Error> {
    let mut attempt = 0;
    loop {
        let source = match ask_datanodes(&session.datanodes, &last).await {
            Ok(length) => return Ok((last, length)),
            Err(source) => source,
        };
        if attempt >= session.options.read.last_block_length_retries {
            let block = Box::new(last.block);
            return Err(Failure::BlockLength { block, path: path.to_owned(), source }.into());
        }
        attempt += 1;
        tokio::time::sleep(session.options.read.last_block_length_interval).await;
        let located = session.locate(path, last.offset, 1).await?;
        match located.last_block {
            // The block was closed in the meantime, so the namenode reports its length.
            Some(block) if located.last_block_complete => {
                let length = located.file_length.saturating_sub(block.offset);
                return Ok((block, length));
            }
            Some(block) => last = block,
            None => return Ok((last, 0)),
        }
    }
}

async fn ask_datanodes(datanodes: &Datanodes, last: &LocatedBlock) -> Result<u64, Option<Arc<crate::DatanodeError>>> {
    if last.locations.is_empty() {
        // With length 0, the block has no datanodes yet and therefore no bytes. Otherwise its datanodes are not
        // registered, or no longer.
        return if last.block.length() == 0 { Ok(0) } else { Err(None) };
    }
    let mut missing = 0;
    let mut failure = None;
    for datanode in &last.locations {
        match datanodes.visible_length(datanode, &last.block).await {
            Ok(VisibleLength::Bytes(length)) => return Ok(length),
            Ok(VisibleLength::NotReadable) => {}
            Ok(VisibleLength::NoReplica) => missing += 1,
            Err(error) => failure = Some(Arc::new(error)),
        }
    }
    // No datanode has a replica. With length 0, the writer has not written to the block yet; otherwise the bytes that
    // were reported to the namenode are lost.
    if missing == last.locations.len() && last.block.length() == 0 { Ok(0) } else { Err(failure) }
}
