//! Tables of the redb database, and how changes are applied to them and loaded again.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hearth_types::{BlockPoolId, FsPermission};
use redb::{
    Database, DatabaseError, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    ReadableTableMetadata, StorageError, TableDefinition, TableError, WriteTransaction,
};

use super::encoding::{decode_retry, encode_retry};
use super::group::Group;
use super::journal::Mark;
use super::{StoreError, Version};
use crate::caching::{Pool, StoredCaching, Terms};
use crate::changes::{Changes, Counters, RetryEntry, RetryKey, SnapshotRow};
use crate::namespace::{Limits, Namespace, Rebuild, RecordError, Section, Snapshot};
use crate::parallel;

/// Inode id → record.
const INODES: TableDefinition<u64, &[u8]> = TableDefinition::new("inodes");
/// Number → user or group name.
const NAMES: TableDefinition<u32, &str> = TableDefinition::new("names");
/// One row per counter.
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
/// Running number → number of remembered answers, and these answers one after the other, in the order of their calls. A
/// row per answer would scatter the writes over the table.
const RETRIES: TableDefinition<u64, (u32, &[u8])> = TableDefinition::new("remembered");
/// Row of [`COUNTERS`] with the number of the last journal group that is in the tables. Missing until there is one.
const APPLIED: &str = "journal";
/// Row of [`COUNTERS`] with the journal's [`Mark`]. Missing if its groups have none.
const MARK: &str = "journal_mark";
/// Row of [`COUNTERS`] with the previous mark, while a start gives the journal a new one. Missing if there was none.
const MARK_BEFORE: &str = "journal_mark_before";
/// Row of [`COUNTERS`] that exists while a start gives the journal a new mark.
const MARKING: &str = "journal_marking";
/// Row of [`COUNTERS`] that exists if the journal's files have heads.
const HEADS: &str = "journal_heads";
/// Identity of the namespace, a copy of the VERSION file. Written by the first start with this layout.
const IDENTITY: TableDefinition<&str, &str> = TableDefinition::new("identity");
/// Size in bytes at which a row of [`RETRIES`] is full. It may exceed it by one answer.
const RETRIES_ROW: usize = 256 << 10;

/// Cache pool → owner, group, mode, limit (bytes), replication, maximum lifetime (milliseconds).
const CACHE_POOLS: TableDefinition<&str, (&str, &str, u16, u64, u16, u64)> = TableDefinition::new("cache_pools");
/// Number of a cache directive → path, replication, pool, expiry (milliseconds since the epoch).
const CACHE_DIRECTIVES: TableDefinition<u64, (&str, u16, &str, u64)> = TableDefinition::new("cache_directives");
/// Row of [`COUNTERS`] with the number of the newest directive. Missing until there is one.
const LAST_DIRECTIVE: &str = "last_directive";
/// Inode id and number of the last snapshot that can have it → a state of the inode that snapshots have.
const VERSIONS: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("versions");
/// Snapshot number → inode id of the directory, name, time (milliseconds since the epoch).
const SNAPSHOTS: TableDefinition<u32, (u64, &str, u64)> = TableDefinition::new("snapshots");

/// Names of the DataNodes' storages; see `blocks/storages.rs`.
const STORAGES: TableDefinition<&str, ()> = TableDefinition::new("storages");

/// First → last stamp that a lost end of the journal may have issued, a row per recovery. The table is missing unless
/// the directory was recovered, and after the stamps were given up.
const LOST_STAMPS: TableDefinition<u64, u64> = TableDefinition::new("lost_stamps");
/// Limit of rows in [`LOST_STAMPS`]. Each further recovery extends the last row, which then also has the stamps that
/// were issued in between.
const LOST_STAMPS_MAX: u64 = 64;

/// Minimum number of inodes that justifies another thread.
const SECTION_MIN: u64 = 20_000;
/// Several sections per thread, so that threads finish at about the same time even if ids are unevenly distributed.
const SECTIONS_PER_THREAD: usize = 8;
/// Ranges of ids begin at multiples of this, which is the page size of maps by id.
const IDS_TOGETHER: u64 = 64;

/// Size of redb's own cache in bytes; each page in it takes a quarter more. The namespace is in memory already, so this
/// only serves commits.
const CACHE: usize = 8 << 20;

