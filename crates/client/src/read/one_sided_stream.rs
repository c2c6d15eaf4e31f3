//! One replica, or a range of it, in the memory of a datanode on another machine.

use std::collections::VecDeque;
use std::sync::Arc;

use hearth_types::ByteRange;

use super::candidate::Candidate;
use crate::DatanodeError;
use crate::file_system::Shared;
use crate::one_sided::{AdvertisedReplica, CompletedRead, OpenRemoteReplica, PostedRead, ReadError};

/// Bytes that are fetched at a time when many are wanted, and how many such fetches are under way at once.
const WINDOW_BYTES: u64 = 1 << 20;
const WINDOWS: usize = 4;

/// Bytes that are verified, and shown, at a time.
const SHOWN_BYTES: u64 = 128 << 10;

/// Verified bytes of a replica, in order.
#[derive(Debug)]
pub(super) struct OneSidedStream {
    source: OneSidedSource,
    /// Asked for, and not yet shown or copied.
    left: ByteRange,
    /// Verified, shown and not consumed: bytes from `shown_at` on.
    shown: Vec<u8>,
    shown_at: usize,
}

#[derive(Debug)]
enum OneSidedSource {
    Advertised(Windows),
    /// All of a small replica, verified.
    Small(Vec<u8>),
}

/// What of a replica is on its way, or has come.
#[derive(Debug)]
struct Windows {
    replica: Arc<AdvertisedReplica>,
    /// Not posted yet. Behind `posted`, which is behind `current`, without a gap.
    rest: ByteRange,
    posted: VecDeque<(ByteRange, PostedRead)>,
    current: Option<(ByteRange, CompletedRead)>,
    /// The replica was looked for again because of a failure, and nothing has come since.
    retried: bool,
    /// It was looked for again because what came did not fit its CRCs.
    confirmed: bool,
}

impl OneSidedStream {
    /// Finds the replica of `candidate`, or has found it before, to read `range` of it.
    pub(super) async fn open(shared: &Shared, candidate: &Candidate, range: ByteRange) -> Result<Self, DatanodeError> {
        let opened = shared.one_sided.open(shared, &candidate.block, &candidate.datanode().id).await?;
        let source = match opened {
            OpenRemoteReplica::Small(copy) => {
                copy.verify().map_err(|source| bad(candidate, 0, source))?;
                OneSidedSource::Small(copy.data)
            }
            OpenRemoteReplica::Advertised(replica) => OneSidedSource::Advertised(Windows::new(replica, range)),
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
    pub(super) async fn advance(&mut self, shared: &Shared, candidate: &Candidate) -> Result<bool, DatanodeError> {
        let mut shown = std::mem::take(&mut self.shown);
        self.shown_at = 0;
        shown.resize(self.left.length().min(SHOWN_BYTES) as usize, 0);
        let count = self.fill(shared, candidate, &mut shown).await?;
        shown.truncate(count);
        self.shown = shown;
        Ok(count > 0)
    }

    /// Copies and verifies in one go into `into` (not empty). 0 when everything asked for has come.
    pub(super) async fn read(
        &mut self,
        shared: &Shared,
        candidate: &Candidate,
        into: &mut [u8],
    ) -> Result<usize, DatanodeError> {
        let data = self.data();
        if !data.is_empty() {
            let count = data.len().min(into.len());
            into[..count].copy_from_slice(&data[..count]);
            self.consume(count);
            return Ok(count);
        }
        self.fill(shared, candidate, into).await
    }

    /// The next bytes, as many as come in one go.
    async fn fill(&mut self, shared: &Shared, candidate: &Candidate, into: &mut [u8]) -> Result<usize, DatanodeError> {
        if self.left.is_empty() || into.is_empty() {
            return Ok(0);
        }
        let start = self.left.start();
        let most = self.left.length().min(into.len() as u64);
        let count = match &mut self.source {
            OneSidedSource::Small(data) => {
                let from = start as usize;
                into[..most as usize].copy_from_slice(&data[from..from + most as usize]);
                most
            }
            OneSidedSource::Advertised(windows) => loop {
                let (end, fetched) = windows.at(shared, candidate, start).await?;
                let count = most.min(end - start);
                match fetched.copy(0, start, &mut into[..count as usize]) {
                    Ok(()) => break count,
                    Err((at, source)) if fetched.is_confirmed() => return Err(bad(candidate, at, source)),
                    Err(_) => windows.confirm_again(shared, candidate, start, ReadError::Unconfirmed).await?,
                }
            },
        };
        self.left = ByteRange::new(start + count, self.left.end()).expect("a part of it");
        Ok(count as usize)
    }
}

impl Windows {
    fn new(replica: Arc<AdvertisedReplica>, rest: ByteRange) -> Self {
        Self { replica, rest, posted: VecDeque::new(), current: None, retried: false, confirmed: false }
    }

    /// What holds the byte at `start`, and where it ends.
    async fn at(
        &mut self,
        shared: &Shared,
        candidate: &Candidate,
        start: u64,
    ) -> Result<(u64, &CompletedRead), DatanodeError> {
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
                Err(error) => self.confirm_again(shared, candidate, start, error).await?,
            }
        }
        let (range, fetched) = self.current.as_ref().expect("it was just found");
        Ok((range.end(), fetched))
    }

    /// The next window, in order.
    async fn next(&mut self) -> Result<(ByteRange, CompletedRead), ReadError> {
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
        let over = posted.wait().await;
        let (window, posted) = self.posted.pop_front().expect("it has been waited for");
        over?;
        Ok((window, posted.complete()?))
    }

    /// Finds the replica anew after a failure; once, then the failure is the caller's. Whoever breaks it off reads on from `start`.
    async fn confirm_again(
        &mut self,
        shared: &Shared,
        candidate: &Candidate,
        start: u64,
        error: ReadError,
    ) -> Result<(), DatanodeError> {
        let datanode = &candidate.datanode().id;
        shared.one_sided.forget(&candidate.block, datanode, &self.replica);
        let withdrawn = || DatanodeError::Withdrawn { block: Box::new(candidate.block.block.clone()) };
        let confirmed = self.confirmed || matches!(error, ReadError::Unconfirmed);
        let error = match error {
            ReadError::Withdrawn => withdrawn(),
            ReadError::Unconfirmed if self.confirmed => {
                return Err(shared.one_sided.note_refusal(
                    &candidate.block,
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
                    shared.one_sided.note_refusal(&candidate.block, datanode, "it was withdrawn twice")
                }
                error => error,
            });
        }
        tracing::debug!(block = %candidate.block.block, %datanode, %error, "looking for the replica again");
        self.posted.clear();
        self.current = None;
        self.rest = ByteRange::new(start, self.rest.end()).expect("what comes is before what is left");
        match shared.one_sided.open(shared, &candidate.block, datanode).await? {
            OpenRemoteReplica::Advertised(replica) => {
                self.replica = replica;
                (self.retried, self.confirmed) = (true, confirmed);
                Ok(())
            }
            // Another replica than the one that was begun.
            OpenRemoteReplica::Small(_) => Err(withdrawn()),
        }
    }
}

fn bad(candidate: &Candidate, offset: u64, source: hearth_types::ChecksumError) -> DatanodeError {
    DatanodeError::Checksum { block: Box::new(candidate.block.block.clone()), offset, source }
}
