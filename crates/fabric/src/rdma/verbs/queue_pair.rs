//! Queue pairs: posted operations, and the memory that they hold until they are done.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::completion::CompletionQueue;
use super::connection_manager::Id;
use super::region::{MemoryRegion, ProtectionDomain};
use super::sys::*;
use super::{check, check_number};

/// Maximum number of completions taken from the queue at once.
const POLL_MAX: usize = 16;

/// Messages of up to this length are copied into the work request, which saves the device a fetch. The value is what
/// fits beside the header into SoftiWARP's packet. SoftiWARP takes longer payloads from their pages; it would read
/// short ones through the address space of whichever process the kernel is running.
const INLINE_BYTES: u32 = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opcode {
    /// From the peer's memory into local memory.
    Read,
    /// From local memory into the peer's memory.
    Write,
    /// Into a receive that the peer has posted.
    Send,
}

/// One operation on `length` bytes of a local region, starting at `offset`.
#[derive(Clone, Debug)]
pub struct WorkRequest {
    pub kind: Opcode,
    pub local: Arc<MemoryRegion>,
    pub offset: u64,
    pub length: u32,
    /// Unused for `Send`.
    pub remote_address: u64,
    pub remote_key: u32,
}

/// Capacities of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QueuePairSize {
    pub operations: u32,
    pub receives: u32,
}

/// Completion of a batch: all of it is done, or one of its operations failed.
#[derive(Debug)]
pub struct Completion<T> {
    /// `None`: an operation that is not the last of its batch failed, or is a write with a completion of its own. The
    /// batch's own completion comes later.
    pub token: Option<T>,
    /// 0, or a number of `enum ibv_wc_status`.
    pub status: u32,
}

impl<T> Completion<T> {
    pub fn is_success(&self) -> bool {
        self.status == IBV_WC_SUCCESS as u32
    }

    /// Returns true if it was flushed because the connection had ended, and so is not the cause of a failure.
    pub fn is_flush(&self) -> bool {
        self.status == IBV_WC_WR_FLUSH_ERR as u32
    }
}

/// Completion of a receive.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub slot: u32,
    pub bytes: u32,
    pub status: u32,
}

impl Received {
    pub fn is_success(&self) -> bool {
        self.status == IBV_WC_SUCCESS as u32
    }
}

/// A posted batch: the regions that it holds, and its token.
struct Posted<T> {
    operations: Vec<WorkRequest>,
    token: T,
}

/// Batches that are posted and not done, indexed by the number in their operations' ids.
struct PostedTable<T> {
    entries: Vec<Option<Posted<T>>>,
    free: Vec<u32>,
}