pub struct Tables {
    /// Shared with [`StoreView`]s.
    database: Arc<Database>,
    /// Rows of [`RETRIES`] in order: number, and how many of its answers are still needed.
    retries: VecDeque<(u64, u32)>,
    path: PathBuf,
}

/// State of the journal's files according to the tables.
pub struct JournalRows {
    pub mark: Option<Mark>,
    pub before: Option<Mark>,
    pub is_being_marked: bool,
    pub has_heads: bool,
}

/// Everything loaded from the tables.
pub struct Loaded {
    pub namespace: Namespace,
    pub retries: Vec<(RetryKey, RetryEntry)>,
    pub caching: StoredCaching,
    /// Names of DataNodes' storages. `None` if written by a version that did not store them.
    pub storages: Option<Vec<String>>,
    /// Stamps that lost ends of the journal may have issued. Empty: nothing was lost, or the stamps were given up.
    pub lost_stamps: Vec<RangeInclusive<u64>>,
}

/// All tables except those of the inodes and their versions.
pub struct SmallTables {
    pub counters: Counters,
    pub names: Vec<(u32, String)>,
    retries: Vec<(RetryKey, RetryEntry)>,
    pub caching: StoredCaching,
    /// Snapshots by number.
    pub snapshots: Vec<(u32, SnapshotRow)>,
    storages: Option<Vec<String>>,
    lost_stamps: Vec<RangeInclusive<u64>>,
}

/// The tables as they were at one moment. The NameNode continues to change them; pages that a view still shows are
/// reused when it is dropped, so the file grows by what changes until then.
pub struct StoreView {
    transaction: ReadTransaction,
    path: PathBuf,
}

/// Source of views of the tables.
#[derive(Clone)]
pub struct ViewSource {
    database: Arc<Database>,
    path: PathBuf,
}

impl ViewSource {
    /// Returns the size of the tables' file in bytes.
    pub fn bytes(&self) -> Result<u64, StoreError> {
        let about = std::fs::metadata(&self.path);
        Ok(about.map_err(|source| StoreError::Io { action: "looking at", path: self.path.clone(), source })?.len())
    }

    /// Returns the tables as they are now.
    pub fn view(&self) -> Result<StoreView, StoreError> {
        let transaction = self.database.begin_read().map_err(|error| failed(&self.path, error.into()))?;
        Ok(StoreView { transaction, path: self.path.clone() })
    }
}

/// Records of inodes in a [`StoreView`].
pub struct InodeRows {
    table: ReadOnlyTable<u64, &'static [u8]>,
    path: PathBuf,
}

impl StoreView {
    /// Returns the number of the last journal group that the view has.
    pub fn applied(&self) -> Result<u64, StoreError> {
        let read = || -> Result<u64, redb::Error> {
            let table = self.transaction.open_table(COUNTERS)?;
            Ok(table.get(APPLIED)?.map_or(0, |row| row.value()))
        };
        read().map_err(|error| failed(&self.path, error))
    }

    /// Returns everything but inodes and their versions.
    pub fn small(&self) -> Result<SmallTables, StoreError> {
        read_small(&self.transaction).map_err(|error| failed(&self.path, error))
    }

    pub fn inodes(&self) -> Result<InodeRows, StoreError> {
        let table = self.transaction.open_table(INODES).map_err(|error| failed(&self.path, error.into()))?;
        Ok(InodeRows { table, path: self.path.clone() })
    }

    /// Calls `take` with inode id, number of the last snapshot and record of each version, in this order.
    pub fn each_version<E: From<StoreError>>(
        &self,
        take: impl FnMut(u64, u32, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        each_version(&self.transaction, &self.path, take)
    }

    /// Returns the error for a record that cannot be decoded.
    pub fn bad_record(&self, source: RecordError) -> StoreError {
        StoreError::Record { path: self.path.clone(), source }
    }
}

impl InodeRows {
    /// Returns the number of inodes.
    pub fn count(&self) -> Result<u64, StoreError> {
        self.table.len().map_err(|error| failed(&self.path, error.into()))
    }

