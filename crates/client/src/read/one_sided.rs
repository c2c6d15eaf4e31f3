//! One replica, or a range of it, in the memory of a datanode on another machine.

use std::collections::VecDeque;
use std::sync::Arc;

use hearth_types::ByteRange;

use super::way::Way;
use crate::DatanodeError;
use crate::file_system::Shared;
use crate::one_sided::{Fetched, Opened, Posted, ReadError, ShownReplica};

/// Bytes that are fetched at a time when many are wanted, and how many such fetches are under way at once.
const WINDOW_BYTES: u64 = 1 << 20;
const WINDOWS: usize = 4;

/// Bytes that are verified, and shown, at a time.
const SHOWN_BYTES: u64 = 128 << 10;

/// Verified bytes of a replica, in order.
#[derive(Debug)]
pub(super) struct OneSidedStream {
    source: Source,
    /// Asked for, and not yet shown or copied.
    left: ByteRange,
    /// Verified, shown and not consumed: bytes from `shown_at` on.
    shown: Vec<u8>,
    shown_at: usize,
}

#[derive(Debug)]
enum Source {
    Shown(Windows),
    /// All of a small replica, verified.
    Small(Vec<u8>),
}

/// What of a replica is on its way, or has come.
#[derive(Debug)]
struct Windows {
    replica: Arc<ShownReplica>,
    /// Not posted yet. Behind `posted`, which is behind `current`, without a gap.
    rest: ByteRange,
    posted: VecDeque<(ByteRange, Posted)>,
    current: Option<(ByteRange, Fetched)>,
    /// The replica was looked for again because of a failure, and nothing has come since.
    retried: bool,
    /// It was looked for again because what came did not fit its CRCs.
    confirmed: bool,
}

impl OneSidedStream {
    /// Finds the replica of `way`, or has found it before, to read `range` of it.
    pub(super) async fn open(shared: &Shared, way: &Way, range: ByteRange) -> Result<Self, DatanodeError> {
        let opened = shared.one_sided.open(shared, &way.block, &way.datanode().id).await?;
        let source = match opened {
            Opened::Small(copy) => {
                copy.verify().map_err(|source| bad(way, 0, source))?;
                Source::Small(copy.data)
            }
            Opened::Shown(replica) => Source::Shown(Windows::new(replica, range)),
        };
        Ok(Self { source, left: range, shown: Vec::new(), shown_at: 0 })
    }

    pub(super) fn data(&self) -> &[u8] {
        &self.shown[self.shown_at..]
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.shown.len() - self.shown_at, "more consumed than there is");
        self.shown_at += bytes;
    }

    /// Fetches and verifies the next bytes; what was not consumed before is gone. False when everything asked for has come.
    pub(super) async fn advance(&mut self, shared: &Shared, way: &Way) -> Result<bool, DatanodeError> {
        let mut shown = std::mem::take(&mut self.shown);
        self.shown_at = 0;
        shown.resize(self.left.length().min(SHOWN_BYTES) as usize, 0);
        let count = self.fill(shared, way, &mut shown).await?;
        shown.truncate(count);
        self.shown = shown;
        Ok(count > 0)
    }

    /// Copies and verifies in one go into `into` (not empty). 0 when everything asked for has come.
    pub(super) async fn read(&mut self, shared: &Shared, way: &Way, into: &mut [u8]) -> Result<usize, DatanodeError> {
        let data = self.data();
        if !data.is_empty() {
            let count = data.len().min(into.len());
            into[..count].copy_from_slice(&data[..count]);
            self.consume(count);
            return Ok(count);
        }
        self.fill(shared, way, into).await
    }

    /// The next bytes, as many as come in one go.
    async fn fill(&mut self, shared: &Shared, way: &Way, into: &mut [u8]) -> Result<usize, DatanodeError> {
        if self.left.is_empty() || into.is_empty() {
            return Ok(0);
        }
        let start = self.left.start();
        let most = self.left.length().min(into.len() as u64);
        let count = match &mut self.source {
            Source::Small(data) => {
                let from = start as usize;
                into[..most as usize].copy_from_slice(&data[from..from + most as usize]);
                most
            }
            Source::Shown(windows) => loop {
                let (end, fetched) = windows.at(shared, way, start).await?;
                let count = most.min(end - start);
                match fetched.copy(0, start, &mut into[..count as usize]) {
                    Ok(()) => break count,
                    Err((at, source)) if fetched.is_confirmed() => return Err(bad(way, at, source)),
                    Err(_) => windows.look_again(shared, way, start, ReadError::Unconfirmed).await?,
                }
            },
        };
        self.left = ByteRange::new(start + count, self.left.end()).expect("a part of it");
        Ok(count as usize)
    }
}

