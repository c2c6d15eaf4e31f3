//! Protection domains and the memory registered in them.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::device::Device;
use super::sys::*;
use crate::Memory;
use crate::one_sided::Access;

/// A protection domain. Keys of memory in one domain are valid only on queue pairs of that domain.
pub struct ProtectionDomain {
    domain: *mut ibv_pd,
    device: Arc<Device>,
}

// SAFETY: libibverbs' functions may be called from any thread.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub fn new(device: &Arc<Device>) -> io::Result<Self> {
        // SAFETY: the context is open as long as the device lives, which the result holds.
        let domain = unsafe { (device.functions().ibv_alloc_pd)(device.context()) };
        if domain.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { domain, device: Arc::clone(device) })
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_pd {
        self.domain
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: everything in the domain holds it, so it is empty. A failure only leaks it.
        unsafe { (self.device.functions().ibv_dealloc_pd)(self.domain) };
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProtectionDomain({:?})", self.device)
    }
}

/// Registered range of a memory. Dropping it deregisters the range, then releases the memory.
pub struct MemoryRegion {
    region: *mut ibv_mr,
    memory: Arc<Memory>,
    range: Range<u64>,
    domain: Arc<ProtectionDomain>,
    /// Total that includes its bytes.
    counted: Option<Arc<AtomicU64>>,
}

// SAFETY: libibverbs' functions may be called from any thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Registers `range` of `memory`.
    ///
    /// Errors: `InvalidInput` if the range is empty or not within the memory, or if write access is requested for a
    /// read-only mapping; otherwise the kernel's (`ENOMEM`: the limit of locked memory).
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        memory: &Arc<Memory>,
        range: Range<u64>,
        access: Access,
        counted: Option<Arc<AtomicU64>>,
    ) -> io::Result<Self> {
        if range.is_empty() || range.end > memory.length() {
            let why = format!("bytes {range:?} are not within a memory of {}", memory.length());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let flags: c_int = match access {
            // Without this flag the kernel does not let a device write there; with it, the kernel refuses read-only
            // mappings.
            Access::Local if memory.is_writable() => IBV_ACCESS_LOCAL_WRITE,
            Access::Local => 0,
            Access::RemoteRead => IBV_ACCESS_REMOTE_READ,
            Access::RemoteWrite if memory.is_writable() => IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
            Access::RemoteWrite => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the memory is mapped read-only"));
            }
        };
        let length = usize::try_from(range.end - range.start).expect("a range of a mapping");
        let start = (memory.address() + range.start) as *mut std::ffi::c_void;
        // SAFETY: the range is mapped as long as the memory lives, which the result holds until it is deregistered.
        // `Memory` allows other processes and devices to change those bytes.
        let region = unsafe { (domain.device.functions().ibv_reg_mr)(domain.domain, start, length, flags) };
        if region.is_null() {
            return Err(io::Error::last_os_error());
        }
        if let Some(sum) = &counted {
            sum.fetch_add(range.end - range.start, Ordering::Relaxed);
        }
        Ok(Self { region, memory: Arc::clone(memory), range, domain: Arc::clone(domain), counted })
    }

    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    pub fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Start address of the region, for peers and for the device.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.range.start
    }

    pub fn remote_key(&self) -> u32 {
        // SAFETY: the registration lives as long as this.
        unsafe { (*self.region).rkey }
    }

    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: the registration lives as long as this.
        unsafe { (*self.region).lkey }
    }

    pub fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: no posted operation refers to it, because every posted operation holds it.
        let result = unsafe { (self.domain.device.functions().ibv_dereg_mr)(self.region) };
        if result != 0 {
            // It is still registered, so the memory must stay mapped for the rest of the process's life.
            tracing::error!(error = %io::Error::from_raw_os_error(result.abs()), "cannot deregister memory");
            std::mem::forget(Arc::clone(&self.memory));
        } else if let Some(sum) = &self.counted {
            sum.fetch_sub(self.length(), Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryRegion({:?} of {:?})", self.range, self.memory)
    }
}
