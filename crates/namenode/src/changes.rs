//! Changes of one operation, in the form in which they are stored.

use crate::caching::{Pool, Terms};

/// Key of the retry cache: 16 bytes of client id, 4 of call id.
pub type RetryKey = [u8; 20];

/// The stored effect of one operation. All of it becomes durable in one transaction, in the order of `submit`. `R`:
/// type of the records' bytes, owned or borrowed from the caller.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Changes<R = Vec<u8>> {
    /// Encoded records of inodes that are new or changed, by inode id.
    pub inodes_put: Vec<(u64, R)>,
    pub inodes_removed: Vec<u64>,
    /// Encoded versions of inodes in snapshots, by inode id and the number of the last snapshot that can contain them.
    pub versions_put: Vec<((u64, u32), R)>,
    pub versions_removed: Vec<(u64, u32)>,
    /// Snapshots that are new or renamed, by number.
    pub snapshots_put: Vec<(u32, SnapshotRow)>,
    pub snapshots_removed: Vec<u32>,
    /// Newly interned user and group names: number, name.
    pub names_put: Vec<(u32, String)>,
    /// The counters after the operation, if it changed any of them.
    pub counters: Option<Counters>,
    /// Cache pools by name; `None`: removed.
    pub cache_pools: Vec<(String, Option<Pool>)>,
    /// Cache directives by number; `None`: removed.
    pub cache_directives: Vec<(u64, Option<Terms>)>,
    /// The number of the newest cache directive.
    pub last_directive: Option<u64>,
    /// Storages of DataNodes that have come (`true`) or left for good (`false`), by id, in order.
    pub storages: Vec<(String, bool)>,
    /// The stamps of a lost end of the journal need no protection any more.
    pub lost_stamps_given_up: bool,
    /// The answer to return if the client repeats this call.
    pub retry: Option<(RetryKey, RetryEntry<R>)>,
    /// Number of the oldest answers that need not be remembered any longer.
    pub retries_removed: u32,
}

/// Counters of numbers that are never issued twice, even across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// The id of the newest inode.
    pub last_inode: u64,
    /// The id of the newest block.
    pub last_block: i64,
    /// The newest generation stamp.
    pub last_stamp: u64,
    /// The number of the newest snapshot; 0 if there never was one.
    pub last_snapshot: u32,
}

/// A snapshot as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRow {
    /// The inode id of its directory.
    pub root: u64,
    pub name: String,
    /// Milliseconds since the epoch of its creation or last renaming.
    pub modification_time_ms: u64,
}

impl Counters {
    /// Counters of a freshly formatted Apache NameNode: the first inode is 16386, the first block 1073741825, the first
    /// stamp 1001. The root is inode 16385.
    pub const FRESH: Self = Self { last_inode: 16385, last_block: 1 << 30, last_stamp: 1000, last_snapshot: 0 };
}

/// A finished at-most-once call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryEntry<R = Vec<u8>> {
    /// Milliseconds since the epoch after which a repetition is a new call.
    pub expires_ms: u64,
    /// The encoded answer message.
    pub answer: R,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
