//! Audit lines of calls: Apache's name of the operation, and the paths in the request.
//!
//! Successful and permission-denied calls are logged; other failures are not. Source: the calls of `logAuditEvent` in
//! `FSNamesystem.java` of Hadoop 3.4.

use std::borrow::Cow;

use bytes::Bytes;
use hearth_protocol::rpc::{Call, RemoteError};
use hearth_wire::delegation_token::{DELEGATION_TOKEN_KIND, DelegationTokenIdentifier};
use hearth_wire::proto::common::TokenProto;
use hearth_wire::proto::hdfs;
use hearth_wire::proto::hearth::OpenManyRequestProto;
use hearth_wire::rpc::exceptions;
use prost::Message;

use crate::audit::{AuditLog, Event};
use crate::caching::Expiry;
use crate::namespace::Caller;
use crate::ops::caching::{directive_numbered, pool_named};
use crate::ops::set_quota::operation_name;
use crate::state::Namenode;

/// Condition for a line, apart from refusals.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum When {
    /// The call succeeded.
    Done,
    /// The call succeeded and answered true.
    True,
    /// The call succeeded; its answer is logged as `allowed`.
    Answered,
    /// Always, also after a failure.
    Always,
}

/// Audit data of a call.
#[derive(Clone, Debug)]
pub struct Audited {
    command: Cow<'static, str>,
    source: Option<String>,
    /// The source in a refusal's line, if it is a different one.
    source_refused: Option<String>,
    target: Option<String>,
    /// A refusal's line has no target.
    only_allowed: bool,
    /// The path whose owner and mode are logged.
    status_of: Option<String>,
    when: When,
    /// Sources of further lines like this one, for calls about many paths.
    others: Vec<String>,
}

impl Audited {
    fn new(command: impl Into<Cow<'static, str>>, source: Option<String>) -> Self {
        let command = command.into();
        let (target, status_of, others) = (None, None, Vec::new());
        Self { command, source, source_refused: None, target, only_allowed: false, status_of, when: When::Done, others }
    }

    fn on(command: impl Into<Cow<'static, str>>, source: String) -> Self {
        Self::new(command, Some(source))
    }

    fn to(self, target: String) -> Self {
        Self { target: Some(target), ..self }
    }

    /// Adds the status of the source.
    fn changed(self) -> Self {
        Self { status_of: self.source.clone(), ..self }
    }

    fn when(self, when: When) -> Self {
        Self { when, ..self }
    }
}

