use std::fmt;

use hearth_types::Access;

use super::{CacheStatistics, Caching, EXPIRY_MAX_MS, Pool, UNLIMITED, invalid};
use crate::date::iso_time;
use crate::error::Error;
use crate::namespace::{Caller, Namespace, is_valid};

/// Terms of a directive, as stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Path of a file or a directory, which need not exist.
    pub path: String,
    /// Number of copies to lock.
    pub replication: u16,
    pub pool: String,
    /// Milliseconds since the epoch.
    pub expires_ms: u64,
}

/// One directive with the results of the last scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directive {
    pub terms: Terms,
    pub figures: CacheStatistics,
}

impl Directive {
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms, figures: CacheStatistics::default() }
    }

    pub fn has_expired(&self, now_ms: u64) -> bool {
        self.terms.expires_ms <= now_ms
    }
}

/// Expiry of a directive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expiry {
    /// Milliseconds from now, or since the epoch.
    pub ms: i64,
    pub is_relative: bool,
}

impl fmt::Display for Expiry {
    /// Formats a time span as in Java (days, hours, minutes, seconds), and a moment as in ISO 8601.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_relative {
            return f.write_str(&iso_time(self.ms.max(0) as u64));
        }
        let (seconds, ms) = (self.ms / 1000, self.ms % 1000);
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
        write!(f, "{days:03}:{hours:02}:{minutes:02}:{:02}.{ms:03}", seconds % 60)
    }
}

/// A requested change of a directive. A `None` keeps the present value, or takes the pool's default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirectiveChange {
    pub id: Option<i64>,
    pub path: Option<String>,
    pub replication: Option<i16>,
    pub pool: Option<String>,
    pub expiry: Option<Expiry>,
}

/// Filter for a listing: a directive must match every given value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    pub id: Option<i64>,
    pub path: Option<String>,
    pub pool: Option<String>,
}

fn check_path(path: Option<String>) -> Result<String, Error> {
    let path = path.ok_or_else(|| invalid("No path specified."))?;
    if !is_valid(&path) {
        return Err(invalid(format!("Invalid path '{path}'.")));
    }
    Ok(path)
}

fn check_pool_name(pool: Option<String>) -> Result<String, Error> {
    match pool {
        None => Err(invalid("No pool specified.")),
        Some(pool) if pool.is_empty() => Err(invalid("Invalid empty pool name.")),
        Some(pool) => Ok(pool),
    }
}

fn check_replication(replication: i32) -> Result<u16, Error> {
    match u16::try_from(replication) {
        Ok(replication) if replication > 0 => Ok(replication),
        _ => Err(invalid(format!("Invalid replication factor {replication} <= 0"))),
    }
}

/// Returns the expiry in milliseconds since the epoch.
fn check_expiry(expiry: Option<Expiry>, pool: &Pool, now_ms: u64) -> Result<u64, Error> {
    let Some(expiry) = expiry else { return Ok(now_ms.saturating_add(pool.max_expiry_ms)) };
    let Ok(ms) = u64::try_from(expiry.ms) else {
        return Err(invalid(format!("Cannot set a negative expiration: {}", expiry.ms)));
    };
    let (relative, absolute) = match expiry.is_relative {
        true => (ms, now_ms.saturating_add(ms)),
        false => (ms.saturating_sub(now_ms), ms),
    };
    if relative > EXPIRY_MAX_MS {
        return Err(invalid(format!("Expiration {expiry} is too far in the future!")));
    }
    if relative > pool.max_expiry_ms {
        let longest = pool.max_expiry_ms;
        return Err(invalid(format!("Expiration {expiry} exceeds the max relative expiration time of {longest} ms.")));
    }
    Ok(absolute)
}

impl Caching {
    /// Rejects a directive that exceeds the pool's limit.
    fn check_limit(&self, namespace: &Namespace, name: &str, path: &str, replication: u16) -> Result<(), Error> {
        let limit = self.pool(name)?.limit;
        if limit == UNLIMITED {
            return Ok(());
        }
        let bytes = Self::bytes_at(namespace, path);
        let (taken, wanted) = (self.pool_statistics(name).bytes_needed, bytes.saturating_mul(replication.into()));
        if taken.saturating_add(wanted) <= limit {
            return Ok(());
        }
        let remaining = i128::from(limit) - i128::from(taken);
        Err(invalid(format!(
            "Caching path {path} of size {bytes} bytes at replication {replication} would exceed pool {name}'s remaining capacity of {remaining} bytes."
        )))
    }

