//! Table of the operations of ClientProtocol: one row for each, with all that dispatch has to know about it.

use bytes::Bytes;
use hearth_protocol::rpc::{Call, RemoteError, no_such_method, undecodable};
use hearth_wire::proto::hdfs::*;
use hearth_wire::proto::hearth::OpenManyRequestProto;
use prost::Message;

use super::{NamenodeService, audit_refresh_nodes, refresh_nodes, to_remote};
use crate::ops::audited::Audited;
use crate::ops::unsupported::{Lenient, Unread};
use crate::ops::{
    abandon_block, acl, add_block, append, caching, check_access, cluster, complete, concat, content_summary, create,
    delegation_tokens, delete, file_info, fsync, get_additional_datanode, get_block_locations, lease, listing,
    maintenance, mkdirs, open_many, rename, safe_mode, server_defaults, set_attributes, set_quota, snapshot_diff,
    snapshots, storage_policy, truncate, unsupported, update_pipeline, xattrs,
};
use crate::state::{CallContext, Namenode};

/// Operations get the part of the service that they concern.
impl AsRef<Namenode> for NamenodeService {
    fn as_ref(&self) -> &Namenode {
        &self.namenode
    }
}

impl AsRef<NamenodeService> for NamenodeService {
    fn as_ref(&self) -> &NamenodeService {
        self
    }
}

/// Request of an operation, decoded from a call.
trait Request: Sized {
    fn of(call: &Call) -> Result<Self, RemoteError>;
}

impl<M: Message + Default> Request for M {
    fn of(call: &Call) -> Result<Self, RemoteError> {
        M::decode(call.request.clone()).map_err(|error| undecodable(&call.method, &error))
    }
}

impl<M: Message + Default> Request for Lenient<M> {
    fn of(call: &Call) -> Result<Self, RemoteError> {
        Ok(Self(M::decode(call.request.clone())))
    }
}

impl Request for Unread {
    fn of(_: &Call) -> Result<Self, RemoteError> {
        Ok(Self)
    }
}

/// Columns of a row that concern the call, apart from its operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Columns {
    /// Name of the method; `other` for an unknown one.
    pub name: &'static str,
    /// A repeated call gets the first answer and is not executed again.
    ///
    /// That applies to every call that makes a change of the namespace for the caller, even if the call is idempotent:
    /// between the two executions another client may have changed the same thing. docs/compatibility/retries.md has
    /// the whole list.
    pub at_most_once: bool,
    /// The answer depends on the client's location.
    pub rack: bool,
}

impl Columns {
    const NONE: Self = Self::of("other");

    const fn of(name: &'static str) -> Self {
        Self { name, at_most_once: false, rack: false }
    }

    const fn at_most_once(self) -> Self {
        Self { at_most_once: true, ..self }
    }

    const fn rack(self) -> Self {
        Self { rack: true, ..self }
    }

    const fn audit(self) -> Self {
        self
    }

    const fn audit_with_state(self) -> Self {
        self
    }
}

/// Calls the function of the `audit` column among the columns of a row.
macro_rules! audit_data {
    ($namenode:ident, $request:ident;) => {
        None
    };
    ($namenode:ident, $request:ident; audit($($audit:ident)::+) $($others:tt)*) => {
        $($audit)::+(&$request).into()
    };
    ($namenode:ident, $request:ident; audit_with_state($($audit:ident)::+) $($others:tt)*) => {
        $($audit)::+($namenode, &$request).into()
    };
    ($namenode:ident, $request:ident; $column:ident $($others:tt)*) => {
        audit_data!($namenode, $request; $($others)*)
    };
}

