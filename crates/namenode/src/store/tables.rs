//! The tables, and how changes go into them and come back.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use hearth_types::FsPermission;
use redb::{
    Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableError,
    WriteTransaction,
};

use super::StoreError;
use super::encoding::{decode_retry, encode_retry};
use super::group::Group;
use super::journal::Mark;
use crate::caching::{Pool, StoredCaching, Terms};
use crate::changes::{Changes, Counters, RetryEntry, RetryKey, SnapshotRow};
use crate::namespace::{Limits, Namespace, Rebuild, Snapshot};

/// Inode id → record.
const INODES: TableDefinition<u64, &[u8]> = TableDefinition::new("inodes");
/// Number → user or group name.
const NAMES: TableDefinition<u32, &str> = TableDefinition::new("names");
/// One row a counter.
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
/// Running number → how many remembered answers, and these one after the other, in the order of their calls. A row for each would be
/// written somewhere else in the table each.
const RETRIES: TableDefinition<u64, (u32, &[u8])> = TableDefinition::new("remembered");
/// The row of [`COUNTERS`] with the number of the journal's last group that is in the tables; missing until there is one.
const APPLIED: &str = "journal";
/// The row of [`COUNTERS`] with the journal's [`Mark`]; missing where its groups have none.
const MARK: &str = "journal_mark";
/// Bytes of a row of [`RETRIES`], and one answer more at most.
const RETRIES_ROW: usize = 256 << 10;

/// Cache pool → owner, group, rights, limit (bytes), copies, longest life (milliseconds).
const CACHE_POOLS: TableDefinition<&str, (&str, &str, u16, u64, u16, u64)> = TableDefinition::new("cache_pools");
/// Number of a cache directive → path, copies, pool, end (milliseconds since the epoch).
const CACHE_DIRECTIVES: TableDefinition<u64, (&str, u16, &str, u64)> = TableDefinition::new("cache_directives");
/// The row of [`COUNTERS`] with the newest directive's number; missing until there is one.
const LAST_DIRECTIVE: &str = "last_directive";
/// Inode id and the number of the last snapshot that can have it → a state of the inode that snapshots have.
const VERSIONS: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("versions");
/// Number → the directory's inode id, name, time (milliseconds since the epoch).
const SNAPSHOTS: TableDefinition<u32, (u64, &str, u64)> = TableDefinition::new("snapshots");

/// redb's own cache, bytes; each page in it takes a quarter more. The namespace is in memory already: this only serves commits.
const CACHE: usize = 8 << 20;

pub struct Tables {
    database: Database,
    /// The rows of [`RETRIES`] in their order: number, and how many of its answers are still wanted.
    retries: VecDeque<(u64, u32)>,
    path: PathBuf,
}

/// What was stored.
pub struct Loaded {
    pub namespace: Namespace,
    pub retries: Vec<(RetryKey, RetryEntry)>,
    pub caching: StoredCaching,
}

/// The tables beside that of the inodes.
struct Small {
    counters: Counters,
    names: Vec<(u32, String)>,
    retries: Vec<(RetryKey, RetryEntry)>,
    caching: StoredCaching,
    snapshots: Vec<(u32, SnapshotRow)>,
}

/// What a run of changes comes to: the last word on each thing, since a directory that gets a hundred files is written once. Inodes stand
/// in the order of their ids.
#[derive(Default)]
struct Sum<'a> {
    inodes: BTreeMap<u64, Option<&'a [u8]>>,
    versions: BTreeMap<(u64, u32), Option<&'a [u8]>>,
    snapshots: BTreeMap<u32, Option<SnapshotRow>>,
    names: Vec<(u32, String)>,
    counters: Option<Counters>,
    /// In the order of the changes, as the directives.
    cache_pools: Vec<(String, Option<Pool>)>,
    cache_directives: Vec<(u64, Option<Terms>)>,
    last_directive: Option<u64>,
    /// Rows of [`RETRIES`].
    retries: Vec<(u32, Vec<u8>)>,
    retries_removed: u32,
}

