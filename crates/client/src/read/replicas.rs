//! Choice of replica and path for a block, and the reaction to failures. This is the only retry loop of reading.
//!
//! If a path fails, the next path to that replica is tried, and after the last path the next replica.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hearth_protocol::data_transfer::TransferError;
use hearth_protocol::trace::{self, Span};
use hearth_types::{BlockId, ByteRange, DatanodeInfo, DatanodeUuid, LocatedBlock};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::block_stream::BlockStream;
use super::candidate::{self, Candidate, Checks, Health};
use super::locate::Locations;
use super::mapped_cache::MappedCache;
use super::view::{View, ViewChecks};
use crate::data_path::SMALL_BYTES;
use crate::error::Failure;
use crate::session::Session;
use crate::statistics::FileCounters;
use crate::{DataPath, DatanodeError, Error, backoff};

/// Replicas of one open file, with the failures seen so far.
#[derive(Debug)]
pub(super) struct Replicas {
    pub(super) session: Arc<Session>,
    pub(super) locations: Locations,
    checks: Checks,
    /// Paths to datanodes that failed a read of this file, with the time; cleared when no path is left.
    dead: Mutex<Dead>,
    /// Open replicas on this machine, for reads that do not wait.
    mapped_cache: MappedCache,
    /// Replicas with checksum errors, not yet reported; each datanode of a block is listed once.
    corrupt: Mutex<HashMap<BlockId, Vec<DatanodeInfo>>>,
    pub(super) counters: FileCounters,
    /// Trace of the open file; empty if it is not sampled.
    span: Span,
}

/// Memory that a read at a position fills.
enum Destination<'a> {
    Slice(&'a mut [u8]),
    /// Grows as bytes arrive, so that bytes that no datanode delivers take no memory.
    Growing(&'a mut Vec<u8>),
}

/// Room by which a vector grows: as many bytes as a stream of the local path copies at once.
const GROWTH_BYTES: usize = 4 << 20;

impl Destination<'_> {
    /// Returns the room for the bytes from `filled` to `wanted`, or for the first of them.
    fn room(&mut self, filled: usize, wanted: usize) -> &mut [u8] {
        match self {
            Self::Slice(into) => &mut into[filled..wanted],
            Self::Growing(bytes) => {
                let end = wanted.min(filled.saturating_add(GROWTH_BYTES));
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                &mut bytes[filled..end]
            }
        }
    }
}

/// Outcome of an attempt to show bytes in place.
enum Shown {
    View(View),
    /// No replica that may be read locally can be mapped.
    NotMapped,
    /// The same, because the bytes of one did not match their checksums.
    Corrupt,
}

