//! Dispatch of RPC calls: decodes a call, finds its caller, detects repetitions, runs the operation, writes the audit
//! line, and encodes the answer.

mod administration;
mod audited;
mod webhdfs;

use std::sync::Arc;

use bytes::Bytes;
use hearth_protocol::rpc::{
    Attempt, Call, Caller as Connected, RemoteError, RetryCache, Service, application_error, no_such_method,
    server_error, undecodable,
};
use hearth_wire::proto::common::{
    GetGroupsForUserRequestProto, GetGroupsForUserResponseProto, RefreshSuperUserGroupsConfigurationResponseProto,
    RefreshUserToGroupsMappingsResponseProto,
};
use hearth_wire::proto::hdfs::RefreshNodesResponseProto;
use hearth_wire::rpc::{ErrorCode, exceptions, protocols};
use prost::Message;

use crate::audit::Event;
use crate::datanode_service::{self, DatanodeService};
use crate::error::Error;
use crate::namespace::Caller;
use crate::ops;
use crate::retries::{is_at_most_once, retry_key};
use crate::state::{CallContext, Namenode, encode};

use audited::{audited, write_audit};

pub use webhdfs::Webhdfs;

/// Service for clients and datanodes on one port.
pub struct NamenodeService {
    namenode: Arc<Namenode>,
    datanodes: DatanodeService,
    /// `None` if `dfs.namenode.enable.retrycache` is off.
    retries: Option<Arc<RetryCache>>,
}

/// Protocol name in the audit log.
const OVER_RPC: &str = "rpc";

const PROTOCOLS: [&str; 11] = [
    protocols::CLIENT,
    protocols::DATANODE,
    protocols::DATANODE_LIFELINE,
    protocols::NAMENODE,
    protocols::GET_USER_MAPPINGS,
    protocols::REFRESH_USER_MAPPINGS,
    protocols::REFRESH_AUTHORIZATION_POLICY,
    protocols::REFRESH_CALL_QUEUE,
    protocols::GENERIC_REFRESH,
    protocols::HA_SERVICE,
    protocols::RECONFIGURATION,
];

/// Returns true for calls whose answer depends on the client's location.
fn depends_on_rack(method: &str) -> bool {
    matches!(method, "getBlockLocations" | "openMany" | "getLocatedFileInfo" | "create" | "append")
}

impl NamenodeService {
    pub fn new(namenode: Arc<Namenode>, datanodes: DatanodeService, retries: Option<Arc<RetryCache>>) -> Self {
        Self { namenode, datanodes, retries }
    }

    /// `over`: protocol of the call for the audit log.
    async fn client_call(&self, call: &Call, over: &'static str) -> Result<Bytes, RemoteError> {
        let caller = self.caller(call).await?;
        let repeated = match (&self.retries, call.client_id) {
            (Some(retries), Some(client)) if is_at_most_once(&call.method) && call.call_id >= 0 => {
                match retries.begin(client, call.call_id).await {
                    Attempt::Answered(answer) => return Ok(answer),
                    Attempt::New(guard) => Some((guard, retry_key(client, call.call_id), retries.expiry_ms())),
                }
            }
            _ => None,
        };
        let retry = repeated.as_ref().map(|(_, key, expires_ms)| (*key, *expires_ms));
        if depends_on_rack(&call.method) {
            self.datanodes.place_client(&caller.machine).await;
        }
        let context = CallContext::new(caller, retry);
        let audit = self.namenode.audit.as_ref();
        let audited = audit.and_then(|log| Some((log, audited(&self.namenode, call)?)));
        let outcome = match call.method.as_str() {
            "refreshNodes" => self.refresh_nodes(&context).await,
            _ => dispatch(&self.namenode, &context, call).await,
        };
        if let Some((log, audited)) = &audited {
            write_audit(log, &self.namenode, &context.caller, call, over, audited, &outcome).await;
        }
        if let (Ok(answer), Some((guard, _, expires_ms)), true) = (&outcome, repeated, context.is_remembered()) {
            guard.finish(expires_ms, answer.clone());
        }
        outcome
    }

