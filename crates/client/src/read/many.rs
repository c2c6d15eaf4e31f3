//! Reads of many ranges of many files at once. Mapped ranges are copied. Ranges on the same datanode are requested
//! together over its shared connections. All others, and those that failed, are read individually over the usual paths.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::join_all;
use hearth_types::{ByteRange, DatanodeUuid, LocatedBlock};
use parking_lot::Mutex;

use super::candidate::Candidate;
use super::mapped_cache::READ_BYTES_MAX as MAPPED_BYTES_MAX;
use super::replicas::Replicas;
use crate::data_path::SMALL_BYTES;
use crate::multiplexed::{ConnectionPool, Outcome, WantedRange};
use crate::session::Session;
use crate::{DataPath, Error};

/// Number of files that one call opens or reads individually at the same time.
pub(super) const CONCURRENT_READS: usize = 32;

/// A range of an open file.
#[derive(Clone, Debug)]
pub(super) struct FileRange {
    pub(super) replicas: Arc<Replicas>,
    pub(super) range: ByteRange,
}

/// A range that lies in one block.
struct BlockRange {
    /// Index of the requested range.
    index: usize,
    block: Arc<LocatedBlock>,
    /// Range within the block.
    range: ByteRange,
}

/// Ranges on one datanode, with the connections to it.
struct Group {
    connection_pool: Arc<ConnectionPool>,
    path: DataPath,
    pieces: Vec<BlockRange>,
}

/// Returns the bytes of each of `ranges`, in order. A range beyond the end of its file is cut off there.
pub(super) async fn read_ranges(session: &Arc<Session>, ranges: Vec<FileRange>) -> Vec<Result<Vec<u8>, Error>> {
    let mut collected = Collected::new(ranges.len());
    visit_ranges(session, ranges, |index, bytes| collected.put(index, bytes)).await;
    collected.all()
}

/// Bytes of each range, by its index.
pub(super) struct Collected(Vec<Result<Vec<u8>, Error>>);

impl Collected {
    pub(super) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Ok(Vec::new())).collect())
    }

    pub(super) fn put(&mut self, index: usize, bytes: Result<Cow<'_, [u8]>, Error>) {
        self.0[index] = bytes.map(Cow::into_owned);
    }

    pub(super) fn all(self) -> Vec<Result<Vec<u8>, Error>> {
        self.0
    }
}

/// Calls `visit` with the verified bytes of each of `ranges` and its index, once each, as they arrive. A range beyond
/// the end of its file is cut off there. Bytes that arrived together with others are shown in the receive buffer.
pub(super) async fn visit_ranges(
    session: &Arc<Session>,
    ranges: Vec<FileRange>,
    visit: impl FnMut(usize, Result<Cow<'_, [u8]>, Error>) + Send,
) {
    // Several connections take turns, within this task.
    let visit = Mutex::new(visit);
    let show = |index: usize, bytes: Result<Cow<'_, [u8]>, Error>| (visit.lock())(index, bytes);
    let mut left = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut known = Vec::new();
    for (index, FileRange { replicas, range }) in ranges.iter().enumerate() {
        let length = length_of(replicas, *range);
        if length == 0 {
            show(index, Ok(Cow::Owned(Vec::new())));
            continue;
        }
        // A file of at most `SMALL_BYTES` is never mapped, and its bytes arrive in their own buffer.
        if replicas.locations.length() > SMALL_BYTES && length <= MAPPED_BYTES_MAX as u64 {
            let mut bytes = vec![0; length as usize];
            if replicas.read_mapped(range.start(), &mut bytes) == bytes.len() {
                show(index, Ok(Cow::Owned(bytes)));
                continue;
            }
        }
        match group_for(session, &mut known, replicas, index, range.start(), length).await {
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
        // Immediately, because the receive memory is reused for the next answers.
        let take = |nth: usize, outcome: Outcome| {
            let BlockRange { index, range, .. } = group.pieces[nth];
            shown[nth] = outcome.is_ok_and(|fetched| {
                let checked = fetched.checked();
                let start = (range.start() - fetched.start) as usize;
                let end = start + range.length() as usize;
                let fits = checked.verify(start, end).is_ok();
                if fits {
                    session.counters.count_read(group.path, end - start);
                    ranges[index].replicas.counters.count_read(group.path, end - start);
                    show(index, Ok(Cow::Borrowed(&checked.data[start..end])));
                }
                fits
            });
        };
        group.connection_pool.fetch_many(&wanted, take).await;
        // Includes ranges without an answer. The usual paths then find and report the error.
        let missed = group.pieces.iter().zip(shown).filter(|(_, shown)| !shown);
        missed.map(|(piece, _)| piece.index).collect::<Vec<_>>()
    }));
    left.extend(fetched.await.into_iter().flatten());
    read_alone(&ranges, left, show).await;
}

