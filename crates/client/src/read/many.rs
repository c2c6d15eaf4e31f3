//! Many ranges of many files at once: what is mapped is copied, what one datanode has goes together over its shared connections, and
//! whatever is left, or failed, is read alone over the usual ways.

use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use hearth_types::{ByteRange, DatanodeUuid, LocatedBlock};

use super::replica::Replicas;
use super::way::Way;
use super::{Reader, multiplexed};
use crate::file_system::Shared;
use crate::local::SMALL_BYTES;
use crate::multiplexed::{Links, Outcome, Wanted};
use crate::{DataPath, Error};

/// Files that are opened or read alone at the same time.
const AT_ONCE: usize = 32;

/// A range of an open file.
#[derive(Clone, Debug)]
pub(crate) struct FileRange {
    pub(super) replicas: Arc<Replicas>,
    pub(super) range: ByteRange,
}

/// A range that lies in one block.
struct Piece {
    /// Which of the ranges.
    index: usize,
    block: Arc<LocatedBlock>,
    /// Within the block.
    range: ByteRange,
}

/// Pieces that one datanode has, and the way to it.
struct Group {
    links: Arc<Links>,
    path: DataPath,
    pieces: Vec<Piece>,
}

/// Opens each of `paths`, which are absolute, in their order.
pub(crate) async fn open_many(shared: &Arc<Shared>, paths: Vec<String>) -> Vec<Result<Reader, Error>> {
    let asked = Instant::now();
    let mut located = shared.namenode.open_many(&paths, 0, shared.options.prefetch_bytes).await;
    located.iter_mut().flatten().for_each(|located| shared.take_handed_on(located, asked));
    let opening = paths.into_iter().zip(located).map(|(path, located)| async {
        match located {
            Ok(located) => Reader::open(Arc::clone(shared), path, located).await,
            Err(error) => Err(error),
        }
    });
    // Most need nothing more; those that are being written ask their datanodes.
    stream::iter(opening).buffered(AT_ONCE).collect().await
}

/// All bytes of each of `paths`, which are absolute, in their order.
pub(crate) async fn read_files(shared: &Arc<Shared>, paths: Vec<String>) -> Vec<Result<Vec<u8>, Error>> {
    let wanted = paths.into_iter().map(|path| (path, ByteRange::new(0, u64::MAX).expect("a range"))).collect();
    read_many(shared, wanted).await
}

/// A range of each of some files, by their absolute paths; of what lies beyond their end, nothing.
pub(crate) async fn read_many(shared: &Arc<Shared>, wanted: Vec<(String, ByteRange)>) -> Vec<Result<Vec<u8>, Error>> {
    let (paths, ranges): (Vec<_>, Vec<_>) = wanted.into_iter().unzip();
    let mut contents: Vec<Result<Vec<u8>, Error>> = Vec::with_capacity(paths.len());
    let (mut found, mut places) = (Vec::with_capacity(paths.len()), Vec::with_capacity(paths.len()));
    for (opened, range) in open_many(shared, paths).await.into_iter().zip(ranges) {
        match opened {
            Ok(reader) => {
                places.push(contents.len());
                found.push(FileRange { replicas: reader.replicas, range });
                contents.push(Ok(Vec::new()));
            }
            Err(error) => contents.push(Err(error)),
        }
    }
    for (place, outcome) in places.into_iter().zip(read_ranges(shared, found).await) {
        contents[place] = outcome;
    }
    contents
}

