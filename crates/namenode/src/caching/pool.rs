use hearth_types::{Access, FsPermission};

use super::{Caching, EXPIRY_MAX_MS, UNLIMITED, invalid};
use crate::error::Error;
use crate::namespace::Caller;

/// Cache pool: limits how much its users may cache, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    pub owner: String,
    pub group: String,
    /// Read permits listing the directives; write permits changing them.
    pub permission: FsPermission,
    /// Bytes of all copies; [`UNLIMITED`] for no limit.
    pub limit: u64,
    /// Number of copies for directives that give none.
    pub default_replication: u16,
    /// Longest life of a directive, milliseconds.
    pub max_expiry_ms: u64,
}

/// A requested change of a pool. A `None` keeps the present value, or takes the default of new pools.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PoolChange {
    pub name: String,
    pub owner: Option<String>,
    pub group: Option<String>,
    pub permission: Option<FsPermission>,
    pub limit: Option<i64>,
    pub default_replication: Option<i16>,
    pub max_expiry_ms: Option<i64>,
}

/// Permissions of a pool that is created without any: `rwxr-xr-x`.
const PERMISSION: FsPermission = FsPermission(0o755);

impl PoolChange {
    fn check(&self) -> Result<(), Error> {
        if self.limit.is_some_and(|limit| limit < 0) {
            return Err(invalid("Limit is negative."));
        }
        if self.default_replication.is_some_and(|replication| replication < 0) {
            return Err(invalid("Default Replication is negative"));
        }
        if let Some(longest) = self.max_expiry_ms {
            if longest < 0 {
                return Err(invalid("Max relative expiry is negative."));
            }
            if longest as u64 > EXPIRY_MAX_MS {
                return Err(invalid("Max relative expiry is too big."));
            }
        }
        check_name(&self.name)
    }

    fn apply(self, pool: &mut Pool) {
        if let Some(owner) = self.owner {
            pool.owner = owner;
        }
        if let Some(group) = self.group {
            pool.group = group;
        }
        if let Some(permission) = self.permission {
            pool.permission = permission;
        }
        // Not negative: `check` has made sure of it.
        if let Some(limit) = self.limit {
            pool.limit = limit.unsigned_abs();
        }
        if let Some(replication) = self.default_replication {
            pool.default_replication = replication.unsigned_abs();
        }
        if let Some(longest) = self.max_expiry_ms {
            pool.max_expiry_ms = longest.unsigned_abs();
        }
    }
}

fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() { Err(Error::EmptyPoolName) } else { Ok(()) }
}

impl Pool {
    pub fn may(&self, caller: &Caller, access: Access) -> bool {
        let mode = self.permission.0;
        let may = |bits: u16| Access::from_bits(bits as u8).includes(access);
        let owns = *caller.user == *self.owner;
        let belongs = caller.groups.iter().any(|group| **group == *self.group);
        caller.superuser || (owns && may(mode >> 6)) || (belongs && may(mode >> 3)) || (!owns && !belongs && may(mode))
    }
}

impl Caching {
    /// Rejects access that the pool's permissions do not allow.
    pub(super) fn check_pool(&self, caller: &Caller, name: &str, access: Access) -> Result<&Pool, Error> {
        let pool = self.pool(name)?;
        if pool.may(caller, access) {
            return Ok(pool);
        }
        Err(Error::PoolDenied { pool: name.to_owned(), user: caller.user.to_string(), access: access.name() })
    }

    /// Adds a pool. The caller is a superuser, and owns the pool unless another owner is given.
    pub fn add_pool(&mut self, caller: &Caller, change: PoolChange) -> Result<(), Error> {
        change.check()?;
        let name = change.name.clone();
        if self.pools.contains_key(&name) {
            return Err(invalid(format!("Cache pool {name} already exists.")));
        }
        let mut pool = Pool {
            owner: caller.user.to_string(),
            group: caller.groups.first().map(|group| group.to_string()).unwrap_or_default(),
            permission: PERMISSION,
            limit: UNLIMITED,
            default_replication: 1,
            max_expiry_ms: EXPIRY_MAX_MS,
        };
        change.apply(&mut pool);
        self.pools.insert(name.clone(), pool);
        self.note_pool(&name);
        Ok(())
    }

    pub fn modify_pool(&mut self, change: PoolChange) -> Result<(), Error> {
        change.check()?;
        let name = change.name.clone();
        let Some(pool) = self.pools.get_mut(&name) else {
            return Err(invalid(format!("Cache pool {name} does not exist.")));
        };
        change.apply(pool);
        self.note_pool(&name);
        Ok(())
    }

    /// Removes a pool with all its directives.
    pub fn remove_pool(&mut self, name: &str) -> Result<(), Error> {
        check_name(name)?;
        if self.pools.remove(name).is_none() {
            return Err(invalid(format!("Cannot remove non-existent cache pool {name}")));
        }
        self.note_pool(name);
        let of_pool = self.directives.iter().filter(|(_, directive)| directive.terms.pool == name);
        let gone: Vec<u64> = of_pool.map(|(id, _)| *id).collect();
        for id in gone {
            self.directives.remove(&id);
            self.note_directive(id);
        }
        Ok(())
    }
}