/// Returns the audit data of a call; `None` if it is not logged. Called before the call is executed, because some of
/// the data is no longer available afterwards.
pub fn audited(namenode: &Namenode, call: &Call) -> Option<Audited> {
    /// A field of the request.
    macro_rules! of {
        ($request:ident . $field:ident) => {
            hdfs::$request::decode(call.request.clone()).ok()?.$field
        };
    }
    let snapshot = |root: String, name: &str| format!("{}/.snapshot/{name}", root.trim_end_matches('/'));
    Some(match call.method.as_str() {
        "getBlockLocations" => Audited::on("open", of!(GetBlockLocationsRequestProto.src)),
        "openMany" => {
            let mut paths = OpenManyRequestProto::decode(call.request.clone()).ok()?.paths.into_iter();
            Audited { others: paths.clone().skip(1).collect(), ..Audited::on("open", paths.next()?) }
        }
        "getFileInfo" => Audited::on("getfileinfo", of!(GetFileInfoRequestProto.src)),
        "getFileLinkInfo" => Audited::on("getfileinfo", of!(GetFileLinkInfoRequestProto.src)),
        "getLinkTarget" => Audited::on("getfileinfo", of!(GetLinkTargetRequestProto.path)).when(When::Always),
        "getLocatedFileInfo" => {
            let request = hdfs::GetLocatedFileInfoRequestProto::decode(call.request.clone()).ok()?;
            let command = if request.need_block_token() { "open" } else { "getfileinfo" };
            Audited::on(command, request.src.unwrap_or_default())
        }
        "isFileClosed" => Audited::on("isFileClosed", of!(IsFileClosedRequestProto.src)).when(When::True),
        "getListing" => Audited::on("listStatus", of!(GetListingRequestProto.src)),
        "getBatchedListing" => {
            let mut paths = of!(GetBatchedListingRequestProto.paths).into_iter();
            Audited { others: paths.clone().skip(1).collect(), ..Audited::on("listStatus", paths.next()?) }
        }
        "getContentSummary" => Audited::on("contentSummary", of!(GetContentSummaryRequestProto.path)),
        "getQuotaUsage" => Audited::on("quotaUsage", of!(GetQuotaUsageRequestProto.path)),
        "checkAccess" => Audited::on("checkAccess", of!(CheckAccessRequestProto.path)),
        "create" => Audited::on("create", of!(CreateRequestProto.src)).changed(),
        "append" => Audited::on("append", of!(AppendRequestProto.src)),
        "truncate" => Audited::on("truncate", of!(TruncateRequestProto.src)).changed(),
        "concat" => {
            let request = hdfs::ConcatRequestProto::decode(call.request.clone()).ok()?;
            let joined = format!("[{}]", request.srcs.join(", "));
            Audited { status_of: Some(request.trg.clone()), ..Audited::on("concat", joined).to(request.trg) }
        }
        "mkdirs" => Audited::on("mkdirs", of!(MkdirsRequestProto.src)).changed(),
        "delete" => Audited::on("delete", of!(DeleteRequestProto.src)).when(When::Answered),
        "rename" => {
            let request = hdfs::RenameRequestProto::decode(call.request.clone()).ok()?;
            // A rename into an existing directory; Apache's line has the directory as target nevertheless.
            let state = namenode.read();
            let there = state.namespace.lookup(&request.dst);
            let inside = there.is_some_and(|slot| state.namespace.inode(slot).is_directory());
            let status_of = match request.src.rsplit_once('/') {
                Some((_, name)) if inside => format!("{}/{name}", request.dst.trim_end_matches('/')),
                _ => request.dst.clone(),
            };
            let renamed = Audited::on("rename", request.src).to(request.dst).when(When::True);
            Audited { status_of: Some(status_of), ..renamed }
        }
        "rename2" => {
            let request = hdfs::Rename2RequestProto::decode(call.request.clone()).ok()?;
            let options = match (request.overwrite_dest, request.move_to_trash()) {
                (false, false) => "NONE",
                (true, false) => "OVERWRITE",
                (false, true) => "TO_TRASH",
                (true, true) => "OVERWRITE, TO_TRASH",
            };
            let renamed = Audited::on(format!("rename (options=[{options}])"), request.src);
            Audited { status_of: Some(request.dst.clone()), ..renamed.to(request.dst) }
        }
        "setReplication" => Audited::on("setReplication", of!(SetReplicationRequestProto.src)).when(When::True),
        "setPermission" => Audited::on("setPermission", of!(SetPermissionRequestProto.src)).changed(),
        "setOwner" => Audited::on("setOwner", of!(SetOwnerRequestProto.src)).changed(),
        "setTimes" => Audited::on("setTimes", of!(SetTimesRequestProto.src)).changed(),
        "setStoragePolicy" => Audited::on("setStoragePolicy", of!(SetStoragePolicyRequestProto.src)).changed(),
        "unsetStoragePolicy" => Audited::on("unsetStoragePolicy", of!(UnsetStoragePolicyRequestProto.src)).changed(),
        "satisfyStoragePolicy" => {
            Audited::on("satisfyStoragePolicy", of!(SatisfyStoragePolicyRequestProto.src)).changed()
        }
        "setQuota" => {
            let request = hdfs::SetQuotaRequestProto::decode(call.request.clone()).ok()?;
            Audited::on(operation_name(request.namespace_quota as i64, request.storagespace_quota as i64), request.path)
        }
        "modifyAclEntries" => Audited::on("modifyAclEntries", of!(ModifyAclEntriesRequestProto.src)).changed(),
        "removeAclEntries" => Audited::on("removeAclEntries", of!(RemoveAclEntriesRequestProto.src)).changed(),
        "removeDefaultAcl" => Audited::on("removeDefaultAcl", of!(RemoveDefaultAclRequestProto.src)).changed(),
        "removeAcl" => Audited::on("removeAcl", of!(RemoveAclRequestProto.src)).changed(),
        "setAcl" => Audited::on("setAcl", of!(SetAclRequestProto.src)).changed(),
        "getAclStatus" => Audited::on("getAclStatus", of!(GetAclStatusRequestProto.src)),
        "setXAttr" => Audited::on("setXAttr", of!(SetXAttrRequestProto.src)).changed(),
        "removeXAttr" => Audited::on("removeXAttr", of!(RemoveXAttrRequestProto.src)).changed(),
        "getXAttrs" => Audited::on("getXAttrs", of!(GetXAttrsRequestProto.src)),
        "listXAttrs" => Audited::on("listXAttrs", of!(ListXAttrsRequestProto.src)),
        "getEZForPath" => Audited::on("getEZForPath", of!(GetEzForPathRequestProto.src)).changed(),
        "getEnclosingRoot" => {
            Audited::on("getEZForPath", of!(GetEnclosingRootRequestProto.filename).unwrap_or_default()).changed()
        }
        "getErasureCodingPolicy" => {
            Audited::on("getErasureCodingPolicy", of!(GetErasureCodingPolicyRequestProto.src)).when(When::Always)
        }
        "getErasureCodingPolicies" => Audited::new("getErasureCodingPolicies", None).when(When::Always),
        "getErasureCodingCodecs" => Audited::new("getErasureCodingCodecs", None).when(When::Always),
        "listEncryptionZones" => Audited::new("listEncryptionZones", None).when(When::Always),
        "listReencryptionStatus" => Audited::new("listReencryptionStatus", None).when(When::Always),
        "listCachePools" => Audited::new("listCachePools", None),
        // The pool's final values are logged once it exists.
        "addCachePool" => {
            let info = of!(AddCachePoolRequestProto.info);
            let source_refused = info.pool_name.clone();
            Audited { source_refused, ..Audited::on("addCachePool", pool_text(&info)) }
        }
        "modifyCachePool" => {
            let info = of!(ModifyCachePoolRequestProto.info);
            let all = pool_text(&info);
            Audited { only_allowed: true, ..Audited::on("modifyCachePool", pool(info.pool_name())).to(all) }
        }
        "removeCachePool" => Audited::on("removeCachePool", pool(&of!(RemoveCachePoolRequestProto.pool_name))),
        // Its number is in the answer.
        "addCacheDirective" => Audited::new("addCacheDirective", None),
        "modifyCacheDirective" => {
            let info = of!(ModifyCacheDirectiveRequestProto.info);
            // Java's text for a missing value.
            let id = info.id.map_or("null".to_owned(), |id| id.to_string());
            Audited::on("modifyCacheDirective", format!("{{id: {id}}}")).to(directive(&info))
        }
        "removeCacheDirective" => {
            Audited::on("removeCacheDirective", format!("{{id: {}}}", of!(RemoveCacheDirectiveRequestProto.id)))
        }
        "listCacheDirectives" => {
            Audited::on("listCacheDirectives", directive(&of!(ListCacheDirectivesRequestProto.filter)))
        }
        "getSnapshottableDirListing" => Audited::new("listSnapshottableDirectory", None),
        "allowSnapshot" => Audited::on("allowSnapshot", of!(AllowSnapshotRequestProto.snapshot_root)),
        "disallowSnapshot" => Audited::on("disallowSnapshot", of!(DisallowSnapshotRequestProto.snapshot_root)),
        // Its path is in the answer.
        "createSnapshot" => Audited::on("createSnapshot", of!(CreateSnapshotRequestProto.snapshot_root)),
        "getSnapshotDiffReport" => {
            let request = hdfs::GetSnapshotDiffReportRequestProto::decode(call.request.clone()).ok()?;
            let end = |name: &str| match name {
                "" => request.snapshot_root.clone(),
                name => snapshot(request.snapshot_root.clone(), name),
            };
            Audited::on("computeSnapshotDiff", end(&request.from_snapshot)).to(end(&request.to_snapshot))
        }
        "getSnapshotListing" => {
            Audited::on("ListSnapshot", of!(GetSnapshotListingRequestProto.snapshot_root)).when(When::Always)
        }
        "deleteSnapshot" => {
            let request = hdfs::DeleteSnapshotRequestProto::decode(call.request.clone()).ok()?;
            Audited::on("deleteSnapshot", snapshot(request.snapshot_root, &request.snapshot_name))
        }
        "renameSnapshot" => {
            let request = hdfs::RenameSnapshotRequestProto::decode(call.request.clone()).ok()?;
            let old = snapshot(request.snapshot_root.clone(), &request.snapshot_old_name);
            Audited::on("renameSnapshot", old).to(snapshot(request.snapshot_root, &request.snapshot_new_name))
        }
        "listOpenFiles" => {
            let path = of!(ListOpenFilesRequestProto.path);
            Audited { source_refused: path, ..Audited::new("listOpenFiles", None) }
        }
        "renewDelegationToken" => token("renewDelegationToken", &of!(RenewDelegationTokenRequestProto.token))?,
        "cancelDelegationToken" => token("cancelDelegationToken", &of!(CancelDelegationTokenRequestProto.token))?,
        "getDatanodeReport" => Audited::new("datanodeReport", None),
        "getDatanodeStorageReport" => Audited::new("getDatanodeStorageReport", None),
        "getSlowDatanodeReport" => Audited::new("slowDataNodesReport", None),
        "saveNamespace" => Audited::new("saveNamespace", None),
        "rollEdits" => Audited::new("rollEditLog", None),
        "finalizeUpgrade" => Audited::new("finalizeUpgrade", None),
        "refreshNodes" => Audited::new("refreshNodes", None),
        "setBalancerBandwidth" => Audited::new("setBalancerBandwidth", None),
        "metaSave" => Audited::new("metaSave", None),
        "setSafeMode" => {
            use hdfs::SafeModeActionProto as Action;
            let command = match Action::try_from(of!(SetSafeModeRequestProto.action)).ok()? {
                Action::Leave => "safemode_leave",
                Action::Enter => "safemode_enter",
                Action::Get => "safemode_get",
                Action::ForceExit => "safemode_force_exit",
            };
            Audited::new(command, None)
        }
        "restoreFailedStorage" => {
            let command = match of!(RestoreFailedStorageRequestProto.arg).as_str() {
                "check" => "checkRestoreFailedStorage",
                "true" => "enableRestoreFailedStorage",
                _ => "disableRestoreFailedStorage",
            };
            Audited::new(command, None)
        }
        "rollingUpgrade" => {
            use hdfs::RollingUpgradeActionProto as Action;
            let command = match Action::try_from(of!(RollingUpgradeRequestProto.action)).ok()? {
                Action::Query => "queryRollingUpgrade",
                Action::Start => "startRollingUpgrade",
                Action::Finalize => "finalizeRollingUpgrade",
            };
            Audited::new(command, None)
        }
        _ => return None,
    })
}

