//! Recovery from a broken pipeline: excludes the bad datanode, adds another if the policy asks for it, gives the block
//! a new generation stamp, and reconnects. A replica that misses this keeps the old stamp and is discarded. If only the
//! path to the first datanode broke, all datanodes stay, and the rest is sent in packets.

use std::sync::Arc;

use hearth_types::ExtendedBlock;
use tokio::time::Instant;

use super::block::targets_of;
use super::data_streamer::DataStreamer;
use super::packet_sender::set_up;
use super::packets::transfer;
use super::pipeline::{Pipeline, Unacknowledged};
use super::pipeline_set_up::{Blame, PipelineFailure, SetUp, Stage, Target};
use crate::error::Failure;
use crate::{DatanodeError, Error};

/// Maximum number of recoveries without another packet being acknowledged.
const RECOVERIES_PER_PACKET_MAX: u32 = 5;

impl DataStreamer {
    /// Returns a pipeline to the remaining datanodes, with the unacknowledged packets to be sent again. Returns `None`
    /// if the block was complete and the recovery closed it; the block is then in `previous`.
    pub(super) async fn recover(
        &mut self,
        mut broken: Pipeline,
        unacknowledged: &mut Unacknowledged,
        failure: PipelineFailure,
    ) -> Result<Option<Pipeline>, Error> {
        unacknowledged.rewind();
        self.count_recovery(&failure)?;
        let block = broken.block().clone();
        let mut targets = std::mem::take(&mut broken.targets);
        // Ends the connection, so that datanodes stop waiting for packets of the old pipeline.
        drop(broken);
        let (mut blame, head) = (failure.blame, targets[0].datanode.id.uuid.clone());
        if matches!(blame, Blame::Path(_)) && failure.source.is_time_out() && targets.len() > 1 {
            // By another path the datanode would be as silent, and there are other datanodes.
            blame = Blame::Datanode;
        }
        if blame == Blame::Restart && !self.waits_for_restart(&targets, failure.bad) {
            blame = Blame::Datanode;
        }
        if blame == Blame::Datanode {
            self.remove_failed(&block, &mut targets, failure)?;
        }
        let stage = if unacknowledged.only_end_left() { Stage::CloseRecovery } else { Stage::StreamingRecovery };
        // If a path is blamed, no datanode was lost.
        if stage == Stage::StreamingRecovery && !matches!(blame, Blame::Path(_)) {
            self.replace_if_wanted(&block, &mut targets).await?;
        }
        let recovered = match blame {
            Blame::Restart => self.rebuild_after_restart(block, targets, unacknowledged, stage).await?,
            Blame::Datanode | Blame::Path(_) => self.rebuild(block, targets, unacknowledged, stage).await?,
        };
        if let Blame::Path(path) = blame {
            self.blame_path(&head, path, &recovered.targets);
        }
        if stage != Stage::CloseRecovery {
            return Ok(Some(recovered));
        }
        // The datanodes finalized the replica when they were connected; there is no packet left to send.
        if let Some(end) = unacknowledged.take_end() {
            self.progress.send_modify(|progress| progress.acknowledged = end.sequence);
        }
        let length = recovered.block().length();
        self.previous = Some(recovered.block_with(length));
        Ok(None)
    }

    fn count_recovery(&mut self, failure: &PipelineFailure) -> Result<(), Error> {
        // Any acknowledgement since the last recovery is progress. A pipeline may also fail while there is nothing to
        // acknowledge.
        let acknowledged = self.progress.borrow().acknowledged;
        if self.recovering.0 == acknowledged {
            self.recovering.1 += 1;
        } else {
            self.recovering = (acknowledged, 1);
        }
        if self.recovering.1 > RECOVERIES_PER_PACKET_MAX {
            tracing::warn!(path = %self.file.path, acknowledged, %failure, "giving up after repeated recoveries");
            return Err(Failure::PipelineSetup {
                path: self.file.path.clone(),
                attempts: RECOVERIES_PER_PACKET_MAX,
                source: None,
            }
            .into());
        }
        Ok(())
    }

    /// Removes the failed datanode from `targets`.
    fn remove_failed(
        &mut self,
        block: &ExtendedBlock,
        targets: &mut Vec<Target>,
        failure: PipelineFailure,
    ) -> Result<(), Error> {
        let bad = targets.remove(failure.bad.min(targets.len() - 1));
        if failure.source.is_time_out() {
            // A datanode that closed the connection may be back for the next block. One that timed out is excluded, so
            // that the wait is not repeated.
            self.exclude(bad.datanode.clone());
        }
        self.failed.push(bad.datanode.clone());
        if targets.is_empty() {
            return Err(Failure::PipelineLost {
                path: self.file.path.clone(),
                block: Box::new(block.clone()),
                datanodes: bad.datanode.id.transfer_address(),
                source: Some(Arc::new(failure.source)),
            }
            .into());
        }
        Ok(())
    }

