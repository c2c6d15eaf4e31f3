//! Many ranges of many files at once: what is mapped is copied, what one datanode has goes together over its shared connections, and
//! whatever is left, or failed, is read alone over the usual ways.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use hearth_types::{ByteRange, DatanodeUuid, LocatedBlock};
use parking_lot::Mutex;

use super::candidate::Candidate;
use super::locate::Locations;
use super::replicas::Replicas;
use super::{Reader, multiplexed_stream};
use crate::file_system::Shared;
use crate::multiplexed::{ConnectionPool, Outcome, WantedRange};
use crate::short_circuit::SMALL_BYTES;
use crate::{DataPath, Error};

/// Files that are opened or read alone at the same time.
const CONCURRENT_READS: usize = 32;

/// A range of an open file.
#[derive(Clone, Debug)]
pub(crate) struct FileRange {
    pub(super) replicas: Arc<Replicas>,
    pub(super) range: ByteRange,
}

/// A range that lies in one block.
struct BlockRange {
    /// Which of the ranges.
    index: usize,
    block: Arc<LocatedBlock>,
    /// Within the block.
    range: ByteRange,
}

/// Pieces that one datanode has, and the way to it.
struct Group {
    connection_pool: Arc<ConnectionPool>,
    path: DataPath,
    pieces: Vec<BlockRange>,
}

/// Opens each of `paths`, which are absolute, in their order.
pub(crate) async fn open_many(shared: &Arc<Shared>, paths: Vec<String>) -> Vec<Result<Reader, Error>> {
    let asked = Instant::now();
    let mut located = shared.namenode.open_many(&paths, 0, shared.options.prefetch_bytes).await;
    located.iter_mut().flatten().for_each(|located| shared.take_piggybacked(located, asked));
    let mut opened = Vec::with_capacity(located.len());
    // Only of files that are being written datanodes are asked, of some at the same time.
    let mut asking = Vec::new();
    for (path, located) in paths.into_iter().zip(located) {
        opened.push(match located {
            Ok(located) if located.has_open_block() => {
                asking.push((opened.len(), path, located));
                None
            }
            Ok(located) => Some(Ok(Reader::of(Arc::clone(shared), Locations::of(Arc::clone(shared), path, located)))),
            Err(error) => Some(Err(error)),
        });
    }
    let asking = asking
        .into_iter()
        .map(|(index, path, located)| async move { (index, Reader::open(Arc::clone(shared), path, located).await) });
    let mut asking = stream::iter(asking).buffer_unordered(CONCURRENT_READS);
    while let Some((index, reader)) = asking.next().await {
        opened[index] = Some(reader);
    }
    opened.into_iter().map(|reader| reader.expect("each was opened above, or asked for")).collect()
}

/// Shows `visit` a range of each of some files, as [`visit_ranges`] does, or why it could not be opened.
pub(crate) async fn visit_opened(
    shared: &Arc<Shared>,
    opened: Vec<Result<Reader, Error>>,
    ranges: Vec<ByteRange>,
    mut visit: impl FnMut(usize, Result<Cow<'_, [u8]>, Error>) + Send,
) {
    let (mut found, mut places) = (Vec::with_capacity(opened.len()), Vec::with_capacity(opened.len()));
    for (index, (opened, range)) in opened.into_iter().zip(ranges).enumerate() {
        match opened {
            Ok(reader) => {
                places.push(index);
                found.push(FileRange { replicas: reader.replicas, range });
            }
            Err(error) => visit(index, Err(error)),
        }
    }
    visit_ranges(shared, found, |place, bytes| visit(places[place], bytes)).await;
}

/// The bytes of each of `ranges`, in their order; of what lies beyond the end of its file, nothing.
pub(crate) async fn read_ranges(shared: &Arc<Shared>, ranges: Vec<FileRange>) -> Vec<Result<Vec<u8>, Error>> {
    let mut collected = Collected::new(ranges.len());
    visit_ranges(shared, ranges, |index, bytes| collected.put(index, bytes)).await;
    collected.all()
}

/// Bytes of each range, in the places of the ranges.
pub(crate) struct Collected(Vec<Result<Vec<u8>, Error>>);

impl Collected {
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| Ok(Vec::new())).collect())
    }

    pub fn put(&mut self, index: usize, bytes: Result<Cow<'_, [u8]>, Error>) {
        self.0[index] = bytes.map(Cow::into_owned);
    }

    pub fn all(self) -> Vec<Result<Vec<u8>, Error>> {
        self.0
    }
}

