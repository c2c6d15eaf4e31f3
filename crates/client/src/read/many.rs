//! Whole files, many at once: small ones in the memory of datanodes of this machine come many in one answer, whatever is left one
//! file after the other over the usual paths.

use std::collections::HashMap;
use std::sync::Arc;

use hearth_types::{ByteRange, DatanodeUuid, LocatedBlocks};

use super::Reader;
use super::way::{self, Prospect};
use crate::file_system::Shared;
use crate::local::{SMALL_BYTES, SmallReplica, fetch_many};
use crate::{DataPath, Error};

/// Calls to the namenode, and files read in full, at the same time.
const AT_ONCE: usize = 32;

/// A file that is one small finalized block on this machine.
struct Small {
    /// Which of the files that were asked for.
    index: usize,
    replica: SmallReplica,
    length: u64,
}

/// All bytes of each of `paths`, which are absolute, in their order.
pub(crate) async fn read_files(shared: &Arc<Shared>, paths: Vec<String>) -> Vec<Result<Vec<u8>, Error>> {
    let located = locate(shared, &paths).await;
    let mut contents: Vec<Option<Result<Vec<u8>, Error>>> = Vec::with_capacity(paths.len());
    let mut files: Vec<Option<LocatedBlocks>> = Vec::with_capacity(paths.len());
    for outcome in located {
        match outcome {
            Ok(located) => {
                contents.push(None);
                files.push(Some(located));
            }
            Err(error) => {
                contents.push(Some(Err(error)));
                files.push(None);
            }
        }
    }
    for small in of_each_datanode(shared, &files).await.into_values() {
        for (index, bytes) in fetch(shared, small).await {
            contents[index] = Some(Ok(bytes));
        }
    }
    read_the_rest(shared, &paths, files, &mut contents).await;
    contents.into_iter().map(|content| content.expect("every file was read or failed")).collect()
}

async fn locate(shared: &Arc<Shared>, paths: &[String]) -> Vec<Result<LocatedBlocks, Error>> {
    in_turn(paths.iter().cloned(), |path| {
        let shared = Arc::clone(shared);
        async move { shared.locate(&path, 0, shared.options.prefetch_bytes).await }
    })
    .await
}

/// The files that can be read so, by the datanode that has them.
async fn of_each_datanode(shared: &Arc<Shared>, files: &[Option<LocatedBlocks>]) -> HashMap<DatanodeUuid, Vec<Small>> {
    let mut found: HashMap<DatanodeUuid, Vec<Small>> = HashMap::new();
    if shared.options.read_paths.first() != DataPath::Local {
        return found;
    }
    for (index, file) in files.iter().enumerate() {
        let Some(file) = file else { continue };
        let [block] = &file.blocks[..] else { continue };
        let length = block.block.length();
        if !file.last_block_complete || length != file.file_length || length > SMALL_BYTES {
            continue;
        }
        for datanode in &block.locations {
            shared.offers.note(datanode);
            if way::prospect(shared, block, false, datanode, DataPath::Local) != Prospect::Good {
                continue;
            }
            if shared.local.learn(shared, &datanode.id).await.is_ok()
                && let Ok(Some(replica)) = shared.local.small(block, &datanode.id).await
            {
                found.entry(datanode.id.uuid.clone()).or_default().push(Small { index, replica, length });
                break;
            }
        }
    }
    found
}

/// The verified bytes of what one datanode gave; the rest is left to the usual paths, which say what is the matter with it.
async fn fetch(shared: &Shared, files: Vec<Small>) -> Vec<(usize, Vec<u8>)> {
    let replicas: Vec<_> = files.iter().map(|file| &file.replica).collect();
    let whole = |file: &Small| ByteRange::with_length(0, file.length).expect("a length is a range from 0");
    let ranges: Vec<_> = files.iter().map(whole).collect();
    let pieces = match fetch_many(&replicas, &ranges).await {
        Ok(pieces) => pieces,
        Err(error) => {
            tracing::info!(%error, files = files.len(), "small files could not be read together");
            return Vec::new();
        }
    };
    let mut contents = Vec::with_capacity(files.len());
    for (file, piece) in files.iter().zip(pieces) {
        let mut bytes = vec![0; file.length as usize];
        let verified = match piece {
            Ok(fetched) => fetched.checked().copy(0, &mut bytes).is_ok(),
            Err(_) => false,
        };
        if verified {
            shared.counters.count_read(DataPath::Local, bytes.len());
            contents.push((file.index, bytes));
        }
    }
    contents
}

async fn read_the_rest(
    shared: &Arc<Shared>,
    paths: &[String],
    files: Vec<Option<LocatedBlocks>>,
    contents: &mut [Option<Result<Vec<u8>, Error>>],
) {
    let rest: Vec<_> = files
        .into_iter()
        .enumerate()
        .filter_map(|(index, file)| contents[index].is_none().then_some((index, file?)))
        .collect();
    let indices: Vec<_> = rest.iter().map(|(index, _)| *index).collect();
    let read = in_turn(rest.into_iter(), |(index, located)| {
        let (shared, path) = (Arc::clone(shared), paths[index].clone());
        async move {
            let mut reader = Reader::open(shared, path, located).await?;
            let length = usize::try_from(reader.length()).unwrap_or(usize::MAX);
            let mut bytes = vec![0; length];
            let filled = reader.read(&mut bytes).await?;
            bytes.truncate(filled);
            Ok(bytes)
        }
    });
    for (index, outcome) in indices.into_iter().zip(read.await) {
        contents[index] = Some(outcome);
    }
}

/// The outcomes of `work` on each of `items`, in their order, some of them at the same time.
async fn in_turn<I, T, F>(items: impl Iterator<Item = I>, work: impl Fn(I) -> F) -> Vec<Result<T, Error>>
where
    F: Future<Output = Result<T, Error>> + Send + 'static,
    T: Send + 'static,
{
    let mut items = items.enumerate();
    let mut running = tokio::task::JoinSet::new();
    let mut outcomes: Vec<Option<Result<T, Error>>> = Vec::new();
    loop {
        while running.len() < AT_ONCE
            && let Some((index, item)) = items.next()
        {
            outcomes.push(None);
            let work = work(item);
            running.spawn(async move { (index, work.await) });
        }
        match running.join_next().await {
            None => break,
            Some(Ok((index, outcome))) => outcomes[index] = Some(outcome),
            // Nobody cancels them.
            Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        }
    }
    outcomes.into_iter().map(|outcome| outcome.expect("every task has ended")).collect()
}
