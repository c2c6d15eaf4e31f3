//! Which blocks a file has and where their replicas are: fetched ahead, kept, fetched again when they turn out stale.

use std::sync::Arc;

use hearth_types::{LocatedBlock, LocatedBlocks};
use parking_lot::Mutex;

use crate::Error;
use crate::datanode::{VisibleLength, visible_length};
use crate::file_system::Shared;

#[derive(Debug)]
pub(super) struct Locations {
    shared: Arc<Shared>,
    path: String,
    length: u64,
    /// Of the block that is being written: its visible length when the file was opened.
    open_block: Option<LocatedBlock>,
    /// In order of offset, not overlapping, perhaps with gaps. The open block is always there.
    blocks: Mutex<Vec<Arc<LocatedBlock>>>,
}

impl Locations {
    /// `located`: the answer that opened the file, which has no open block.
    pub(super) fn of(shared: Arc<Shared>, path: String, located: LocatedBlocks) -> Self {
        let length = located.file_length;
        Self::new(shared, path, length, None, located.blocks)
    }

    /// `located`: the answer that opened the file. The datanodes of an open block are asked how much of it there is.
    pub(super) async fn open(shared: Arc<Shared>, path: String, mut located: LocatedBlocks) -> Result<Self, Error> {
        let mut length = located.file_length;
        let mut open_block = None;
        if located.has_open_block()
            && let Some(last) = located.last_block.take()
        {
            let (mut last, visible) = length_of_open_block(&shared, &path, last).await?;
            // Another block than before may be the last one by now.
            length = length.max(last.offset) + visible;
            last.block.block.length = visible;
            open_block = (visible > 0).then_some(last);
        }
        Ok(Self::new(shared, path, length, open_block, located.blocks))
    }

    fn new(
        shared: Arc<Shared>,
        path: String,
        length: u64,
        open_block: Option<LocatedBlock>,
        blocks: Vec<LocatedBlock>,
    ) -> Self {
        // However far it lies behind what was asked for: the namenode tells of it with every answer.
        let known = blocks.into_iter().chain(open_block.clone()).collect();
        let locations = Self { shared, path, length, open_block, blocks: Mutex::new(Vec::new()) };
        locations.keep(known);
        locations
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Whether the block was being written when the file was opened.
    pub(super) fn is_being_written(&self, block: &LocatedBlock) -> bool {
        self.open_block.as_ref().is_some_and(|open| open.block.id() == block.block.id())
    }

    /// The block with the byte at `position`, which lies within the file.
    pub(super) async fn block_at(&self, position: u64) -> Result<Arc<LocatedBlock>, Error> {
        if let Some(block) = self.known(position) {
            return Ok(block);
        }
        self.refresh(position).await
    }

    /// As `block_at`, asked of the namenode in any case.
    ///
    /// Errors: `FileChanged` also when another file has taken the path: what it has at `position` is not what was opened.
    pub(super) async fn refresh(&self, position: u64) -> Result<Arc<LocatedBlock>, Error> {
        let prefetch = self.shared.options.prefetch_bytes;
        // From a block that we know on, if one is near: it tells whose the others are, in the same answer.
        let start = self.neighbour(position).filter(|start| position - start <= prefetch).unwrap_or(position);
        let length = (position - start).saturating_add(prefetch);
        let mut located = self.shared.locate(&self.path, start, length).await?;
        self.add_open_block(&mut located);
        let changed = |why: &str| Error::FileChanged { path: self.path.clone(), why: why.to_owned() };
        let another = || changed("its blocks are others now");
        if !self.same_file(&located.blocks).ok_or_else(another)? {
            // All of them are new to us, e.g. those of a jump. Asked for after them, a block that we know tells whose they are.
            let witness = self.blocks.lock().first().map(|block| block.offset);
            if let Some(offset) = witness {
                let located = self.shared.locate(&self.path, offset, 1).await?;
                if self.same_file(&located.blocks) != Some(true) {
                    return Err(another());
                }
            }
        }
        self.keep(located.blocks);
        self.known(position).ok_or_else(|| changed("the namenode no longer knows a block at the position"))
    }

    /// Puts the block that was open when the file was opened among the others. The namenode counts what it was told of its length, as a rule
    /// by the first flush only: a range behind that has no block.
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

    /// The last byte at `position` or before it that is in a block that we know.
    fn neighbour(&self, position: u64) -> Option<u64> {
        let blocks = self.blocks.lock();
        let after = blocks.partition_point(|block| block.offset <= position);
        let known = &blocks[after.checked_sub(1)?];
        Some((known.offset + known.block.length().saturating_sub(1)).min(position))
    }

    /// Whether one of these blocks stands where it stood before. `None`: another one does.
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
            block.locations.iter().for_each(|datanode| self.shared.offers.note(datanode));
            if let Some(open) = &self.open_block
                && open.block.id() == block.block.id()
            {
                // A longer length now would show bytes beyond the length that this reader promised.
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

/// Asks the datanodes of a block that is being written how much of it readers may see.
///
/// Gives back the block, as located again if the namenode had no datanodes for it at first.
async fn length_of_open_block(
    shared: &Shared,
    path: &str,
    mut last: LocatedBlock,
) -> Result<(LocatedBlock, u64), Error> {
    let mut attempt = 0;
    loop {
        let source = match ask_datanodes(shared, &last).await {
            Ok(length) => return Ok((last, length)),
            Err(source) => source,
        };
        if attempt >= shared.options.last_block_length_retries {
            let block = Box::new(last.block);
            return Err(Error::BlockLength { block, path: path.to_owned(), source });
        }
        attempt += 1;
        tokio::time::sleep(shared.options.last_block_length_interval).await;
        let located = shared.locate(path, last.offset, 1).await?;
        match located.last_block {
            // Closed meanwhile: its length is the namenode's to say.
            Some(block) if located.last_block_complete => {
                let length = located.file_length.saturating_sub(block.offset);
                return Ok((block, length));
            }
            Some(block) => last = block,
            None => return Ok((last, 0)),
        }
    }
}

async fn ask_datanodes(shared: &Shared, last: &LocatedBlock) -> Result<u64, Option<Arc<crate::DatanodeError>>> {
    if last.locations.is_empty() {
        // Nobody was given the block yet, so nobody has bytes of it; else its datanodes are not registered (any more).
        return if last.block.length() == 0 { Ok(0) } else { Err(None) };
    }
    let mut missing = 0;
    let mut failure = None;
    for datanode in &last.locations {
        match visible_length(shared, datanode, &last.block).await {
            Ok(VisibleLength::Bytes(length)) => return Ok(length),
            Ok(VisibleLength::NotReadable) => {}
            Ok(VisibleLength::NoReplica) => missing += 1,
            Err(error) => failure = Some(Arc::new(error)),
        }
    }
    // Chosen but never written to: the writer has not got so far. What the namenode was told of is lost to all of them.
    if missing == last.locations.len() && last.block.length() == 0 { Ok(0) } else { Err(failure) }
}