/// Defines dispatch from rows of the form `method: request => operation, columns`. The columns:
///
/// - `at_most_once`, `rack`: see [`Columns`].
/// - `audit(function)`: returns the audit data of the call from its request. Without it, the call is not logged.
/// - `audit_with_state(function)`: also gets the NameNode, in its state before the operation.
macro_rules! operations {
    ($($method:ident: $request:ty => $($operation:ident)::+
        $(, $column:ident $(($($argument:ident)::+))?)*;)*) => {
        #[cfg(test)]
        pub const METHODS: &[&str] = &[$(stringify!($method)),*];

        /// Returns the columns of a method's row; [`Columns::NONE`] for an unknown method.
        pub fn columns(method: &str) -> Columns {
            match method {
                $(stringify!($method) => Columns::of(stringify!($method))$(.$column())*,)*
                _ => Columns::NONE,
            }
        }

        /// Decodes the request and executes the operation. Returns the audit data too, if the call is logged and
        /// there is an audit log.
        pub async fn execute(
            service: &NamenodeService,
            context: &CallContext,
            call: &Call,
        ) -> (Option<Audited>, Result<Bytes, RemoteError>) {
            let namenode: &Namenode = &service.namenode;
            match call.method.as_str() {
                $(stringify!($method) => {
                    let request = match <$request as Request>::of(call) {
                        Ok(request) => request,
                        Err(error) => return (None, Err(error)),
                    };
                    let audited: Option<Audited> = match namenode.audit {
                        Some(_) => audit_data!(namenode, request; $($column $(($($argument)::+))?)*),
                        None => None,
                    };
                    let outcome = $($operation)::+(service.as_ref(), context, request).await;
                    (audited, outcome.map_err(to_remote))
                })*
                method => (None, Err(no_such_method(&call.protocol, method))),
            }
        }
    };
}

