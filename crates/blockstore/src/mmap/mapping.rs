//! Memory mappings of disk files, for short reads.
//!
//! Touching a mapping can fail: another process truncated the file, so the page is gone, or the disk cannot read it.
//! The kernel then sends SIGBUS to the thread, which ends the process unless it is handled. Only [`Mapping::copy`] and
//! [`Mapping::verify`] touch such bytes. Before they do, a thread-local variable records the
//! mapping. The SIGBUS handler reads that variable. For a fault within that mapping it marks the mapping as lost,
//! replaces all of it with zeros and returns, so the copy runs to its end. The copying thread sees the mark, discards
//! the zeros and reads the file itself, which returns a proper error. The mark is set before the zeros appear, and is
//! checked after the bytes were copied: a concurrent copy in another thread cannot mistake zeros for data. A SIGBUS
//! from anywhere else goes to the previous handler (the standard library, then the kernel: the process ends as it
//! always did).
//!
//! No reference to mapped bytes is lent. A system call that is given their address
//! ([`Mapping::write_to`], `receive`, `read_from`) returns the same fault as an error.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

use hearth_types::{ChecksumError, ChecksumSpec};
use rustix::mm::Advice;

use super::region::Region;
use crate::sys::{PAGE, pages};

/// Mapping of the first bytes of a file, for reading or to receive bytes into.
pub struct Mapping {
    region: Region,
    lost: AtomicBool,
}

thread_local! {
    /// The mapping that this thread copies from. Const-initialized and without a destructor, since a signal handler
    /// reads it.
    static ACCESSED: Cell<*const Mapping> = const { Cell::new(ptr::null()) };
}

/// Guard that marks this thread as touching bytes of a mapping while it lives.
struct AccessGuard;

impl AccessGuard {
    fn begin(mapping: &Mapping) -> Self {
        ACCESSED.set(mapping);
        compiler_fence(Ordering::SeqCst);
        Self
    }
}

impl Drop for AccessGuard {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        ACCESSED.set(ptr::null());
        // The mark was set before the zeros appeared: a thread that has read a zero sees the mark.
        fence(Ordering::Acquire);
    }
}

impl Mapping {
    /// Returns whether the memory of `file` (on a tmpfs) is in huge pages, which are free to map and touch. Mapping
    /// small pages is as expensive as a copy, and more so under User Mode Linux, where page faults are slow.
    pub fn has_huge_pages(file: &File) -> bool {
        use std::os::unix::fs::MetadataExt;
        file.metadata().is_ok_and(|about| about.blksize() > PAGE)
    }

    /// Maps `length` bytes, at least one. Reads are random: the kernel is advised not to read ahead.
    ///
    /// Errors: the file is shorter; no handler could be installed; no address space.
    pub fn new(file: &File, length: u64) -> io::Result<Self> {
        Self::with(file, length, false)
    }

    /// Like [`Mapping::new`], but also for [`Mapping::receive`]. `file` is open for writing.
    pub fn for_receiving(file: &File, length: u64) -> io::Result<Self> {
        Self::with(file, length, true)
    }

    fn with(file: &File, length: u64, writable: bool) -> io::Result<Self> {
        guard_process()?;
        if file.metadata()?.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let region = Region::of_file(file, length, writable)?;
        region.advise(Advice::Random);
        Ok(Self { region, lost: AtomicBool::new(false) })
    }

    pub fn length(&self) -> u64 {
        self.region.length() as u64
    }

