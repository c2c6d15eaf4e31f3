//! `hdfs cacheadmin`: pools, and the directives in them.

use bytes::Bytes;
use hearth_types::{Access, FsPermission};
use hearth_wire::proto::hdfs::{
    AddCacheDirectiveRequestProto, AddCacheDirectiveResponseProto, AddCachePoolRequestProto, AddCachePoolResponseProto,
    CacheDirectiveEntryProto, CacheDirectiveInfoExpirationProto, CacheDirectiveInfoProto, CacheDirectiveStatsProto,
    CachePoolEntryProto, CachePoolInfoProto, CachePoolStatsProto, ListCacheDirectivesRequestProto,
    ListCacheDirectivesResponseProto, ListCachePoolsRequestProto, ListCachePoolsResponseProto,
    ModifyCacheDirectiveRequestProto, ModifyCacheDirectiveResponseProto, ModifyCachePoolRequestProto,
    ModifyCachePoolResponseProto, RemoveCacheDirectiveRequestProto, RemoveCacheDirectiveResponseProto,
    RemoveCachePoolRequestProto, RemoveCachePoolResponseProto,
};
use prost::Message;

use super::audited::Audited;
use crate::caching::{CacheStatistics, Caching, Directive, DirectiveChange, Expiry, Filter, Pool, PoolChange, Terms};
use crate::error::Error;
use crate::state::{CallContext, Namenode, Remember, encode};

/// `CacheFlagProto.FORCE`.
const FORCE: u32 = 1;

impl Namenode {
    /// Updates the statistics after a change, before a caller reads them; otherwise they are those of the last scan.
    fn rescan_cache(&self) {
        if self.settings.caching.enabled && self.read().caching.has_changed() {
            self.state.write().scan_cache(self.now());
        }
    }
}

/// Changes pools, which only a superuser may do. `action`: as in the refusal in safe mode.
async fn change_pools<M: prost::Message>(
    namenode: &Namenode,
    context: &CallContext,
    operation: &'static str,
    action: String,
    answer: M,
    change: impl FnOnce(&mut Caching) -> Result<(), Error>,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            state.namespace.require_superuser(&context.caller, operation)?;
            namenode.check_safe_mode(state, now, || action)?;
            change(&mut state.caching)?;
            Ok((answer, Remember::Yes))
        })
        .await
}

pub async fn add_cache_pool(
    namenode: &Namenode,
    context: &CallContext,
    request: AddCachePoolRequestProto,
) -> Result<Bytes, Error> {
    let change = pool_change(request.info)?;
    let action = format!("add cache pool{}", change.name);
    let answer = AddCachePoolResponseProto {};
    let add = |caching: &mut Caching| caching.add_pool(&context.caller, change);
    change_pools(namenode, context, "addCachePool", action, answer, add).await
}

/// Audit line. It has the pool's final values, which are known once the pool exists.
pub fn audit_add_cache_pool(request: &AddCachePoolRequestProto) -> Audited {
    let info = request.info.clone();
    let source_refused = info.pool_name.clone();
    let requested = pool_text(&info);
    // Another caller may have removed the pool already; the line then has the requested values.
    let made =
        move |namenode: &Namenode, _: &Bytes| pool_named(namenode, info.pool_name()).map(|made| pool_text(&made));
    Audited { source_refused, ..Audited::on("addCachePool", requested).source_from_answer(made) }
}

pub async fn modify_cache_pool(
    namenode: &Namenode,
    context: &CallContext,
    request: ModifyCachePoolRequestProto,
) -> Result<Bytes, Error> {
    let change = pool_change(request.info)?;
    let action = format!("modify cache pool{}", change.name);
    let answer = ModifyCachePoolResponseProto {};
    change_pools(namenode, context, "modifyCachePool", action, answer, |caching| caching.modify_pool(change)).await
}

pub fn audit_modify_cache_pool(request: &ModifyCachePoolRequestProto) -> Audited {
    let (source, target) = (pool_name_text(request.info.pool_name()), pool_text(&request.info));
    Audited { only_allowed: true, ..Audited::on("modifyCachePool", source).to(target) }
}

pub async fn remove_cache_pool(
    namenode: &Namenode,
    context: &CallContext,
    request: RemoveCachePoolRequestProto,
) -> Result<Bytes, Error> {
    let name = request.pool_name;
    let action = format!("modify cache pool{name}");
    let answer = RemoveCachePoolResponseProto {};
    change_pools(namenode, context, "removeCachePool", action, answer, |caching| caching.remove_pool(&name)).await
}

pub fn audit_remove_cache_pool(request: &RemoveCachePoolRequestProto) -> Audited {
    Audited::on("removeCachePool", pool_name_text(&request.pool_name))
}

