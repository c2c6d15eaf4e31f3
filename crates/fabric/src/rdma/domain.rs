//! Domains and regions, behind the traits.

use std::any::Any;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hearth_types::RemoteSlice;

use super::verbs::{Device, MemoryRegion, ProtectionDomain};
use crate::Memory;
use crate::one_sided::{Access, Domain, Error, Region};

/// A protection domain.
#[derive(Clone, Debug)]
pub struct RdmaDomain {
    domain: Arc<ProtectionDomain>,
    registered_bytes: Arc<AtomicU64>,
}

impl RdmaDomain {
    pub fn new(device: &Arc<Device>) -> io::Result<Self> {
        Ok(Self { domain: Arc::new(ProtectionDomain::new(device)?), registered_bytes: Arc::default() })
    }

    pub fn verbs(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl Domain for RdmaDomain {
    fn register(&self, memory: &Arc<Memory>, range: Range<u64>, access: Access) -> Result<Arc<dyn Region>, Error> {
        let bytes = range.end.saturating_sub(range.start);
        let sum = Some(Arc::clone(&self.registered_bytes));
        let region = MemoryRegion::new(&self.domain, memory, range, access, sum)
            .map_err(|source| Error::Register { bytes, source })?;
        Ok(Arc::new(RdmaRegion { region: Arc::new(region) }))
    }

    fn registered_bytes(&self) -> u64 {
        self.registered_bytes.load(Ordering::Relaxed)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
pub struct RdmaRegion {
    region: Arc<MemoryRegion>,
}

impl RdmaRegion {
    pub fn verbs(&self) -> &Arc<MemoryRegion> {
        &self.region
    }
}

impl Region for RdmaRegion {
    fn memory(&self) -> &Arc<Memory> {
        self.region.memory()
    }

    fn range(&self) -> Range<u64> {
        self.region.range()
    }

    fn remote(&self) -> RemoteSlice {
        RemoteSlice { address: self.region.address(), length: self.region.length(), key: self.region.remote_key() }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
