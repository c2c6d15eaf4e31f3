//! C interface of libibverbs and librdmacm, limited to what is used: layouts and numbers of `<infiniband/verbs.h>` and
//! `<rdma/rdma_cma.h>`, whose binary interface is stable (symbol versions IBVERBS_1.1 and RDMACM_1.0).
//!
//! A test checks it against the headers, on machines that have them.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Types of the libraries that are only used through pointers.
macro_rules! opaque {
    ($($name:ident),*) => { $(
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        }
    )* };
}

opaque!(ibv_pd, ibv_srq, ibv_sa_path_rec, sockaddr);

#[repr(C)]
pub struct ibv_device {
    _ops: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    /// Name of the device, zero-terminated.
    pub name: [c_char; 64],
}

pub type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub type PostRecv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
pub type ReqNotifyCq = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;

/// Functions of the device's driver. The fast functions are inline in the header and call these.
#[repr(C)]
pub struct ibv_context_ops {
    _before_poll_cq: [*mut c_void; 11],
    pub poll_cq: PollCq,
    pub req_notify_cq: ReqNotifyCq,
    _before_post_send: [*mut c_void; 12],
    pub post_send: PostSend,
    pub post_recv: PostRecv,
    _after_post_recv: [*mut c_void; 5],
}

#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
}

#[repr(C)]
pub struct ibv_device_attr {
    _before_max_mr_size: [u8; 80],
    pub max_mr_size: u64,
    _before_vendor_id: [u8; 8],
    pub vendor_id: u32,
    _before_max_qp_wr: [u8; 12],
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    /// Maximum number of reads that a peer may have in flight towards one queue pair.
    pub max_qp_rd_atom: c_int,
    _before_max_qp_init_rd_atom: [u8; 8],
    /// Maximum number of reads that one queue pair may have in flight.
    pub max_qp_init_rd_atom: c_int,
    _rest: [u8; 72],
}

#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
}

#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
}

#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

/// Only its first field is ever set; the rest is zero, and longer than in the header.
#[repr(C)]
pub struct ibv_qp_attr {
    pub qp_state: c_int,
    pub _rest: [u32; 63],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    pub imm_data: u32,
    /// Part `rdma` of a union.
    pub remote_addr: u64,
    pub rkey: u32,
    pub _rest: [u32; 19],
}

#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

#[repr(C)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// Size of a `sockaddr_storage` in bytes.
pub const SOCKADDR_BYTES: usize = 128;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct sockaddr_storage(pub [u8; SOCKADDR_BYTES]);

#[repr(C)]
pub struct rdma_addr {
    pub src: sockaddr_storage,
    pub dst: sockaddr_storage,
    _ib: [u64; 5],
}

#[repr(C)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut ibv_sa_path_rec,
    pub num_paths: c_int,
}

#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: c_int,
    pub port_num: u8,
    pub event: *mut rdma_cm_event,
    pub send_cq_channel: *mut ibv_comp_channel,
    pub send_cq: *mut ibv_cq,
    pub recv_cq_channel: *mut ibv_comp_channel,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub pd: *mut ibv_pd,
    pub qp_type: c_int,
}

#[repr(C)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

#[repr(C)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: c_int,
    pub status: c_int,
    /// Part `conn` of a union.
    pub conn: rdma_conn_param,
}

pub const RDMA_PS_TCP: c_int = 0x0106;

pub const IBV_TRANSPORT_IWARP: c_int = 1;

pub const IBV_ACCESS_LOCAL_WRITE: c_int = 1;
pub const IBV_ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const IBV_ACCESS_REMOTE_READ: c_int = 1 << 2;

pub const IBV_QPT_RC: c_int = 2;
pub const IBV_QPS_ERR: c_int = 6;
pub const IBV_QP_STATE: c_int = 1;

pub const IBV_WR_RDMA_WRITE: c_int = 0;
pub const IBV_WR_SEND: c_int = 2;
pub const IBV_WR_RDMA_READ: c_int = 4;
pub const IBV_SEND_SIGNALED: c_uint = 1 << 1;
pub const IBV_SEND_INLINE: c_uint = 1 << 3;

