//! Calls about centralised caching: pools, and the directives in them.

use hearth_types::FsPermission;
use hearth_wire::proto::hdfs::*;

use super::admin::Page;
use crate::Error;
use crate::file_system::FileSystem;

/// Flag of a directive that may exceed the limit of its pool. Source: CacheFlag.java.
const FORCE: u32 = 1;

/// A cache pool. Fields that are `None` keep their value, or get the namenode's default in a new pool. Source:
/// caching.proto, `CachePoolInfoProto`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CachePool {
    /// Name of the pool.
    pub name: String,
    /// Owner.
    pub owner: Option<String>,
    /// Group.
    pub group: Option<String>,
    /// Permissions for listing and changing the directives of the pool. Shown only to users who may read the pool.
    pub mode: Option<FsPermission>,
    /// Maximum of cached bytes; `i64::MAX` without a limit.
    pub limit: Option<i64>,
    /// Longest life of a directive in milliseconds.
    pub max_life_ms: Option<i64>,
    /// Cached replicas of directives that name no number.
    pub default_replication: Option<u16>,
}

/// Use of a cache pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CachePoolUsage {
    /// Bytes that the directives want cached.
    pub bytes_needed: i64,
    /// Bytes that are cached.
    pub bytes_cached: i64,
    /// Bytes that the directives want beyond the limit.
    pub bytes_over_limit: i64,
    /// Files that the directives want cached.
    pub files_needed: i64,
    /// Files that are cached.
    pub files_cached: i64,
}

/// End of a directive's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheExpiration {
    /// Milliseconds from now.
    In(i64),
    /// Milliseconds since the epoch.
    At(i64),
}

impl CacheExpiration {
    /// A life without end. Source: CacheDirectiveInfo.java, `MAX_RELATIVE_EXPIRY_MS`.
    pub const NEVER: Self = Self::In(i64::MAX / 4);
}

/// A path to cache. Fields that are `None` are not set: in a filter they match everything, in a change they keep their
/// value. Source: caching.proto, `CacheDirectiveInfoProto`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheDirective {
    /// Number that the namenode gave the directive.
    pub id: Option<i64>,
    /// File or directory.
    pub path: Option<String>,
    /// Number of cached replicas.
    pub replication: Option<u16>,
    /// Name of the pool.
    pub pool: Option<String>,
    /// End of its life.
    pub expiration: Option<CacheExpiration>,
}

/// Use of the cache by a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheDirectiveUsage {
    /// Bytes to cache.
    pub bytes_needed: i64,
    /// Bytes that are cached.
    pub bytes_cached: i64,
    /// Files to cache.
    pub files_needed: i64,
    /// Files that are cached.
    pub files_cached: i64,
}

impl From<&CachePool> for CachePoolInfoProto {
    fn from(pool: &CachePool) -> Self {
        Self {
            pool_name: Some(pool.name.clone()),
            owner_name: pool.owner.clone(),
            group_name: pool.group.clone(),
            mode: pool.mode.map(|mode| i32::from(mode.0)),
            limit: pool.limit,
            max_relative_expiry: pool.max_life_ms,
            default_replication: pool.default_replication.map(u32::from),
        }
    }
}

impl From<CachePoolInfoProto> for CachePool {
    fn from(info: CachePoolInfoProto) -> Self {
        Self {
            // Apache's namenode always sends a number here; 1 is the schema's default.
            default_replication: Some(info.default_replication().try_into().unwrap_or(u16::MAX)),
            name: info.pool_name.unwrap_or_default(),
            owner: info.owner_name,
            group: info.group_name,
            mode: info.mode.map(|mode| FsPermission(mode as u16 & FsPermission::MASK)),
            limit: info.limit,
            max_life_ms: info.max_relative_expiry,
        }
    }
}

impl From<CacheDirective> for CacheDirectiveInfoProto {
    fn from(directive: CacheDirective) -> Self {
        Self {
            id: directive.id,
            path: directive.path,
            replication: directive.replication.map(u32::from),
            pool: directive.pool,
            expiration: directive.expiration.map(|expiration| match expiration {
                CacheExpiration::In(millis) => CacheDirectiveInfoExpirationProto { millis, is_relative: true },
                CacheExpiration::At(millis) => CacheDirectiveInfoExpirationProto { millis, is_relative: false },
            }),
        }
    }
}

impl From<CacheDirectiveInfoProto> for CacheDirective {
    fn from(info: CacheDirectiveInfoProto) -> Self {
        Self {
            id: info.id,
            path: info.path,
            replication: info.replication.map(|replication| replication.try_into().unwrap_or(u16::MAX)),
            pool: info.pool,
            expiration: info.expiration.map(|expiration| match expiration.is_relative {
                true => CacheExpiration::In(expiration.millis),
                false => CacheExpiration::At(expiration.millis),
            }),
        }
    }
}

