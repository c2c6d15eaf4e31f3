//! Stream of a replica, or a range of it, in the memory of a remote datanode. Posts several one-sided reads ahead,
//! verifies their bytes, and looks the replica up again if it was withdrawn.

use std::collections::VecDeque;
use std::sync::Arc;

use hearth_fabric::local;
use hearth_types::ByteRange;

use super::candidate::Candidate;
use super::window::VerifiedWindow;
use crate::DatanodeError;
use crate::one_sided::{AdvertisedReplica, CompletedRead, OneSided, OpenRemoteReplica, PostedRead, ReadError};

/// Bytes per fetch of a long range, and the number of such fetches in flight.
const WINDOW_BYTES: u64 = 1 << 20;
const WINDOWS: usize = 4;

/// Bytes that are verified and shown at a time.
const SHOWN_BYTES: u64 = 128 << 10;

/// Verified bytes of a replica, in order.
#[derive(Debug)]
pub(super) struct OneSidedStream {
    source: OneSidedSource,
    pub window: VerifiedWindow,
    /// Copy of the shown bytes, and the offset in the block at which it starts.
    copy: Vec<u8>,
    copy_start: u64,
}

#[derive(Debug)]
enum OneSidedSource {
    Advertised(Windows),
    /// All bytes of a small replica, verified.
    Small(Vec<u8>),
}

/// Fetches of a replica that are in flight or completed.
#[derive(Debug)]
struct Windows {
    replica: Arc<AdvertisedReplica>,
    /// Range not posted yet. Follows `posted`, which follows `current`, without a gap.
    rest: ByteRange,
    posted: VecDeque<(ByteRange, PostedRead)>,
    current: Option<(ByteRange, CompletedRead)>,
    /// The replica was looked up again after a failure, and nothing has arrived since.
    retried: bool,
    /// The replica was looked up again because its bytes did not match their CRCs.
    confirmed: bool,
}

impl OneSidedStream {
    /// Looks up the replica of `candidate`, or uses a cached lookup, to read `range` of it.
    pub(super) async fn open(
        one_sided: &OneSided,
        candidate: &Candidate,
        range: ByteRange,
    ) -> Result<Self, DatanodeError> {
        let opened = one_sided.open(&candidate.block, &candidate.datanode().id).await?;
        let source = match opened {
            OpenRemoteReplica::Small(copy) => {
                copy.verify().map_err(|source| candidate.checksum_error(0, source))?;
                OneSidedSource::Small(copy.data)
            }
            OpenRemoteReplica::Advertised(replica) => OneSidedSource::Advertised(Windows::new(replica, range)),
        };
        Ok(Self { source, window: VerifiedWindow::new(range), copy: Vec::new(), copy_start: range.start() })
    }

    pub(super) fn data(&self) -> &[u8] {
        self.window.of(&self.copy, self.copy_start)
    }

    /// Fetches and verifies the next bytes; unconsumed bytes are dropped. Returns false when all requested bytes have
    /// been shown.
    pub(super) async fn advance(&mut self, one_sided: &OneSided, candidate: &Candidate) -> Result<bool, DatanodeError> {
        self.window.clear();
        let mut copy = std::mem::take(&mut self.copy);
        let next = self.window.next(SHOWN_BYTES);
        copy.resize(next.length() as usize, 0);
        let count = self.fill(one_sided, candidate, &mut copy).await?;
        (self.copy, self.copy_start) = (copy, next.start());
        self.window.show(next.start() + count as u64);
        Ok(count > 0)
    }

    /// Copies and verifies bytes in one pass into `into` (not empty). Nothing may be shown. Returns 0 when all requested bytes have been
    /// read.
    pub(super) async fn read(
        &mut self,
        one_sided: &OneSided,
        candidate: &Candidate,
        into: &mut [u8],
    ) -> Result<usize, DatanodeError> {
        let count = self.fill(one_sided, candidate, into).await?;
        self.window.skip(count as u64);
        Ok(count)
    }