    /// Handles the one client call that concerns the datanode service: reads the hosts files again.
    async fn refresh_nodes(&self, context: &CallContext) -> Result<Bytes, RemoteError> {
        self.namenode.read().namespace.require_superuser(&context.caller, "refreshNodes").map_err(to_remote)?;
        self.datanodes.refresh_nodes().await.map_err(|error| application_error(exceptions::IO, error.to_string()))?;
        Ok(encode(&RefreshNodesResponseProto {}))
    }

    /// Handles `hdfs groups` and `dfsadmin -refreshUserToGroupsMappings`.
    async fn users_call(&self, call: &Call) -> Result<Bytes, RemoteError> {
        match call.method.as_str() {
            "getGroupsForUser" => {
                let request = GetGroupsForUserRequestProto::decode(call.request.clone())
                    .map_err(|error| undecodable(&call.method, &error))?;
                let rights = self.namenode.groups.rights(&request.user).await;
                Ok(encode(&GetGroupsForUserResponseProto { groups: rights.groups.to_vec() }))
            }
            "refreshUserToGroupsMappings" => {
                let caller = self.superuser(call, "refreshUserToGroupsMappings").await?;
                self.namenode.groups.refresh();
                self.note_refresh(call, &caller, "refreshUserToGroupsMappings").await;
                Ok(encode(&RefreshUserToGroupsMappingsResponseProto {}))
            }
            "refreshSuperUserGroupsConfiguration" => {
                let caller = self.superuser(call, "refreshSuperUserGroupsConfiguration").await?;
                let namenode = self.namenode.clone();
                let refreshed = tokio::task::spawn_blocking(move || namenode.impersonation.refresh()).await;
                let refreshed = refreshed.map_err(|error| error.to_string());
                refreshed.and_then(|refreshed| refreshed.map_err(|error| error.to_string())).map_err(|error| {
                    let message = format!("cannot read the proxy user rules, the old ones stay in force: {error}");
                    application_error(exceptions::IO, message)
                })?;
                self.note_refresh(call, &caller, "refreshSuperUserGroupsConfiguration").await;
                Ok(encode(&RefreshSuperUserGroupsConfigurationResponseProto {}))
            }
            method => Err(no_such_method(&call.protocol, method)),
        }
    }

    /// Returns the caller, which must be a superuser.
    async fn superuser(&self, call: &Call, operation: &'static str) -> Result<Caller, RemoteError> {
        let caller = self.caller(call).await?;
        self.namenode.read().namespace.require_superuser(&caller, operation).map_err(to_remote)?;
        Ok(caller)
    }

    /// Writes an audit line about tables that were read again.
    async fn note_refresh(&self, call: &Call, caller: &Caller, command: &'static str) {
        let Some(log) = &self.namenode.audit else { return };
        let (user, real_user, machine) = (&caller.user, call.caller.real_user.as_deref(), &caller.machine);
        let protocol = Some(OVER_RPC);
        let context = call.caller_context.as_deref().map(|context| (context, &call.caller_signature));
        log.write(Event { allowed: true, user, real_user, machine, command, protocol, context, ..Event::default() })
            .await;
    }

    /// Rejects a user that acts for another one without permission by a rule. Checked for each call, so that new rules
    /// apply to existing connections.
    async fn check_impersonation(&self, caller: &Connected) -> Result<(), String> {
        let Some(real) = &caller.real_user else { return Ok(()) };
        let namenode = &self.namenode;
        namenode.impersonation.check(&namenode.groups, real, &caller.user, caller.address.ip()).await
    }

    /// The user in whose name the call is made.
    async fn caller(&self, call: &Call) -> Result<Caller, RemoteError> {
        let user = &call.caller.user;
        if user.is_empty() {
            return Err(application_error(exceptions::ACCESS_CONTROL, "The connection names no user"));
        }
        let rights = self.namenode.groups.rights(user).await;
        Ok(Caller {
            user: user.clone(),
            groups: rights.groups,
            superuser: rights.superuser,
            machine: call.caller.machine.clone(),
        })
    }
}

