//! Cache of tables of all CRCs of a replica. Reads of a replica with a cached table fetch only data and record. The
//! cache is bounded in bytes and evicts the least recently used table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

/// Number of reads of a replica without its table, after which the next read fetches the table. That many reads
/// outweigh the cost of a table that is soon evicted.
const READS_BEFORE_TABLE: u32 = 8;

/// Maximum length of a table in bytes: that of a block of 1 GiB. A longer table is never cached.
const TABLE_BYTES_MAX: u64 = 8 << 20;

/// Maximum bytes of all tables: those of 64 blocks of 128 MiB with a CRC for each 512 bytes.
pub(super) const TABLES_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct CrcTables {
    cached: Mutex<CachedTables>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct CachedTables {
    /// Tables by the number of their copy, with the time of their last use, counted in uses of all tables.
    tables: HashMap<u64, (Arc<[u8]>, u64)>,
    /// Number of the copy, by the time of its last use.
    by_use: BTreeMap<u64, u64>,
    bytes: u64,
    uses: u64,
    numbers: u64,
}

impl CachedTables {
    fn touch(&mut self, number: u64) -> Option<Arc<[u8]>> {
        let (table, used) = self.tables.get_mut(&number)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, number);
        Some(Arc::clone(table))
    }

    fn insert(&mut self, number: u64, table: Arc<[u8]>) {
        self.remove(number);
        self.bytes += table.len() as u64;
        self.uses += 1;
        self.by_use.insert(self.uses, number);
        self.tables.insert(number, (table, self.uses));
    }

    fn remove(&mut self, number: u64) {
        if let Some((table, used)) = self.tables.remove(&number) {
            self.by_use.remove(&used);
            self.bytes -= table.len() as u64;
        }
    }
}

/// Handle to the table of one copy of a replica. The leases of the copy share it; the table is removed when the last
/// handle is dropped.
#[derive(Debug)]
pub(super) struct CrcTable {
    tables: Arc<CrcTables>,
    number: u64,
    /// Reads since the table was last fetched.
    reads: AtomicU32,
}

impl CrcTables {
    /// `bytes_max`: maximum bytes of all cached tables.
    pub(super) fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { cached: Mutex::default(), bytes_max })
    }

    /// Returns a handle for the table of another copy.
    pub(super) fn new_table(self: &Arc<Self>) -> Arc<CrcTable> {
        let mut cached = self.cached.lock();
        cached.numbers += 1;
        Arc::new(CrcTable { tables: Arc::clone(self), number: cached.numbers, reads: AtomicU32::new(0) })
    }
}

impl CrcTable {
    /// Returns the table, if it is cached. The reference stays valid after an eviction.
    pub(super) fn get(&self) -> Option<Arc<[u8]>> {
        self.tables.cached.lock().touch(self.number)
    }

    /// Counts a read without the table. Returns true if that read should fetch the table, of `bytes` length.
    pub(super) fn is_due(&self, bytes: u64) -> bool {
        if bytes > TABLE_BYTES_MAX.min(self.tables.bytes_max) {
            return false;
        }
        let due = self.reads.fetch_add(1, Ordering::Relaxed) >= READS_BEFORE_TABLE;
        if due {
            self.reads.store(0, Ordering::Relaxed);
        }
        due
    }

    /// Caches the table, and evicts the least recently used tables if necessary.
    pub(super) fn keep(&self, table: Arc<[u8]>) {
        let mut cached = self.tables.cached.lock();
        cached.insert(self.number, table);
        while cached.bytes > self.tables.bytes_max
            && let Some((_, number)) = cached.by_use.pop_first()
        {
            cached.remove(number);
        }
    }
}

impl Drop for CrcTable {
    fn drop(&mut self) {
        self.tables.cached.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(bytes: usize) -> Arc<[u8]> {
        vec![7; bytes].into()
    }

    #[test]
    fn least_recently_used_table_is_evicted() {
        let tables = CrcTables::new(1000);
        let copies: Vec<_> = (0..4).map(|_| tables.new_table()).collect();
        let known =
            || copies.iter().map(|copy| tables.cached.lock().tables.contains_key(&copy.number)).collect::<Vec<_>>();
        for copy in &copies[..3] {
            assert!(copy.get().is_none());
            copy.keep(table(300));
        }
        let held = copies[0].get().unwrap();
        copies[3].keep(table(500));
        assert_eq!(known(), [true, false, false, true]);
        assert_eq!(tables.cached.lock().bytes, 800);
        copies[1].keep(table(900));
        assert_eq!(known(), [false, true, false, false]);
        assert_eq!(held.len(), 300, "who has it keeps it");
        // Exceeds the limit: it is evicted at once.
        copies[2].keep(table(1001));
        assert_eq!((known(), tables.cached.lock().bytes), (vec![false; 4], 0));
        copies[2].keep(table(100));
        copies[2].keep(table(200));
        assert_eq!(tables.cached.lock().bytes, 200);
        drop(copies);
        let cached = tables.cached.lock();
        assert!(cached.bytes == 0 && cached.tables.is_empty() && cached.by_use.is_empty(), "{cached:?}");
    }

    #[test]
    fn table_is_due_after_enough_reads() {
        let copy = CrcTables::new(1000).new_table();
        let reads_until_due = |bytes| (0..100).position(|_| copy.is_due(bytes));
        assert_eq!(reads_until_due(1000), Some(READS_BEFORE_TABLE as usize));
        assert_eq!(reads_until_due(1000), Some(READS_BEFORE_TABLE as usize));
        assert_eq!(reads_until_due(1001), None);
    }
}