/// The line of a call about a delegation token. Source: `DelegationTokenIdentifier.toStringStable`.
fn token(command: &'static str, token: &TokenProto) -> Option<Audited> {
    let id = DelegationTokenIdentifier::decode(&token.identifier).ok()?;
    let named =
        format!("{DELEGATION_TOKEN_KIND} token {} for {} with renewer {}", id.sequence_number, id.owner, id.renewer);
    Some(Audited::on(command, named))
}

fn pool(name: &str) -> String {
    format!("{{poolName: {name}}}")
}

/// Text of a cache pool, existing or requested. Source: `CachePoolInfo.toString`.
fn pool_text(info: &hdfs::CachePoolInfoProto) -> String {
    fn or_null(value: Option<impl ToString>) -> String {
        value.map_or_else(|| "null".to_owned(), |value| value.to_string())
    }
    format!(
        "{{poolName:{}, ownerName:{}, groupName:{}, mode:{}, limit:{}, defaultReplication:{}, maxRelativeExpiryMs:{}}}",
        or_null(info.pool_name.as_ref()),
        or_null(info.owner_name.as_ref()),
        or_null(info.group_name.as_ref()),
        or_null(info.mode.map(|mode| format!("0{mode:03o}"))),
        or_null(info.limit),
        or_null(info.default_replication),
        or_null(info.max_relative_expiry),
    )
}

