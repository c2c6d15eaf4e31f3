//! Which replica of a block to read and by which path, and what to do when that fails: the only retry loop of reading.
//!
//! A path that fails gives way to the next for that replica, and the last of them to the next replica.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hearth_protocol::data_transfer::TransferError;
use hearth_types::{BlockId, ByteRange, DatanodeInfo, DatanodeUuid, LocatedBlock};
use parking_lot::Mutex;

use super::block_stream::BlockStream;
use super::candidate::{self, Candidate, Checks, Health};
use super::locate::Locations;
use super::mapped_cache::MappedCache;
use super::view::View;
use crate::file_system::Shared;
use crate::{DataPath, DatanodeError, Error, backoff};

/// The replicas of one open file and what was learnt about them.
#[derive(Debug)]
pub(super) struct Replicas {
    pub(super) shared: Arc<Shared>,
    pub(super) locations: Locations,
    checks: Checks,
    /// Paths to datanodes that failed a read of this file, and when; forgotten when none is left.
    dead: Mutex<HashMap<(DatanodeUuid, DataPath), Instant>>,
    /// Open replicas on this machine, for reads that need not wait for anything.
    mapped_cache: MappedCache,
    /// Replicas whose data did not fit their checksums, not yet reported; each datanode of a block once.
    corrupt: Mutex<HashMap<BlockId, Vec<DatanodeInfo>>>,
}

/// How often one read went over all replicas in vain.
#[derive(Debug, Default)]
pub(super) struct Failures {
    rounds: u32,
    token_refreshed: bool,
    withdrawn: bool,
    last: Option<Arc<DatanodeError>>,
}

impl Failures {
    fn is_none(&self) -> bool {
        self.rounds == 0 && self.last.is_none()
    }
}

impl Replicas {
    pub(super) fn new(shared: Arc<Shared>, locations: Locations, checks: Checks) -> Self {
        Self {
            shared,
            locations,
            checks,
            dead: Mutex::default(),
            mapped_cache: MappedCache::default(),
            corrupt: Mutex::default(),
        }
    }

    /// Starts reading the block at `position`: to its end, or `length` bytes of it at most.
    pub(super) async fn open(
        &self,
        position: u64,
        length: Option<u64>,
        failures: &mut Failures,
    ) -> Result<BlockStream, Error> {
        loop {
            let block = self.locations.block_at(position).await?;
            let Some(candidate) = self.choose(&block)? else {
                self.handle_exhausted(&block, position, failures).await?;
                continue;
            };
            let start = position - block.offset;
            let end = length.map_or(block.block.length(), |length| (start + length).min(block.block.length()));
            let range = ByteRange::new(start, end).ok_or_else(|| Error::FileChanged {
                path: self.locations.path().to_owned(),
                why: format!("block {} is shorter than it was", block.block),
            })?;
            match BlockStream::open(&self.shared, candidate, range, self.checks).await {
                Ok(stream) => {
                    if self.shared.options.read_paths.first() == DataPath::Local
                        && let Some(replica) = stream.local_replica()
                    {
                        self.mapped_cache.insert(&block, replica);
                    }
                    return Ok(stream);
                }
                Err((candidate, error)) => self.handle_failure(&candidate, error, failures).await?,
            }
        }
    }

    /// Fills `into` from `offset` on as far as that takes no waiting.
    pub(super) fn read_mapped(&self, offset: u64, into: &mut [u8]) -> usize {
        self.mapped_cache.read(offset, into, &self.shared.counters)
    }

    /// The way by which the byte at `position` would be read first; `None` when there is none now.
    pub(super) async fn candidate_at(&self, position: u64) -> Option<Candidate> {
        let block = self.locations.block_at(position).await.ok()?;
        self.choose(&block).ok()?
    }