pub async fn list_cache_pools(
    namenode: &Namenode,
    context: &CallContext,
    request: ListCachePoolsRequestProto,
) -> Result<Bytes, Error> {
    namenode.rescan_cache();
    let state = namenode.read();
    let limit = namenode.settings.caching.pools_listed_max;
    let mut pools = state.caching.pools_after(&request.prev_pool_name);
    let entries = pools
        .by_ref()
        .take(limit)
        .map(|(name, pool, figures)| match pool.may(&context.caller, Access::READ) {
            true => CachePoolEntryProto { info: pool_info(name, pool), stats: pool_stats(pool, figures) },
            // Callers without read permission get only the pool's name.
            false => CachePoolEntryProto {
                info: CachePoolInfoProto { pool_name: Some(name.to_owned()), ..Default::default() },
                stats: CachePoolStatsProto::default(),
            },
        })
        .collect();
    let has_more = pools.next().is_some();
    Ok(encode(&ListCachePoolsResponseProto { entries, has_more }))
}

pub fn audit_list_cache_pools(_: &ListCachePoolsRequestProto) -> Audited {
    Audited::new("listCachePools")
}

pub async fn add_cache_directive(
    namenode: &Namenode,
    context: &CallContext,
    request: AddCacheDirectiveRequestProto,
) -> Result<Bytes, Error> {
    let change = directive_change(request.info)?;
    let force = request.cache_flags.unwrap_or(0) & FORCE != 0;
    namenode.rescan_cache();
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || "add cache directive".to_owned())?;
            let id = state.caching.add_directive(&context.caller, &state.namespace, change, force, now.wall_ms)?;
            Ok((AddCacheDirectiveResponseProto { id: id as i64 }, Remember::Yes))
        })
        .await
}

/// Audit line. The directive's number is in the answer.
pub fn audit_add_cache_directive(request: &AddCacheDirectiveRequestProto) -> Audited {
    let info = request.info.clone();
    Audited::new("addCacheDirective").source_from_answer(move |namenode, answer| {
        let made = AddCacheDirectiveResponseProto::decode(answer.clone()).ok()?;
        let requested = || CacheDirectiveInfoProto { id: Some(made.id), ..info.clone() };
        Some(directive_text(&directive_numbered(namenode, made.id).unwrap_or_else(requested)))
    })
}

