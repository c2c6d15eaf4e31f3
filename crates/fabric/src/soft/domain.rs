//! Registrations in a table of this process.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hearth_types::RemoteSlice;

use super::Gate;
use crate::Memory;
use crate::one_sided::{Access, Domain, Error, Region};

/// A table of registered memory.
#[derive(Debug, Default)]
pub(crate) struct SoftDomain {
    table: Arc<KeyTable>,
    gate: Option<Arc<dyn Gate>>,
}

impl SoftDomain {
    pub(crate) fn with_gate(gate: Arc<dyn Gate>) -> Self {
        Self { table: Arc::default(), gate: Some(gate) }
    }

    pub(super) fn table(&self) -> &Arc<KeyTable> {
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
            return Err(wrong(io::ErrorKind::PermissionDenied, "the memory is mapped read-only"));
        }
        if self.gate.as_ref().is_some_and(|gate| !gate.registers(access)) {
            return Err(wrong(io::ErrorKind::OutOfMemory, "a fault at a registration"));
        }
        let key = self.table.add(Registration { memory: memory.clone(), range: range.clone(), access });
        Ok(Arc::new(SoftRegion { table: self.table.clone(), memory: memory.clone(), range, key }))
    }

    fn registered_bytes(&self) -> u64 {
        self.table.lock().values().map(|entry| entry.range.end - entry.range.start).sum()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

/// Registration of a key.
#[derive(Debug)]
struct Registration {
    memory: Arc<Memory>,
    range: Range<u64>,
    access: Access,
}

/// Registrations by key.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    entries: Mutex<HashMap<u32, Registration>>,
    random: RandomState,
}

impl KeyTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Registration>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, entry: Registration) -> u32 {
        let mut entries = self.lock();
        // Keys cannot be derived from earlier ones, and two tables rarely assign the same key.
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

    /// Finds the memory of a slice that a peer reads, and the slice's offset in it. Returns `None` if the peer may not
    /// read it.
    pub(super) fn find(&self, slice: RemoteSlice) -> Option<(Arc<Memory>, u64)> {
        let entries = self.lock();
        let (entry, offset) = entry_of(&entries, slice, Access::RemoteRead)?;
        Some((entry.memory.clone(), offset))
    }

    /// Returns true if a peer may currently write to `slice`.
    pub(super) fn may_write(&self, slice: RemoteSlice) -> bool {
        entry_of(&self.lock(), slice, Access::RemoteWrite).is_some()
    }

    /// Writes a peer's bytes to `slice`, which has the same length. Returns false if the peer may not write there, or
    /// no longer may.
    ///
    /// Holds the lock, for which a deregistration waits: after that, no byte reaches memory whose content was finalized
    /// or whose file was truncated.
    pub(super) fn write(&self, slice: RemoteSlice, bytes: &[u8]) -> bool {
        assert_eq!(slice.length, bytes.len() as u64, "the slice and the bytes differ in length");
        let entries = self.lock();
        let Some((entry, offset)) = entry_of(&entries, slice, Access::RemoteWrite) else { return false };
        entry.memory.write(offset, bytes);
        true
    }
}

/// Finds the registration of `slice`, and the slice's offset in its memory.
fn entry_of(entries: &HashMap<u32, Registration>, slice: RemoteSlice, access: Access) -> Option<(&Registration, u64)> {
    let entry = entries.get(&slice.key).filter(|entry| entry.access == access)?;
    let offset = slice.address.checked_sub(entry.memory.address())?;
    let end = offset.checked_add(slice.length)?;
    (offset >= entry.range.start && end <= entry.range.end).then_some((entry, offset))
}

/// A registration; it is in the table as long as this value lives.
#[derive(Debug)]
pub(super) struct SoftRegion {
    table: Arc<KeyTable>,
    memory: Arc<Memory>,
    range: Range<u64>,
    key: u32,
}

impl SoftRegion {
    pub(super) fn is_of(&self, table: &Arc<KeyTable>) -> bool {
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
