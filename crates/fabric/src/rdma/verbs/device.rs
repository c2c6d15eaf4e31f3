//! The RDMA device that an address of this machine belongs to.

use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::connection_manager::{EventChannel, Id};
use super::library::{Functions, functions};
use super::sys::*;
use super::{address, check_number};

/// Size of an unused completion queue. It occupies the first 1 MiB of a SoftiWARP context's address space.
///
/// SoftiWARP's library uses the offset 0x90000 in that space to mean "no offset" (`SIW_INVAL_UOBJ_KEY`). A queue pair
/// or completion queue of the process that starts there cannot be created. With this queue, nothing else starts there.
const SPACER_DEPTH: i32 = 20_000;

/// Vendor of SoftiWARP's devices, whose names an administrator chooses. Source: Linux, `SIW_VENDOR_ID`.
const SOFTIWARP_VENDOR: u32 = 0x0062_6d74;

/// An open device. It stays open as long as this value lives.
pub struct Device {
    context: *mut ibv_context,
    functions: &'static Functions,
    name: String,
    is_iwarp: bool,
    is_softiwarp: bool,
    address: IpAddr,
    attributes: ibv_device_attr,
    spacer: *mut ibv_cq,
    /// Bound to an address of the device: this keeps the library from closing it.
    _anchor: Id,
}

// SAFETY: libibverbs' functions may be called from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Opens the device of `address`, or of the first of the machine's own addresses that has one.
    ///
    /// The error contains the reason if there is no device.
    pub fn open(address: Option<IpAddr>) -> Result<Arc<Self>, String> {
        let address = address.filter(|address| !address.is_unspecified());
        let functions = functions()?;
        let channel = Arc::new(EventChannel::new(functions).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV | libc::ENOENT | libc::ENOSYS) => {
                format!("the kernel has no RDMA connection manager (module rdma_ucm): {error}")
            }
            _ => format!("RDMA connection manager: {error}"),
        })?);
        let candidates = match address {
            Some(address) => vec![address],
            None => address::local_addresses().map_err(|error| format!("cannot list addresses: {error}"))?,
        };
        for candidate in &candidates {
            let anchor = Id::new(&channel).map_err(|error| format!("RDMA connection manager: {error}"))?;
            if anchor.bind(SocketAddr::new(*candidate, 0)).is_err() {
                continue;
            }
            let Some(context) = anchor.context() else { continue };
            return Self::new(functions, context, *candidate, anchor).map(Arc::new);
        }
        Err(match address {
            Some(address) => format!("no RDMA device has address {address}"),
            None => "none of this machine's addresses belongs to an RDMA device".to_owned(),
        })
    }

    fn new(
        functions: &'static Functions,
        context: *mut ibv_context,
        address: IpAddr,
        anchor: Id,
    ) -> Result<Self, String> {
        // SAFETY: an open context points to its device, which lives as long as the context.
        let device = unsafe { &*(*context).device };
        // SAFETY: the name is a C string.
        let name = unsafe { CStr::from_ptr(device.name.as_ptr()) }.to_string_lossy().into_owned();
        let mut attributes = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open; the function fills the structure in.
        check_number(unsafe { (functions.ibv_query_device)(context, attributes.as_mut_ptr()) })
            .map_err(|error| format!("cannot query device {name}: {error}"))?;
        // SAFETY: numbers only, for which zeros are valid where the function left them.
        let attributes = unsafe { attributes.assume_init() };
        let is_iwarp = device.transport_type == IBV_TRANSPORT_IWARP;
        let is_softiwarp = is_iwarp && attributes.vendor_id == SOFTIWARP_VENDOR;
        let spacer = if is_softiwarp {
            // SAFETY: the context is open; no channel.
            unsafe { (functions.ibv_create_cq)(context, SPACER_DEPTH, std::ptr::null_mut(), std::ptr::null_mut(), 0) }
        } else {
            std::ptr::null_mut()
        };
        Ok(Self { context, functions, name, is_iwarp, is_softiwarp, address, attributes, spacer, _anchor: anchor })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn is_iwarp(&self) -> bool {
        self.is_iwarp
    }

    pub fn is_softiwarp(&self) -> bool {
        self.is_softiwarp
    }

    /// Returns an address of this machine that belongs to it.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the maximum number of reads that a peer may have in flight towards one queue pair, and that one queue
    /// pair may have in flight itself.
    pub fn reads_in_flight_max(&self) -> (u8, u8) {
        let clip = |value: i32| u8::try_from(value.clamp(1, 255)).expect("clipped");
        (clip(self.attributes.max_qp_rd_atom), clip(self.attributes.max_qp_init_rd_atom))
    }

    /// Returns the maximum number of operations in one queue.
    pub fn operations_max(&self) -> u32 {
        u32::try_from(self.attributes.max_qp_wr.max(1)).expect("positive")
    }

    pub(super) fn context(&self) -> *mut ibv_context {
        self.context
    }

    pub(super) fn functions(&self) -> &'static Functions {
        self.functions
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.spacer.is_null() {
            // SAFETY: created by `new`, and unused.
            unsafe { (self.functions.ibv_destroy_cq)(self.spacer) };
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({} {})", self.name, self.address)
    }
}