pub async fn modify_cache_directive(
    namenode: &Namenode,
    context: &CallContext,
    request: ModifyCacheDirectiveRequestProto,
) -> Result<Bytes, Error> {
    let change = directive_change(request.info)?;
    let force = request.cache_flags.unwrap_or(0) & FORCE != 0;
    namenode.rescan_cache();
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || "add cache directive".to_owned())?;
            state.caching.modify_directive(&context.caller, &state.namespace, change, force, now.wall_ms)?;
            Ok((ModifyCacheDirectiveResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_modify_cache_directive(request: &ModifyCacheDirectiveRequestProto) -> Audited {
    // Java's text for a missing value.
    let id = request.info.id.map_or("null".to_owned(), |id| id.to_string());
    Audited::on("modifyCacheDirective", format!("{{id: {id}}}")).to(directive_text(&request.info))
}

pub async fn remove_cache_directive(
    namenode: &Namenode,
    context: &CallContext,
    request: RemoveCacheDirectiveRequestProto,
) -> Result<Bytes, Error> {
    namenode
        .change_once(context, |state, now| {
            namenode.check_safe_mode(state, now, || "remove cache directives".to_owned())?;
            state.caching.remove_directive(&context.caller, request.id)?;
            Ok((RemoveCacheDirectiveResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit_remove_cache_directive(request: &RemoveCacheDirectiveRequestProto) -> Audited {
    Audited::on("removeCacheDirective", format!("{{id: {}}}", request.id))
}

pub async fn list_cache_directives(
    namenode: &Namenode,
    context: &CallContext,
    request: ListCacheDirectivesRequestProto,
) -> Result<Bytes, Error> {
    let wanted = request.filter;
    if wanted.replication.is_some() {
        return Err(Error::InvalidRequest { message: "Filtering by replication is unsupported.".to_owned() });
    }
    namenode.rescan_cache();
    let filter = Filter { id: wanted.id, path: wanted.path, pool: wanted.pool };
    let (state, now_ms) = (namenode.read(), namenode.now().wall_ms);
    let limit = namenode.settings.caching.directives_listed_max;
    let mut directives = state.caching.directives_after(&context.caller, request.prev_id, &filter)?;
    let elements =
        directives.by_ref().take(limit).map(|(id, directive)| directive_entry(id, directive, now_ms)).collect();
    let has_more = directives.next().is_some();
    Ok(encode(&ListCacheDirectivesResponseProto { elements, has_more }))
}

pub fn audit_list_cache_directives(request: &ListCacheDirectivesRequestProto) -> Audited {
    Audited::on("listCacheDirectives", directive_text(&request.filter))
}

/// Converts a number that is 16 bits in Java.
fn short(number: u32) -> Result<i16, Error> {
    i16::try_from(number).map_err(|_| Error::IllegalArgument { message: format!("Out of range: {number}") })
}

fn pool_change(info: CachePoolInfoProto) -> Result<PoolChange, Error> {
    Ok(PoolChange {
        name: info.pool_name.unwrap_or_default(),
        owner: info.owner_name,
        group: info.group_name,
        permission: info.mode.map(|mode| FsPermission(mode as u16 & FsPermission::MASK)),
        limit: info.limit,
        default_replication: info.default_replication.map(short).transpose()?,
        max_expiry_ms: info.max_relative_expiry,
    })
}

/// Returns a pool as its owner sees it.
fn pool_named(namenode: &Namenode, name: &str) -> Option<CachePoolInfoProto> {
    namenode.read().caching.pool_named(name).map(|pool| pool_info(name, pool))
}

/// Returns a directive as a user with read permission on its pool sees it.
fn directive_numbered(namenode: &Namenode, id: i64) -> Option<CacheDirectiveInfoProto> {
    let id = u64::try_from(id).ok()?;
    namenode.read().caching.terms(id).map(|terms| directive_info(id, terms))
}

fn pool_info(name: &str, pool: &Pool) -> CachePoolInfoProto {
    CachePoolInfoProto {
        pool_name: Some(name.to_owned()),
        owner_name: Some(pool.owner.clone()),
        group_name: Some(pool.group.clone()),
        mode: Some(pool.permission.0.into()),
        limit: Some(pool.limit as i64),
        max_relative_expiry: Some(pool.max_expiry_ms as i64),
        default_replication: Some(pool.default_replication.into()),
    }
}

fn pool_stats(pool: &Pool, figures: CacheStatistics) -> CachePoolStatsProto {
    CachePoolStatsProto {
        bytes_needed: figures.bytes_needed as i64,
        bytes_cached: figures.bytes_cached as i64,
        bytes_overlimit: figures.bytes_needed.saturating_sub(pool.limit) as i64,
        files_needed: figures.files_needed as i64,
        files_cached: figures.files_cached as i64,
    }
}

fn directive_change(info: CacheDirectiveInfoProto) -> Result<DirectiveChange, Error> {
    Ok(DirectiveChange {
        id: info.id,
        path: info.path,
        replication: info.replication.map(short).transpose()?,
        pool: info.pool,
        expiry: info.expiration.map(|end| Expiry { ms: end.millis, is_relative: end.is_relative }),
    })
}

fn directive_info(id: u64, terms: &Terms) -> CacheDirectiveInfoProto {
    CacheDirectiveInfoProto {
        id: Some(id as i64),
        path: Some(terms.path.clone()),
        replication: Some(terms.replication.into()),
        pool: Some(terms.pool.clone()),
        expiration: Some(CacheDirectiveInfoExpirationProto { millis: terms.expires_ms as i64, is_relative: false }),
    }
}

fn directive_entry(id: u64, directive: &Directive, now_ms: u64) -> CacheDirectiveEntryProto {
    let figures = directive.figures;
    CacheDirectiveEntryProto {
        info: directive_info(id, &directive.terms),
        stats: CacheDirectiveStatsProto {
            bytes_needed: figures.bytes_needed as i64,
            bytes_cached: figures.bytes_cached as i64,
            files_needed: figures.files_needed as i64,
            files_cached: figures.files_cached as i64,
            has_expired: directive.has_expired(now_ms),
        },
    }
}

fn pool_name_text(name: &str) -> String {
    format!("{{poolName: {name}}}")
}

/// Text of a cache pool, existing or requested. Source: `CachePoolInfo.toString`.
fn pool_text(info: &CachePoolInfoProto) -> String {
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
fn directive_text(info: &CacheDirectiveInfoProto) -> String {
    let ends = |end: &CacheDirectiveInfoExpirationProto| Expiry { ms: end.millis, is_relative: end.is_relative };
    let said = [
        info.id.map(|id| format!("id: {id}")),
        info.path.as_ref().map(|path| format!("path: {path}")),
        info.replication.map(|replication| format!("replication: {replication}")),
        info.pool.as_ref().map(|pool| format!("pool: {pool}")),
        info.expiration.as_ref().map(|end| format!("expiration: {}", ends(end))),
    ];
    format!("{{{}}}", said.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(directive_text(&asked), "{id: 2, expiration: 001:01:01:01.001}");
        let made = CacheDirectiveInfoProto {
            path: Some("/a".into()),
            replication: Some(1),
            pool: Some("p".into()),
            expiration: end(1_795_245_564_051, false),
            ..asked
        };
        let text = "{id: 2, path: /a, replication: 1, pool: p, expiration: 2026-11-21T07:19:24+0000}";
        assert_eq!(directive_text(&made), text);
        assert_eq!(directive_text(&CacheDirectiveInfoProto::default()), "{}");
    }
}