impl<'a> Sum<'a> {
    fn add(&mut self, changes: Changes<&'a [u8]>) {
        // A field that is added is to be stored, too.
        let Changes {
            inodes_put,
            inodes_removed,
            versions_put,
            versions_removed,
            snapshots_put,
            snapshots_removed,
            names_put,
            counters,
            cache_pools,
            cache_directives,
            last_directive,
            retry,
            retries_removed,
        } = changes;
        self.inodes.extend(inodes_put.into_iter().map(|(id, record)| (id, Some(record))));
        self.inodes.extend(inodes_removed.into_iter().map(|id| (id, None)));
        self.versions.extend(versions_put.into_iter().map(|(key, record)| (key, Some(record))));
        self.versions.extend(versions_removed.into_iter().map(|key| (key, None)));
        self.snapshots.extend(snapshots_put.into_iter().map(|(id, row)| (id, Some(row))));
        self.snapshots.extend(snapshots_removed.into_iter().map(|id| (id, None)));
        self.names.extend(names_put);
        self.counters = counters.or(self.counters);
        self.cache_pools.extend(cache_pools);
        self.cache_directives.extend(cache_directives);
        self.last_directive = last_directive.or(self.last_directive);
        if let Some((key, entry)) = retry {
            if self.retries.last().is_none_or(|(_, row)| row.len() >= RETRIES_ROW) {
                self.retries.push((0, Vec::new()));
            }
            if let Some((count, row)) = self.retries.last_mut() {
                encode_retry(&key, &entry, row);
                *count += 1;
            }
        }
        self.retries_removed += retries_removed;
    }
}