    /// Reads `into` from `offset` on.
    pub(super) async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let available = self.locations.length().saturating_sub(offset);
        let wanted = into.len().min(usize::try_from(available).unwrap_or(usize::MAX));
        let mut filled = self.mapped_cache.read(offset, &mut into[..wanted], &self.shared.counters);
        let mut failures = Failures::default();
        while filled < wanted {
            let position = offset + filled as u64;
            let mut stream = self.open(position, Some((wanted - filled) as u64), &mut failures).await?;
            loop {
                match stream.read(&self.shared, &mut into[filled..wanted]).await {
                    Ok(0) => {
                        stream.finish(&self.shared);
                        break;
                    }
                    Ok(count) => {
                        filled += count;
                        self.note_success(&stream.candidate().block, &mut failures).await;
                    }
                    Err(error) => {
                        self.handle_stream_failure(&stream, error, &mut failures).await?;
                        break;
                    }
                }
            }
        }
        Ok(filled)
    }

    /// The bytes from `offset` on, `length` at most and not beyond the end of their block, where they lie if that can be.
    pub(super) async fn view(&self, offset: u64, length: usize) -> Result<View, Error> {
        let available = self.locations.length().saturating_sub(offset);
        let wanted = length.min(usize::try_from(available).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(View::copied(Vec::new()));
        }
        if let Some(view) = self.mapped_cache.view(offset, wanted) {
            return Ok(self.viewed(view));
        }
        let stream = self.open(offset, Some(wanted as u64), &mut Failures::default()).await?;
        let block = &stream.candidate().block;
        let start = offset - block.offset;
        let end = (start + wanted as u64).min(block.block.length());
        if let Some(view) = stream.local_replica().and_then(|replica| View::of(replica, start, end)) {
            return Ok(self.viewed(view));
        }
        drop(stream);
        // What cannot be shown is copied, up to the end of the block as well.
        let mut bytes = vec![0; (end - start) as usize];
        let filled = self.read_at(offset, &mut bytes).await?;
        bytes.truncate(filled);
        Ok(View::copied(bytes))
    }

    fn viewed(&self, view: View) -> View {
        self.shared.counters.count_read(DataPath::Local, view.len());
        view
    }

    /// The first path to the first replica that has not failed; those that failed other readers come last. `None` when all
    /// failed.
    ///
    /// Errors: `NoPath`, when no path that may be used leads to any of the replicas.
    fn choose(&self, block: &Arc<LocatedBlock>) -> Result<Option<Candidate>, Error> {
        let paths = &self.shared.options.read_paths;
        let being_written = self.locations.is_being_written(block);
        let dead = self.dead.lock();
        let (mut suspect, mut unusable) = (None, Vec::new());
        for (replica, datanode) in block.locations.iter().enumerate() {
            for path in self.checks.paths(paths) {
                let candidate = || Candidate { block: Arc::clone(block), replica, path };
                match candidate::health(&self.shared, block, being_written, datanode, path) {
                    Health::Unusable(why) => unusable.push((datanode, path, why)),
                    _ if is_dead(&dead, &datanode.id.uuid, path) => {}
                    Health::Healthy => return Ok(Some(candidate())),
                    Health::Suspect => suspect = suspect.or_else(|| Some(candidate())),
                }
            }
        }
        if unusable.is_empty() || unusable.len() < block.locations.len() * self.checks.paths(paths).count() {
            return Ok(suspect);
        }
        let reasons: Vec<_> =
            unusable.iter().map(|(datanode, path, why)| format!("{path} to {}: {why}", datanode.id)).collect();
        Err(Error::NoPath {
            path: self.locations.path().to_owned(),
            block: Box::new(block.block.clone()),
            allowed: paths.to_string(),
            reasons: reasons.join("; "),
        })
    }

    /// As `handle_failure`, of a stream that was open. One over which bytes have come may just have been idle for longer than its datanode waits, or
    /// the datanode was started again: it is asked once more, for one that brings nothing then has failed.
    ///
    /// Source: `DFSInputStream.readBuffer`, `retryCurrentNode`.
    pub(super) async fn handle_stream_failure(
        &self,
        stream: &BlockStream,
        error: DatanodeError,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        let candidate = stream.candidate();
        if !stream.has_delivered() || !is_closed(&error) {
            return self.handle_failure(candidate, error, failures).await;
        }
        let (file, datanode, path) = (self.locations.path(), &candidate.datanode().id, candidate.path);
        tracing::info!(file, block = %candidate.block.block, %datanode, %path, %error, "reading on over another connection");
        failures.last = Some(Arc::new(error));
        Ok(())
    }

    /// Draws the consequences of a failure: whether to go on is the result.
    pub(super) async fn handle_failure(
        &self,
        candidate: &Candidate,
        error: DatanodeError,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        let Candidate { block, path, .. } = candidate;
        let datanode = candidate.datanode();
        // What every reader meets now and then is no trouble.
        let usual = match error.cause() {
            DatanodeError::AccessToken { .. } => !failures.token_refreshed,
            DatanodeError::Withdrawn { .. } => !failures.withdrawn,
            DatanodeError::NotAdvertised { .. } | DatanodeError::NoDomainSocket { .. } => true,
            _ => false,
        };
        let file = self.locations.path();
        if !usual && self.shared.warning_limit.is_due(&datanode.id.uuid, *path, Instant::now()) {
            tracing::warn!(file, block = %block.block, datanode = %datanode.id, %path, %error, "read failed: going on another way");
        } else {
            tracing::info!(file, block = %block.block, datanode = %datanode.id, %path, %error, "read failed");
        }
        match error.cause() {
            DatanodeError::AccessToken { .. } if !failures.token_refreshed => {
                failures.token_refreshed = true;
                failures.last = Some(Arc::new(error));
                self.locations.refresh(block.offset).await?;
                return Ok(());
            }
            // Opened anew, it is what the datanode serves now; if it is soon withdrawn again, another way is better.
            DatanodeError::Withdrawn { .. } if !failures.withdrawn => {
                failures.withdrawn = true;
                failures.last = Some(Arc::new(error));
                return Ok(());
            }
            // The last path to the replica judges it: bytes that came another way may have been hurt on it.
            DatanodeError::Checksum { .. } if self.is_last_path(candidate) => {
                let mut corrupt = self.corrupt.lock();
                let bad = corrupt.entry(block.block.id()).or_default();
                // Several reads may meet it at once.
                if bad.iter().all(|known| known.id.uuid != datanode.id.uuid) {
                    bad.push(datanode.clone());
                }
            }
            DatanodeError::Transfer(TransferError::Connection(_)) if *path == DataPath::Packets => {
                self.shared.unreachable.insert(datanode.id.uuid.clone())
            }
            // It is silent, to all that share the connection.
            DatanodeError::SharedConnection { source } if source.is_time_out() && *path == DataPath::Packets => {
                self.shared.unreachable.insert(datanode.id.uuid.clone())
            }
            // That is of this replica alone, and known for a while.
            DatanodeError::NotAdvertised { .. } | DatanodeError::NoDomainSocket { .. } => {
                failures.last = Some(Arc::new(error));
                return Ok(());
            }
            _ => {}
        }
        self.dead.lock().insert((datanode.id.uuid.clone(), *path), Instant::now());
        failures.last = Some(Arc::new(error));
        Ok(())
    }

    /// Whether all other paths to the replica of `candidate` are closed or have failed, this reader or, lately, another: none of those is tried
    /// before the next replica, which may well end the read.
    fn is_last_path(&self, candidate: &Candidate) -> bool {
        let datanode = candidate.datanode();
        let being_written = self.locations.is_being_written(&candidate.block);
        let dead = self.dead.lock();
        self.checks.paths(&self.shared.options.read_paths).filter(|path| *path != candidate.path).all(|path| {
            is_dead(&dead, &datanode.id.uuid, path)
                || candidate::health(&self.shared, &candidate.block, being_written, datanode, path) != Health::Healthy
        })
    }

    /// All replicas failed: wait, forget, and ask the namenode anew, a few times.
    async fn handle_exhausted(
        &self,
        block: &LocatedBlock,
        position: u64,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        self.report_corrupt(block).await;
        failures.rounds += 1;
        // Before any wait, which a caller may break off: whoever reads again asks again.
        self.dead.lock().clear();
        if failures.rounds > self.shared.options.block_acquire_failures {
            return Err(Error::BlockMissing {
                block: Box::new(block.block.clone()),
                path: self.locations.path().to_owned(),
                source: std::mem::take(failures).last,
            });
        }
        tokio::time::sleep(self.pause(failures.rounds - 1)).await;
        self.locations.refresh(position).await?;
        Ok(())
    }

    /// Grows with the rounds, with a random part, so that the readers of a lost block do not return in step.
    fn pause(&self, round: u32) -> Duration {
        let window = self.shared.options.retry_window;
        window * round + backoff::random_part(window * (round + 1))
    }

    /// Verified bytes of the block came: what failed before is forgotten, and replicas that were corrupt are reported.
    pub(super) async fn note_success(&self, block: &LocatedBlock, failures: &mut Failures) {
        if !failures.is_none() {
            *failures = Failures::default();
            self.report_corrupt(block).await;
        }
    }

    /// Tells the namenode of corrupt replicas, unless all of several seemed so: then the fault may be nearer. It is waited for, since a
    /// process that has what it wanted may end the next moment; but not for long.
    async fn report_corrupt(&self, block: &LocatedBlock) {
        let Some(bad) = self.corrupt.lock().remove(&block.block.id()) else { return };
        if bad.len() >= block.locations.len() && block.locations.len() > 1 {
            return;
        }
        let report = LocatedBlock {
            offset: block.offset,
            locations: bad,
            token: block.token.clone(),
            ..LocatedBlock::nowhere(block.block.clone())
        };
        let shared = Arc::clone(&self.shared);
        let told = tokio::spawn(async move {
            if let Err(error) = shared.namenode.report_bad_blocks(&[report]).await {
                tracing::warn!(%error, "corrupt replicas could not be reported");
            }
        });
        // Later it goes on by itself.
        let _ = tokio::time::timeout(REPORT_TIMEOUT, told).await;
    }
}

/// Whether the datanode ended a connection; one that falls silent has not.
fn is_closed(error: &DatanodeError) -> bool {
    matches!(error, DatanodeError::Transfer(error) if error.is_closed())
}

/// How long a reader waits for its report of a corrupt replica.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a path that failed is not tried again while a reader has others. A path over which every replica can be read is left
/// for good, until there is no other.
const FAILURE_BACKOFF: Duration = Duration::from_secs(60);

fn is_dead(dead: &HashMap<(DatanodeUuid, DataPath), Instant>, datanode: &DatanodeUuid, path: DataPath) -> bool {
    match dead.get(&(datanode.clone(), path)) {
        None => false,
        Some(at) => path == DataPath::Packets || at.elapsed() < FAILURE_BACKOFF,
    }
}