    fn put(&mut self, namespace: &Namespace, id: u64, terms: Terms) {
        let mut directive = Directive::new(terms);
        // An estimate until the next scan, so that the pool's limit holds for directives added before it.
        let bytes = Self::bytes_at(namespace, &directive.terms.path);
        directive.figures.bytes_needed = bytes.saturating_mul(directive.terms.replication.into());
        self.directives.insert(id, directive);
        self.note_directive(id);
    }

    /// Adds a directive. `force` ignores the pool's limit. Returns the new directive's number.
    pub fn add_directive(
        &mut self,
        caller: &Caller,
        namespace: &Namespace,
        change: DirectiveChange,
        force: bool,
        now_ms: u64,
    ) -> Result<u64, Error> {
        let pool_name = check_pool_name(change.pool)?;
        let pool = self.check_pool(caller, &pool_name, Access::WRITE)?;
        let path = check_path(change.path)?;
        let default = i32::from(pool.default_replication);
        let replication = check_replication(change.replication.map_or(default, i32::from))?;
        let expires_ms = check_expiry(change.expiry, pool, now_ms)?;
        if !force {
            self.check_limit(namespace, &pool_name, &path, replication)?;
        }
        self.last_directive += 1;
        let id = self.last_directive;
        self.put(namespace, id, Terms { path, replication, pool: pool_name, expires_ms });
        Ok(id)
    }

    pub fn modify_directive(
        &mut self,
        caller: &Caller,
        namespace: &Namespace,
        change: DirectiveChange,
        force: bool,
        now_ms: u64,
    ) -> Result<(), Error> {
        let id = change.id.ok_or_else(|| invalid("Must supply an ID."))?;
        let (id, old) = self.known(id)?;
        let old = old.terms.clone();
        self.check_pool(caller, &old.pool, Access::WRITE)?;
        let path = check_path(Some(change.path.unwrap_or_else(|| old.path.clone())))?;
        let replication = check_replication(change.replication.map_or(i32::from(old.replication), i32::from))?;
        let pool_name = check_pool_name(Some(change.pool.unwrap_or_else(|| old.pool.clone())))?;
        let pool = self.pool(&pool_name)?;
        if pool_name != old.pool {
            self.check_pool(caller, &pool_name, Access::WRITE)?;
            if !force {
                self.check_limit(namespace, &pool_name, &path, replication)?;
            }
        }
        let kept = Expiry { ms: old.expires_ms as i64, is_relative: false };
        let expires_ms = check_expiry(Some(change.expiry.unwrap_or(kept)), pool, now_ms)?;
        self.put(namespace, id, Terms { path, replication, pool: pool_name, expires_ms });
        Ok(())
    }

    pub fn remove_directive(&mut self, caller: &Caller, id: i64) -> Result<(), Error> {
        let (id, directive) = self.known(id)?;
        self.check_pool(caller, &directive.terms.pool, Access::WRITE)?;
        self.directives.remove(&id);
        self.note_directive(id);
        Ok(())
    }

    fn known(&self, id: i64) -> Result<(u64, &Directive), Error> {
        let number = u64::try_from(id).ok().filter(|id| *id > 0).ok_or_else(|| invalid("Invalid negative ID."))?;
        match self.directives.get(&number) {
            Some(directive) => Ok((number, directive)),
            None => Err(invalid(format!("No directive with ID {id} found."))),
        }
    }

    /// Returns the directives after number `after` that match the filter and that the caller may see.
    pub fn directives_after<'a>(
        &'a self,
        caller: &'a Caller,
        after: i64,
        filter: &'a Filter,
    ) -> Result<impl Iterator<Item = (u64, &'a Directive)>, Error> {
        if let Some(path) = &filter.path {
            check_path(Some(path.clone()))?;
        }
        let mut from = u64::try_from(after).unwrap_or(0).saturating_add(1);
        let only = filter.id.map(|id| u64::try_from(id).unwrap_or(0));
        if let Some(id) = only {
            if !self.directives.contains_key(&id) {
                return Err(invalid(format!("Did not find requested id {}", filter.id.unwrap_or_default())));
            }
            from = id;
        }
        let fits = move |(id, directive): &(&u64, &Directive)| {
            let terms = &directive.terms;
            only.is_none_or(|only| only == **id)
                && filter.pool.as_ref().is_none_or(|pool| *pool == terms.pool)
                && filter.path.as_ref().is_none_or(|path| *path == terms.path)
                && self.pools.get(&terms.pool).is_some_and(|pool| pool.may(caller, Access::READ))
        };
        Ok(self.directives.range(from..).filter(fits).map(|(id, directive)| (*id, directive)))
    }
}