impl Service for NamenodeService {
    fn protocols(&self) -> &[&'static str] {
        &PROTOCOLS
    }

    /// Checks without the user's groups: if the decision depends on them, each call is checked separately.
    fn authorize(&self, caller: &Connected) -> Result<(), RemoteError> {
        let Some(real) = &caller.real_user else { return Ok(()) };
        let rules = self.namenode.impersonation.rules();
        match rules.check(real, &caller.user, None, caller.address.ip()) {
            Some(Err(message)) => {
                let refused = application_error(exceptions::AUTHORIZATION, message);
                Err(RemoteError { code: Some(ErrorCode::FatalUnauthorized), fatal: true, ..refused })
            }
            _ => Ok(()),
        }
    }

    async fn call(&self, call: Call) -> Result<Bytes, RemoteError> {
        let impersonation = self.check_impersonation(&call.caller).await;
        impersonation.map_err(|message| server_error(exceptions::AUTHORIZATION, message))?;
        if datanode_service::PROTOCOLS.contains(&call.protocol.as_str()) {
            return self.datanodes.call(&call).await;
        }
        match call.protocol.as_str() {
            protocols::CLIENT => self.client_call(&call, OVER_RPC).await,
            protocols::GET_USER_MAPPINGS | protocols::REFRESH_USER_MAPPINGS => self.users_call(&call).await,
            protocol if administration::PROTOCOLS.contains(&protocol) => administration::call(self, &call).await,
            other => Err(no_such_method(other, &call.method)),
        }
    }
}

/// Converts an operation's error to its form on the wire.
pub fn to_remote(error: Error) -> RemoteError {
    let class = error.class();
    match error {
        Error::NoSuchMethod { method, protocol } => no_such_method(&protocol, &method),
        error => application_error(class, error.to_string()),
    }
}

