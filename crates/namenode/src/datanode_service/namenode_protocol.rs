//! NamenodeProtocol: the calls of balancer, mover and checkpointing nodes. All but `versionRequest` are for superusers.
//!
//! This NameNode has no edit log and no image. Calls that would return them are refused, so that a SecondaryNameNode or
//! a BackupNode stops with the reason instead of with half a checkpoint.

use bytes::Bytes;
use hearth_protocol::rpc::{Call, RemoteError, application_error, no_such_method};
use hearth_wire::proto::hdfs::{
    ErrorReportResponseProto, GetBlockKeysResponseProto, GetMostRecentCheckpointTxIdResponseProto,
    GetTransactionIdResponseProto, IsRollingUpgradeResponseProto, IsUpgradeFinalizedResponseProto,
    NamenodeErrorReportRequestProto,
};
use hearth_wire::rpc::exceptions;

use super::{DatanodeService, answer, decode};
use crate::namespace::Caller;
use crate::service::to_remote;

impl DatanodeService {
    pub(super) async fn namenode_protocol(&self, call: &Call) -> Result<Bytes, RemoteError> {
        // Any user may ask for the namespace's identity, as with Apache.
        if call.method == "versionRequest" {
            return answer(self.version());
        }
        let Some(operation) = operation_name(&call.method) else {
            return Err(no_such_method(&call.protocol, &call.method));
        };
        let user = call.caller.user.clone();
        let rights = self.namenode.groups.rights(&user).await;
        let machine = call.caller.machine.clone();
        let caller = Caller { user, groups: rights.groups, superuser: rights.superuser, machine };
        let allowed = self.namenode.state.read().namespace.require_superuser(&caller, operation);
        allowed.map_err(to_remote)?;
        match call.method.as_str() {
            "getBlocks" => answer(self.get_blocks(decode(call)?)?),
            // Java reads the keys without a check, so they are sent even if tokens are off, and say so.
            "getBlockKeys" => answer(GetBlockKeysResponseProto { keys: Some(self.exported_keys()) }),
            "isUpgradeFinalized" => answer(IsUpgradeFinalizedResponseProto { is_upgrade_finalized: true }),
            "isRollingUpgrade" => answer(IsRollingUpgradeResponseProto { is_rolling_upgrade: false }),
            "getTransactionId" => answer(GetTransactionIdResponseProto { tx_id: self.newest_change() }),
            // Every change is in the store when it is answered, so the checkpoint is never behind.
            "getMostRecentCheckpointTxId" => {
                answer(GetMostRecentCheckpointTxIdResponseProto { tx_id: self.newest_change() })
            }
            "errorReport" => self.namenode_error_report(decode(call)?),
            "getNextSPSPath" => Err(application_error(
                exceptions::IO,
                "SPS service mode is NONE, so external SPS service is not allowed to fetch the path Ids",
            )),
            _ => Err(no_checkpoints(call)),
        }
    }

    /// A number that does not fall; `rollEdits` returns it too.
    fn newest_change(&self) -> u64 {
        self.namenode.state.read().namespace.counters().last_inode
    }

    /// Logs an error that another NameNode reports about itself.
    fn namenode_error_report(&self, request: NamenodeErrorReportRequestProto) -> Result<Bytes, RemoteError> {
        let (theirs, ours) = (&request.registration.storage_info, &self.namenode.identity);
        let is_of_this_namespace = theirs.namespace_id == ours.namespace_id
            && theirs.cluster_id == ours.cluster_id
            && theirs.c_time == ours.created_ms;
        let sender = &request.registration.rpc_address;
        if !is_of_this_namespace {
            let message = format!("Unregistered server: NamenodeRegistration({sender})");
            return Err(application_error(exceptions::UNREGISTERED_NODE, message));
        }
        tracing::warn!(%sender, code = request.error_code, message = %request.msg, "another namenode reported an error");
        answer(ErrorReportResponseProto {})
    }
}

/// Name of the operation in Apache's refusals; `None` if the method does not exist.
fn operation_name(method: &str) -> Option<&'static str> {
    Some(match method {
        "getBlocks" => "getBlocks",
        "getBlockKeys" => "getBlockKeys",
        "isUpgradeFinalized" => "isUpgradeFinalized",
        "isRollingUpgrade" => "isRollingUpgrade",
        "getTransactionId" => "getTransactionID",
        "getMostRecentCheckpointTxId" => "getMostRecentCheckpointTxId",
        "errorReport" => "errorReport",
        "rollEditLog" => "rollEditLog",
        "getEditLogManifest" => "getEditLogManifest",
        "startCheckpoint" => "startCheckpoint",
        "endCheckpoint" => "endCheckpoint",
        "registerSubordinateNamenode" => "registerSubordinateNamenode",
        "getNextSPSPath" => "getNextSPSPath",
        _ => return None,
    })
}

fn no_checkpoints(call: &Call) -> RemoteError {
    let message = format!(
        "{} is not supported by this NameNode: it keeps no edit log and no image, and needs no checkpoints; stop the SecondaryNameNode, CheckpointNode or BackupNode that asks",
        call.method
    );
    application_error(exceptions::UNSUPPORTED_OPERATION, message)
}