    /// Adds another datanode if the policy asks for it, and has the block's bytes copied to it.
    pub(super) async fn replace_if_wanted(
        &mut self,
        block: &ExtendedBlock,
        targets: &mut Vec<Target>,
    ) -> Result<(), Error> {
        let options = self.session.options.write.replace;
        let seen = self.appended || self.flushed();
        if !options.policy.wants_replacement(self.file.replication, targets.len(), seen) {
            return Ok(());
        }
        match self.replace(block, targets).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let enough = options.min_replication > 0 && targets.len() >= usize::from(options.min_replication);
                if options.best_effort || enough {
                    tracing::warn!(path = %self.file.path, %error, "continuing with fewer datanodes");
                    return Ok(());
                }
                Err(error)
            }
        }
    }

    async fn replace(&mut self, block: &ExtendedBlock, targets: &mut Vec<Target>) -> Result<(), Error> {
        // A new datanode that does not get the copy is excluded. The next attempt uses another new datanode and another
        // source, because either may be at fault.
        for tried in 0..3 {
            let mut left_out = self.excluded();
            left_out.extend(self.failed.iter().cloned());
            let (file, client) = (&self.file, &self.file.client_name);
            let datanodes: Vec<_> = targets.iter().map(|target| target.datanode.clone()).collect();
            let storages: Vec<_> = targets.iter().map(|target| target.storage.clone()).collect();
            let located = self
                .session
                .namenode
                .additional_datanode(&file.path, file.inode, client, block, &datanodes, &storages, &left_out)
                .await?;
            let chosen = targets_of(&located)?;
            let new = chosen
                .iter()
                .position(|target| !targets.iter().any(|known| known.datanode.id.uuid == target.datanode.id.uuid));
            let Some(new) = new else {
                return Err(Failure::NoReplacement { path: self.file.path.clone() }.into());
            };
            let source = &targets[tried % targets.len()];
            match transfer(&self.session, block, &located.token, source, &chosen[new]).await {
                Ok(()) => {
                    *targets = chosen;
                    return Ok(());
                }
                Err(error) => {
                    tracing::info!(path = %self.file.path, %block, datanode = %chosen[new].datanode.id, %error,
                        "cannot copy the block to the replacement datanode");
                    self.failed.push(chosen[new].datanode.clone());
                }
            }
        }
        Err(Failure::NoReplacement { path: self.file.path.clone() }.into())
    }

    /// Decides whether to wait for one of `targets` that restarts: if it is the only one, or is on this machine.
    ///
    /// Source: `DataStreamer.shouldWaitForRestart`.
    fn waits_for_restart(&self, targets: &[Target], restarting: usize) -> bool {
        let is_here = |target: &Target| self.session.short_circuit.is_here(&target.datanode.id);
        targets.len() == 1 || targets.get(restarting).is_some_and(is_here)
    }

    /// Waits for the grace period of a datanode that announced a restart before excluding it.
    async fn rebuild_after_restart(
        &mut self,
        block: ExtendedBlock,
        targets: Vec<Target>,
        unacknowledged: &mut Unacknowledged,
        stage: Stage,
    ) -> Result<Pipeline, Error> {
        let deadline = Instant::now() + self.session.options.write.restart_grace;
        while Instant::now() < deadline {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            match self.connect(&block, &targets, unacknowledged, stage).await? {
                Ok(pipeline) => return Ok(pipeline),
                Err(failure) => tracing::debug!(path = %self.file.path, %failure, "waiting for a restarting datanode"),
            }
        }
        self.rebuild(block, targets, unacknowledged, stage).await
    }

    /// Connects to `targets` under a new generation stamp, excluding those that do not respond, until a pipeline is set
    /// up.
    pub(super) async fn rebuild(
        &mut self,
        block: ExtendedBlock,
        mut targets: Vec<Target>,
        unacknowledged: &mut Unacknowledged,
        mut stage: Stage,
    ) -> Result<Pipeline, Error> {
        loop {
            match self.connect(&block, &targets, unacknowledged, stage).await? {
                Ok(pipeline) => return Ok(pipeline),
                Err(failure) => {
                    tracing::info!(path = %self.file.path, %block, %failure, "cannot rebuild the pipeline");
                    self.remove_failed(&block, &mut targets, failure)?;
                    stage = stage.after_failure();
                    if stage != Stage::CloseRecovery {
                        self.replace_if_wanted(&block, &mut targets).await?;
                    }
                }
            }
        }
    }

    /// Makes one attempt: gets a new stamp and token, connects, and reports both to the namenode.
    async fn connect(
        &mut self,
        block: &ExtendedBlock,
        targets: &[Target],
        unacknowledged: &Unacknowledged,
        stage: Stage,
    ) -> Result<Result<Pipeline, PipelineFailure>, Error> {
        let client = &self.file.client_name;
        let renewed = self.session.namenode.update_block_for_pipeline(block, client).await?;
        let spec = SetUp {
            block,
            token: &renewed.token,
            targets,
            stage,
            acknowledged_bytes: block.length(),
            sent_bytes: unacknowledged.sent_bytes().max(block.length()),
            stamp: Some(renewed.block.stamp()),
            block_size: self.file.block_size,
        };
        // A path that failed once for this block is not tried again: only packets are used.
        let ends = match set_up(&self.session, &spec, &[]).await {
            Ok(ends) => ends,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut new_block = block.clone();
        new_block.block.stamp = renewed.block.stamp();
        let datanodes: Vec<_> = targets.iter().map(|target| target.datanode.id.clone()).collect();
        let storages: Vec<_> = targets.iter().map(|target| target.storage.clone()).collect();
        self.session.namenode.update_pipeline(client, block, &new_block, &datanodes, &storages).await?;
        self.pipeline_ready(&ends.0, targets);
        let heartbeat = self.session.datanodes.options.heartbeat();
        Ok(Ok(Pipeline::new(ends, new_block, targets.to_vec(), heartbeat)))
    }
}

/// For logs and errors of this file.
impl std::error::Error for PipelineFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source as &DatanodeError)
    }
}
