//! Start of a block: chooses the targets of its replicas and sets up the first pipeline.

use std::sync::Arc;

use hearth_types::{DatanodeInfo, DatanodeUuid, ExtendedBlock, LocatedBlock};
use tokio::time::Instant;

use super::data_streamer::DataStreamer;
use super::packet_sender::set_up;
use super::pipeline::{Pipeline, Unacknowledged};
use super::pipeline_set_up::{Blame, PipelineFailure, SetUp, Stage, Target};
use crate::error::Failure;
use crate::namenode::Exception;
use crate::{DataPath, Error, backoff};

/// Replicas up to this many bytes share memory with other replicas in the datanode.
const LOCAL_WRITE_BYTES_MIN: usize = 64 << 10;

impl DataStreamer {
    /// Asks the namenode to allocate the next block and builds its pipeline. A datanode that cannot be reached is
    /// excluded from the next attempt. A path that fails, to any datanode, is excluded too, which does not count as an
    /// attempt.
    pub(super) async fn new_block(&mut self, unacknowledged: &mut Unacknowledged) -> Result<Pipeline, Error> {
        let attempts = self.session.options.write.block_write_retries.saturating_add(1);
        let mut last_failure = None;
        let mut failed_paths = Vec::new();
        let mut failures = 0;
        while failures < attempts {
            let excluded = self.excluded();
            let located = match self.first.take() {
                Some(allocated) => allocated,
                None => self.add_block(&excluded).await?,
            };
            let targets = targets_of(&located)?;
            let block = located.block.clone();
            let spec = SetUp {
                block: &block,
                token: &located.token,
                targets: &targets,
                stage: Stage::Create,
                acknowledged_bytes: 0,
                sent_bytes: 0,
                stamp: None,
                block_size: self.file.block_size,
            };
            let head = &targets[0].datanode.id.uuid;
            match set_up(&self.session, &spec, &self.paths(unacknowledged, head, &failed_paths)).await {
                Ok(ends) => {
                    for (datanode, path) in &failed_paths {
                        self.blame_path(datanode, *path, &targets);
                    }
                    self.pipeline_ready(&ends.0, &targets);
                    let heartbeat = self.session.datanodes.options.heartbeat();
                    return Ok(Pipeline::new(ends, block, targets, heartbeat));
                }
                Err(failure) => {
                    let PipelineFailure { bad, blame, .. } = failure;
                    tracing::info!(path = %self.file.path, %block, datanode = %targets[bad].datanode.id, %failure,
                        "cannot set up a pipeline");
                    // The first datanode may have begun a replica of this block.
                    self.abandon(&block).await?;
                    match blame {
                        Blame::Path(path) if !failure.source.is_time_out() => failed_paths.push((head.clone(), path)),
                        // A datanode that timed out is not tried by another path, which would take as long.
                        Blame::Path(_) | Blame::Datanode | Blame::Restart => {
                            self.exclude(targets[bad].datanode.clone());
                            failures += 1;
                        }
                    }
                    last_failure = Some(Arc::new(failure.source));
                }
            }
        }
        // Keeps the order of the packets for the error handling.
        unacknowledged.rewind();
        Err(Failure::PipelineSetup { path: self.file.path.clone(), attempts, source: last_failure }.into())
    }

    /// Builds the pipeline to an existing block that is not full.
    pub(super) async fn continue_block(
        &mut self,
        located: LocatedBlock,
        unacknowledged: &mut Unacknowledged,
    ) -> Result<Pipeline, Error> {
        let mut targets = targets_of(&located)?;
        // Same as in Apache's client: a block with too few replicas gets another before data is appended, or the append
        // fails.
        self.replace_if_wanted(&located.block, &mut targets).await?;
        self.rebuild(located.block.clone(), targets, unacknowledged, Stage::Append).await
    }

    /// Returns the paths by which a new block may be written to `head`. A block that begins small may stay small; its
    /// replica then shares memory that is never lent.
    fn paths(
        &self,
        unacknowledged: &Unacknowledged,
        head: &DatanodeUuid,
        failed: &[(DatanodeUuid, DataPath)],
    ) -> Vec<DataPath> {
        if unacknowledged.first_bytes() < LOCAL_WRITE_BYTES_MIN.min(self.session.options.write.packets.data_bytes) {
            return Vec::new();
        }
        let has_failed = |path| {
            // One failed path is enough to exclude the others for this block.
            !failed.is_empty() || self.session.failed_write_paths.has(head, path, Instant::now())
        };
        let paths = self.session.options.write.paths.iter().copied();
        paths.filter(|path| *path == DataPath::Packets || !has_failed(*path)).collect()
    }

    /// Records for other writers that `path` does not lead to `datanode`, once packets do: it is now the first of
    /// `targets`. If it is not the first, the datanode itself may have failed, and nothing is recorded.
    pub(super) fn blame_path(&self, datanode: &DatanodeUuid, path: DataPath, targets: &[Target]) {
        if targets.first().is_none_or(|head| head.datanode.id.uuid != *datanode) {
            return;
        }
        let now = Instant::now();
        self.session.failed_write_paths.note(datanode, path, now);
        if self.session.datanodes.warning_limit.is_due(datanode, path, now) {
            let datanode = &targets[0].datanode.id;
            tracing::warn!(file = %self.file.path, %datanode, %path, "write failed, continuing with packets");
        }
    }

    /// Calls `addBlock`, and retries while the datanodes have not reported earlier blocks to the namenode.
    async fn add_block(&mut self, excluded: &[DatanodeInfo]) -> Result<LocatedBlock, Error> {
        let retries = self.session.options.write.locate_following;
        let mut delay = retries.delay;
        let mut attempt = 0;
        loop {
            let (file, client) = (&self.file, &self.file.client_name);
            let answer =
                self.session.namenode.add_block(&file.path, file.inode, client, self.previous.as_ref(), excluded).await;
            match answer {
                Err(error) if error.exception() == Some(Exception::NotReplicatedYet) => {
                    if attempt >= retries.retries {
                        return Err(error);
                    }
                    attempt += 1;
                    tokio::time::sleep(delay).await;
                    delay = backoff::doubled(delay, retries.delay_max);
                }
                answer => return answer,
            }
        }
    }

    async fn abandon(&self, block: &ExtendedBlock) -> Result<(), Error> {
        let (file, client) = (&self.file, &self.file.client_name);
        self.session.namenode.abandon_block(&file.path, file.inode, client, block).await
    }
}

pub(super) fn targets_of(located: &LocatedBlock) -> Result<Vec<Target>, Error> {
    let count = located.locations.len();
    if count == 0 || located.storage_ids.len() != count || located.storage_types.len() != count {
        let why = format!(
            "block {} has {count} locations, {} storage ids and {} storage types",
            located.block,
            located.storage_ids.len(),
            located.storage_types.len()
        );
        return Err(Failure::Answer { method: "addBlock", why }.into());
    }
    let parts = located.locations.iter().zip(&located.storage_ids).zip(&located.storage_types);
    Ok(parts
        .map(|((datanode, storage), storage_type)| Target {
            datanode: datanode.clone(),
            storage: storage.clone(),
            storage_type: *storage_type,
        })
        .collect())
}