    /// Returns whether a page of the mapping was lost. Nothing is read from it then.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Copies bytes from `offset`, which are within the mapping. False: they cannot be read this way, and the content
    /// of `into` is meaningless.
    pub fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        let from = self.region.at(offset, into.len());
        if self.is_lost() {
            return false;
        }
        let touching = AccessGuard::begin(self);
        // SAFETY: `from` is valid for that many bytes: they are mapped, and if the file does not back them, the handler
        // replaces them. Finalized bytes do not change. If another process changes them, this copies bytes that we do
        // not interpret.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        drop(touching);
        !self.is_lost()
    }

    /// Checks `length` bytes from `offset`, which are within the mapping, against `crcs`, in place. `None`: they cannot
    /// be read this way.
    pub fn verify(
        &self,
        offset: u64,
        length: usize,
        checksum: ChecksumSpec,
        crcs: &[u8],
    ) -> Option<Result<(), ChecksumError>> {
        // SAFETY: the closure only computes checksums, for which any bytes are valid.
        unsafe { self.with_bytes(offset, length, |data| checksum.verify(data, crcs)) }
    }

    /// Returns the result of `look` on `length` bytes from `offset`, in place. The bytes are within the mapping.
    /// `None`: they cannot be read this way.
    ///
    /// # Safety
    /// `look` only computes with the bytes and must accept any bytes: other processes may change them while it runs.
    unsafe fn with_bytes<T>(&self, offset: u64, length: usize, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let from = self.region.at(offset, length);
        if self.is_lost() {
            return None;
        }
        let touching = AccessGuard::begin(self);
        // SAFETY: valid for that many bytes as in `copy`; the caller vouches for what `look` does with them.
        let seen = look(unsafe { std::slice::from_raw_parts(from, length) });
        drop(touching);
        (!self.is_lost()).then_some(seen)
    }

    /// Writes whole pages from `offset` to `file` at the same offset, directly from the mapping: a file opened for
    /// direct I/O takes them without a copy. The last page is written whole, whatever the mapping's length.
    ///
    /// Errors: those of pwrite; EFAULT when the bytes cannot be read this way.
    pub fn write_to(&self, offset: u64, length: usize, file: &File) -> io::Result<()> {
        let end = offset.checked_add(length as u64).filter(|end| *end <= pages(self.length()));
        assert!(end.is_some(), "access beyond the mapping");
        let lost = || io::Error::from_raw_os_error(libc::EFAULT);
        if self.is_lost() {
            return Err(lost());
        }
        transfer_all(length, io::ErrorKind::WriteZero, |done| {
            // SAFETY: the range was just checked to lie within the mapping's pages, and `done` is less than `length`.
            // The kernel only reads it, and returns EFAULT where nothing backs it.
            unsafe {
                let from = self.region.start().add(offset as usize + done).cast();
                libc::pwrite(file.as_raw_fd(), from, length - done, (offset + done as u64) as libc::off_t)
            }
        })?;
        // The mark was set before the zeros appeared: a thread that has written a zero sees the mark.
        fence(Ordering::Acquire);
        if self.is_lost() { Err(lost()) } else { Ok(()) }
    }

    /// Receives once from `socket`: up to `length` bytes into the mapping at `offset`, and the bytes that follow them
    /// into `behind`. Returns the total number of bytes received. The bytes are unchecked; see [`Mapping::verify`].
    ///
    /// Errors: those of readv; EFAULT when no memory backs the mapping, or it was not made for receiving. In that case
    /// nothing was taken from the socket.
    pub fn receive(&self, offset: u64, length: usize, socket: BorrowedFd<'_>, behind: &mut [u8]) -> io::Result<usize> {
        let into = self.region.at(offset, length);
        let parts = [
            libc::iovec { iov_base: into.cast(), iov_len: length },
            libc::iovec { iov_base: behind.as_mut_ptr().cast(), iov_len: behind.len() },
        ];
        // SAFETY: the first part lies within the mapping, as was just checked, and the kernel returns EFAULT where it
        // is not writable or not backed; no reference to its bytes exists. The second is borrowed for the call.
        let received = unsafe { libc::readv(socket.as_raw_fd(), parts.as_ptr(), parts.len() as libc::c_int) };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// Reads `length` bytes of `file`, starting at its byte `from`, into the mapping at `offset`. The bytes are
    /// unchecked.
    ///
    /// Errors: `UnexpectedEof`; those of pread; EFAULT as in [`Mapping::receive`]. Part of the bytes may have been
    /// read.
    pub fn read_from(&self, offset: u64, length: usize, file: BorrowedFd<'_>, from: u64) -> io::Result<()> {
        let into = self.region.at(offset, length);
        transfer_all(length, io::ErrorKind::UnexpectedEof, |done| {
            // SAFETY: within the mapping, as was just checked; the kernel returns EFAULT where it is not writable or
            // not backed, and no reference to its bytes exists.
            unsafe {
                let into = into.add(done).cast();
                libc::pread(file.as_raw_fd(), into, length - done, (from + done as u64) as libc::off_t)
            }
        })
    }

    /// Returns whether the bytes are in memory now, so that a copy would most likely not wait for a disk.
    pub fn is_resident(&self, offset: u64, length: usize) -> bool {
        let from = self.region.at(offset, length) as usize;
        let first = from / PAGE as usize * PAGE as usize;
        let bytes = from + length - first;
        let mut pages = [0_u8; 64];
        let count = bytes.div_ceil(PAGE as usize);
        let Some(pages) = pages.get_mut(..count) else { return false };
        // SAFETY: the range is mapped, begins on a page, and there is a byte for each of its pages.
        let asked = unsafe { libc::mincore(ptr::with_exposed_provenance_mut(first), bytes, pages.as_mut_ptr()) };
        asked == 0 && pages.iter().all(|page| page & 1 == 1)
    }
}