impl FileSystem {
    /// Creates a cache pool. Requires superuser rights.
    pub async fn add_cache_pool(&self, pool: &CachePool) -> Result<(), Error> {
        let request = AddCachePoolRequestProto { info: pool.into() };
        let AddCachePoolResponseProto {} = self.session.namenode.call("addCachePool", &request).await?;
        Ok(())
    }

    /// Changes the fields of a cache pool that are set.
    pub async fn modify_cache_pool(&self, pool: &CachePool) -> Result<(), Error> {
        let request = ModifyCachePoolRequestProto { info: pool.into() };
        let ModifyCachePoolResponseProto {} = self.session.namenode.call("modifyCachePool", &request).await?;
        Ok(())
    }

    /// Removes a cache pool and its directives.
    pub async fn remove_cache_pool(&self, name: &str) -> Result<(), Error> {
        let request = RemoveCachePoolRequestProto { pool_name: name.to_owned() };
        let RemoveCachePoolResponseProto {} = self.session.namenode.call("removeCachePool", &request).await?;
        Ok(())
    }

    /// Returns cache pools in the order of their names, a part at a time. `after`: name of the last pool seen, empty at
    /// first.
    pub async fn cache_pools(&self, after: &str) -> Result<Page<(CachePool, CachePoolUsage)>, Error> {
        let request = ListCachePoolsRequestProto { prev_pool_name: after.to_owned() };
        let answer: ListCachePoolsResponseProto = self.session.namenode.call("listCachePools", &request).await?;
        let entries = answer.entries.into_iter().map(|entry| {
            let stats = entry.stats;
            let usage = CachePoolUsage {
                bytes_needed: stats.bytes_needed,
                bytes_cached: stats.bytes_cached,
                bytes_over_limit: stats.bytes_overlimit,
                files_needed: stats.files_needed,
                files_cached: stats.files_cached,
            };
            (entry.info.into(), usage)
        });
        Ok(Page { entries: entries.collect(), has_more: answer.has_more })
    }

    /// Adds a directive. `force`: also beyond the limit of the pool. Returns its number.
    pub async fn add_cache_directive(&self, directive: CacheDirective, force: bool) -> Result<i64, Error> {
        let info = self.absolute_directive(directive)?.into();
        let request = AddCacheDirectiveRequestProto { info, cache_flags: force.then_some(FORCE) };
        let answer: AddCacheDirectiveResponseProto = self.session.namenode.call("addCacheDirective", &request).await?;
        Ok(answer.id)
    }

    /// Changes the fields of a directive that are set. `force`: also beyond the limit of the pool.
    pub async fn modify_cache_directive(&self, directive: CacheDirective, force: bool) -> Result<(), Error> {
        let info = self.absolute_directive(directive)?.into();
        let request = ModifyCacheDirectiveRequestProto { info, cache_flags: force.then_some(FORCE) };
        let ModifyCacheDirectiveResponseProto {} = self.session.namenode.call("modifyCacheDirective", &request).await?;
        Ok(())
    }

    /// Removes a directive.
    pub async fn remove_cache_directive(&self, id: i64) -> Result<(), Error> {
        let request = RemoveCacheDirectiveRequestProto { id };
        let RemoveCacheDirectiveResponseProto {} = self.session.namenode.call("removeCacheDirective", &request).await?;
        Ok(())
    }

    /// Returns the directives that match the fields of `filter` that are set, in the order of their numbers, a part at a
    /// time. `after`: number of the last directive seen, 0 at first.
    pub async fn cache_directives(
        &self,
        filter: CacheDirective,
        after: i64,
    ) -> Result<Page<(CacheDirective, CacheDirectiveUsage)>, Error> {
        let filter = self.absolute_directive(filter)?.into();
        let request = ListCacheDirectivesRequestProto { prev_id: after, filter };
        let answer: ListCacheDirectivesResponseProto =
            self.session.namenode.call("listCacheDirectives", &request).await?;
        let entries = answer.elements.into_iter().map(|entry| {
            let stats = entry.stats;
            let usage = CacheDirectiveUsage {
                bytes_needed: stats.bytes_needed,
                bytes_cached: stats.bytes_cached,
                files_needed: stats.files_needed,
                files_cached: stats.files_cached,
            };
            (entry.info.into(), usage)
        });
        Ok(Page { entries: entries.collect(), has_more: answer.has_more })
    }

    fn absolute_directive(&self, mut directive: CacheDirective) -> Result<CacheDirective, Error> {
        directive.path = directive.path.map(|path| self.absolute(&path)).transpose()?;
        Ok(directive)
    }
}