/// Returns the number of bytes of `range` that the file has.
fn length_of(replicas: &Replicas, range: ByteRange) -> u64 {
    range.end().min(replicas.locations.length()).saturating_sub(range.start())
}

impl BlockRange {
    fn wanted(&self) -> WantedRange<'_> {
        WantedRange { block: &self.block.block, token: &self.block.token, range: self.range }
    }
}

/// Connections over which small replicas of a datanode are read, by path; `None` if there are none.
type KnownPools = Vec<(DatanodeUuid, DataPath, Option<Arc<ConnectionPool>>)>;

/// Returns the connections over which a range can be fetched together with others, or `None` if it must be read
/// individually.
///
/// `known`: results for earlier ranges.
async fn group_for(
    session: &Session,
    known: &mut KnownPools,
    replicas: &Replicas,
    index: usize,
    start: u64,
    length: u64,
) -> Option<(Arc<ConnectionPool>, DataPath, BlockRange)> {
    if !session.multiplexed.takes(length) && length > SMALL_BYTES {
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
        DataPath::Packets if session.multiplexed.takes(length) => {}
        _ => return None,
    }
    let uuid = &candidate.datanode().id.uuid;
    let connection_pool = match known.iter().find(|(datanode, over, _)| over == path && datanode == uuid) {
        Some((_, _, connection_pool)) => connection_pool.clone(),
        None => {
            let connection_pool = connection_pool(session, &candidate).await;
            known.push((uuid.clone(), *path, connection_pool.clone()));
            connection_pool
        }
    }?;
    let range = ByteRange::with_length(start, length)?;
    Some((connection_pool, *path, BlockRange { index, block: Arc::clone(block), range }))
}

/// Returns the connections over which a small replica is read for `candidate`.
async fn connection_pool(session: &Session, candidate: &Candidate) -> Option<Arc<ConnectionPool>> {
    let datanode = &candidate.datanode().id;
    if candidate.path == DataPath::Packets {
        return session.multiplexed.connection_pool(datanode).await.ok().flatten();
    }
    session.short_circuit.learn_socket(datanode).await.ok()?;
    Some(session.short_circuit.open_small(&candidate.block, datanode).await.ok()??.connection_pool())
}

/// Reads those of `ranges` with an index in `left` individually, several at the same time.
async fn read_alone(ranges: &[FileRange], left: Vec<usize>, show: impl Fn(usize, Result<Cow<'_, [u8]>, Error>)) {
    let mut left = left.into_iter();
    let mut running = tokio::task::JoinSet::new();
    loop {
        while running.len() < CONCURRENT_READS
            && let Some(index) = left.next()
        {
            let FileRange { replicas, range } = ranges[index].clone();
            // One read of each call needs no permit: reads of a DataNode that does not answer may hold all of them.
            let needs_permit = !running.is_empty();
            running.spawn(async move {
                let _permit = if needs_permit { replicas.session.individual_reads.acquire().await.ok() } else { None };
                let length = usize::try_from(range.length()).unwrap_or(usize::MAX);
                (index, replicas.read_vec(range.start(), length).await)
            });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((index, read))) => show(index, read.map(Cow::Owned)),
            // These tasks are never cancelled.
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