/// Shows `visit` the verified bytes of each of `ranges` by its index, each once, as they come; of what lies beyond the end of its file, nothing.
/// What came with others is shown where it was received.
pub(crate) async fn visit_ranges(
    shared: &Arc<Shared>,
    ranges: Vec<FileRange>,
    visit: impl FnMut(usize, Result<Cow<'_, [u8]>, Error>) + Send,
) {
    // Several connections take turns, on this task.
    let visit = Mutex::new(visit);
    let show = |index: usize, bytes: Result<Cow<'_, [u8]>, Error>| (visit.lock())(index, bytes);
    let mut left = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut known = Vec::new();
    for (index, FileRange { replicas, range }) in ranges.iter().enumerate() {
        let length = usize::try_from(length_of(replicas, *range)).unwrap_or(usize::MAX);
        // What is as small as that is never mapped, and comes with memory of its own.
        let mut bytes = if replicas.locations.length() <= SMALL_BYTES { Vec::new() } else { vec![0; length] };
        if replicas.read_mapped(range.start(), &mut bytes) == length {
            show(index, Ok(Cow::Owned(bytes)));
            continue;
        }
        match group_for(shared, &mut known, replicas, index, range.start(), length as u64).await {
            Some((connection_pool, path, piece)) => {
                let group = groups.iter_mut().find(|group| Arc::ptr_eq(&group.connection_pool, &connection_pool));
                match group {
                    Some(group) => group.pieces.push(piece),
                    None => groups.push(Group { connection_pool, path, pieces: vec![piece] }),
                }
            }
            None => left.push(index),
        }
    }
    let fetched = join_all(groups.iter().map(|group| async {
        let wanted: Vec<_> = group.pieces.iter().map(BlockRange::wanted).collect();
        let mut shown = vec![false; wanted.len()];
        // At once: the memory that it came in is for the next answers.
        let take = |nth: usize, outcome: Outcome| {
            let BlockRange { index, range, .. } = group.pieces[nth];
            shown[nth] = outcome.is_ok_and(|fetched| {
                let checked = fetched.checked();
                let start = (range.start() - fetched.start) as usize;
                let end = start + range.length() as usize;
                let fits = checked.verify(start, end).is_ok();
                if fits {
                    shared.counters.count_read(group.path, end - start);
                    show(index, Ok(Cow::Borrowed(&checked.data[start..end])));
                }
                fits
            });
        };
        group.connection_pool.fetch_many(&wanted, take).await;
        // Also those that nothing came of. What is the matter, the usual ways find out and say.
        let missed = group.pieces.iter().zip(shown).filter(|(_, shown)| !shown);
        missed.map(|(piece, _)| piece.index).collect::<Vec<_>>()
    }));
    left.extend(fetched.await.into_iter().flatten());
    read_alone(&ranges, left, show).await;
}

/// Bytes of `range` that the file has.
fn length_of(replicas: &Replicas, range: ByteRange) -> u64 {
    range.end().min(replicas.locations.length()).saturating_sub(range.start())
}

impl BlockRange {
    fn wanted(&self) -> WantedRange<'_> {
        WantedRange { block: &self.block.block, token: &self.block.token, range: self.range }
    }
}

/// The connections by which small replicas of a datanode are read over a path; `None`: there are none.
type KnownPools = Vec<(DatanodeUuid, DataPath, Option<Arc<ConnectionPool>>)>;

/// By which connections a range can be fetched with others; `None`: it is to be read alone.
///
/// `known`: what was found out for ranges before this one.
async fn group_for(
    shared: &Shared,
    known: &mut KnownPools,
    replicas: &Replicas,
    index: usize,
    start: u64,
    length: u64,
) -> Option<(Arc<ConnectionPool>, DataPath, BlockRange)> {
    if !shared.multiplexed.takes(length) && length > SMALL_BYTES {
        return None;
    }
    let candidate = replicas.candidate_at(start).await?;
    let Candidate { block, path, .. } = &candidate;
    let start = start - block.offset;
    if start + length > block.block.length() {
        return None;
    }
    match path {
        DataPath::Local if block.block.length() <= SMALL_BYTES => {}
        DataPath::Packets if shared.multiplexed.takes(length) => {}
        _ => return None,
    }
    let uuid = &candidate.datanode().id.uuid;
    let connection_pool = match known.iter().find(|(datanode, over, _)| over == path && datanode == uuid) {
        Some((_, _, connection_pool)) => connection_pool.clone(),
        None => {
            let connection_pool = connection_pool(shared, &candidate).await;
            known.push((uuid.clone(), *path, connection_pool.clone()));
            connection_pool
        }
    }?;
    let range = ByteRange::with_length(start, length)?;
    Some((connection_pool, *path, BlockRange { index, block: Arc::clone(block), range }))
}

/// The connections by which a small replica is read over `candidate`.
async fn connection_pool(shared: &Shared, candidate: &Candidate) -> Option<Arc<ConnectionPool>> {
    let datanode = &candidate.datanode().id;
    if candidate.path == DataPath::Packets {
        return multiplexed_stream::connection_pool(shared, datanode).await.ok().flatten();
    }
    shared.short_circuit.learn_socket(shared, datanode).await.ok()?;
    Some(shared.short_circuit.open_small(&candidate.block, datanode).await.ok()??.connection_pool())
}

/// Reads those of `ranges` whose places are `left` each for itself, some at the same time.
async fn read_alone(ranges: &[FileRange], left: Vec<usize>, show: impl Fn(usize, Result<Cow<'_, [u8]>, Error>)) {
    let mut left = left.into_iter();
    let mut running = tokio::task::JoinSet::new();
    loop {
        while running.len() < CONCURRENT_READS
            && let Some(index) = left.next()
        {
            let FileRange { replicas, range } = ranges[index].clone();
            running.spawn(async move {
                let mut bytes = vec![0; length_of(&replicas, range) as usize];
                let read = replicas.read_at(range.start(), &mut bytes).await;
                let read = read.map(|count| {
                    bytes.truncate(count);
                    bytes
                });
                (index, read)
            });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((index, read))) => show(index, read.map(Cow::Owned)),
            // Nobody cancels them.
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