impl<T> PostedTable<T> {
    fn insert(&mut self, posted: Posted<T>) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = Some(posted);
                index
            }
            None => {
                self.entries.push(Some(posted));
                u32::try_from(self.entries.len() - 1).expect("the number of entries is bounded by the queue's depth")
            }
        }
    }

    fn remove(&mut self, index: u32) -> Option<Posted<T>> {
        let posted = self.entries.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(posted)
    }

    fn length(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

/// Set in the number of every operation but the last of its batch.
const NOT_LAST: u64 = 1 << 63;

/// A connection's two queues. `T`: token that a batch's completion returns.
pub struct QueuePair<T> {
    /// `None` once it is destroyed.
    live: RwLock<Option<Live>>,
    posted: Mutex<PostedTable<T>>,
    domain: Arc<ProtectionDomain>,
    sends: CompletionQueue,
    receives: CompletionQueue,
    /// Memory for incoming messages, divided into slots.
    receive_memory: Arc<MemoryRegion>,
    receive_bytes: u32,
    /// Limited by the device.
    inline_bytes: u32,
    /// Each write has a completion of its own.
    signals_writes: bool,
}

struct Live {
    queue_pair: *mut ibv_qp,
    id: Id,
}

// SAFETY: libibverbs' functions may be called from any thread; the device's own lock the queues.
unsafe impl Send for Live {}
// SAFETY: as above.
unsafe impl Sync for Live {}

impl Drop for Live {
    fn drop(&mut self) {
        // SAFETY: created by `rdma_create_qp` on this id. When it returns, the device has finished with all that was
        // posted.
        unsafe { (self.id.functions().rdma_destroy_qp)(self.id.as_ptr()) };
    }
}

impl<T> QueuePair<T> {
    /// Creates the queue pair of connection `id`, whose device must be known. Messages arrive in slots of
    /// `receive_bytes` in `receive_memory`.
    pub fn new(
        id: Id,
        domain: &Arc<ProtectionDomain>,
        sends: CompletionQueue,
        receives: CompletionQueue,
        size: QueuePairSize,
        receive_memory: Arc<MemoryRegion>,
        receive_bytes: u32,
    ) -> io::Result<Self> {
        let mut attributes = ibv_qp_init_attr {
            qp_context: std::ptr::null_mut(),
            send_cq: sends.as_ptr(),
            recv_cq: receives.as_ptr(),
            srq: std::ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: size.operations,
                max_recv_wr: size.receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: INLINE_BYTES,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: id, domain and completion queues are alive and held by the result; the id is on the domain's device,
        // otherwise the function returns an error.
        let mut made = check(unsafe { (id.functions().rdma_create_qp)(id.as_ptr(), domain.as_ptr(), &mut attributes) });
        if made.is_err() {
            attributes.cap.max_inline_data = 0;
            // SAFETY: as above; a call that failed has created nothing. Some devices support no payload in a work
            // request.
            made = check(unsafe { (id.functions().rdma_create_qp)(id.as_ptr(), domain.as_ptr(), &mut attributes) });
        }
        made?;
        // SAFETY: the function has just set it.
        let queue_pair = unsafe { (*id.as_ptr()).qp };
        Ok(Self {
            live: RwLock::new(Some(Live { queue_pair, id })),
            posted: Mutex::new(PostedTable { entries: Vec::new(), free: Vec::new() }),
            domain: Arc::clone(domain),
            sends,
            receives,
            receive_memory,
            receive_bytes,
            inline_bytes: attributes.cap.max_inline_data.min(INLINE_BYTES),
            // SoftiWARP hands the pages of an unsignaled write of a page or more to TCP without a copy. The operation
            // behind it completes while TCP still sends from them, and bytes put there later replace those of the
            // write. SoftiWARP copies the bytes of a signaled write. Source: Linux, `siw_qp_prepare_tx`.
            signals_writes: domain.device().is_softiwarp(),
        })
    }

    /// Calls `use_it` with the connection's id. Errors: `NotConnected` if the queue pair is destroyed.
    pub fn with_id<R>(&self, use_it: impl FnOnce(&Id) -> io::Result<R>) -> io::Result<R> {
        use_it(&self.live.read().as_ref().ok_or(io::ErrorKind::NotConnected)?.id)
    }

    pub fn sends(&self) -> &CompletionQueue {
        &self.sends
    }

    pub fn receives(&self) -> &CompletionQueue {
        &self.receives
    }

    /// Posts a batch, which completes as a unit, in order, and then returns `token`. There must be room for it.
    ///
    /// Errors: the queue pair does not accept all or part of the batch, and is unusable from then on. The batch stays
    /// held until the queue pair is destroyed. Panics if an operation exceeds its region, or the region is of another
    /// domain.
    pub fn post(&self, operations: Vec<WorkRequest>, token: T) -> io::Result<()> {
        assert!(!operations.is_empty(), "an empty batch never completes");
        let mut pieces = Vec::with_capacity(operations.len());
        for operation in &operations {
            let end = operation.offset.checked_add(u64::from(operation.length));
            assert!(end.is_some_and(|end| end <= operation.local.length()), "a transfer exceeds its region");
            assert!(Arc::ptr_eq(operation.local.domain(), &self.domain), "a region of another domain");
            pieces.push(ibv_sge {
                addr: operation.local.address() + operation.offset,
                length: operation.length,
                lkey: operation.local.local_key(),
            });
        }
        let inline_bytes = self.inline_bytes;
        let mut requests: Vec<ibv_send_wr> = operations
            .iter()
            .zip(&mut pieces)
            .map(|(operation, piece)| ibv_send_wr {
                wr_id: 0,
                next: std::ptr::null_mut(),
                sg_list: piece,
                num_sge: 1,
                opcode: match operation.kind {
                    Opcode::Read => IBV_WR_RDMA_READ,
                    Opcode::Write => IBV_WR_RDMA_WRITE,
                    Opcode::Send => IBV_WR_SEND,
                },
                // Memory that is written from may belong to a file that shrinks; an inline copy would then cause a bus
                // error.
                send_flags: match operation.kind {
                    Opcode::Send if operation.length <= inline_bytes => IBV_SEND_INLINE,
                    Opcode::Write if self.signals_writes => IBV_SEND_SIGNALED,
                    _ => 0,
                },
                imm_data: 0,
                remote_addr: operation.remote_address,
                rkey: operation.remote_key,
                _rest: [0; 19],
            })
            .collect();

        let live = self.live.read();
        let live = live.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let index = u64::from(self.posted.lock().insert(Posted { operations, token }));
        let last = requests.len() - 1;
        for request in &mut requests {
            request.wr_id = index | NOT_LAST;
        }
        requests[last].wr_id = index;
        requests[last].send_flags |= IBV_SEND_SIGNALED;
        let first = requests.as_mut_ptr();
        for position in 0..last {
            // SAFETY: neighbours in the vector, which is not accessed in another way until the list was taken.
            unsafe { (*first.add(position)).next = first.add(position + 1) };
        }
        let mut refused: *mut ibv_send_wr = std::ptr::null_mut();
        // SAFETY: the queue pair is alive while the lock is held; the list and its pieces live during the call; the
        // memory lives until the batch's completion was polled or the queue pair is destroyed, because the table holds
        // it.
        check_number(unsafe { ((*(*live.queue_pair).context).ops.post_send)(live.queue_pair, first, &mut refused) })
    }

    /// Posts a receive: the next message arrives in `slot`.
    pub fn post_receive(&self, slot: u32) -> io::Result<()> {
        let offset = u64::from(slot) * u64::from(self.receive_bytes);
        assert!(offset + u64::from(self.receive_bytes) <= self.receive_memory.length(), "no such slot");
        let mut piece = ibv_sge {
            addr: self.receive_memory.address() + offset,
            length: self.receive_bytes,
            lkey: self.receive_memory.local_key(),
        };
        let mut request =
            ibv_recv_wr { wr_id: u64::from(slot), next: std::ptr::null_mut(), sg_list: &mut piece, num_sge: 1 };
        let mut refused: *mut ibv_recv_wr = std::ptr::null_mut();
        let live = self.live.read();
        let live = live.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        // SAFETY: the queue pair is alive while the lock is held; request and piece live during the call; the memory
        // lives longer than the queue pair.
        check_number(unsafe {
            ((*(*live.queue_pair).context).ops.post_recv)(live.queue_pair, &mut request, &mut refused)
        })
    }

    /// Returns the bytes of the message in a slot.
    pub fn received(&self, received: &Received) -> Vec<u8> {
        let mut bytes = vec![0; received.bytes.min(self.receive_bytes) as usize];
        let offset = u64::from(received.slot) * u64::from(self.receive_bytes);
        self.receive_memory.memory().read(self.receive_memory.range().start + offset, &mut bytes);
        bytes
    }

    /// Takes completed batches from the queue, and releases what they held. Returns the number of completions.
    pub fn poll_sends(&self, mut each: impl FnMut(Completion<T>)) -> io::Result<usize> {
        let mut entries = [EMPTY; POLL_MAX];
        let polled = self.sends.poll(&mut entries)?;
        for entry in &entries[..polled] {
            let status = entry.status as u32;
            let done = if entry.wr_id & NOT_LAST == 0 {
                let index = u32::try_from(entry.wr_id).map_err(|_| io::ErrorKind::InvalidData)?;
                // Removed under the lock, dropped outside of it: dropping a region is a system call.
                let posted = self.posted.lock().remove(index);
                posted.map(|Posted { operations, token }| {
                    drop(operations);
                    token
                })
            } else {
                None
            };
            each(Completion { token: done, status });
        }
        Ok(polled)
    }

    /// Takes completed receives from the queue. Returns their number.
    pub fn poll_receives(&self, mut each: impl FnMut(Received)) -> io::Result<usize> {
        let mut entries = [EMPTY; POLL_MAX];
        let polled = self.receives.poll(&mut entries)?;
        for entry in &entries[..polled] {
            let slot = u32::try_from(entry.wr_id).map_err(|_| io::ErrorKind::InvalidData)?;
            each(Received { slot, bytes: entry.byte_len, status: entry.status as u32 });
        }
        Ok(polled)
    }

    /// Number of batches posted and not done.
    pub fn posted(&self) -> usize {
        self.posted.lock().length()
    }

    /// Puts the queue pair into the error state: nothing more is executed, and all posted operations are flushed.
    pub fn fail(&self) -> io::Result<()> {
        let live = self.live.read();
        let live = live.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let mut attributes = ibv_qp_attr { qp_state: IBV_QPS_ERR, _rest: [0; 63] };
        // SAFETY: the queue pair is alive while the lock is held; only the field that the mask names is read.
        check_number(unsafe {
            (self.domain.device().functions().ibv_modify_qp)(live.queue_pair, &mut attributes, IBV_QP_STATE)
        })
    }

    /// Destroys the queue pair. When this returns, the device no longer accesses the memory of posted operations.
    /// Batches that had not completed are released, and their tokens are returned.
    pub fn destroy(&self) -> Vec<T> {
        // Under the lock: a concurrent caller waits until it is destroyed.
        *self.live.write() = None;
        let mut table = self.posted.lock();
        let left: Vec<Posted<T>> = table.entries.drain(..).flatten().collect();
        table.free.clear();
        drop(table);
        left.into_iter().map(|posted| posted.token).collect()
    }
}

impl<T> Drop for QueuePair<T> {
    fn drop(&mut self) {
        self.destroy();
    }
}

const EMPTY: ibv_wc = ibv_wc {
    wr_id: 0,
    status: 0,
    opcode: 0,
    vendor_err: 0,
    byte_len: 0,
    imm_data: 0,
    qp_num: 0,
    src_qp: 0,
    wc_flags: 0,
    pkey_index: 0,
    slid: 0,
    sl: 0,
    dlid_path_bits: 0,
};

impl<T> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("posted", &self.posted()).finish_non_exhaustive()
    }
}