    /// Copies the next of the bytes left, as many as one fetch contains. The window still counts them as left.
    async fn fill(
        &mut self,
        one_sided: &OneSided,
        candidate: &Candidate,
        into: &mut [u8],
    ) -> Result<usize, DatanodeError> {
        let left = self.window.left();
        if left.is_empty() || into.is_empty() {
            return Ok(0);
        }
        let start = left.start();
        let most = left.length().min(into.len() as u64);
        let count = match &mut self.source {
            OneSidedSource::Small(data) => {
                let from = start as usize;
                local::copy(&data[from..from + most as usize], &mut into[..most as usize]);
                most
            }
            OneSidedSource::Advertised(windows) => loop {
                let (end, fetched) = windows.at(one_sided, candidate, start).await?;
                let count = most.min(end - start);
                match fetched.copy(0, start, &mut into[..count as usize]) {
                    Ok(()) => break count,
                    Err((at, source)) if fetched.is_confirmed() => return Err(candidate.checksum_error(at, source)),
                    Err(_) => windows.confirm_again(one_sided, candidate, start, ReadError::Unconfirmed).await?,
                }
            },
        };
        Ok(count as usize)
    }
}

impl Windows {
    fn new(replica: Arc<AdvertisedReplica>, rest: ByteRange) -> Self {
        Self { replica, rest, posted: VecDeque::new(), current: None, retried: false, confirmed: false }
    }

    /// Returns the completed read that holds the byte at `start`, and the offset at which it ends.
    async fn at(
        &mut self,
        one_sided: &OneSided,
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
                Err(error) => self.confirm_again(one_sided, candidate, start, error).await?,
            }
        }
        let (range, fetched) = self.current.as_ref().expect("it was just found");
        Ok((range.end(), fetched))
    }

    /// Waits for the next window, in order.
    async fn next(&mut self) -> Result<(ByteRange, CompletedRead), ReadError> {
        while self.posted.len() < WINDOWS && !self.rest.is_empty() {
            // Windows end on a boundary, regardless of where the range begins.
            let end = ((self.rest.start() / WINDOW_BYTES + 1) * WINDOW_BYTES).min(self.rest.end());
            let window = ByteRange::new(self.rest.start(), end).expect("a part of it");
            match self.replica.post(&[window]) {
                Ok(posted) => self.posted.push_back((window, posted)),
                // The reads in flight are still good.
                Err(_) if !self.posted.is_empty() => break,
                Err(error) => return Err(error),
            }
            self.rest = ByteRange::new(end, self.rest.end()).expect("a part of it");
        }
        let (_, posted) = self.posted.front_mut().expect("a read is posted while bytes are left");
        // Cancel safe: if dropped here, the read stays in its place for the next call.
        let over = posted.wait().await;
        let (window, posted) = self.posted.pop_front().expect("the read was waited for");
        over?;
        Ok((window, posted.complete()?))
    }

    /// Looks the replica up again after a failure. This is done once; a second failure is returned to the caller. If
    /// dropped, the next call continues from `start`.
    async fn confirm_again(
        &mut self,
        one_sided: &OneSided,
        candidate: &Candidate,
        start: u64,
        error: ReadError,
    ) -> Result<(), DatanodeError> {
        let datanode = &candidate.datanode().id;
        one_sided.forget(&candidate.block, datanode, &self.replica);
        let withdrawn = || DatanodeError::Withdrawn { block: Box::new(candidate.block.block.clone()) };
        let confirmed = self.confirmed || matches!(error, ReadError::Unconfirmed);
        let error = match error {
            ReadError::Withdrawn => withdrawn(),
            ReadError::Unconfirmed if self.confirmed => {
                return Err(one_sided.note_refusal(
                    &candidate.block,
                    datanode,
                    "the datanode did not confirm the namenode's advertisement",
                ));
            }
            ReadError::Unconfirmed => withdrawn(),
            ReadError::Network(error) => error.into(),
        };
        if self.retried {
            return Err(match error {
                // The replica changes faster than it can be looked up.
                DatanodeError::Withdrawn { .. } => {
                    one_sided.note_refusal(&candidate.block, datanode, "the replica was withdrawn twice")
                }
                error => error,
            });
        }
        tracing::debug!(block = %candidate.block.block, %datanode, %error, "looking up the replica again");
        self.posted.clear();
        self.current = None;
        self.rest = ByteRange::new(start, self.rest.end()).expect("the next byte is before the rest of the range");
        match one_sided.open(&candidate.block, datanode).await? {
            OpenRemoteReplica::Advertised(replica) => {
                self.replica = replica;
                (self.retried, self.confirmed) = (true, confirmed);
                Ok(())
            }
            // The replica is not the one that was begun.
            OpenRemoteReplica::Small(_) => Err(withdrawn()),
        }
    }
}