/// Repeats a system call until `length` bytes are done. `call` gets the number of bytes done so far, which is less than
/// `length`, and returns that of the next ones, or -1 with `errno`.
///
/// Errors: those of the call, without interruptions; `at_end` when it returns 0.
fn transfer_all(length: usize, at_end: io::ErrorKind, mut call: impl FnMut(usize) -> isize) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        match call(done) {
            0 => return Err(at_end.into()),
            bytes @ 1.. => done += bytes as usize,
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// The SIGBUS action that was installed before ours.
static PREVIOUS_ACTION: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once per process.
fn guard_process() -> io::Result<()> {
    static GUARDED: OnceLock<Option<i32>> = OnceLock::new();
    let failed = GUARDED.get_or_init(|| {
        // SAFETY: an all-zero sigaction is valid: numbers, an empty set, and no function.
        let (mut before, mut ours): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: asks only; `before` outlives the call.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
            return io::Error::last_os_error().raw_os_error();
        }
        let _ = PREVIOUS_ACTION.set(before);
        ours.sa_sigaction = on_bus_error as *const () as usize;
        // Runs on the stack that the standard library gives each thread for this purpose: the cause may be a stack
        // overflow.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: `ours` is a complete sigaction. Its function has the signature that SA_SIGINFO requires, and is
        // async-signal-safe.
        match unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } {
            0 => None,
            _ => io::Error::last_os_error().raw_os_error(),
        }
    });
    failed.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

