//! Completion queues, and the channel that notifies of completions.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use tokio::io::unix::AsyncFd;

use super::check_number;
use super::device::Device;
use super::sys::*;

/// Notifies when one of its armed completion queues has a completion. Its descriptor does not block.
pub struct CompletionChannel {
    channel: *mut ibv_comp_channel,
    device: Arc<Device>,
}

// SAFETY: libibverbs' functions may be called from any thread.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    pub fn new(device: &Arc<Device>) -> io::Result<Self> {
        // SAFETY: the context is open as long as the device lives.
        let channel = unsafe { (device.functions().ibv_create_comp_channel)(device.context()) };
        if channel.is_null() {
            return Err(io::Error::last_os_error());
        }
        let channel = Self { channel, device: Arc::clone(device) };
        super::connection_manager::do_not_block(&channel)?;
        Ok(channel)
    }

    /// Registers the channel with the runtime, to wait for notifications.
    pub fn watched(self: Arc<Self>) -> io::Result<AsyncFd<Arc<Self>>> {
        // SAFETY: the descriptor stays open and the same as long as the channel lives.
        Ok(unsafe { AsyncFd::register(self)? })
    }

    /// Takes one notification. Returns the name, given at creation, of the queue; `None` if there is no notification.
    pub fn notice(&self) -> io::Result<Option<usize>> {
        let mut queue: *mut ibv_cq = std::ptr::null_mut();
        let mut name: *mut std::ffi::c_void = std::ptr::null_mut();
        // SAFETY: the function fills in two pointers.
        let result = unsafe { (self.device.functions().ibv_get_cq_event)(self.channel, &mut queue, &mut name) };
        if result != 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error) };
        }
        // SAFETY: the queue that the notification named; destroying a queue waits until its notifications are
        // acknowledged.
        unsafe { (self.device.functions().ibv_ack_cq_events)(queue, 1) };
        Ok(Some(name as usize))
    }
}

impl AsRawFd for CompletionChannel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel lives as long as this.
        unsafe { (*self.channel).fd }
    }
}

impl std::os::fd::AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as this lives.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: its queues hold it, so there are none any more.
        unsafe { (self.device.functions().ibv_destroy_comp_channel)(self.channel) };
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionChannel({})", self.as_raw_fd())
    }
}

/// Queue that receives the completions of posted operations.
pub struct CompletionQueue {
    queue: *mut ibv_cq,
    channel: Arc<CompletionChannel>,
}

// SAFETY: libibverbs' functions may be called from any thread; the device's own lock the queue.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// `name`: returned by [`CompletionChannel::notice`].
    pub fn new(channel: &Arc<CompletionChannel>, depth: u32, name: usize) -> io::Result<Self> {
        let depth = i32::try_from(depth).map_err(|_| io::ErrorKind::InvalidInput)?;
        let device = &channel.device;
        let name = name as *mut std::ffi::c_void;
        // SAFETY: context and channel live as long as the result, which holds them; the name is only handed back.
        let queue = unsafe { (device.functions().ibv_create_cq)(device.context(), depth, name, channel.channel, 0) };
        if queue.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { queue, channel: Arc::clone(channel) })
    }

    /// Requests one notification for the next completion. Earlier completions trigger none: poll after this call.
    pub fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue is alive, and so is its context with the device's functions.
        check_number(unsafe { ((*(*self.queue).context).ops.req_notify_cq)(self.queue, 0) })
    }

    /// Writes completions to `into` and returns their number.
    pub(super) fn poll(&self, into: &mut [ibv_wc]) -> io::Result<usize> {
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive; at most `room` entries are written.
        let polled = unsafe { ((*(*self.queue).context).ops.poll_cq)(self.queue, room, into.as_mut_ptr()) };
        usize::try_from(polled).map_err(|_| io::Error::from_raw_os_error(polled.abs()))
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.queue
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: its queue pair holds it, so there is no queue pair any more, and every notification was acknowledged.
        unsafe { (self.channel.device.functions().ibv_destroy_cq)(self.queue) };
    }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionQueue({:?})", self.channel)
    }
}
