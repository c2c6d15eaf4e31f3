use hearth_protocol::rpc::RemoteError;
use hearth_types::LocatedBlock;
use hearth_wire::proto::hdfs::{
    ErrorReportRequestProto, ErrorReportResponseProto, ReportBadBlocksRequestProto, ReportBadBlocksResponseProto,
};

use super::DatanodeService;
use crate::blocks::{BlockMap, Now};

/// Error codes of `ErrorReportRequestProto`.
const NOTIFY: u32 = 0;
const DISK_ERROR: u32 = 1;
const FATAL_DISK_ERROR: u32 = 3;

impl DatanodeService {
    /// Handles a datanode's error report; after a fatal disk error the datanode must register again.
    pub(super) fn error_report(
        &self,
        request: ErrorReportRequestProto,
    ) -> Result<ErrorReportResponseProto, RemoteError> {
        let datanode = self.check_registration(request.registration)?;
        // The text comes from a peer: control characters are removed and its length is limited.
        let text: String = request.msg.chars().filter(|c| !c.is_control()).take(500).collect();
        match request.error_code {
            NOTIFY => tracing::info!(datanode = %datanode, text, "datanode notifies"),
            DISK_ERROR => tracing::warn!(datanode = %datanode, text, "datanode has a disk error"),
            FATAL_DISK_ERROR => {
                tracing::error!(datanode = %datanode, text, "datanode has a fatal disk error and is treated as dead");
                let mut state = self.namenode.state.write();
                let now = Now::of(&*self.namenode.clock);
                state.blocks.datanode_failed(&datanode, now);
            }
            code => tracing::warn!(datanode = %datanode, code, text, "datanode reports an error"),
        }
        Ok(ErrorReportResponseProto {})
    }

    /// Handles a datanode's report of replicas with checksum errors.
    pub(super) fn report_bad_blocks(&self, request: ReportBadBlocksRequestProto) -> ReportBadBlocksResponseProto {
        // A block that cannot be decoded (a striped block, for example) does not belong to this namespace.
        let bad: Vec<LocatedBlock> = request.blocks.into_iter().filter_map(|block| block.try_into().ok()).collect();
        let mut state = self.namenode.state.write();
        let now = Now::of(&*self.namenode.clock);
        note_bad_blocks(&mut state.blocks, &bad, now);
        ReportBadBlocksResponseProto {}
    }
}

/// Records every location of every block as a corrupt replica. Also used for clients' reports.
pub(crate) fn note_bad_blocks(blocks: &mut BlockMap, bad: &[LocatedBlock], now: Now) {
    for located in bad {
        for (nth, datanode) in located.locations.iter().enumerate() {
            tracing::warn!(block = %located.block, datanode = %datanode.id, "replica is reported corrupt");
            blocks.report_bad_replica(located.block.block, &datanode.id, located.storage_ids.get(nth), now);
        }
    }
}