/// SIGBUS handler. It takes no lock, allocates nothing, and leaves `errno` unchanged.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: errno is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel hands a valid siginfo to a handler with SA_SIGINFO, and for SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let touched = ACCESSED.get();
    // SAFETY: null, or the mapping that `copy` borrows on this very thread, right now.
    let ours = unsafe { touched.as_ref() }.is_some_and(|mapping| mapping.replace_if_at(address));
    if !ours {
        pass_on(signal, info, context);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

impl Mapping {
    /// Replaces the whole mapping with zeros if `address` lies in it.
    fn replace_if_at(&self, address: usize) -> bool {
        let start = self.region.start() as usize;
        if !(start..start + self.region.length()).contains(&address) {
            return false;
        }
        self.lost.store(true, Ordering::SeqCst);
        // SAFETY: the range is this mapping's own and stays mapped: only its backing changes, to private zeros.
        let zeros = unsafe {
            libc::mmap(
                self.region.start().cast(),
                self.region.length(),
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        zeros != libc::MAP_FAILED
    }
}

/// Passes on a bus error that is not ours.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Plain = extern "C" fn(libc::c_int);
    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let Some(before) = PREVIOUS_ACTION.get() else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: an all-zero sigaction is the default action. A fault occurs again and ends the process. A signal
            // sent by a process does not, so it is raised again.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        function if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with that flag the address is that of a function of this signature.
            let function = unsafe { std::mem::transmute::<usize, WithInfo>(function) };
            function(signal, info, context);
        }
        function => {
            // SAFETY: without that flag it is that of a function of this signature.
            let function = unsafe { std::mem::transmute::<usize, Plain>(function) };
            function(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicU64;

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn mapped_bytes_are_copied() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| at as u8).collect();
        let file = file(&bytes);
        assert!(Mapping::new(&file, 20_001).is_err());
        let mapping = Mapping::new(&file, 20_000).unwrap();
        let mut into = vec![0; 5000];
        assert!(mapping.copy(4000, &mut into));
        assert_eq!(into, bytes[4000..9000]);
        assert!(mapping.is_resident(4000, 5000));
    }

    #[test]
    fn truncated_mapping_is_detected_by_every_reader() {
        let bytes = vec![7; 1 << 20];
        let file = file(&bytes);
        let mapping = Mapping::new(&file, 1 << 20).unwrap();
        let other = Mapping::new(&file, 4096).unwrap();
        let copied = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (mapping, copied) = (&mapping, &copied);
                scope.spawn(move || {
                    let mut into = vec![0; 4096];
                    let mut at = thread;
                    while mapping.copy(at * 4096 % (1 << 20), &mut into) {
                        assert!(into.iter().all(|byte| *byte == 7), "zeros were taken for bytes");
                        at += 3;
                        copied.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // They have been at work for a while.
            while copied.load(Ordering::Relaxed) < 2_000 && !mapping.is_lost() {
                std::thread::yield_now();
            }
            file.set_len(4096).unwrap();
        });
        assert!(mapping.is_lost() && !mapping.copy(0, &mut [0]));
        // Pages that still exist are readable through another mapping.
        let mut into = [0; 4096];
        assert!(other.copy(0, &mut into) && into == [7; 4096]);
    }

    #[test]
    fn mapped_bytes_are_read_and_written_in_place() {
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| at as u8).collect();
        let mapping = Mapping::new(&file(&bytes), 20_000).unwrap();
        // SAFETY: the closure only computes a sum, for which any bytes are valid.
        let sum =
            unsafe { mapping.with_bytes(100, 1000, |seen| seen.iter().map(|byte| u64::from(*byte)).sum::<u64>()) };
        assert_eq!(sum, Some(bytes[100..1100].iter().map(|byte| u64::from(*byte)).sum()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("direct");
        let to = crate::sys::create_direct(&path).unwrap().unwrap_or_else(|| File::create(&path).unwrap());
        mapping.write_to(0, 8192, &to).unwrap();
        mapping.write_to(8192, pages(20_000 - 8192) as usize, &to).unwrap();
        let written = std::fs::read(&path).unwrap();
        assert!(written[..20_000] == bytes && written[20_000..].iter().all(|byte| *byte == 0));
        let beyond = || mapping.write_to(8192, 16_384, &to);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(beyond)).is_err());
    }

    #[test]
    fn lost_bytes_are_neither_read_nor_written() {
        let file = file(&vec![7; 1 << 20]);
        let [looked, written, both] = [(); 3].map(|()| Mapping::new(&file, 1 << 20).unwrap());
        file.set_len(8192).unwrap();
        // SAFETY: the closure only computes a sum, for which any bytes are valid.
        let sum = |mapping: &Mapping| unsafe {
            mapping.with_bytes(0, 1 << 20, |seen| seen.iter().map(|byte| *byte as u64).sum::<u64>())
        };
        assert!(sum(&looked).is_none() && looked.is_lost());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("direct");
        let to = crate::sys::create_direct(&path).unwrap().unwrap_or_else(|| File::create(&path).unwrap());
        for mapping in [&looked, &written, &both] {
            let error = mapping.write_to(0, 1 << 20, &to).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        }
        // A system call's fault is an error, not a signal: the mapping is not marked. It is marked on the next direct
        // access.
        assert!(!both.is_lost() && sum(&both).is_none() && both.is_lost());
        // A closure that panics leaves no mapping recorded as being accessed.
        let whole = Mapping::new(&file, 8192).unwrap();
        // SAFETY: nothing is done with the bytes.
        let panics = || unsafe { whole.with_bytes(0, 1, |_| panic!("on purpose")) };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(ACCESSED.get().is_null());
    }

    #[test]
    fn bytes_are_received_into_the_mapping() {
        use std::io::Write;
        use std::os::fd::AsFd;
        let (mut sender, socket) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = file(&[0; 8192]);
        let mapping = Mapping::for_receiving(&file, 8192).unwrap();
        let mut behind = [0; 4];
        sender.write_all(b"received, and more").unwrap();
        assert_eq!(mapping.receive(100, 8, socket.as_fd(), &mut behind).unwrap(), 12);
        assert_eq!(&behind, b", an");
        let mut there = [0; 10];
        file.read_exact_at(&mut there, 99).unwrap();
        assert_eq!(&there, b"\0received\0");
        // SAFETY: the closure only copies, for which any bytes are valid.
        let seen = unsafe { mapping.with_bytes(100, 8, |seen| seen.to_vec()) };
        assert_eq!(seen.unwrap(), b"received");
        // A call that fails takes nothing from the socket.
        let fails = |mapping: &Mapping| mapping.receive(4096, 6, socket.as_fd(), &mut []).unwrap_err().raw_os_error();
        assert_eq!(fails(&Mapping::new(&file, 8192).unwrap()), Some(libc::EFAULT));
        file.set_len(4096).unwrap();
        assert_eq!(fails(&mapping), Some(libc::EFAULT));
        assert_eq!(mapping.receive(0, 6, socket.as_fd(), &mut []).unwrap(), 6);
        file.read_exact_at(&mut there, 0).unwrap();
        assert_eq!(&there[..6], b"d more");
        let beyond = || mapping.receive(8190, 3, socket.as_fd(), &mut []);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(beyond)).is_err());
    }

    #[test]
    fn file_is_read_into_the_mapping() {
        use std::os::fd::AsFd;
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| at as u8).collect();
        let (source, target) = (file(&bytes), file(&[0; 12_288]));
        let mapping = Mapping::for_receiving(&target, 12_288).unwrap();
        mapping.read_from(5000, 7000, source.as_fd(), 10_001).unwrap();
        let mut there = vec![0; 12_288];
        target.read_exact_at(&mut there, 0).unwrap();
        assert!(
            there[..5000] == [0; 5000] && there[5000..12_000] == bytes[10_001..17_001] && there[12_000..] == [0; 288]
        );
        let error = mapping.read_from(0, 100, source.as_fd(), 19_950).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        target.set_len(4096).unwrap();
        let error = mapping.read_from(4096, 100, source.as_fd(), 0).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    }
}