/// Failures of one read, and the number of rounds in which all replicas failed.
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
    pub(super) fn new(session: Arc<Session>, locations: Locations, checks: Checks, span: Span) -> Self {
        Self {
            session,
            locations,
            checks,
            dead: Mutex::default(),
            mapped_cache: MappedCache::default(),
            corrupt: Mutex::default(),
            counters: FileCounters::default(),
            span,
        }
    }

    /// Opens a stream of the block at `position`, to its end, or of at most `length` bytes.
    pub(super) async fn open(
        &self,
        position: u64,
        length: Option<u64>,
        failures: &mut Failures,
    ) -> Result<BlockStream, Error> {
        trace::within(self.span.context(), self.open_any(position, length, failures)).await
    }

    async fn open_any(
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
            if let Some(stream) = self.open_candidate(candidate, position, length, failures).await? {
                return Ok(stream);
            }
        }
    }

    /// Opens a stream of the bytes from `position` on over `candidate`: at most `length`, and not beyond the end of the
    /// block. Returns `None` after a failure that leaves other candidates.
    async fn open_candidate(
        &self,
        candidate: Candidate,
        position: u64,
        length: Option<u64>,
        failures: &mut Failures,
    ) -> Result<Option<BlockStream>, Error> {
        let block = &candidate.block;
        let (start, all) = (position - block.offset, block.block.length());
        let end = length.map_or(all, |length| start.saturating_add(length).min(all));
        let range = ByteRange::new(start, end).ok_or_else(|| Failure::FileChanged {
            path: self.locations.path().to_owned(),
            why: format!("block {} is shorter than it was", block.block),
        })?;
        match BlockStream::open(&self.session, candidate, range, self.checks).await {
            Ok(stream) => {
                if self.session.options.read.paths.first() == DataPath::Local
                    && let Some(replica) = stream.local_replica()
                {
                    self.mapped_cache.insert(&stream.candidate().block, replica);
                }
                Ok(Some(stream))
            }
            Err((candidate, error)) => {
                self.handle_failure(&candidate, error, failures).await?;
                Ok(None)
            }
        }
    }

    /// Fills `into` from `offset` on, as far as possible without waiting.
    pub(super) fn read_mapped(&self, offset: u64, into: &mut [u8]) -> usize {
        let filled = self.mapped_cache.read(offset, into, &self.session.counters);
        self.counters.count_read(DataPath::Local, filled);
        filled
    }

    /// Returns the candidate that a read of the byte at `position` would try first, or `None` if all have failed.
    pub(super) async fn candidate_at(&self, position: u64) -> Option<Candidate> {
        let block = self.locations.block_at(position).await.ok()?;
        self.choose(&block).ok()?
    }

    /// Maps the replica with the byte at `position`, if a read of it would go through this machine's memory. Returns
    /// whether it is mapped.
    pub(super) async fn map_at(&self, position: u64) -> Result<bool, Error> {
        if position >= self.locations.length() {
            return Ok(false);
        }
        let Some(candidate) = self.candidate_at(position).await else { return Ok(false) };
        // Short replicas share memory with others and are not mapped.
        if candidate.path != DataPath::Local || candidate.block.block.length() <= SMALL_BYTES {
            return Ok(false);
        }
        let stream = self.open(position, Some(1), &mut Failures::default()).await?;
        Ok(stream.local_replica().is_some_and(|replica| replica.mapped().is_some()))
    }

    /// Returns how many of `length` bytes from `offset` on the file has.
    fn available(&self, offset: u64, length: usize) -> usize {
        let available = self.locations.length().saturating_sub(offset);
        length.min(usize::try_from(available).unwrap_or(usize::MAX))
    }

    /// Reads `into` from `offset` on.
    pub(super) async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let wanted = self.available(offset, into.len());
        self.fill(offset, wanted, Destination::Slice(into)).await
    }

    /// Returns at most `length` bytes from `offset` on, fewer only at the end of the file.
    ///
    /// Errors: also kind `OutOfMemory`, if the system refuses that much memory.
    pub(super) async fn read_vec(&self, offset: u64, length: usize) -> Result<Vec<u8>, Error> {
        let wanted = self.available(offset, length);
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(wanted)
            .map_err(|_| Failure::OutOfMemory { path: self.locations.path().to_owned(), bytes: wanted as u64 })?;
        let filled = self.fill(offset, wanted, Destination::Growing(&mut bytes)).await?;
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Reads `wanted` bytes of the file, which has them, from `offset` on.
    async fn fill(&self, offset: u64, wanted: usize, mut into: Destination<'_>) -> Result<usize, Error> {
        let mut filled = self.read_mapped(offset, into.room(0, wanted));
        let mut failures = Failures::default();
        while filled < wanted {
            let position = offset + filled as u64;
            let mut stream = self.open(position, Some((wanted - filled) as u64), &mut failures).await?;
            loop {
                match stream.read(&self.session, into.room(filled, wanted)).await {
                    Ok(0) => {
                        stream.finish(&self.session);
                        break;
                    }
                    Ok(count) => {
                        filled += count;
                        self.counters.count_read(stream.candidate().path, count);
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

    /// Returns the bytes from `offset` on: at most `length`, and not beyond the end of their block. Shown in place if
    /// possible, and verified as `checks` says.
    pub(super) async fn view(&self, offset: u64, length: usize, checks: ViewChecks) -> Result<View, Error> {
        let wanted = self.available(offset, length);
        match self.show(offset, wanted, checks).await? {
            Shown::View(view) => Ok(view),
            Shown::NotMapped | Shown::Corrupt => self.copied(offset, wanted).await,
        }
    }

    /// Like `view`, but returns `None` if the bytes cannot be shown in place.
    pub(super) async fn view_in_place(
        &self,
        offset: u64,
        length: usize,
        checks: ViewChecks,
    ) -> Result<Option<View>, Error> {
        let wanted = self.available(offset, length);
        match self.show(offset, wanted, checks).await? {
            Shown::View(view) => Ok(Some(view)),
            Shown::NotMapped => Ok(None),
            // The last path to the replica decides whether it is corrupt and reported. A caller that wants no copy reads
            // none of the others, so they are read for it.
            Shown::Corrupt => self.copied(offset, wanted).await.map(|_| None),
        }
    }

    /// Copies at most `wanted` bytes from `offset` on, up to the end of their block.
    async fn copied(&self, offset: u64, wanted: usize) -> Result<View, Error> {
        let block = self.locations.block_at(offset).await?;
        let left = block.offset.saturating_add(block.block.length()).saturating_sub(offset);
        let bytes = self.read_vec(offset, wanted.min(usize::try_from(left).unwrap_or(usize::MAX))).await?;
        Ok(View::copied(bytes))
    }

    /// Shows at most `wanted` bytes from `offset` on, up to the end of their block. A replica whose bytes do not pass
    /// `checks` counts as failed, as if a stream had read it.
    async fn show(&self, offset: u64, wanted: usize, checks: ViewChecks) -> Result<Shown, Error> {
        if wanted == 0 {
            return Ok(Shown::View(View::copied(Vec::new())));
        }
        if let Some(view) = self.mapped_cache.view(offset, wanted)
            && view.check(checks).await.is_ok()
        {
            return Ok(self.viewed(view));
        }
        let (mut failures, mut corrupt) = (Failures::default(), false);
        loop {
            let block = self.locations.block_at(offset).await?;
            let Some(candidate) = self.choose_local(&block) else { break };
            let Some(stream) = self.open_candidate(candidate, offset, Some(wanted as u64), &mut failures).await? else {
                continue;
            };
            let candidate = stream.candidate();
            let start = offset - candidate.block.offset;
            let end = start.saturating_add(wanted as u64).min(candidate.block.block.length());
            let Some(view) = stream.local_replica().and_then(|replica| View::of(replica, start, end)) else { break };
            match view.check(checks).await {
                Ok(()) => {
                    self.note_success(&candidate.block, &mut failures).await;
                    return Ok(self.viewed(view));
                }
                Err(source) => {
                    let error = stream.bad(&self.session, start, source);
                    corrupt |= matches!(error, DatanodeError::Checksum { .. });
                    self.handle_failure(candidate, error, &mut failures).await?;
                }
            }
        }
        Ok(if corrupt { Shown::Corrupt } else { Shown::NotMapped })
    }

    fn viewed(&self, view: View) -> Shown {
        self.session.counters.count_read(DataPath::Local, view.len());
        self.counters.count_shown(view.len());
        Shown::View(view)
    }

    /// Returns the index of a replica that this client has mapped and may read. With several DataNodes on this machine, a
    /// client would else map each replica of a block, because the NameNode's order of them is random.
    fn mapped_replica(&self, block: &LocatedBlock, being_written: bool) -> Option<usize> {
        let first_path = self.checks.paths(&self.session.options.read.paths).next();
        let may_choose = block.locations.len() > 1 && first_path == Some(DataPath::Local) && !being_written;
        if !may_choose || block.block.length() <= SMALL_BYTES {
            return None;
        }
        let is_mapped = |datanode: &DatanodeInfo| {
            let cached = self.session.short_circuit.cached_replica(&block.block, &datanode.id.uuid);
            cached.is_some_and(|replica| replica.mapped().is_some())
                && candidate::health(&self.session, block, being_written, datanode, DataPath::Local) == Health::Healthy
        };
        let mapped = block.locations.iter().enumerate().filter(|(_, datanode)| is_mapped(datanode));
        // Of two, all readers choose the same, so that the other mapping ends.
        mapped.min_by(|one, other| one.1.id.uuid.0.cmp(&other.1.id.uuid.0)).map(|(replica, _)| replica)
    }

    /// Returns the first replica for which the local path is the next one to try, or `None` if no replica is like that.
    fn choose_local(&self, block: &Arc<LocatedBlock>) -> Option<Candidate> {
        let paths = || self.checks.paths(&self.session.options.read.paths);
        let being_written = self.locations.is_being_written(block);
        let mapped = self.mapped_replica(block, being_written);
        let dead = self.dead.lock();
        let mut suspect = None;
        for replica in in_order(block, mapped, &dead) {
            let datanode = &block.locations[replica];
            for path in paths() {
                let candidate = || Candidate { block: Arc::clone(block), replica, path };
                if is_dead(&dead, &datanode.id.uuid, path) {
                    continue;
                }
                match candidate::health(&self.session, block, being_written, datanode, path) {
                    Health::Healthy if path == DataPath::Local => return Some(candidate()),
                    // The configuration prefers this path to the local one.
                    Health::Healthy => break,
                    Health::Suspect if path == DataPath::Local => suspect = suspect.or_else(|| Some(candidate())),
                    Health::Suspect | Health::Unusable(_) => {}
                }
            }
        }
        // As for streams, a path that failed other readers is used only if there is no other.
        suspect.filter(|_| paths().all(|path| path == DataPath::Local))
    }

    /// Returns the first path to the first replica that has not failed. Candidates that recently failed other readers
    /// come last. Returns `None` if all failed.
    ///
    /// Errors: `NoPath`, if no permitted path leads to any of the replicas.
    fn choose(&self, block: &Arc<LocatedBlock>) -> Result<Option<Candidate>, Error> {
        let paths = &self.session.options.read.paths;
        let being_written = self.locations.is_being_written(block);
        let mapped = self.mapped_replica(block, being_written);
        let dead = self.dead.lock();
        let (mut suspect, mut unusable) = (None, Vec::new());
        for replica in in_order(block, mapped, &dead) {
            let datanode = &block.locations[replica];
            for path in self.checks.paths(paths) {
                let candidate = || Candidate { block: Arc::clone(block), replica, path };
                match candidate::health(&self.session, block, being_written, datanode, path) {
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
        Err(Failure::NoPath {
            path: self.locations.path().to_owned(),
            block: Box::new(block.block.clone()),
            allowed: paths.to_string(),
            reasons: reasons.join("; "),
        }
        .into())
    }

    /// Handles a failure of an open stream. If it had delivered bytes and was closed, it may only have been idle for
    /// longer than its datanode waits, or the datanode restarted. The same candidate is then tried once more; a stream
    /// that delivers nothing has failed.
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
        tracing::info!(file, block = %candidate.block.block, %datanode, %path, %error, "continuing over a new connection");
        failures.last = Some(Arc::new(error));
        Ok(())
    }

    /// Records the consequences of a failure. Returns `Ok` if the read should continue.
    pub(super) async fn handle_failure(
        &self,
        candidate: &Candidate,
        error: DatanodeError,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        let Candidate { block, path, .. } = candidate;
        let datanode = candidate.datanode();
        // Expected failures that every reader meets now and then are not warned about.
        let usual = match error.cause() {
            DatanodeError::AccessToken { .. } => !failures.token_refreshed,
            DatanodeError::Withdrawn { .. } => !failures.withdrawn,
            DatanodeError::NotAdvertised { .. } | DatanodeError::NoDomainSocket { .. } => true,
            _ => false,
        };
        let file = self.locations.path();
        if !usual && self.session.datanodes.warning_limit.is_due(&datanode.id.uuid, *path, Instant::now()) {
            tracing::warn!(file, block = %block.block, datanode = %datanode.id, %path, %error, "read failed, trying another path or replica");
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
            // Opening it again gives the replica that the datanode serves now. If that is soon withdrawn too, another
            // path is better.
            DatanodeError::Withdrawn { .. } if !failures.withdrawn => {
                failures.withdrawn = true;
                failures.last = Some(Arc::new(error));
                return Ok(());
            }
            // Only the last path to the replica decides that it is corrupt: bytes may have been damaged on another
            // path.
            DatanodeError::Checksum { .. } if self.is_last_path(candidate) => {
                let mut corrupt = self.corrupt.lock();
                let bad = corrupt.entry(block.block.id()).or_default();
                // Several reads may find the same corrupt replica at once.
                if bad.iter().all(|known| known.id.uuid != datanode.id.uuid) {
                    bad.push(datanode.clone());
                }
            }
            DatanodeError::Transfer(TransferError::Connection(_)) if *path == DataPath::Packets => {
                self.session.datanodes.unreachable.insert(datanode.id.uuid.clone())
            }
            // The datanode does not respond to any reader that shares the connection.
            DatanodeError::SharedConnection { source } if source.is_time_out() && *path == DataPath::Packets => {
                self.session.datanodes.unreachable.insert(datanode.id.uuid.clone())
            }
            // This concerns only this replica, and is remembered for a while.
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

    /// Returns true if all other paths to the replica of `candidate` are unusable, or have recently failed this reader
    /// or another. None of those is tried before the next replica, which may well complete the read.
    fn is_last_path(&self, candidate: &Candidate) -> bool {
        let datanode = candidate.datanode();
        let being_written = self.locations.is_being_written(&candidate.block);
        let dead = self.dead.lock();
        self.checks.paths(&self.session.options.read.paths).filter(|path| *path != candidate.path).all(|path| {
            is_dead(&dead, &datanode.id.uuid, path)
                || candidate::health(&self.session, &candidate.block, being_written, datanode, path) != Health::Healthy
        })
    }

    /// Handles the failure of all replicas: waits, clears the failures, and asks the namenode again. Limited to a few
    /// rounds.
    async fn handle_exhausted(
        &self,
        block: &LocatedBlock,
        position: u64,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        self.report_corrupt(block).await;
        failures.rounds += 1;
        // Before any await, where the call may be dropped: a later read then tries all replicas again.
        self.dead.lock().clear();
        if failures.rounds > self.session.options.read.block_acquire_failures {
            return Err(Failure::BlockMissing {
                block: Box::new(block.block.clone()),
                path: self.locations.path().to_owned(),
                source: std::mem::take(failures).last,
            }
            .into());
        }
        tokio::time::sleep(self.pause(failures.rounds - 1)).await;
        self.locations.refresh(position).await?;
        Ok(())
    }

    /// Returns the pause before the next round. It grows with the rounds and has a random part, so that the readers of
    /// a lost block do not retry in step.
    fn pause(&self, round: u32) -> Duration {
        let window = self.session.options.read.retry_window;
        window * round + backoff::random_part(window * (round + 1))
    }

    /// Called when verified bytes of the block arrived: clears the failures and reports corrupt replicas.
    pub(super) async fn note_success(&self, block: &LocatedBlock, failures: &mut Failures) {
        if !failures.is_none() {
            *failures = Failures::default();
            self.report_corrupt(block).await;
        }
    }

    /// Reports corrupt replicas to the namenode, unless all of several replicas seemed corrupt: then the fault may be
    /// in this client. Waits for the report, because a process that has its bytes may exit at any moment, but not for
    /// long.
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
        let session = Arc::clone(&self.session);
        let told = tokio::spawn(async move {
            if let Err(error) = session.namenode.report_bad_blocks(&[report]).await {
                tracing::warn!(%error, "cannot report corrupt replicas to the namenode");
            }
        });
        // After the time-out, the report continues in its own task.
        let _ = tokio::time::timeout(REPORT_TIMEOUT, told).await;
    }
}

/// Returns true if the datanode closed the connection. A time-out does not count.
fn is_closed(error: &DatanodeError) -> bool {
    matches!(error, DatanodeError::Transfer(error) if error.is_closed())
}

/// Time that a reader waits for its report of a corrupt replica.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a failed path is not tried again while a reader has others. `Packets`, over which every replica can
/// be read, is not tried again until no other path is left.
const FAILURE_BACKOFF: Duration = Duration::from_secs(60);

/// Replicas and the paths to them that have failed, with the time.
type Dead = HashMap<(DatanodeUuid, DataPath), Instant>;

/// Returns the indexes of the block's replicas in the order in which they are tried: the NameNode's, after `mapped`.
fn in_order(block: &LocatedBlock, mapped: Option<usize>, dead: &Dead) -> impl Iterator<Item = usize> + use<> {
    let first = mapped.filter(|replica| !is_dead(dead, &block.locations[*replica].id.uuid, DataPath::Local));
    first.into_iter().chain((0..block.locations.len()).filter(move |replica| Some(*replica) != first))
}

fn is_dead(dead: &Dead, datanode: &DatanodeUuid, path: DataPath) -> bool {
    match dead.get(&(datanode.clone(), path)) {
        None => false,
        Some(at) => path == DataPath::Packets || at.elapsed() < FAILURE_BACKOFF,
    }
}