pub const IBV_WC_SUCCESS: c_int = 0;
pub const IBV_WC_WR_FLUSH_ERR: c_int = 5;

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    use hearth_testkit::skip_or_fail;

    use super::*;

    /// Returns `(C expression, our value)` pairs. The test prints the expression in C and compares it with the value.
    fn facts() -> Vec<(&'static str, usize)> {
        vec![
            ("offsetof(struct ibv_device, transport_type)", offset_of!(ibv_device, transport_type)),
            ("offsetof(struct ibv_device, name)", offset_of!(ibv_device, name)),
            ("offsetof(struct ibv_context, ops.poll_cq)", offset_of!(ibv_context, ops.poll_cq)),
            ("offsetof(struct ibv_context, ops.req_notify_cq)", offset_of!(ibv_context, ops.req_notify_cq)),
            ("offsetof(struct ibv_context, ops.post_send)", offset_of!(ibv_context, ops.post_send)),
            ("offsetof(struct ibv_context, ops.post_recv)", offset_of!(ibv_context, ops.post_recv)),
            ("sizeof(struct ibv_context_ops)", size_of::<ibv_context_ops>()),
            ("sizeof(struct ibv_device_attr)", size_of::<ibv_device_attr>()),
            ("offsetof(struct ibv_device_attr, max_mr_size)", offset_of!(ibv_device_attr, max_mr_size)),
            ("offsetof(struct ibv_device_attr, vendor_id)", offset_of!(ibv_device_attr, vendor_id)),
            ("offsetof(struct ibv_device_attr, max_qp_wr)", offset_of!(ibv_device_attr, max_qp_wr)),
            ("offsetof(struct ibv_device_attr, max_cqe)", offset_of!(ibv_device_attr, max_cqe)),
            ("offsetof(struct ibv_device_attr, max_qp_rd_atom)", offset_of!(ibv_device_attr, max_qp_rd_atom)),
            ("offsetof(struct ibv_device_attr, max_qp_init_rd_atom)", offset_of!(ibv_device_attr, max_qp_init_rd_atom)),
            ("sizeof(struct ibv_mr)", size_of::<ibv_mr>()),
            ("offsetof(struct ibv_mr, lkey)", offset_of!(ibv_mr, lkey)),
            ("offsetof(struct ibv_mr, rkey)", offset_of!(ibv_mr, rkey)),
            ("offsetof(struct ibv_comp_channel, fd)", offset_of!(ibv_comp_channel, fd)),
            ("offsetof(struct ibv_cq, context)", offset_of!(ibv_cq, context)),
            ("offsetof(struct ibv_qp, context)", offset_of!(ibv_qp, context)),
            ("sizeof(struct ibv_qp_init_attr)", size_of::<ibv_qp_init_attr>()),
            ("offsetof(struct ibv_qp_init_attr, cap)", offset_of!(ibv_qp_init_attr, cap)),
            ("offsetof(struct ibv_qp_init_attr, sq_sig_all)", offset_of!(ibv_qp_init_attr, sq_sig_all)),
            ("offsetof(struct ibv_qp_attr, qp_state)", offset_of!(ibv_qp_attr, qp_state)),
            ("sizeof(struct ibv_sge)", size_of::<ibv_sge>()),
            ("offsetof(struct ibv_sge, lkey)", offset_of!(ibv_sge, lkey)),
            ("sizeof(struct ibv_send_wr)", size_of::<ibv_send_wr>()),
            ("offsetof(struct ibv_send_wr, send_flags)", offset_of!(ibv_send_wr, send_flags)),
            ("offsetof(struct ibv_send_wr, wr.rdma.remote_addr)", offset_of!(ibv_send_wr, remote_addr)),
            ("offsetof(struct ibv_send_wr, wr.rdma.rkey)", offset_of!(ibv_send_wr, rkey)),
            ("sizeof(struct ibv_recv_wr)", size_of::<ibv_recv_wr>()),
            ("sizeof(struct ibv_wc)", size_of::<ibv_wc>()),
            ("offsetof(struct ibv_wc, byte_len)", offset_of!(ibv_wc, byte_len)),
            ("offsetof(struct ibv_wc, dlid_path_bits)", offset_of!(ibv_wc, dlid_path_bits)),
            ("sizeof(struct rdma_cm_id)", size_of::<rdma_cm_id>()),
            ("offsetof(struct rdma_cm_id, qp)", offset_of!(rdma_cm_id, qp)),
            ("offsetof(struct rdma_cm_id, route.addr.src_storage)", offset_of!(rdma_cm_id, route.addr.src)),
            ("offsetof(struct rdma_cm_id, route.addr.dst_storage)", offset_of!(rdma_cm_id, route.addr.dst)),
            ("offsetof(struct rdma_cm_id, pd)", offset_of!(rdma_cm_id, pd)),
            ("sizeof(struct rdma_conn_param)", size_of::<rdma_conn_param>()),
            ("offsetof(struct rdma_conn_param, qp_num)", offset_of!(rdma_conn_param, qp_num)),
            ("offsetof(struct rdma_cm_event, status)", offset_of!(rdma_cm_event, status)),
            ("offsetof(struct rdma_cm_event, param.conn)", offset_of!(rdma_cm_event, conn)),
            ("sizeof(struct sockaddr_storage)", SOCKADDR_BYTES),
            ("RDMA_PS_TCP", RDMA_PS_TCP as usize),
            ("IBV_TRANSPORT_IWARP", IBV_TRANSPORT_IWARP as usize),
            ("IBV_ACCESS_LOCAL_WRITE", IBV_ACCESS_LOCAL_WRITE as usize),
            ("IBV_ACCESS_REMOTE_WRITE", IBV_ACCESS_REMOTE_WRITE as usize),
            ("IBV_ACCESS_REMOTE_READ", IBV_ACCESS_REMOTE_READ as usize),
            ("IBV_QPT_RC", IBV_QPT_RC as usize),
            ("IBV_QPS_ERR", IBV_QPS_ERR as usize),
            ("IBV_QP_STATE", IBV_QP_STATE as usize),
            ("IBV_WR_RDMA_WRITE", IBV_WR_RDMA_WRITE as usize),
            ("IBV_WR_SEND", IBV_WR_SEND as usize),
            ("IBV_WR_RDMA_READ", IBV_WR_RDMA_READ as usize),
            ("IBV_SEND_SIGNALED", IBV_SEND_SIGNALED as usize),
            ("IBV_SEND_INLINE", IBV_SEND_INLINE as usize),
            ("IBV_WC_SUCCESS", IBV_WC_SUCCESS as usize),
            ("IBV_WC_WR_FLUSH_ERR", IBV_WC_WR_FLUSH_ERR as usize),
        ]
    }

    #[test]
    fn layouts_match_the_c_headers() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("facts.c"), folder.path().join("facts"));
        let lines: String =
            facts().iter().map(|(fact, _)| format!("printf(\"%zu\\n\", (size_t)({fact}));\n")).collect();
        let headers = "#include <stdio.h>\n#include <stddef.h>\n#include <rdma/rdma_cma.h>\n";
        let fits = "_Static_assert(sizeof(struct ibv_qp_attr) <= 256, \"ours is long enough\");\n";
        std::fs::write(&source, format!("{headers}{fits}int main(void) {{ {lines} return 0; }}\n")).unwrap();
        let compiled = Command::new("cc").arg(&source).arg("-o").arg(&program).output();
        let compiled = match compiled {
            Ok(output) if output.status.success() => true,
            // Without the headers (libibverbs-dev, librdmacm-dev) or a compiler, the comparison is not possible.
            Ok(output) if !String::from_utf8_lossy(&output.stderr).contains("rdma_cma.h: No such file") => {
                panic!("{}", String::from_utf8_lossy(&output.stderr));
            }
            _ => false,
        };
        if !compiled {
            return skip_or_fail("layouts_match_the_c_headers", "no C compiler, or no librdmacm-dev");
        }
        let output = Command::new(&program).output().unwrap();
        let values = String::from_utf8(output.stdout).unwrap();
        let values: Vec<usize> = values.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(values.len(), facts().len());
        for ((fact, ours), theirs) in facts().into_iter().zip(values) {
            assert_eq!(ours, theirs, "{fact}");
        }
    }
}