impl Tables {
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let database = Database::builder().set_cache_size(CACHE).create(path);
        Self::new(path, database)
    }

    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let database = Database::builder().set_cache_size(CACHE).open(path);
        Self::new(path, database)
    }

    fn new(path: &Path, database: Result<Database, redb::DatabaseError>) -> Result<Self, StoreError> {
        match database {
            Ok(database) => {
                let mut tables = Self { database, retries: VecDeque::new(), path: path.to_owned() };
                tables.retries = tables.retry_rows().map_err(|error| tables.damaged(error))?;
                Ok(tables)
            }
            Err(error) => Err(StoreError::Damaged { path: path.to_owned(), problem: error.to_string() }),
        }
    }

    fn retry_rows(&self) -> Result<VecDeque<(u64, u32)>, redb::Error> {
        let transaction = self.database.begin_read()?;
        match transaction.open_table(RETRIES) {
            // Not yet formatted.
            Err(TableError::TableDoesNotExist(_)) => Ok(VecDeque::new()),
            table => table?
                .iter()?
                .map(|row| row.map(|(number, row)| (number.value(), row.value().0)).map_err(Into::into))
                .collect(),
        }
    }

    /// Counts the answers that are still wanted as [`Self::load`] reads them: rows are whole on disk until all of theirs have gone, and
    /// who gets them from there will take off each of them.
    pub fn recount_retries(&mut self) -> Result<(), StoreError> {
        self.retries = self.retry_rows().map_err(|error| self.damaged(error))?;
        Ok(())
    }

    /// What to say when writing them has panicked.
    pub fn panicked(&self) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), problem: "writing it has panicked; the log says where".into() }
    }

    fn damaged(&self, error: redb::Error) -> StoreError {
        StoreError::Damaged { path: self.path.clone(), problem: error.to_string() }
    }

    /// Makes a run of changes durable, in their order, in one transaction. `applied`: the number of the journal's last group among
    /// them; 0 when there is no journal yet.
    pub fn apply(&mut self, run: &[Group], applied: u64) -> Result<(), StoreError> {
        let mut sum = Sum::default();
        for changes in run.iter().flat_map(Group::changes) {
            sum.add(changes.map_err(|error| StoreError::Damaged {
                path: self.path.clone(),
                problem: format!("what was to be written into it makes no sense: {error}"),
            })?);
        }
        self.commit(sum, applied).map_err(|error| self.damaged(error))
    }

    /// The number of the journal's last group that is in the tables.
    pub fn applied(&self) -> Result<u64, StoreError> {
        Ok(self.counter(APPLIED)?.unwrap_or(0))
    }

    /// What the journal's groups begin with. `None`: they have no mark.
    pub fn mark(&self) -> Result<Option<Mark>, StoreError> {
        Ok(self.counter(MARK)?.map(Mark))
    }

    /// Gives a mark to the journal, whose groups have none and are in the tables, all of them.
    pub fn give_mark(&mut self) -> Result<Mark, StoreError> {
        let path = self.path.clone();
        let random = |source| StoreError::Io { action: "getting random bytes for", path, source };
        let mark = Mark::random().map_err(random)?;
        self.put_mark(mark).map_err(|error| self.damaged(error))?;
        Ok(mark)
    }

    fn put_mark(&mut self, mark: Mark) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut table = transaction.open_table(COUNTERS)?;
            table.insert(MARK, mark.0)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// A row of [`COUNTERS`], if it is there.
    fn counter(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let read = || -> Result<Option<u64>, redb::Error> {
            let table = self.database.begin_read()?.open_table(COUNTERS)?;
            Ok(table.get(name)?.map(|row| row.value()))
        };
        read().map_err(|error| self.damaged(error))
    }

    fn commit(&mut self, sum: Sum, applied: u64) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut table = transaction.open_table(INODES)?;
            for (id, record) in sum.inodes {
                match record {
                    Some(record) => drop(table.insert(id, record)?),
                    None => drop(table.remove(id)?),
                }
            }
            if !sum.versions.is_empty() {
                let mut table = transaction.open_table(VERSIONS)?;
                for (key, record) in sum.versions {
                    match record {
                        Some(record) => drop(table.insert(key, record)?),
                        None => drop(table.remove(key)?),
                    }
                }
            }
            if !sum.snapshots.is_empty() {
                let mut table = transaction.open_table(SNAPSHOTS)?;
                for (id, row) in sum.snapshots {
                    match row {
                        Some(row) => drop(table.insert(id, (row.root, row.name.as_str(), row.modification_time_ms))?),
                        None => drop(table.remove(id)?),
                    }
                }
            }
            let mut table = transaction.open_table(NAMES)?;
            for (number, name) in &sum.names {
                table.insert(number, name.as_str())?;
            }
            let mut table = transaction.open_table(COUNTERS)?;
            if let Some(counters) = sum.counters {
                table.insert("last_inode", counters.last_inode)?;
                table.insert("last_block", counters.last_block as u64)?;
                table.insert("last_stamp", counters.last_stamp)?;
                if counters.last_snapshot > 0 {
                    table.insert("last_snapshot", u64::from(counters.last_snapshot))?;
                }
            }
            if let Some(last) = sum.last_directive {
                table.insert(LAST_DIRECTIVE, last)?;
            }
            if applied > 0 {
                table.insert(APPLIED, applied)?;
            }
            drop(table);
            commit_caching(&transaction, &sum.cache_pools, &sum.cache_directives)?;
            let mut table = transaction.open_table(RETRIES)?;
            for (count, answers) in &sum.retries {
                let number = self.retries.back().map_or(0, |(number, _)| number + 1);
                table.insert(number, (*count, answers.as_slice()))?;
                self.retries.push_back((number, *count));
            }
            // The oldest go; a row goes with the last of its answers.
            let mut removed = sum.retries_removed;
            while let Some((number, count)) = self.retries.front_mut() {
                let taken = removed.min(*count);
                (removed, *count) = (removed - taken, *count - taken);
                if *count > 0 {
                    break;
                }
                table.remove(*number)?;
                self.retries.pop_front();
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// Takes everything back.
    pub fn load(&self, limits: Limits) -> Result<Loaded, StoreError> {
        let record = |source| StoreError::Record { path: self.path.clone(), source };
        let small = self.load_small().map_err(|error| self.damaged(error))?;
        let mut rebuild = Rebuild::start(limits, small.counters, small.names).map_err(record)?;
        self.each_inode(|id, bytes| rebuild.inode(id, bytes).map_err(record))?;
        self.each_version(|id, until, bytes| rebuild.version(id, until, bytes).map_err(record))?;
        for (id, row) in small.snapshots {
            let snapshot = Snapshot { id, name: row.name, modification_time_ms: row.modification_time_ms };
            rebuild.snapshot(snapshot, row.root).map_err(record)?;
        }
        Ok(Loaded { namespace: rebuild.finish().map_err(record)?, retries: small.retries, caching: small.caching })
    }

    fn each_inode(&self, mut take: impl FnMut(u64, &[u8]) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let open = || -> Result<_, redb::Error> { Ok(self.database.begin_read()?.open_table(INODES)?) };
        let table = open().map_err(|error| self.damaged(error))?;
        for row in table.iter().map_err(|error| self.damaged(error.into()))? {
            let (id, bytes) = row.map_err(|error| self.damaged(error.into()))?;
            take(id.value(), bytes.value())?;
        }
        Ok(())
    }

    fn each_version(&self, mut take: impl FnMut(u64, u32, &[u8]) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.damaged(error.into()))?;
        let table = match transaction.open_table(VERSIONS) {
            // There was no snapshot yet.
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
            other => other.map_err(|error| self.damaged(error.into()))?,
        };
        for row in table.iter().map_err(|error| self.damaged(error.into()))? {
            let (key, bytes) = row.map_err(|error| self.damaged(error.into()))?;
            let (id, until) = key.value();
            take(id, until, bytes.value())?;
        }
        Ok(())
    }

    fn load_small(&self) -> Result<Small, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = transaction.open_table(COUNTERS)?;
        let counter = |name: &str| -> Result<u64, redb::Error> {
            let row = table.get(name)?;
            row.map(|row| row.value()).ok_or_else(|| redb::Error::Corrupted(format!("the counter {name} is missing")))
        };
        let counters = Counters {
            last_inode: counter("last_inode")?,
            last_block: counter("last_block")? as i64,
            last_stamp: counter("last_stamp")?,
            last_snapshot: table.get("last_snapshot")?.map_or(0, |row| row.value() as u32),
        };
        let last_directive = table.get(LAST_DIRECTIVE)?.map_or(0, |row| row.value());
        let mut names = Vec::new();
        for row in transaction.open_table(NAMES)?.iter()? {
            let (number, name) = row?;
            names.push((number.value(), name.value().to_owned()));
        }
        let mut retries = Vec::new();
        match transaction.open_table(RETRIES) {
            // Written by a version that kept them otherwise: forgotten with that.
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            table => {
                for row in table?.iter()? {
                    let (_, row) = row?;
                    let (count, mut answers) = row.value();
                    for _ in 0..count {
                        let wrong = |error| redb::Error::Corrupted(format!("remembered answers: {error}"));
                        retries.push(decode_retry(&mut answers).map_err(wrong)?);
                    }
                }
            }
        }
        let mut snapshots = Vec::new();
        match transaction.open_table(SNAPSHOTS) {
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            table => {
                for row in table?.iter()? {
                    let (id, row) = row?;
                    let (root, name, modification_time_ms) = row.value();
                    snapshots.push((id.value(), SnapshotRow { root, name: name.to_owned(), modification_time_ms }));
                }
            }
        }
        let caching = StoredCaching { last_directive, ..load_caching(&transaction)? };
        Ok(Small { counters, names, retries, snapshots, caching })
    }
}

