//! libibverbs and librdmacm, loaded on first use: a machine without them runs everything else.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libloading::os::unix::Library as Handle;

use super::sys::*;

/// Declares the table of functions and the code that fills it.
macro_rules! functions {
    ($($library:ident { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// Functions of the libraries. The libraries stay loaded as long as the process lives.
        pub struct Functions {
            $($(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Functions {
            fn load($($library: &Handle),*) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $($($name: {
                        // SAFETY: the symbol is a function of this signature (the header's declaration, `sys.rs`).
                        let symbol = unsafe {
                            $library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )
                        };
                        *symbol?
                    },)*)*
                })
            }
        }
    };
}

functions! {
    ibverbs {
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
        ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut ibv_cq, u32);
        ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    }
    rdmacm {
        rdma_create_event_channel: fn() -> *mut rdma_event_channel;
        rdma_destroy_event_channel: fn(*mut rdma_event_channel);
        rdma_create_id: fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut rdma_cm_id) -> c_int;
        rdma_migrate_id: fn(*mut rdma_cm_id, *mut rdma_event_channel) -> c_int;
        rdma_bind_addr: fn(*mut rdma_cm_id, *const sockaddr) -> c_int;
        rdma_resolve_addr: fn(*mut rdma_cm_id, *const sockaddr, *const sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_create_qp: fn(*mut rdma_cm_id, *mut ibv_pd, *mut ibv_qp_init_attr) -> c_int;
        rdma_destroy_qp: fn(*mut rdma_cm_id);
        rdma_listen: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_connect: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_accept: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_reject: fn(*mut rdma_cm_id, *const c_void, u8) -> c_int;
        rdma_disconnect: fn(*mut rdma_cm_id) -> c_int;
        rdma_get_cm_event: fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event: fn(*mut rdma_cm_event) -> c_int;
    }
}

/// Returns the functions, or the reason why they are not available.
pub fn functions() -> Result<&'static Functions, &'static str> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Functions, String> {
    let open = |name: &str, package: &str| {
        // SAFETY: the libraries' initializers only set up their own tables; the libraries are the system's own.
        unsafe { Handle::new(name) }.map_err(|error| format!("{error} (Debian and Ubuntu: package {package})"))
    };
    let ibverbs = open("libibverbs.so.1", "libibverbs1")?;
    let rdmacm = open("librdmacm.so.1", "librdmacm1")?;
    let functions = Functions::load(&ibverbs, &rdmacm).map_err(|error| error.to_string())?;
    // Unloading would remove the functions; and a device's driver library keeps its own state.
    std::mem::forget((ibverbs, rdmacm));
    Ok(functions)
}