operations! {
    getBlockLocations: GetBlockLocationsRequestProto => get_block_locations::get_block_locations, rack,
        audit(get_block_locations::audit);
    openMany: OpenManyRequestProto => open_many::open_many, rack, audit(open_many::audit);
    getServerDefaults: GetServerDefaultsRequestProto => server_defaults::get_server_defaults;
    create: CreateRequestProto => create::create, at_most_once, rack, audit(create::audit);
    append: AppendRequestProto => append::append, at_most_once, rack, audit(append::audit);
    setReplication: SetReplicationRequestProto => set_attributes::set_replication, at_most_once,
        audit(set_attributes::audit_set_replication);
    setStoragePolicy: SetStoragePolicyRequestProto => storage_policy::set_storage_policy, at_most_once,
        audit(storage_policy::audit_set_storage_policy);
    unsetStoragePolicy: UnsetStoragePolicyRequestProto => storage_policy::unset_storage_policy, at_most_once,
        audit(storage_policy::audit_unset_storage_policy);
    getStoragePolicy: GetStoragePolicyRequestProto => storage_policy::get_storage_policy;
    getStoragePolicies: GetStoragePoliciesRequestProto => storage_policy::get_storage_policies;
    setPermission: SetPermissionRequestProto => set_attributes::set_permission, at_most_once,
        audit(set_attributes::audit_set_permission);
    setOwner: SetOwnerRequestProto => set_attributes::set_owner, at_most_once, audit(set_attributes::audit_set_owner);
    abandonBlock: AbandonBlockRequestProto => abandon_block::abandon_block;
    addBlock: AddBlockRequestProto => add_block::add_block;
    getAdditionalDatanode: GetAdditionalDatanodeRequestProto => get_additional_datanode::get_additional_datanode;
    complete: CompleteRequestProto => complete::complete;
    reportBadBlocks: ReportBadBlocksRequestProto => cluster::report_bad_blocks;
    concat: ConcatRequestProto => concat::concat, at_most_once, audit(concat::audit);
    truncate: TruncateRequestProto => truncate::truncate, at_most_once, audit(truncate::audit);
    rename: RenameRequestProto => rename::rename, at_most_once, audit_with_state(rename::audit_rename);
    rename2: Rename2RequestProto => rename::rename2, at_most_once, audit(rename::audit_rename2);
    delete: DeleteRequestProto => delete::delete, at_most_once, audit(delete::audit);
    mkdirs: MkdirsRequestProto => mkdirs::mkdirs, at_most_once, audit(mkdirs::audit);
    getListing: GetListingRequestProto => listing::get_listing, audit(listing::audit_get_listing);
    getBatchedListing: GetBatchedListingRequestProto => listing::get_batched_listing,
        audit(listing::audit_get_batched_listing);
    renewLease: RenewLeaseRequestProto => lease::renew_lease;
    recoverLease: RecoverLeaseRequestProto => lease::recover_lease;
    getFsStats: GetFsStatusRequestProto => cluster::get_fs_stats;
    getFsReplicatedBlockStats: GetFsReplicatedBlockStatsRequestProto => cluster::get_fs_replicated_block_stats;
    getFsECBlockGroupStats: GetFsEcBlockGroupStatsRequestProto => cluster::get_fs_ec_block_group_stats;
    getDatanodeReport: GetDatanodeReportRequestProto => cluster::get_datanode_report,
        audit(cluster::audit_get_datanode_report);
    getDatanodeStorageReport: GetDatanodeStorageReportRequestProto => cluster::get_datanode_storage_report,
        audit(cluster::audit_get_datanode_storage_report);
    getSlowDatanodeReport: GetSlowDatanodeReportRequestProto => cluster::get_slow_datanode_report,
        audit(cluster::audit_get_slow_datanode_report);
    listCorruptFileBlocks: ListCorruptFileBlocksRequestProto => cluster::list_corrupt_file_blocks;
    getPreferredBlockSize: GetPreferredBlockSizeRequestProto => file_info::get_preferred_block_size;
    setSafeMode: SetSafeModeRequestProto => safe_mode::set_safe_mode, audit(safe_mode::audit);
    saveNamespace: SaveNamespaceRequestProto => maintenance::save_namespace, audit(maintenance::audit_save_namespace);
    rollEdits: RollEditsRequestProto => maintenance::roll_edits, audit(maintenance::audit_roll_edits);
    restoreFailedStorage: RestoreFailedStorageRequestProto => maintenance::restore_failed_storage,
        audit(maintenance::audit_restore_failed_storage);
    setBalancerBandwidth: SetBalancerBandwidthRequestProto => cluster::set_balancer_bandwidth,
        audit(cluster::audit_set_balancer_bandwidth);
    finalizeUpgrade: FinalizeUpgradeRequestProto => maintenance::finalize_upgrade,
        audit(maintenance::audit_finalize_upgrade);
    upgradeStatus: UpgradeStatusRequestProto => maintenance::upgrade_status;
    rollingUpgrade: RollingUpgradeRequestProto => maintenance::rolling_upgrade,
        audit(maintenance::audit_rolling_upgrade);
    metaSave: MetaSaveRequestProto => maintenance::meta_save, audit(maintenance::audit_meta_save);
    getFileInfo: GetFileInfoRequestProto => file_info::get_file_info, audit(file_info::audit_get_file_info);
    getLocatedFileInfo: GetLocatedFileInfoRequestProto => file_info::get_located_file_info, rack,
        audit(file_info::audit_get_located_file_info);
    getFileLinkInfo: GetFileLinkInfoRequestProto => file_info::get_file_link_info,
        audit(file_info::audit_get_file_link_info);
    getLinkTarget: GetLinkTargetRequestProto => file_info::get_link_target, audit(file_info::audit_get_link_target);
    isFileClosed: IsFileClosedRequestProto => file_info::is_file_closed, audit(file_info::audit_is_file_closed);
    getContentSummary: GetContentSummaryRequestProto => content_summary::get_content_summary,
        audit(content_summary::audit_get_content_summary);
    getQuotaUsage: GetQuotaUsageRequestProto => content_summary::get_quota_usage,
        audit(content_summary::audit_get_quota_usage);
    fsync: FsyncRequestProto => fsync::fsync;
    setTimes: SetTimesRequestProto => set_attributes::set_times, at_most_once, audit(set_attributes::audit_set_times);
    updateBlockForPipeline: UpdateBlockForPipelineRequestProto => update_pipeline::update_block_for_pipeline;
    updatePipeline: UpdatePipelineRequestProto => update_pipeline::update_pipeline, at_most_once;
    checkAccess: CheckAccessRequestProto => check_access::check_access, audit(check_access::audit);
    modifyAclEntries: ModifyAclEntriesRequestProto => acl::modify_acl_entries, at_most_once,
        audit(acl::audit_modify_acl_entries);
    removeAclEntries: RemoveAclEntriesRequestProto => acl::remove_acl_entries, at_most_once,
        audit(acl::audit_remove_acl_entries);
    removeDefaultAcl: RemoveDefaultAclRequestProto => acl::remove_default_acl, at_most_once,
        audit(acl::audit_remove_default_acl);
    removeAcl: RemoveAclRequestProto => acl::remove_acl, at_most_once, audit(acl::audit_remove_acl);
    setAcl: SetAclRequestProto => acl::set_acl, at_most_once, audit(acl::audit_set_acl);
    getAclStatus: GetAclStatusRequestProto => acl::get_acl_status, audit(acl::audit_get_acl_status);
    setXAttr: SetXAttrRequestProto => xattrs::set_xattr, at_most_once, audit(xattrs::audit_set_xattr);
    getXAttrs: GetXAttrsRequestProto => xattrs::get_xattrs, audit(xattrs::audit_get_xattrs);
    listXAttrs: ListXAttrsRequestProto => xattrs::list_xattrs, audit(xattrs::audit_list_xattrs);
    removeXAttr: RemoveXAttrRequestProto => xattrs::remove_xattr, at_most_once, audit(xattrs::audit_remove_xattr);
    setQuota: SetQuotaRequestProto => set_quota::set_quota, at_most_once, audit(set_quota::audit);
    addCachePool: AddCachePoolRequestProto => caching::add_cache_pool, at_most_once,
        audit(caching::audit_add_cache_pool);
    modifyCachePool: ModifyCachePoolRequestProto => caching::modify_cache_pool, at_most_once,
        audit(caching::audit_modify_cache_pool);
    removeCachePool: RemoveCachePoolRequestProto => caching::remove_cache_pool, at_most_once,
        audit(caching::audit_remove_cache_pool);
    listCachePools: ListCachePoolsRequestProto => caching::list_cache_pools, audit(caching::audit_list_cache_pools);
    addCacheDirective: AddCacheDirectiveRequestProto => caching::add_cache_directive, at_most_once,
        audit(caching::audit_add_cache_directive);
    modifyCacheDirective: ModifyCacheDirectiveRequestProto => caching::modify_cache_directive, at_most_once,
        audit(caching::audit_modify_cache_directive);
    removeCacheDirective: RemoveCacheDirectiveRequestProto => caching::remove_cache_directive, at_most_once,
        audit(caching::audit_remove_cache_directive);
    listCacheDirectives: ListCacheDirectivesRequestProto => caching::list_cache_directives,
        audit(caching::audit_list_cache_directives);
    getDelegationToken: GetDelegationTokenRequestProto => delegation_tokens::get_delegation_token;
    renewDelegationToken: RenewDelegationTokenRequestProto => delegation_tokens::renew_delegation_token,
        audit(delegation_tokens::audit_renew_delegation_token);
    cancelDelegationToken: CancelDelegationTokenRequestProto => delegation_tokens::cancel_delegation_token,
        audit(delegation_tokens::audit_cancel_delegation_token);
    listOpenFiles: ListOpenFilesRequestProto => lease::list_open_files, audit(lease::audit);
    allowSnapshot: AllowSnapshotRequestProto => snapshots::allow_snapshot, at_most_once,
        audit(snapshots::audit_allow_snapshot);
    disallowSnapshot: DisallowSnapshotRequestProto => snapshots::disallow_snapshot, at_most_once,
        audit(snapshots::audit_disallow_snapshot);
    createSnapshot: CreateSnapshotRequestProto => snapshots::create_snapshot, at_most_once,
        audit(snapshots::audit_create_snapshot);
    renameSnapshot: RenameSnapshotRequestProto => snapshots::rename_snapshot, at_most_once,
        audit(snapshots::audit_rename_snapshot);
    deleteSnapshot: DeleteSnapshotRequestProto => snapshots::delete_snapshot, at_most_once,
        audit(snapshots::audit_delete_snapshot);
    getSnapshottableDirListing: GetSnapshottableDirListingRequestProto => snapshots::get_snapshottable_dir_listing,
        audit(snapshots::audit_get_snapshottable_dir_listing);
    getSnapshotListing: GetSnapshotListingRequestProto => snapshots::get_snapshot_listing,
        audit(snapshots::audit_get_snapshot_listing);
    getSnapshotDiffReport: GetSnapshotDiffReportRequestProto => snapshot_diff::get_snapshot_diff_report,
        audit(snapshot_diff::audit);
    getSnapshotDiffReportListing: GetSnapshotDiffReportListingRequestProto =>
        snapshot_diff::get_snapshot_diff_report_listing;
    msync: MsyncRequestProto => maintenance::msync;
    getHAServiceState: HaServiceStateRequestProto => maintenance::get_ha_service_state;
    getEnclosingRoot: GetEnclosingRootRequestProto => maintenance::get_enclosing_root,
        audit(maintenance::audit_get_enclosing_root);

    refreshNodes: Unread => refresh_nodes, audit(audit_refresh_nodes);

    getDataEncryptionKey: Unread => unsupported::get_data_encryption_key;
    getEZForPath: Lenient<GetEzForPathRequestProto> => unsupported::get_ez_for_path,
        audit(unsupported::audit_get_ez_for_path);
    listEncryptionZones: Unread => unsupported::list_encryption_zones, audit(unsupported::audit_list_encryption_zones);
    listReencryptionStatus: Unread => unsupported::list_reencryption_status,
        audit(unsupported::audit_list_reencryption_status);
    createEncryptionZone: Lenient<CreateEncryptionZoneRequestProto> => unsupported::create_encryption_zone;
    reencryptEncryptionZone: Unread => unsupported::reencrypt_encryption_zone;
    getErasureCodingPolicies: Unread => unsupported::get_erasure_coding_policies,
        audit(unsupported::audit_get_erasure_coding_policies);
    getErasureCodingCodecs: Unread => unsupported::get_erasure_coding_codecs,
        audit(unsupported::audit_get_erasure_coding_codecs);
    getErasureCodingPolicy: Lenient<GetErasureCodingPolicyRequestProto> => unsupported::get_erasure_coding_policy,
        audit(unsupported::audit_get_erasure_coding_policy);
    setErasureCodingPolicy: Lenient<SetErasureCodingPolicyRequestProto> => unsupported::set_erasure_coding_policy;
    unsetErasureCodingPolicy: Lenient<UnsetErasureCodingPolicyRequestProto> => unsupported::unset_erasure_coding_policy;
    addErasureCodingPolicies: Unread => unsupported::erasure_coding;
    removeErasureCodingPolicy: Unread => unsupported::erasure_coding;
    enableErasureCodingPolicy: Unread => unsupported::erasure_coding;
    disableErasureCodingPolicy: Unread => unsupported::erasure_coding;
    getECTopologyResultForPolicies: Unread => unsupported::erasure_coding;
    createSymlink: Lenient<CreateSymlinkRequestProto> => unsupported::create_symlink;
    getCurrentEditLogTxid: Unread => unsupported::namespace_events;
    getEditsFromTxid: Unread => unsupported::namespace_events;
    satisfyStoragePolicy: Unread => unsupported::satisfy_storage_policy;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{METHODS, columns};

    /// The table for operators: method → handling of a repeated call.
    fn table() -> BTreeMap<String, String> {
        let text = include_str!("../../../../docs/compatibility/retries.md");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| {
            let (method, rest) = row.split_once("` |")?;
            Some((method.to_owned(), rest.split('|').nth(1)?.trim().to_owned()))
        })
        .collect()
    }

    #[test]
    fn retry_table_covers_every_call() {
        let table = table();
        for method in METHODS {
            assert!(table.contains_key(*method), "{method} is not in the table");
        }
        for (method, said) in &table {
            assert_eq!(said == "first answer", columns(method).at_most_once, "{method}: {said}");
        }
        assert!(table.len() > 100);
    }
}