fn commit_caching(
    transaction: &WriteTransaction,
    pools: &[(String, Option<Pool>)],
    directives: &[(u64, Option<Terms>)],
) -> Result<(), redb::Error> {
    if !pools.is_empty() {
        let mut table = transaction.open_table(CACHE_POOLS)?;
        for (name, pool) in pools {
            match pool {
                Some(pool) => {
                    let (owner, group, rights) = (pool.owner.as_str(), pool.group.as_str(), pool.permission.0);
                    let row = (owner, group, rights, pool.limit, pool.default_replication, pool.max_expiry_ms);
                    drop(table.insert(name.as_str(), row)?);
                }
                None => drop(table.remove(name.as_str())?),
            }
        }
    }
    if !directives.is_empty() {
        let mut table = transaction.open_table(CACHE_DIRECTIVES)?;
        for (id, terms) in directives {
            match terms {
                Some(terms) => {
                    let row = (terms.path.as_str(), terms.replication, terms.pool.as_str(), terms.expires_ms);
                    drop(table.insert(id, row)?);
                }
                None => drop(table.remove(id)?),
            }
        }
    }
    Ok(())
}

/// A namespace of before there were pools has no tables for them.
fn load_caching(transaction: &ReadTransaction) -> Result<StoredCaching, redb::Error> {
    let mut stored = StoredCaching::default();
    match transaction.open_table(CACHE_POOLS) {
        Err(TableError::TableDoesNotExist(_)) => {}
        table => {
            for row in table?.iter()? {
                let (name, row) = row?;
                let (owner, group, rights, limit, default_replication, max_expiry_ms) = row.value();
                let (owner, group, permission) = (owner.to_owned(), group.to_owned(), FsPermission(rights));
                let pool = Pool { owner, group, permission, limit, default_replication, max_expiry_ms };
                stored.pools.push((name.value().to_owned(), pool));
            }
        }
    }
    match transaction.open_table(CACHE_DIRECTIVES) {
        Err(TableError::TableDoesNotExist(_)) => {}
        table => {
            for row in table?.iter()? {
                let (id, row) = row?;
                let (path, replication, pool, expires_ms) = row.value();
                let terms = Terms { path: path.to_owned(), replication, pool: pool.to_owned(), expires_ms };
                stored.directives.push((id.value(), terms));
            }
        }
    }
    Ok(stored)
}