async fn dispatch(namenode: &Namenode, context: &CallContext, call: &Call) -> Result<Bytes, RemoteError> {
    /// Decodes the request of the method and calls its operation.
    macro_rules! methods {
        ($($method:literal => $($operation:ident)::+,)*) => {
            match call.method.as_str() {
                $($method => {
                    let request = Message::decode(call.request.clone())
                        .map_err(|error| undecodable(&call.method, &error))?;
                    ops::$($operation)::+(namenode, context, request).await.map_err(to_remote)
                })*
                method => match ops::unsupported::refuse(namenode, context, method, &call.request) {
                    Some(answer) => answer.map_err(to_remote),
                    None => Err(no_such_method(&call.protocol, method)),
                },
            }
        };
    }
    methods! {
        "getBlockLocations" => get_block_locations::get_block_locations,
        "openMany" => open_many::open_many,
        "getServerDefaults" => server_defaults::get_server_defaults,
        "create" => create::create,
        "append" => append::append,
        "setReplication" => set_attributes::set_replication,
        "setStoragePolicy" => storage_policy::set_storage_policy,
        "unsetStoragePolicy" => storage_policy::unset_storage_policy,
        "getStoragePolicy" => storage_policy::get_storage_policy,
        "getStoragePolicies" => storage_policy::get_storage_policies,
        "setPermission" => set_attributes::set_permission,
        "setOwner" => set_attributes::set_owner,
        "abandonBlock" => abandon_block::abandon_block,
        "addBlock" => add_block::add_block,
        "getAdditionalDatanode" => get_additional_datanode::get_additional_datanode,
        "complete" => complete::complete,
        "reportBadBlocks" => cluster::report_bad_blocks,
        "concat" => concat::concat,
        "truncate" => truncate::truncate,
        "rename" => rename::rename,
        "rename2" => rename::rename2,
        "delete" => delete::delete,
        "mkdirs" => mkdirs::mkdirs,
        "getListing" => listing::get_listing,
        "getBatchedListing" => listing::get_batched_listing,
        "renewLease" => lease::renew_lease,
        "recoverLease" => lease::recover_lease,
        "getFsStats" => cluster::get_fs_stats,
        "getFsReplicatedBlockStats" => cluster::get_fs_replicated_block_stats,
        "getFsECBlockGroupStats" => cluster::get_fs_ec_block_group_stats,
        "getDatanodeReport" => cluster::get_datanode_report,
        "getDatanodeStorageReport" => cluster::get_datanode_storage_report,
        "getSlowDatanodeReport" => cluster::get_slow_datanode_report,
        "listCorruptFileBlocks" => cluster::list_corrupt_file_blocks,
        "getPreferredBlockSize" => file_info::get_preferred_block_size,
        "setSafeMode" => safe_mode::set_safe_mode,
        "saveNamespace" => maintenance::save_namespace,
        "rollEdits" => maintenance::roll_edits,
        "restoreFailedStorage" => maintenance::restore_failed_storage,
        "setBalancerBandwidth" => cluster::set_balancer_bandwidth,
        "finalizeUpgrade" => maintenance::finalize_upgrade,
        "upgradeStatus" => maintenance::upgrade_status,
        "rollingUpgrade" => maintenance::rolling_upgrade,
        "metaSave" => maintenance::meta_save,
        "getFileInfo" => file_info::get_file_info,
        "getLocatedFileInfo" => file_info::get_located_file_info,
        "getFileLinkInfo" => file_info::get_file_link_info,
        "getLinkTarget" => file_info::get_link_target,
        "isFileClosed" => file_info::is_file_closed,
        "getContentSummary" => content_summary::get_content_summary,
        "getQuotaUsage" => content_summary::get_quota_usage,
        "fsync" => fsync::fsync,
        "setTimes" => set_attributes::set_times,
        "updateBlockForPipeline" => update_pipeline::update_block_for_pipeline,
        "updatePipeline" => update_pipeline::update_pipeline,
        "checkAccess" => check_access::check_access,
        "modifyAclEntries" => acl::modify_acl_entries,
        "removeAclEntries" => acl::remove_acl_entries,
        "removeDefaultAcl" => acl::remove_default_acl,
        "removeAcl" => acl::remove_acl,
        "setAcl" => acl::set_acl,
        "getAclStatus" => acl::get_acl_status,
        "setXAttr" => xattrs::set_xattr,
        "getXAttrs" => xattrs::get_xattrs,
        "listXAttrs" => xattrs::list_xattrs,
        "removeXAttr" => xattrs::remove_xattr,
        "setQuota" => set_quota::set_quota,
        "addCachePool" => caching::add_cache_pool,
        "modifyCachePool" => caching::modify_cache_pool,
        "removeCachePool" => caching::remove_cache_pool,
        "listCachePools" => caching::list_cache_pools,
        "addCacheDirective" => caching::add_cache_directive,
        "modifyCacheDirective" => caching::modify_cache_directive,
        "removeCacheDirective" => caching::remove_cache_directive,
        "listCacheDirectives" => caching::list_cache_directives,
        "getDelegationToken" => delegation_tokens::get_delegation_token,
        "renewDelegationToken" => delegation_tokens::renew_delegation_token,
        "cancelDelegationToken" => delegation_tokens::cancel_delegation_token,
        "listOpenFiles" => lease::list_open_files,
        "allowSnapshot" => snapshots::allow_snapshot,
        "disallowSnapshot" => snapshots::disallow_snapshot,
        "createSnapshot" => snapshots::create_snapshot,
        "renameSnapshot" => snapshots::rename_snapshot,
        "deleteSnapshot" => snapshots::delete_snapshot,
        "getSnapshottableDirListing" => snapshots::get_snapshottable_dir_listing,
        "getSnapshotListing" => snapshots::get_snapshot_listing,
        "getSnapshotDiffReport" => snapshot_diff::get_snapshot_diff_report,
        "getSnapshotDiffReportListing" => snapshot_diff::get_snapshot_diff_report_listing,
        "msync" => maintenance::msync,
        "getHAServiceState" => maintenance::get_ha_service_state,
        "getEnclosingRoot" => maintenance::get_enclosing_root,
    }
}