/// Text of a cache directive. Source: `CacheDirectiveInfo.toString`.
fn directive(info: &hdfs::CacheDirectiveInfoProto) -> String {
    let ends = |end: &hdfs::CacheDirectiveInfoExpirationProto| Expiry { ms: end.millis, is_relative: end.is_relative };
    let said = [
        info.id.map(|id| format!("id: {id}")),
        info.path.as_ref().map(|path| format!("path: {path}")),
        info.replication.map(|replication| format!("replication: {replication}")),
        info.pool.as_ref().map(|pool| format!("pool: {pool}")),
        info.expiration.as_ref().map(|end| format!("expiration: {}", ends(end))),
    ];
    format!("{{{}}}", said.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// Returns the source and the target of the line that are known only after the call was executed.
fn answered(namenode: &Namenode, call: &Call, answer: &Bytes) -> (Option<String>, Option<String>) {
    match call.method.as_str() {
        "createSnapshot" => {
            let made = hdfs::CreateSnapshotResponseProto::decode(answer.clone());
            (None, made.ok().map(|made| made.snapshot_path))
        }
        // The pool may have been removed already: then the line has the requested values.
        "addCachePool" => {
            let request = hdfs::AddCachePoolRequestProto::decode(call.request.clone());
            let made = request.ok().and_then(|request| pool_named(namenode, request.info.pool_name()));
            (made.map(|info| pool_text(&info)), None)
        }
        "addCacheDirective" => {
            let request = hdfs::AddCacheDirectiveRequestProto::decode(call.request.clone());
            let made = hdfs::AddCacheDirectiveResponseProto::decode(answer.clone());
            let info = request.ok().zip(made.ok()).map(|(request, made)| {
                let asked = || hdfs::CacheDirectiveInfoProto { id: Some(made.id), ..request.info };
                directive_numbered(namenode, made.id).unwrap_or_else(asked)
            });
            (info.as_ref().map(directive), None)
        }
        _ => (None, None),
    }
}

/// Logs the result of a call. `protocol`: protocol of the call.
pub async fn write_audit(
    log: &AuditLog,
    namenode: &Namenode,
    caller: &Caller,
    call: &Call,
    protocol: &str,
    audited: &Audited,
    outcome: &Result<Bytes, RemoteError>,
) {
    let is_true = |answer: &Bytes| hdfs::DeleteResponseProto::decode(answer.clone()).is_ok_and(|answer| answer.result);
    let allowed = match (outcome, audited.when) {
        (Ok(answer), When::True) if !is_true(answer) => return,
        (Ok(answer), When::Answered) => is_true(answer),
        (Ok(_), _) => true,
        (Err(error), _) if error.class == exceptions::ACCESS_CONTROL => false,
        (Err(_), When::Always) => false,
        (Err(_), _) => return,
    };
    let status_of = audited.status_of.as_deref().filter(|_| allowed);
    let permissions = status_of.and_then(|path| permissions(namenode, path));
    let (made, target) = outcome.as_ref().map_or((None, None), |answer| answered(namenode, call, answer));
    let refused = audited.source_refused.as_deref().filter(|_| !allowed);
    let first = refused.or(made.as_deref()).or(audited.source.as_deref());
    let target = target.as_deref().or(audited.target.as_deref()).filter(|_| allowed || !audited.only_allowed);
    let sources = std::iter::once(first).chain(audited.others.iter().map(|path| Some(&**path)));
    let event = |source| Event {
        allowed,
        user: &caller.user,
        real_user: call.caller.real_user.as_deref(),
        machine: &caller.machine,
        command: &audited.command,
        source,
        target,
        permissions: permissions.as_deref(),
        protocol: Some(protocol),
        context: call.caller_context.as_deref().map(|context| (context, &call.caller_signature)),
    };
    log.write_all(sources.map(event)).await;
}

/// Returns `owner:group:rwxr-xr-x` of the inode that is now at `path`.
fn permissions(namenode: &Namenode, path: &str) -> Option<String> {
    let state = namenode.read();
    let namespace = &state.namespace;
    let inode = namespace.inode(namespace.lookup(path)?);
    let (owner, group) = (namespace.names.text(inode.owner()), namespace.names.text(inode.group()));
    Some(format!("{owner}:{group}:{}", symbols(inode.permission().0)))
}

/// Text of a mode as in `ls`.
fn symbols(mode: u16) -> String {
    let mut text: String =
        (0..9).map(|i| if mode & (0o400 >> i) != 0 { ['r', 'w', 'x'][i % 3] } else { '-' }).collect();
    if mode & 0o1000 != 0 {
        text.pop();
        text.push(if mode & 1 != 0 { 't' } else { 'T' });
    }
    text
}

#[cfg(test)]
mod tests {
    use hearth_wire::proto::hdfs::{CacheDirectiveInfoExpirationProto, CacheDirectiveInfoProto, CachePoolInfoProto};

    use super::{directive, operation_name, pool_text, symbols};

    /// Texts of `CachePoolInfo` and `CacheDirectiveInfo` of Hadoop 3.4.
    #[test]
    fn cache_texts_match_java() {
        let asked = CachePoolInfoProto { pool_name: Some("p".into()), limit: Some(7), ..Default::default() };
        let text = "{poolName:p, ownerName:null, groupName:null, mode:null, limit:7, defaultReplication:null, maxRelativeExpiryMs:null}";
        assert_eq!(pool_text(&asked), text);
        let made = CachePoolInfoProto {
            owner_name: Some("ann".into()),
            group_name: Some("staff".into()),
            mode: Some(0o700),
            default_replication: Some(1),
            max_relative_expiry: Some(i64::MAX / 4),
            ..asked
        };
        let text = "{poolName:p, ownerName:ann, groupName:staff, mode:0700, limit:7, defaultReplication:1, maxRelativeExpiryMs:2305843009213693951}";
        assert_eq!(pool_text(&made), text);
        let end = |millis, is_relative| Some(CacheDirectiveInfoExpirationProto { millis, is_relative });
        let asked = CacheDirectiveInfoProto { id: Some(2), expiration: end(90_061_001, true), ..Default::default() };
        assert_eq!(directive(&asked), "{id: 2, expiration: 001:01:01:01.001}");
        let made = CacheDirectiveInfoProto {
            path: Some("/a".into()),
            replication: Some(1),
            pool: Some("p".into()),
            expiration: end(1_795_245_564_051, false),
            ..asked
        };
        let text = "{id: 2, path: /a, replication: 1, pool: p, expiration: 2026-11-21T07:19:24+0000}";
        assert_eq!(directive(&made), text);
        assert_eq!(directive(&CacheDirectiveInfoProto::default()), "{}");
    }

    #[test]
    fn modes_as_ls_shows_them() {
        assert_eq!(symbols(0o750), "rwxr-x---");
        assert_eq!(symbols(0o1777), "rwxrwxrwt");
        assert_eq!(symbols(0o1640), "rw-r----T");
    }

    #[test]
    fn quotas_have_four_commands() {
        assert_eq!(operation_name(-1, i64::MAX), "clearQuota");
        assert_eq!(operation_name(i64::MAX, -1), "clearSpaceQuota");
        assert_eq!(operation_name(5, i64::MAX), "setQuota");
        assert_eq!(operation_name(i64::MAX, 5), "setSpaceQuota");
        assert_eq!(operation_name(5, 5), "setSpaceQuota");
    }
}