/// The bytes of each of `ranges`, in their order; of what lies beyond the end of its file, nothing.
pub(crate) async fn read_ranges(shared: &Arc<Shared>, ranges: Vec<FileRange>) -> Vec<Result<Vec<u8>, Error>> {
    let mut contents: Vec<Vec<u8>> = Vec::with_capacity(ranges.len());
    let mut left = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut known = Vec::new();
    for (index, FileRange { replicas, range }) in ranges.iter().enumerate() {
        let end = range.end().min(replicas.locations.length());
        let length = usize::try_from(end.saturating_sub(range.start())).unwrap_or(usize::MAX);
        // What is as small as that is never mapped, and comes with memory of its own.
        let mut bytes = if replicas.locations.length() <= SMALL_BYTES { Vec::new() } else { vec![0; length] };
        let filled = replicas.read_warm(range.start(), &mut bytes);
        contents.push(bytes);
        if filled == length {
            continue;
        }
        match place(shared, &mut known, replicas, index, range.start(), length as u64).await {
            Some((links, path, piece)) => {
                let group = groups.iter_mut().find(|group| Arc::ptr_eq(&group.links, &links));
                match group {
                    Some(group) => group.pieces.push(piece),
                    None => groups.push(Group { links, path, pieces: vec![piece] }),
                }
            }
            None => left.push(index),
        }
    }
    let fetched = join_all(groups.iter().map(|group| async {
        let wanted: Vec<_> = group.pieces.iter().map(Piece::wanted).collect();
        let mut verified: Vec<Option<Vec<u8>>> = wanted.iter().map(|_| None).collect();
        // At once: the memory that it came in is for the next answers.
        let take = |index: usize, outcome: Outcome| {
            let range = wanted[index].range;
            // What is the matter, the usual ways find out and say.
            verified[index] = outcome.ok().and_then(|fetched| {
                let start = (range.start() - fetched.start) as usize;
                fetched.checked().to_vec(start, range.length() as usize).ok()
            });
        };
        group.links.fetch_many(&wanted, take).await;
        verified
    }));
    for (group, verified) in groups.iter().zip(fetched.await) {
        for (piece, bytes) in group.pieces.iter().zip(verified) {
            match bytes {
                Some(bytes) => {
                    shared.counters.count_read(group.path, bytes.len());
                    contents[piece.index] = bytes;
                }
                None => left.push(piece.index),
            }
        }
        tokio::task::consume_budget().await;
    }
    let mut contents: Vec<Result<Vec<u8>, Error>> = contents.into_iter().map(Ok).collect();
    read_alone(&ranges, left, &mut contents).await;
    contents
}

impl Piece {
    fn wanted(&self) -> Wanted<'_> {
        Wanted { block: &self.block.block, token: &self.block.token, range: self.range }
    }
}

/// The connections by which small replicas of a datanode are read over a path; `None`: there are none.
type Known = Vec<(DatanodeUuid, DataPath, Option<Arc<Links>>)>;

/// By which connections a range can be fetched with others; `None`: it is to be read alone.
///
/// `known`: what was found out for ranges before this one.
async fn place(
    shared: &Shared,
    known: &mut Known,
    replicas: &Replicas,
    index: usize,
    start: u64,
    length: u64,
) -> Option<(Arc<Links>, DataPath, Piece)> {
    if !shared.multiplexed.takes(length) && length > SMALL_BYTES {
        return None;
    }
    let way = replicas.way_to(start).await?;
    let Way { block, path, .. } = &way;
    let start = start - block.offset;
    if start + length > block.block.length() {
        return None;
    }
    match path {
        DataPath::Local if block.block.length() <= SMALL_BYTES => {}
        DataPath::Packets if shared.multiplexed.takes(length) => {}
        _ => return None,
    }
    let uuid = &way.datanode().id.uuid;
    let links = match known.iter().find(|(datanode, over, _)| over == path && datanode == uuid) {
        Some((_, _, links)) => links.clone(),
        None => {
            let links = links(shared, &way).await;
            known.push((uuid.clone(), *path, links.clone()));
            links
        }
    }?;
    let range = ByteRange::with_length(start, length)?;
    Some((links, *path, Piece { index, block: Arc::clone(block), range }))
}

/// The connections by which a small replica is read over `way`.
async fn links(shared: &Shared, way: &Way) -> Option<Arc<Links>> {
    let datanode = &way.datanode().id;
    if way.path == DataPath::Packets {
        return multiplexed::links(shared, datanode).await.ok().flatten();
    }
    shared.local.learn(shared, datanode).await.ok()?;
    Some(shared.local.small(&way.block, datanode).await.ok()??.links())
}

/// Reads those of `ranges` whose places are `left` each for itself, some at the same time.
async fn read_alone(ranges: &[FileRange], left: Vec<usize>, contents: &mut [Result<Vec<u8>, Error>]) {
    let mut left = left.into_iter();
    let mut running = tokio::task::JoinSet::new();
    loop {
        while running.len() < AT_ONCE
            && let Some(index) = left.next()
        {
            let FileRange { replicas, range } = ranges[index].clone();
            let mut bytes = std::mem::replace(&mut contents[index], Ok(Vec::new())).unwrap_or_default();
            // Nothing was there when it was small: see `read_ranges`.
            let end = range.end().min(replicas.locations.length());
            bytes.resize(end.saturating_sub(range.start()) as usize, 0);
            running.spawn(async move {
                let read = replicas.read_at(range.start(), &mut bytes).await;
                (
                    index,
                    read.map(|count| {
                        bytes.truncate(count);
                        bytes
                    }),
                )
            });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((index, outcome))) => contents[index] = outcome,
            // Nobody cancels them.
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}
