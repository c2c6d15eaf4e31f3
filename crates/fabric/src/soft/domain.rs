//! Registrations that live in a table of this process.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hearth_types::RemoteSlice;

use crate::Memory;
use crate::one_sided::{Access, Domain, Error, Region};

/// A table of registered memory.
#[derive(Debug, Default)]
pub(crate) struct SoftDomain {
    table: Arc<Table>,
}

impl SoftDomain {
    pub(super) fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

impl Domain for SoftDomain {
    fn register(&self, memory: &Arc<Memory>, range: Range<u64>, access: Access) -> Result<Arc<dyn Region>, Error> {
        let bytes = range.end.saturating_sub(range.start);
        let wrong = |kind, why: &str| Error::Register { bytes, source: io::Error::new(kind, why.to_owned()) };
        if range.is_empty() || range.end > memory.length() {
            return Err(wrong(io::ErrorKind::InvalidInput, "the range is not within the memory"));
        }
        if access == Access::RemoteWrite && !memory.is_writable() {
            return Err(wrong(io::ErrorKind::PermissionDenied, "the memory is mapped for reading only"));
        }
        let key = self.table.add(Entry { memory: memory.clone(), range: range.clone(), access });
        Ok(Arc::new(SoftRegion { table: self.table.clone(), memory: memory.clone(), range, key }))
    }

    fn registered_bytes(&self) -> u64 {
        self.table.lock().values().map(|entry| entry.range.end - entry.range.start).sum()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// What a key stands for.
#[derive(Clone, Debug)]
struct Entry {
    memory: Arc<Memory>,
    range: Range<u64>,
    access: Access,
}

/// Keys and what they stand for.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Mutex<HashMap<u32, Entry>>,
    random: RandomState,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, entry: Entry) -> u32 {
        let mut entries = self.lock();
        // Keys cannot be told from earlier ones, and two tables hardly ever give out the same.
        let mut seed = (entry.memory.address(), entries.len() as u64);
        loop {
            let key = self.random.hash_one(seed) as u32;
            if key != 0 && !entries.contains_key(&key) {
                entries.insert(key, entry);
                return key;
            }
            seed.1 = seed.1.wrapping_add(0x1_0000_0001);
        }
    }

    /// The memory behind a peer's slice, and where in it the slice begins. `None`: the peer may not touch it.
    pub(super) fn find(&self, slice: RemoteSlice, access: Access) -> Option<(Arc<Memory>, u64)> {
        let entry = self.lock().get(&slice.key).filter(|entry| entry.access == access)?.clone();
        let offset = slice.address.checked_sub(entry.memory.address())?;
        let end = offset.checked_add(slice.length)?;
        (offset >= entry.range.start && end <= entry.range.end).then_some((entry.memory, offset))
    }
}

/// A registration; it is in the table as long as this lives.
#[derive(Debug)]
pub(super) struct SoftRegion {
    table: Arc<Table>,
    memory: Arc<Memory>,
    range: Range<u64>,
    key: u32,
}

impl SoftRegion {
    pub(super) fn is_of(&self, table: &Arc<Table>) -> bool {
        Arc::ptr_eq(&self.table, table)
    }
}

impl Region for SoftRegion {
    fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    fn remote(&self) -> RemoteSlice {
        RemoteSlice {
            address: self.memory.address() + self.range.start,
            length: self.range.end - self.range.start,
            key: self.key,
        }
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Drop for SoftRegion {
    fn drop(&mut self) {
        self.table.lock().remove(&self.key);
    }
}
