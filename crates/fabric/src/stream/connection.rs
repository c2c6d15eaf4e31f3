use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use bytes::BytesMut;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

use super::low_water::LowWater;
use super::{Error, PeerAddress};

/// One connection. All calls take `&self`; at most one task reads and at most one writes at a time.
#[derive(Debug)]
pub struct Connection {
    stream: SocketStream,
    peer: PeerAddress,
    low_water: LowWater,
}

/// Extra wait after a timeout that gathered bytes. Once the low-water mark is reset to one byte, bytes that had already
/// arrived are found within this time.
const FOUND_WITHIN: Duration = Duration::from_millis(100);

/// The socket under a connection.
#[derive(Debug)]
pub(crate) enum SocketStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl SocketStream {
    fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(into),
            Self::Unix(stream) => stream.try_read(into),
        }
    }

    fn try_read_vectored(&self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read_vectored(into),
            Self::Unix(stream) => stream.try_read_vectored(into),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// Runs `call`, and clears the readiness if it would have blocked.
    pub(crate) fn try_io<R>(&self, interest: Interest, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            Self::Tcp(stream) => stream.try_io(interest, call),
            Self::Unix(stream) => stream.try_io(interest, call),
        }
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }
}

impl AsFd for SocketStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Connection {
    pub(crate) fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        let peer = PeerAddress::Tcp(stream.peer_addr()?);
        Ok(Self { stream: SocketStream::Tcp(stream), peer, low_water: LowWater::default() })
    }

    pub(crate) fn from_unix(stream: UnixStream) -> io::Result<Self> {
        let peer = stream.peer_cred()?;
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        let peer = PeerAddress::Process { pid, uid: peer.uid() };
        Ok(Self { stream: SocketStream::Unix(stream), peer, low_water: LowWater::default() })
    }

    /// Registers the connection with the current runtime. If another runtime's threads detected its readiness, each
    /// event would have to be passed across runtimes.
    ///
    /// Errors: the socket cannot be registered there.
    pub fn moved_here(self) -> io::Result<Self> {
        let stream = match self.stream {
            SocketStream::Tcp(stream) => SocketStream::Tcp(TcpStream::from_std(stream.into_std()?)?),
            SocketStream::Unix(stream) => SocketStream::Unix(UnixStream::from_std(stream.into_std()?)?),
        };
        Ok(Self { stream, ..self })
    }

    pub fn peer(&self) -> PeerAddress {
        self.peer
    }

    pub(crate) fn stream(&self) -> &SocketStream {
        &self.stream
    }

    /// Returns true for a Unix socket: the other end is a process of this machine, and descriptors can be passed.
    pub fn is_unix(&self) -> bool {
        matches!(self.stream, SocketStream::Unix(_))
    }

    /// Announces that at least `bytes` more will arrive, unless the peer closes. Until then, a wait on a TCP connection
    /// ends when a large piece has arrived, not with each segment. The last call counts.
    pub fn expect(&self, bytes: u64) {
        self.low_water.expect(bytes);
    }

    /// Reads available bytes, waiting at most `timeout` for the first. Returns 0 if the peer closed. Cancel safe.
    pub async fn read(&self, into: &mut [u8], timeout: Duration) -> Result<usize, Error> {
        self.read_by(|stream| stream.try_read(into), timeout).await
    }

    /// Like [`Connection::read`], but fills one slice and then another.
    pub async fn read_into_both(&self, first: &mut [u8], second: &mut [u8], timeout: Duration) -> Result<usize, Error> {
        let mut both = [IoSliceMut::new(first), IoSliceMut::new(second)];
        self.read_by(|stream| stream.try_read_vectored(&mut both), timeout).await
    }

    async fn read_by(
        &self,
        mut read: impl FnMut(&SocketStream) -> io::Result<usize>,
        timeout: Duration,
    ) -> Result<usize, Error> {
        // A peer that always has more must not starve other connections on this thread. Yield before any byte is taken,
        // because the caller may cancel here.
        tokio::task::consume_budget().await;
        loop {
            match read(&self.stream) {
                Ok(bytes) => {
                    self.low_water.came(bytes);
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_readable(timeout).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { peer: self.peer, source }),
            }
        }
    }

    /// Appends available bytes to `into`, without waiting. Returns `None` if nothing is available, `Some(0)` if the
    /// peer closed.
    pub fn try_read_buf(&self, into: &mut BytesMut) -> Result<Option<usize>, Error> {
        let read = match &self.stream {
            SocketStream::Tcp(stream) => stream.try_read_buf(into),
            SocketStream::Unix(stream) => stream.try_read_buf(into),
        };
        self.unless_waiting(read).inspect(|read| self.low_water.came(read.unwrap_or(0)))
    }

    /// Like [`Connection::try_read_buf`], but into a slice.
    pub fn try_read(&self, into: &mut [u8]) -> Result<Option<usize>, Error> {
        self.unless_waiting(self.stream.try_read(into)).inspect(|read| self.low_water.came(read.unwrap_or(0)))
    }

    /// Like [`Connection::try_read`], but with the caller's own non-blocking call on the socket. For memory that is not
    /// a slice, such as that of a mapped file.
    ///
    /// Errors: the outer error is the caller's own, if the socket did not fail; no bytes were taken from it. The inner
    /// error is the socket's.
    pub fn try_receive<E>(
        &self,
        receive: impl FnOnce(BorrowedFd<'_>) -> Result<io::Result<usize>, E>,
    ) -> Result<Result<Option<usize>, Error>, E> {
        let mut failed = None;
        let received = self.stream.try_io(Interest::READABLE, || {
            receive(self.stream.as_fd()).unwrap_or_else(|error| {
                failed = Some(error);
                // The readiness of the socket is unchanged.
                Err(io::ErrorKind::Interrupted.into())
            })
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(self.unless_waiting(received).inspect(|read| self.low_water.came(read.unwrap_or(0)))),
        }
    }

    /// Writes the part of `bytes` (not empty) that the peer accepts now, without waiting. Returns `None` if it accepts
    /// nothing.
    pub fn try_write(&self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        self.unless_waiting(self.stream.try_write(bytes))
    }

    fn unless_waiting(&self, outcome: io::Result<usize>) -> Result<Option<usize>, Error> {
        match outcome {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
            Err(source) => Err(Error::Socket { peer: self.peer, source }),
        }
    }

    /// Waits until a read would return bytes or the end of the stream, at most `timeout`. Cancel safe.
    pub async fn readable(&self, timeout: Duration) -> Result<(), Error> {
        self.wait_readable(timeout).await
    }

    /// Waits until the peer accepts bytes, at most `timeout`. Cancel safe.
    pub async fn writable(&self, timeout: Duration) -> Result<(), Error> {
        self.wait_writable(timeout).await
    }

    /// Fills `into`, waiting at most `timeout` for each piece of it.
    pub async fn read_exact(&self, into: &mut [u8], timeout: Duration) -> Result<(), Error> {
        let mut filled = 0;
        while filled < into.len() {
            match self.read(&mut into[filled..], timeout).await? {
                0 => return Err(Error::Closed { peer: self.peer }),
                bytes => filled += bytes,
            }
        }
        Ok(())
    }

    /// Writes all of `bytes`, waiting at most `timeout` whenever the peer accepts none.
    pub async fn write_all(&self, bytes: &[u8], timeout: Duration) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.try_write(rest) {
                Ok(0) => return Err(Error::Closed { peer: self.peer }),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable(timeout).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { peer: self.peer, source }),
            }
        }
        Ok(())
    }

    /// Writes all parts with the minimum number of system calls.
    ///
    /// `more`: further bytes follow at once (`MSG_MORE`), so that a short header shares a segment with the bytes after
    /// it, despite `TCP_NODELAY`.
    pub async fn write_vectored(&self, parts: &[&[u8]], more: bool, timeout: Duration) -> Result<(), Error> {
        const PARTS_MAX: usize = 16;
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        let mut index = 0;
        let mut within = 0;
        loop {
            while index < parts.len() && within == parts[index].len() {
                index += 1;
                within = 0;
            }
            if index == parts.len() {
                return Ok(());
            }
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            let count = (parts.len() - index).min(PARTS_MAX);
            for (slot, part) in slices.iter_mut().zip(&parts[index..]) {
                *slot = IoSlice::new(part);
            }
            slices[0] = IoSlice::new(&parts[index][within..]);
            let sent = self.stream.try_io(Interest::WRITABLE, || {
                rustix::net::sendmsg(&self.stream, &slices[..count], &mut SendAncillaryBuffer::default(), flags)
                    .map_err(io::Error::from)
            });
            match sent {
                Ok(mut bytes) => {
                    while bytes > 0 {
                        let left = parts[index].len() - within;
                        if bytes < left {
                            within += bytes;
                            bytes = 0;
                        } else {
                            bytes -= left;
                            index += 1;
                            within = 0;
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable(timeout).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { peer: self.peer, source }),
            }
        }
    }

    /// Waits until the peer has closed or sent something, at most `timeout`. Returns true if it closed (or the
    /// connection broke). Received bytes stay unread.
    pub async fn wait_closed(&self, timeout: Duration) -> bool {
        let mut byte = [0u8; 1];
        self.low_water.expect(0);
        if self.wait_readable(timeout).await.is_err() {
            return false;
        }
        !matches!(self.try_peek(&mut byte), Ok(1..) | Err(io::ErrorKind::WouldBlock))
    }

    fn try_peek(&self, into: &mut [u8]) -> Result<usize, io::ErrorKind> {
        self.stream
            .try_io(Interest::READABLE, || {
                rustix::net::recv(&self.stream, into, rustix::net::RecvFlags::PEEK)
                    .map(|(bytes, _)| bytes)
                    .map_err(io::Error::from)
            })
            .map_err(|error| error.kind())
    }

    /// Shuts down both directions; a task of this process that waits on the connection gets the end of the stream.
    pub fn shutdown(&self) {
        // An error means that the connection is already gone.
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Both);
    }

    /// Announces that no more bytes will be sent; reading continues.
    pub fn shutdown_write(&self) {
        let _ = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
    }

    pub(crate) async fn wait_readable(&self, timeout: Duration) -> Result<(), Error> {
        if let SocketStream::Tcp(socket) = &self.stream {
            self.low_water.set_on(socket);
        }
        let mut readable = tokio::time::timeout(timeout, self.stream.readable()).await;
        if let (Err(_), SocketStream::Tcp(socket)) = (&readable, &self.stream)
            && self.low_water.give_up(socket)
        {
            readable = tokio::time::timeout(FOUND_WITHIN, self.stream.readable()).await;
        }
        match readable {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(Error::Socket { peer: self.peer, source }),
            Err(_) => Err(Error::ReadTimedOut { peer: self.peer, after: timeout }),
        }
    }

    pub(crate) async fn wait_writable(&self, timeout: Duration) -> Result<(), Error> {
        match tokio::time::timeout(timeout, self.stream.writable()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(Error::Socket { peer: self.peer, source }),
            Err(_) => Err(Error::WriteTimedOut { peer: self.peer, after: timeout }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Poll;

    use futures_util::FutureExt;

    use super::*;
    use crate::tcp::{Listener, SocketOptions, connect};

    const WAIT: Duration = Duration::from_secs(60);

    pub(crate) async fn pair() -> (Connection, Connection) {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
        let address = listener.address();
        let (client, server) = tokio::join!(connect(address, None, SocketOptions::default(), WAIT), listener.accept());
        (client.unwrap(), server.unwrap())
    }

    #[tokio::test]
    async fn vectored_writes_arrive_in_order() {
        let (client, server) = pair().await;
        let head: Vec<u8> = (0..33).collect();
        let body: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7) as u8).collect();
        let parts: Vec<&[u8]> =
            std::iter::once(head.as_slice()).chain(std::iter::once(&[][..])).chain(body.chunks(100_000)).collect();
        let send = async {
            client.write_vectored(&parts, true, WAIT).await.unwrap();
            client.write_vectored(&[b"end"], false, WAIT).await.unwrap();
        };
        let mut received = vec![0; head.len() + body.len() + 3];
        let receive = async { server.read_exact(&mut received, WAIT).await.unwrap() };
        tokio::join!(send, receive);
        assert_eq!(&received[..33], &head[..]);
        assert!(received[33..received.len() - 3] == body[..]);
        assert_eq!(&received[received.len() - 3..], b"end");
    }

    #[tokio::test]
    async fn cancelled_read_takes_no_bytes() {
        let (client, server) = pair().await;
        client.write_all(b"some", WAIT).await.unwrap();
        server.readable(WAIT).await.unwrap();
        let mut some = [0; 4];
        let given_up = std::future::poll_fn(|context| {
            // Many times the budget that this task may use in one go.
            for _ in 0..1000 {
                let _ = pin!(tokio::task::consume_budget()).poll(context);
            }
            Poll::Ready(server.read(&mut some, WAIT).now_or_never().is_none())
        });
        assert!(given_up.await);
        assert_eq!(server.read(&mut some, WAIT).await.unwrap(), 4);
        assert_eq!(&some, b"some");
    }

    #[tokio::test]
    async fn waits_end_by_timeout_or_peer() {
        let (client, server) = pair().await;
        let mut byte = [0; 1];
        let error = server.read_exact(&mut byte, Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(error, Error::ReadTimedOut { .. }), "{error}");

        // A peer that never reads: the buffers fill up, and the writer's timeout ends the wait.
        let block = vec![0u8; 1 << 20];
        let error = loop {
            if let Err(error) = client.write_all(&block, Duration::from_millis(50)).await {
                break error;
            }
        };
        assert!(matches!(error, Error::WriteTimedOut { .. }), "{error}");

        drop(client);
        let mut sink = vec![0; 1 << 20];
        let error = loop {
            if let Err(error) = server.read_exact(&mut sink, WAIT).await {
                break error;
            }
        };
        assert!(error.is_disconnect(), "{error}");
    }

    #[tokio::test]
    async fn expected_bytes_arrive_in_large_pieces() {
        let (client, server) = pair().await;
        let bytes: Vec<u8> = (0..3_000_000u32).map(|i| (i * 7) as u8).collect();
        let send = async {
            for part in bytes.chunks(100_000) {
                client.write_all(part, WAIT).await.unwrap();
                // The pace of a slow sender.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let receive = async {
            server.expect(bytes.len() as u64);
            let (mut received, mut pieces, mut at) = (vec![0; bytes.len()], 0, 0);
            while at < received.len() {
                server.readable(WAIT).await.unwrap();
                at += server.try_read(&mut received[at..]).unwrap().unwrap_or(0);
                pieces += 1;
            }
            assert!(received == bytes);
            // 30 pieces, each followed by an unsuccessful read, would be 60.
            assert!(pieces <= 30, "{pieces}");
        };
        tokio::join!(send, receive);

        // Less data than announced: the timeout ends the wait and returns what is there; the end of the stream ends it
        // at once.
        server.expect(1 << 30);
        client.write_all(b"some", WAIT).await.unwrap();
        let mut some = [0; 16];
        assert_eq!(server.read(&mut some, Duration::from_millis(500)).await.unwrap(), 4);
        server.expect(1 << 30);
        let error = server.read(&mut some, Duration::from_millis(50)).await.unwrap_err();
        assert!(matches!(error, Error::ReadTimedOut { .. }), "{error}");
        server.expect(1 << 30);
        client.write_all(b"end", WAIT).await.unwrap();
        client.shutdown_write();
        assert_eq!(server.read(&mut some, WAIT).await.unwrap(), 3);
        assert_eq!(server.read(&mut some, WAIT).await.unwrap(), 0);
        // Nothing more is announced, so one byte is enough again.
        assert!(server.wait_closed(WAIT).await);
    }

    #[tokio::test]
    async fn one_byte_wakes_reader_after_expected_bytes() {
        let (client, server) = pair().await;
        let (sent, mut large) = (vec![0; 1 << 20], vec![0; 1 << 20]);
        server.expect(large.len() as u64);
        let send = async {
            client.write_all(&sent, WAIT).await.unwrap();
            // Time for the reader to wait in the kernel for one more byte.
            tokio::time::sleep(Duration::from_millis(20)).await;
            client.write_all(b"x", WAIT).await.unwrap();
        };
        let receive = async {
            server.read_exact(&mut large, WAIT).await.unwrap();
            let mut byte = [0; 1];
            server.read_exact(&mut byte, WAIT).await.unwrap();
            assert_eq!(&byte, b"x");
        };
        tokio::join!(send, receive);
    }
}
