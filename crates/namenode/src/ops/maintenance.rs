//! Administrative calls whose work is done in other ways here, or is not needed.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    FinalizeUpgradeRequestProto, FinalizeUpgradeResponseProto, GetEnclosingRootRequestProto,
    GetEnclosingRootResponseProto, HaServiceStateRequestProto, HaServiceStateResponseProto, MetaSaveRequestProto,
    MsyncRequestProto, MsyncResponseProto, RestoreFailedStorageRequestProto, RestoreFailedStorageResponseProto,
    RollEditsRequestProto, RollEditsResponseProto, RollingUpgradeActionProto, RollingUpgradeRequestProto,
    RollingUpgradeResponseProto, SaveNamespaceRequestProto, SaveNamespaceResponseProto, UpgradeStatusRequestProto,
    UpgradeStatusResponseProto,
};

use super::audited::Audited;
use crate::error::Error;
use crate::namespace::Purpose;
use crate::state::{CallContext, Namenode, encode};

/// Every change is on disk already; only the checks of permission and safe mode remain.
pub async fn save_namespace(
    namenode: &Namenode,
    context: &CallContext,
    _: SaveNamespaceRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    state.namespace.require_superuser(&context.caller, "saveNamespace")?;
    if !state.blocks.in_safe_mode() {
        return Err(Error::SafeModeNeeded);
    }
    Ok(encode(&SaveNamespaceResponseProto { saved: Some(true) }))
}

pub fn audit_save_namespace(_: &SaveNamespaceRequestProto) -> Audited {
    Audited::new("saveNamespace")
}

/// There are no log segments: the number of the newest inode serves as a position.
pub async fn roll_edits(namenode: &Namenode, context: &CallContext, _: RollEditsRequestProto) -> Result<Bytes, Error> {
    let state = namenode.read();
    state.namespace.require_superuser(&context.caller, "rollEditLog")?;
    namenode.check_safe_mode(&state, namenode.now(), || "roll edit log".into())?;
    Ok(encode(&RollEditsResponseProto { new_segment_tx_id: state.namespace.counters().last_inode }))
}

pub fn audit_roll_edits(_: &RollEditsRequestProto) -> Audited {
    Audited::new("rollEditLog")
}

/// A failed store stops the NameNode, so nothing is ever restored while it runs.
pub async fn restore_failed_storage(
    namenode: &Namenode,
    context: &CallContext,
    _: RestoreFailedStorageRequestProto,
) -> Result<Bytes, Error> {
    namenode.read().namespace.require_superuser(&context.caller, "restoreFailedStorage")?;
    Ok(encode(&RestoreFailedStorageResponseProto { result: false }))
}

pub fn audit_restore_failed_storage(request: &RestoreFailedStorageRequestProto) -> Audited {
    Audited::new(match request.arg.as_str() {
        "check" => "checkRestoreFailedStorage",
        "true" => "enableRestoreFailedStorage",
        _ => "disableRestoreFailedStorage",
    })
}

/// There is never an upgrade to finalize.
pub async fn finalize_upgrade(
    namenode: &Namenode,
    context: &CallContext,
    _: FinalizeUpgradeRequestProto,
) -> Result<Bytes, Error> {
    namenode.read().namespace.require_superuser(&context.caller, "finalizeUpgrade")?;
    Ok(encode(&FinalizeUpgradeResponseProto {}))
}

pub fn audit_finalize_upgrade(_: &FinalizeUpgradeRequestProto) -> Audited {
    Audited::new("finalizeUpgrade")
}

pub async fn upgrade_status(_: &Namenode, _: &CallContext, _: UpgradeStatusRequestProto) -> Result<Bytes, Error> {
    Ok(encode(&UpgradeStatusResponseProto { upgrade_finalized: true }))
}

/// No rolling upgrade is in progress, and none can be started.
pub async fn rolling_upgrade(
    namenode: &Namenode,
    context: &CallContext,
    request: RollingUpgradeRequestProto,
) -> Result<Bytes, Error> {
    namenode.read().namespace.require_superuser(&context.caller, "queryRollingUpgrade")?;
    match request.action() {
        RollingUpgradeActionProto::Query => Ok(encode(&RollingUpgradeResponseProto::default())),
        _ => Err(Error::RollingUpgrade),
    }
}

pub fn audit_rolling_upgrade(request: &RollingUpgradeRequestProto) -> Option<Audited> {
    use RollingUpgradeActionProto as Action;
    Some(Audited::new(match Action::try_from(request.action).ok()? {
        Action::Query => "queryRollingUpgrade",
        Action::Start => "startRollingUpgrade",
        Action::Finalize => "finalizeRollingUpgrade",
    }))
}

/// The answer is empty.
pub async fn meta_save(
    namenode: &Namenode,
    context: &CallContext,
    request: MetaSaveRequestProto,
) -> Result<Bytes, Error> {
    namenode.read().namespace.require_superuser(&context.caller, "metaSave")?;
    namenode.metasave.save(namenode, &request.filename).await?;
    Ok(Bytes::new())
}

pub fn audit_meta_save(_: &MetaSaveRequestProto) -> Audited {
    Audited::new("metaSave")
}

/// Every answer is up to date: there is one NameNode.
pub async fn msync(_: &Namenode, _: &CallContext, _: MsyncRequestProto) -> Result<Bytes, Error> {
    Ok(encode(&MsyncResponseProto {}))
}

pub async fn get_ha_service_state(
    _: &Namenode,
    _: &CallContext,
    _: HaServiceStateRequestProto,
) -> Result<Bytes, Error> {
    let state = hearth_wire::proto::common::HaServiceStateProto::Active as i32;
    Ok(encode(&HaServiceStateResponseProto { state }))
}

/// There are no encryption zones, so the root encloses everything.
pub async fn get_enclosing_root(
    namenode: &Namenode,
    context: &CallContext,
    request: GetEnclosingRootRequestProto,
) -> Result<Bytes, Error> {
    namenode.read().namespace.resolve(&context.caller, request.filename(), Purpose::Read)?;
    Ok(encode(&GetEnclosingRootResponseProto { enclosing_root_path: Some("/".into()) }))
}

pub fn audit_get_enclosing_root(request: &GetEnclosingRootRequestProto) -> Audited {
    Audited::on("getEZForPath", request.filename()).changed()
}
