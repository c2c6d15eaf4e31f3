//! Which replica of a block to read, and what to do when it fails: the only retry loop of reading.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use hearth_protocol::data_transfer::TransferError;
use hearth_types::{BlockId, ByteRange, DatanodeInfo, DatanodeUuid, LocatedBlock, StorageId};
use parking_lot::Mutex;

use super::locate::Locations;
use super::packets::BlockStream;
use crate::file_system::Shared;
use crate::{DatanodeError, Error, backoff};

/// The replicas of one open file and what was learnt about them.
#[derive(Debug)]
pub(super) struct Replicas {
    pub(super) shared: Arc<Shared>,
    pub(super) locations: Locations,
    /// Datanodes that failed a read of this file; forgotten when none is left.
    dead: Mutex<HashSet<DatanodeUuid>>,
    /// Replicas whose data did not fit their checksums, not yet reported.
    corrupt: Mutex<HashMap<BlockId, Vec<DatanodeInfo>>>,
}

/// How often one read went over all replicas in vain.
#[derive(Debug, Default)]
pub(super) struct Failures {
    rounds: u32,
    token_refreshed: bool,
    last: Option<Arc<DatanodeError>>,
}

impl Failures {
    /// Bytes came.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Replicas {
    pub(super) fn new(shared: Arc<Shared>, locations: Locations) -> Self {
        Self { shared, locations, dead: Mutex::default(), corrupt: Mutex::default() }
    }

    /// Starts reading the block at `position`: to its end, or `length` bytes of it at most.
    pub(super) async fn open(
        &self,
        position: u64,
        length: Option<u64>,
        failures: &mut Failures,
    ) -> Result<(Arc<LocatedBlock>, BlockStream), Error> {
        loop {
            let block = self.locations.block_at(position).await?;
            let Some(datanode) = self.choose(&block) else {
                self.none_left(&block, position, failures).await?;
                continue;
            };
            let start = position - block.offset;
            let end = length.map_or(block.block.length(), |length| (start + length).min(block.block.length()));
            let range = ByteRange::new(start, end).ok_or_else(|| Error::FileChanged {
                path: self.locations.path().to_owned(),
                why: format!("block {} is shorter than it was", block.block),
            })?;
            match BlockStream::open(&self.shared, &block, datanode, range).await {
                Ok(stream) => return Ok((block, stream)),
                Err(error) => self.failed(&block, datanode, error, failures).await?,
            }
        }
    }

    /// Reads `into` from `offset` on.
    pub(super) async fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        let available = self.locations.length().saturating_sub(offset);
        let wanted = into.len().min(usize::try_from(available).unwrap_or(usize::MAX));
        let mut filled = 0;
        let mut failures = Failures::default();
        while filled < wanted {
            let position = offset + filled as u64;
            let (block, mut stream) = self.open(position, Some((wanted - filled) as u64), &mut failures).await?;
            loop {
                match stream.advance().await {
                    Ok(true) => {
                        let data = stream.data();
                        into[filled..filled + data.len()].copy_from_slice(data);
                        filled += data.len();
                        stream.consume(stream.data().len());
                        failures.reset();
                    }
                    Ok(false) => {
                        self.whole(&block);
                        stream.finish(&self.shared.peers);
                        break;
                    }
                    Err(error) => {
                        self.failed(&block, stream.datanode(), error, &mut failures).await?;
                        break;
                    }
                }
            }
        }
        Ok(filled)
    }

    /// The first datanode that has not failed; those that other readers could not reach come last.
    fn choose<'a>(&self, block: &'a LocatedBlock) -> Option<&'a DatanodeInfo> {
        let dead = self.dead.lock();
        let alive = || block.locations.iter().filter(|datanode| !dead.contains(&datanode.id.uuid));
        alive().find(|datanode| !self.shared.unreachable.contains(&datanode.id.uuid)).or_else(|| alive().next())
    }

    /// Draws the consequences of a failure: whether to go on is the result.
    pub(super) async fn failed(
        &self,
        block: &Arc<LocatedBlock>,
        datanode: &DatanodeInfo,
        error: DatanodeError,
        failures: &mut Failures,
    ) -> Result<(), Error> {
        tracing::info!(path = self.locations.path(), block = %block.block, datanode = %datanode.id, %error, "read failed");
        match &error {
            DatanodeError::AccessToken { .. } if !failures.token_refreshed => {
                failures.token_refreshed = true;
                failures.last = Some(Arc::new(error));
                self.locations.refresh(block.offset).await?;
                return Ok(());
            }
            DatanodeError::Checksum { .. } => {
                self.corrupt.lock().entry(block.block.id()).or_default().push(datanode.clone());
            }
            DatanodeError::Transfer(TransferError::Connection(_)) => {
                self.shared.unreachable.insert(datanode.id.uuid.clone())
            }
            _ => {}
        }
        self.dead.lock().insert(datanode.id.uuid.clone());
        failures.last = Some(Arc::new(error));
        Ok(())
    }

    /// All replicas failed: wait, forget, and ask the namenode anew, a few times.
    async fn none_left(&self, block: &LocatedBlock, position: u64, failures: &mut Failures) -> Result<(), Error> {
        self.report_corrupt(block);
        failures.rounds += 1;
        if failures.rounds > self.shared.options.block_acquire_failures {
            return Err(Error::BlockMissing {
                block: Box::new(block.block.clone()),
                path: self.locations.path().to_owned(),
                source: failures.last.clone(),
            });
        }
        tokio::time::sleep(self.pause(failures.rounds - 1)).await;
        self.dead.lock().clear();
        self.locations.refresh(position).await?;
        Ok(())
    }

    /// Grows with the rounds, with a random part, so that the readers of a lost block do not return in step.
    fn pause(&self, round: u32) -> Duration {
        let window = self.shared.options.retry_window;
        window * round + backoff::random_part(window * (round + 1))
    }

    /// A block was read to its end: replicas of it that were corrupt can be reported.
    pub(super) fn whole(&self, block: &LocatedBlock) {
        self.report_corrupt(block);
    }

    /// Tells the namenode of corrupt replicas, unless all of several seemed so: then the fault may be nearer.
    fn report_corrupt(&self, block: &LocatedBlock) {
        let Some(bad) = self.corrupt.lock().remove(&block.block.id()) else { return };
        if bad.len() >= block.locations.len() && block.locations.len() > 1 {
            return;
        }
        let report = LocatedBlock {
            block: block.block.clone(),
            offset: block.offset,
            locations: bad,
            storage_ids: Vec::<StorageId>::new(),
            storage_types: Vec::new(),
            corrupt: false,
            token: block.token.clone(),
        };
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            if let Err(error) = shared.namenode.report_bad_blocks(&[report]).await {
                tracing::warn!(%error, "corrupt replicas could not be reported");
            }
        });
    }
}