impl Windows {
    fn new(replica: Arc<ShownReplica>, rest: ByteRange) -> Self {
        Self { replica, rest, posted: VecDeque::new(), current: None, retried: false, confirmed: false }
    }

    /// What holds the byte at `start`, and where it ends.
    async fn at(&mut self, shared: &Shared, way: &Way, start: u64) -> Result<(u64, &Fetched), DatanodeError> {
        loop {
            if let Some((range, _)) = &self.current
                && range.end() > start
            {
                break;
            }
            self.current = None;
            match self.next().await {
                Ok(next) => {
                    self.retried = false;
                    self.current = Some(next);
                }
                Err(error) => self.look_again(shared, way, start, error).await?,
            }
        }
        let (range, fetched) = self.current.as_ref().expect("it was just found");
        Ok((range.end(), fetched))
    }

    /// The next window, in order.
    async fn next(&mut self) -> Result<(ByteRange, Fetched), ReadError> {
        while self.posted.len() < WINDOWS && !self.rest.is_empty() {
            // Windows end on a boundary wherever the range begins.
            let end = ((self.rest.start() / WINDOW_BYTES + 1) * WINDOW_BYTES).min(self.rest.end());
            let window = ByteRange::new(self.rest.start(), end).expect("a part of it");
            match self.replica.post(&[window]) {
                Ok(posted) => self.posted.push_back((window, posted)),
                // What is on its way is still good.
                Err(_) if !self.posted.is_empty() => break,
                Err(error) => return Err(error),
            }
            self.rest = ByteRange::new(end, self.rest.end()).expect("a part of it");
        }
        let (_, posted) = self.posted.front_mut().expect("there is something left");
        // Whoever breaks off here finds it in its place the next time.
        let over = posted.over().await;
        let (window, posted) = self.posted.pop_front().expect("it has been waited for");
        over?;
        Ok((window, posted.fetched()?))
    }

    /// Finds the replica anew after a failure; once, then the failure is the caller's. Whoever breaks it off reads on from `start`.
    async fn look_again(
        &mut self,
        shared: &Shared,
        way: &Way,
        start: u64,
        error: ReadError,
    ) -> Result<(), DatanodeError> {
        let datanode = &way.datanode().id;
        shared.one_sided.forget(&way.block, datanode, &self.replica);
        let withdrawn = || DatanodeError::Withdrawn { block: Box::new(way.block.block.clone()) };
        let confirmed = self.confirmed || matches!(error, ReadError::Unconfirmed);
        let error = match error {
            ReadError::Withdrawn => withdrawn(),
            ReadError::Unconfirmed if self.confirmed => {
                return Err(shared.one_sided.refuse(
                    &way.block,
                    datanode,
                    "the datanode does not say the same as the namenode",
                ));
            }
            ReadError::Unconfirmed => withdrawn(),
            ReadError::Network(error) => error.into(),
        };
        if self.retried {
            return Err(match error {
                // It changes faster than it can be found.
                DatanodeError::Withdrawn { .. } => {
                    shared.one_sided.refuse(&way.block, datanode, "it was withdrawn twice")
                }
                error => error,
            });
        }
        tracing::debug!(block = %way.block.block, %datanode, %error, "looking for the replica again");
        self.posted.clear();
        self.current = None;
        self.rest = ByteRange::new(start, self.rest.end()).expect("what comes is before what is left");
        match shared.one_sided.open(shared, &way.block, datanode).await? {
            Opened::Shown(replica) => {
                self.replica = replica;
                (self.retried, self.confirmed) = (true, confirmed);
                Ok(())
            }
            // Another replica than the one that was begun.
            Opened::Small(_) => Err(withdrawn()),
        }
    }
}

fn bad(way: &Way, offset: u64, source: hearth_types::ChecksumError) -> DatanodeError {
    DatanodeError::Checksum { block: Box::new(way.block.block.clone()), offset, source }
}