    /// Calls `take` with id and record of each inode, in the order of ids.
    pub fn each<E: From<StoreError>>(&self, mut take: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        for row in self.table.iter().map_err(|error| failed(&self.path, error.into()))? {
            let (id, bytes) = row.map_err(|error| failed(&self.path, error.into()))?;
            take(id.value(), bytes.value())?;
        }
        Ok(())
    }

    /// Calls `take` with the record of an inode. `None` if there is no such inode.
    pub fn with<R>(&self, id: u64, take: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, StoreError> {
        let row = self.table.get(id).map_err(|error| failed(&self.path, error.into()))?;
        Ok(row.map(|row| take(row.value())))
    }
}

/// Merged changes of a run: only the last state of each item, so that a directory that gets a hundred files is written
/// once. Inodes are ordered by id.
#[derive(Default)]
struct MergedChanges<'a> {
    inodes: BTreeMap<u64, Option<&'a [u8]>>,
    versions: BTreeMap<(u64, u32), Option<&'a [u8]>>,
    snapshots: BTreeMap<u32, Option<SnapshotRow>>,
    names: Vec<(u32, String)>,
    counters: Option<Counters>,
    /// In the order of the changes, like the directives.
    cache_pools: Vec<(String, Option<Pool>)>,
    cache_directives: Vec<(u64, Option<Terms>)>,
    last_directive: Option<u64>,
    storages: BTreeMap<String, bool>,
    lost_stamps_given_up: bool,
    /// New rows of [`RETRIES`].
    retries: Vec<(u32, Vec<u8>)>,
    retries_removed: u32,
}

impl<'a> MergedChanges<'a> {
    fn add(&mut self, changes: Changes<&'a [u8]>) {
        // Exhaustive, so that a new field is not forgotten here.
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
            storages,
            lost_stamps_given_up,
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
        self.storages.extend(storages);
        self.lost_stamps_given_up |= lost_stamps_given_up;
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

    fn new(path: &Path, database: Result<Database, DatabaseError>) -> Result<Self, StoreError> {
        let database = database.map_err(|error| database_failed(path, error))?;
        let mut tables = Self { database: Arc::new(database), retries: VecDeque::new(), path: path.to_owned() };
        tables.retries = tables.retry_rows().map_err(|error| tables.failed(error))?;
        Ok(tables)
    }

    fn retry_rows(&self) -> Result<VecDeque<(u64, u32)>, redb::Error> {
        let transaction = self.database.begin_read()?;
        match transaction.open_table(RETRIES) {
            // Not formatted yet.
            Err(TableError::TableDoesNotExist(_)) => Ok(VecDeque::new()),
            table => table?
                .iter()?
                .map(|row| row.map(|(number, row)| (number.value(), row.value().0)).map_err(Into::into))
                .collect(),
        }
    }

    /// Returns a source of views of these tables.
    pub fn views(&self) -> ViewSource {
        ViewSource { database: self.database.clone(), path: self.path.clone() }
    }

    /// Resets the counts of needed answers to those that [`Self::load`] returns. A row stays whole on disk until all of
    /// its answers are removed, and the caller will remove each loaded answer again.
    pub fn recount_retries(&mut self) -> Result<(), StoreError> {
        self.retries = self.retry_rows().map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Returns the error for a panic while writing the tables.
    pub fn panicked(&self) -> StoreError {
        let source = std::io::Error::other("writing it caused a panic; see the log");
        StoreError::Io { action: "writing", path: self.path.clone(), source }
    }

    fn failed(&self, error: redb::Error) -> StoreError {
        failed(&self.path, error)
    }

    /// Makes a run of changes durable, in order, in one transaction. `applied` is the number of its last journal group,
    /// or 0 if there is no journal yet.
    pub fn apply(&mut self, run: &[Group], applied: u64) -> Result<(), StoreError> {
        let mut sum = MergedChanges::default();
        for changes in run.iter().flat_map(Group::changes) {
            sum.add(changes.map_err(|error| StoreError::Damaged {
                path: self.path.clone(),
                problem: format!("the changes to write into it cannot be decoded: {error}"),
            })?);
        }
        self.commit(sum, applied).map_err(|error| self.failed(error))
    }

    /// Makes `changes` durable in one transaction, for a new namespace. `number`: number of the last journal group that
    /// they contain.
    pub fn put(&mut self, changes: &Changes, number: u64) -> Result<(), StoreError> {
        let mut group = Group::default();
        group.push(changes);
        self.apply(&[group], number)
    }

    /// Returns the number of the last journal group that is in the tables.
    pub fn applied(&self) -> Result<u64, StoreError> {
        Ok(self.counter(APPLIED)?.unwrap_or(0))
    }

    /// Returns the expected state of the journal's files.
    pub fn journal_rows(&self) -> Result<JournalRows, StoreError> {
        Ok(JournalRows {
            mark: self.counter(MARK)?.map(Mark),
            before: self.counter(MARK_BEFORE)?.map(Mark),
            is_being_marked: self.counter(MARKING)?.is_some(),
            has_heads: self.counter(HEADS)?.is_some(),
        })
    }

    /// First step of giving the journal a new mark. All groups of its files must be in the tables. Until
    /// [`Self::journal_is_marked`], the files may have the previous or the new mark. Also stores the identity of the
    /// namespace.
    pub fn mark_journal(&mut self, mark: Mark, identity: &Version) -> Result<(), StoreError> {
        let put = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            {
                let mut table = transaction.open_table(COUNTERS)?;
                let before = table.insert(MARK, mark.0)?.map(|row| row.value());
                match before {
                    Some(before) => drop(table.insert(MARK_BEFORE, before)?),
                    None => drop(table.remove(MARK_BEFORE)?),
                }
                table.insert(MARKING, 1)?;
                table.insert(HEADS, 1)?;
                let mut table = transaction.open_table(IDENTITY)?;
                for (key, value) in identity_rows(identity) {
                    table.insert(key, value.as_str())?;
                }
            }
            transaction.commit()?;
            Ok(())
        };
        put().map_err(|error| self.failed(error))
    }

    /// Second step: the files have the new mark, and no other mark is accepted from now on.
    pub fn journal_is_marked(&mut self) -> Result<(), StoreError> {
        let put = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            {
                let mut table = transaction.open_table(COUNTERS)?;
                drop(table.remove(MARK_BEFORE)?);
                drop(table.remove(MARKING)?);
            }
            transaction.commit()?;
            Ok(())
        };
        put().map_err(|error| self.failed(error))
    }

    /// Returns the identity of the namespace. `None` if it was written by a version that did not store it.
    pub fn identity(&self) -> Result<Option<Version>, StoreError> {
        let read = || -> Result<Option<[String; 4]>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let table = match transaction.open_table(IDENTITY) {
                Err(TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            let get = |key: &str| -> Result<String, redb::Error> {
                let row = table.get(key)?.map(|row| row.value().to_owned());
                row.ok_or_else(|| redb::Error::Corrupted(format!("its {key} is missing")))
            };
            Ok(Some([get(CLUSTER)?, get(POOL)?, get(NAMESPACE)?, get(CREATED)?]))
        };
        let Some([cluster_id, pool, namespace, created]) = read().map_err(|error| self.failed(error))? else {
            return Ok(None);
        };
        let bad =
            |what: &str| StoreError::Damaged { path: self.path.clone(), problem: format!("its {what} is invalid") };
        Ok(Some(Version {
            pool: BlockPoolId::new(pool),
            namespace_id: namespace.parse().map_err(|_| bad(NAMESPACE))?,
            cluster_id,
            created_ms: created.parse().map_err(|_| bad(CREATED))?,
        }))
    }

    /// Advances the counters by `count`, so that numbers whose records were lost are not assigned again. Remembers the
    /// skipped stamps, because DataNodes may hold blocks with them; those of an earlier recovery stay remembered.
    pub fn skip_numbers(&mut self, count: u32) -> Result<(), StoreError> {
        let put = || -> Result<(), redb::Error> {
            let mut transaction = self.database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            {
                let mut table = transaction.open_table(COUNTERS)?;
                let last_stamp = table.get("last_stamp")?.map(|row| row.value());
                if let Some(last_stamp) = last_stamp {
                    let mut lost = transaction.open_table(LOST_STAMPS)?;
                    let newest = lost.last()?.map(|(from, to)| (from.value(), to.value()));
                    let is_full = lost.len()? >= LOST_STAMPS_MAX;
                    // Without a stamp in between, one row is enough for two recoveries.
                    let extended = newest.filter(|(_, to)| is_full || *to == last_stamp).map(|(from, _)| from);
                    let from = extended.unwrap_or(last_stamp.wrapping_add(1));
                    lost.insert(from, last_stamp.wrapping_add(u64::from(count)))?;
                }
                for name in ["last_inode", "last_block", "last_stamp", "last_snapshot", LAST_DIRECTIVE] {
                    // There are at most 16 million snapshot numbers, so only a few are skipped.
                    let count = if name == "last_snapshot" { 64 } else { u64::from(count) };
                    let now = table.get(name)?.map(|row| row.value());
                    if let Some(now) = now {
                        table.insert(name, now.wrapping_add(count))?;
                    }
                }
            }
            transaction.commit()?;
            Ok(())
        };
        put().map_err(|error| self.failed(error))
    }

    /// Returns a row of [`COUNTERS`], if it exists.
    fn counter(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let read = || -> Result<Option<u64>, redb::Error> {
            let table = self.database.begin_read()?.open_table(COUNTERS)?;
            Ok(table.get(name)?.map(|row| row.value()))
        };
        read().map_err(|error| self.failed(error))
    }

    fn commit(&mut self, sum: MergedChanges, applied: u64) -> Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        // Quick repair lets the file be opened directly after a crash. Otherwise redb would read it three times.
        transaction.set_quick_repair(true);
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
            if sum.lost_stamps_given_up {
                transaction.delete_table(LOST_STAMPS)?;
            }
            commit_caching(&transaction, &sum.cache_pools, &sum.cache_directives)?;
            if !sum.storages.is_empty() {
                let mut table = transaction.open_table(STORAGES)?;
                for (name, is_there) in &sum.storages {
                    match is_there {
                        true => drop(table.insert(name.as_str(), ())?),
                        false => drop(table.remove(name.as_str())?),
                    }
                }
            }
            let mut table = transaction.open_table(RETRIES)?;
            for (count, answers) in &sum.retries {
                let number = self.retries.back().map_or(0, |(number, _)| number + 1);
                table.insert(number, (*count, answers.as_slice()))?;
                self.retries.push_back((number, *count));
            }
            // The oldest answers are removed first. A row is removed with the last of its answers.
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

    /// Loads everything.
    pub fn load(&self, limits: Limits) -> Result<Loaded, StoreError> {
        let record = |source| StoreError::Record { path: self.path.clone(), source };
        let small = self.load_small().map_err(|error| self.failed(error))?;
        let mut rebuild = Rebuild::start(limits, small.counters, small.names).map_err(record)?;
        let sections = parallel::map(self.inode_ranges()?, |ids| self.section(&rebuild, ids));
        rebuild.join(sections.into_iter().collect::<Result<_, _>>()?).map_err(record)?;
        self.each_version(|id, until, bytes| rebuild.version(id, until, bytes).map_err(record))?;
        for (id, row) in small.snapshots {
            let snapshot = Snapshot { id, name: row.name, modification_time_ms: row.modification_time_ms };
            rebuild.snapshot(snapshot, row.root).map_err(record)?;
        }
        let SmallTables { retries, caching, storages, lost_stamps, .. } = small;
        Ok(Loaded { namespace: rebuild.finish().map_err(record)?, retries, caching, storages, lost_stamps })
    }

    /// Returns ranges of inode ids that together cover all inodes, for several threads. Few inodes form one range.
    fn inode_ranges(&self) -> Result<Vec<RangeInclusive<u64>>, StoreError> {
        let read = || -> Result<_, redb::Error> {
            let table = self.database.begin_read()?.open_table(INODES)?;
            let (first, last) = (table.first()?, table.last()?);
            let ends = first.zip(last).map(|((first, _), (last, _))| (first.value(), last.value()));
            Ok((table.len()?, ends))
        };
        let (count, ends) = read().map_err(|error| self.failed(error))?;
        let Some((first, last)) = ends else { return Ok(Vec::new()) };
        let parts = (count / SECTION_MIN).clamp(1, (SECTIONS_PER_THREAD * parallel::threads()) as u64);
        Ok(ranges(first, last, parts))
    }

    /// Loads the inodes with ids in a range.
    fn section(&self, rebuild: &Rebuild, ids: RangeInclusive<u64>) -> Result<Section, StoreError> {
        let open = || -> Result<_, redb::Error> { Ok(self.database.begin_read()?.open_table(INODES)?) };
        let table = open().map_err(|error| self.failed(error))?;
        let mut section = rebuild.section();
        for row in table.range(ids).map_err(|error| self.failed(error.into()))? {
            let (id, bytes) = row.map_err(|error| self.failed(error.into()))?;
            let taken = section.inode(id.value(), bytes.value());
            taken.map_err(|source| StoreError::Record { path: self.path.clone(), source })?;
        }
        Ok(section)
    }

    fn each_version(&self, take: impl FnMut(u64, u32, &[u8]) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let transaction = self.database.begin_read().map_err(|error| self.failed(error.into()))?;
        each_version(&transaction, &self.path, take)
    }

    fn load_small(&self) -> Result<SmallTables, redb::Error> {
        read_small(&self.database.begin_read()?)
    }
}

fn each_version<E: From<StoreError>>(
    transaction: &ReadTransaction,
    path: &Path,
    mut take: impl FnMut(u64, u32, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let table = match transaction.open_table(VERSIONS) {
        // There has been no snapshot yet.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
        other => other.map_err(|error| failed(path, error.into()))?,
    };
    for row in table.iter().map_err(|error| failed(path, error.into()))? {
        let (key, bytes) = row.map_err(|error| failed(path, error.into()))?;
        let (id, until) = key.value();
        take(id, until, bytes.value())?;
    }
    Ok(())
}

fn read_small(transaction: &ReadTransaction) -> Result<SmallTables, redb::Error> {
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
        // A version that stored them in another form wrote this. They are dropped together with that form.
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
    let storages = match transaction.open_table(STORAGES) {
        Err(TableError::TableDoesNotExist(_)) => None,
        table => {
            let rows = table?;
            let names = rows.iter()?.map(|row| row.map(|(name, _)| name.value().to_owned()));
            Some(names.collect::<Result<Vec<_>, _>>()?)
        }
    };
    let mut lost_stamps = Vec::new();
    match transaction.open_table(LOST_STAMPS) {
        Err(TableError::TableDoesNotExist(_)) => {}
        table => {
            for row in table?.iter()? {
                let (from, to) = row?;
                lost_stamps.push(from.value()..=to.value());
            }
        }
    }
    let caching = StoredCaching { last_directive, ..load_caching(transaction)? };
    Ok(SmallTables { counters, names, retries, snapshots, caching, storages, lost_stamps })
}

const CLUSTER: &str = "clusterID";
const POOL: &str = "blockpoolID";
const NAMESPACE: &str = "namespaceID";
const CREATED: &str = "cTime";

fn identity_rows(identity: &Version) -> [(&'static str, String); 4] {
    [
        (CLUSTER, identity.cluster_id.clone()),
        (POOL, identity.pool.as_str().to_owned()),
        (NAMESPACE, identity.namespace_id.to_string()),
        (CREATED, identity.created_ms.to_string()),
    ]
}

const TABLES_LOST: &str = "it holds the namespace, and the journal has the newest changes only";

/// Converts redb's errors on opening. System errors are not reported as damage.
fn database_failed(path: &Path, error: DatabaseError) -> StoreError {
    let damaged = |problem: String| StoreError::Damaged { path: path.to_owned(), problem };
    match error {
        DatabaseError::Storage(StorageError::Io(error)) => system_failed(path, error),
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.to_owned(), holder: "unknown".to_owned() },
        DatabaseError::UpgradeRequired(format) => damaged(format!(
            "its file format {format} is of another version of redb: open it with the version of Hearth that wrote it"
        )),
        DatabaseError::Storage(error) => failed(path, error.into()),
        other => failed(path, other.into()),
    }
}

/// Like [`database_failed`], after the database was opened.
fn failed(path: &Path, error: redb::Error) -> StoreError {
    match error {
        redb::Error::Io(error) => system_failed(path, error),
        redb::Error::Corrupted(_)
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TableIsNotMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. } => {
            StoreError::Damaged { path: path.to_owned(), problem: error.to_string() }
        }
        // A system error, or one of our own. It says nothing about the data.
        other => {
            let source = std::io::Error::other(other.to_string());
            StoreError::Io { action: "using", path: path.to_owned(), source }
        }
    }
}

/// Converts I/O errors. redb reports an empty file, a file that is not a database, and a truncated one as I/O errors,
/// too.
fn system_failed(path: &Path, error: std::io::Error) -> StoreError {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::NotFound => StoreError::Missing { path: path.to_owned(), lost: TABLES_LOST },
        ErrorKind::InvalidData if error.raw_os_error().is_none() => {
            StoreError::Damaged { path: path.to_owned(), problem: error.to_string() }
        }
        ErrorKind::UnexpectedEof => StoreError::Damaged { path: path.to_owned(), problem: "it ends early".to_owned() },
        _ => StoreError::Io { action: "reading or writing", path: path.to_owned(), source: error },
    }
}

/// Divides the numbers from `first` to `last` into about `parts` ranges of about equal length.
fn ranges(first: u64, last: u64, parts: u64) -> Vec<RangeInclusive<u64>> {
    let length = ((last - first) / parts).saturating_add(1).checked_next_multiple_of(IDS_TOGETHER).unwrap_or(u64::MAX);
    let mut ranges = Vec::new();
    let mut begin = first;
    loop {
        let end = (begin / IDS_TOGETHER * IDS_TOGETHER).saturating_add(length - 1).min(last);
        ranges.push(begin..=end);
        if end == last {
            return ranges;
        }
        begin = end + 1;
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

/// A namespace from before cache pools has no tables for them.
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

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Mutex;
    use proptest::prelude::*;

    use super::super::group::tests::group;
    use super::*;
    use crate::namespace::Namespace;

    /// An in-memory disk that fails every call after a given number.
    #[derive(Clone, Debug)]
    struct Disk {
        bytes: Arc<Mutex<Vec<u8>>>,
        /// Number of calls that still succeed.
        left: Arc<AtomicUsize>,
        error: i32,
        /// True if reading continues to work.
        is_readable: bool,
    }

    impl Disk {
        fn new(error: i32, is_readable: bool) -> Self {
            Self { bytes: Arc::default(), left: Arc::new(AtomicUsize::new(usize::MAX)), error, is_readable }
        }

        fn fail_after(&self, calls: usize) {
            self.left.store(calls, Ordering::Relaxed);
        }

        fn step(&self) -> io::Result<()> {
            let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.map(drop).map_err(|_| io::Error::from_raw_os_error(self.error))
        }
    }

    impl redb::StorageBackend for Disk {
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.lock().len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            if !self.is_readable {
                self.step()?;
            }
            let bytes = self.bytes.lock();
            let from = offset as usize;
            let found = bytes.get(from..from + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            out.copy_from_slice(found);
            Ok(())
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.step()?;
            self.bytes.lock().resize(length as usize, 0);
            Ok(())
        }

        fn sync_data(&self) -> io::Result<()> {
            self.step()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.step()?;
            self.bytes.lock()[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    fn open(disk: &Disk) -> Result<Tables, StoreError> {
        Tables::new(Path::new("/n/namespace.redb"), Database::builder().create_with_backend(disk.clone()))
    }

    /// Does what a start and a few changes do to the tables.
    fn use_all(disk: &Disk) -> Result<(), StoreError> {
        let mut tables = open(disk)?;
        let record = Changes { inodes_put: vec![(99, vec![1; 3000])], ..Changes::default() };
        tables.apply(&[group(&[record])], 5)?;
        tables.journal_rows()?;
        tables.mark_journal(Mark(7), &identity())?;
        tables.journal_is_marked()?;
        tables.identity()?;
        drop(tables.load_small().map_err(|error| tables.failed(error))?);
        Ok(())
    }

    fn identity() -> Version {
        Version { pool: BlockPoolId::new("BP-1"), namespace_id: 1, cluster_id: "C".into(), created_ms: 2 }
    }

    #[test]
    fn system_errors_are_not_reported_as_damage() {
        let first = Namespace::format(Limits::default(), "root", "supergroup", 5).take_changes();
        for (error, step) in [
            (libc::ENOSPC, "free space"),
            (libc::EDQUOT, "free space"),
            (libc::EACCES, "owner"),
            (libc::EROFS, "writable"),
            (libc::EMFILE, "ulimit -n"),
            (libc::ENOMEM, "free memory"),
            (libc::EIO, "check the disk"),
            (libc::ESTALE, "mount its file system"),
            (libc::EFBIG, "ulimit -f"),
        ] {
            for is_readable in [true, false] {
                let mut failures = 0;
                for calls in 0.. {
                    let disk = Disk::new(error, is_readable);
                    open(&disk).unwrap().apply(&[group(std::slice::from_ref(&first))], 0).unwrap();
                    disk.fail_after(calls);
                    let Err(said) = use_all(&disk) else { break };
                    failures += 1;
                    let text = said.to_string();
                    assert!(matches!(said, StoreError::Io { .. }), "errno {error} at call {calls}: {text}");
                    assert!(!text.contains("is damaged") && !text.contains("-format"), "{text}");
                    assert!(text.contains("/n/namespace.redb"), "{text}");
                    if text.contains(&io::Error::from_raw_os_error(error).to_string()) {
                        assert!(text.contains(step), "errno {error}: {text}");
                    }
                }
                assert!(failures > 5, "errno {error}: {failures} calls fail");
            }
        }
    }

    #[test]
    fn lost_stamps_are_limited() {
        let mut tables = open(&Disk::new(libc::EIO, true)).unwrap();
        let first = Namespace::format(Limits::default(), "root", "supergroup", 5).take_changes();
        tables.put(&first, 0).unwrap();
        let mut expected = Vec::new();
        for nth in 1..=LOST_STAMPS_MAX + 2 {
            let last_stamp = nth * 1000;
            let counters = Counters { last_stamp, ..first.counters.unwrap() };
            tables.put(&Changes { counters: Some(counters), ..Changes::default() }, nth).unwrap();
            // A recovery that is repeated at once extends its own range.
            tables.skip_numbers(50).unwrap();
            tables.skip_numbers(50).unwrap();
            match nth <= LOST_STAMPS_MAX {
                true => expected.push(last_stamp + 1..=last_stamp + 100),
                false => {
                    let from = LOST_STAMPS_MAX * 1000 + 1;
                    expected.pop();
                    expected.push(from..=last_stamp + 100);
                }
            }
            assert_eq!(tables.load_small().unwrap().lost_stamps, expected);
        }
        let given_up = Changes { lost_stamps_given_up: true, ..Changes::default() };
        for number in [1000, 1001] {
            tables.put(&given_up, number).unwrap();
            assert!(tables.load_small().unwrap().lost_stamps.is_empty());
        }
    }

    #[test]
    fn invalid_database_is_damaged_absent_is_missing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("namespace.redb");
        assert!(matches!(Tables::open(&path).err(), Some(StoreError::Missing { .. })));
        for bytes in [&b""[..], b"x", &[7; 9000]] {
            std::fs::write(&path, bytes).unwrap();
            let said = Tables::open(&path).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains("is damaged") && said.contains("Do not format"), "{said}");
        }
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(matches!(Tables::open(&path).err(), Some(StoreError::Io { .. })));
        std::fs::remove_dir(&path).unwrap();
        let held = Tables::create(&path).unwrap();
        assert!(matches!(Tables::open(&path).err(), Some(StoreError::InUse { .. })));
        drop(held);
    }

    proptest! {
        #[test]
        fn ranges_cover_all_numbers_once(first in 0u64..1 << 40, count in 0u64..1 << 24, parts in 1u64..200) {
            let ranges = ranges(first, first + count, parts);
            prop_assert!(ranges.len() as u64 <= parts + 1);
            prop_assert_eq!((*ranges[0].start(), *ranges[ranges.len() - 1].end()), (first, first + count));
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].end() + 1, *pair[1].start());
                prop_assert_eq!(pair[1].start() % IDS_TOGETHER, 0);
            }
        }
    }

    #[test]
    fn the_largest_number_is_in_a_range() {
        assert_eq!(ranges(u64::MAX, u64::MAX, 1), [u64::MAX..=u64::MAX]);
        assert_eq!(ranges(0, u64::MAX, 2), [0..=u64::MAX / 2, u64::MAX / 2 + 1..=u64::MAX]);
        assert_eq!(ranges(0, u64::MAX, 1), [0..=u64::MAX - 1, u64::MAX..=u64::MAX]);
    }
}
