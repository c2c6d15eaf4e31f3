//! Descriptors attached to a byte of a message.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use tokio::io::Interest;

use crate::stream::{Connection, Error};

/// Maximum number of descriptors per message. The kernel closes any that a sender attaches beyond it.
pub const DESCRIPTORS_MAX: usize = 8;

impl Connection {
    /// Sends `bytes` with `descriptors` attached to the first byte. The receiver gets copies; the originals stay open.
    ///
    /// `timeout` bounds each wait for the peer. Errors: `Socket`, also if the connection is not over a Unix socket.
    pub async fn send_with_descriptors(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<(), Error> {
        assert!(
            !bytes.is_empty() && descriptors.len() <= DESCRIPTORS_MAX,
            "descriptors need at least one byte, and at most DESCRIPTORS_MAX fit"
        );
        self.needs_unix()?;
        loop {
            let sent = self.stream().try_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
                assert!(fits, "the buffer has room for the descriptors");
                rustix::net::sendmsg(self.stream(), &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
                    .map_err(io::Error::from)
            });
            match sent {
                // The descriptors went with the first byte; the remaining bytes carry none.
                Ok(sent) => return self.write_all(&bytes[sent..], timeout).await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable(timeout).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { peer: self.peer(), source }),
            }
        }
    }

    /// Receives once, waiting at most `timeout`. Returns the number of bytes (0 if the peer closed) and the descriptors
    /// that came with them, which are closed on exec.
    ///
    /// Bytes received by other calls lose their attached descriptors. Receive the bytes before a descriptor with a call
    /// that does not read further ([`crate::stream::ReceiveBuffer::fill_no_further`]).
    ///
    /// Errors: `Descriptors` if the peer attached more than [`DESCRIPTORS_MAX`].
    pub async fn receive_with_descriptors(
        &self,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<(usize, Vec<OwnedFd>), Error> {
        self.needs_unix()?;
        loop {
            let mut descriptors = Vec::new();
            let received = self.stream().try_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let flags = RecvFlags::CMSG_CLOEXEC;
                let message = rustix::net::recvmsg(self.stream(), &mut [IoSliceMut::new(into)], &mut control, flags)?;
                for item in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(passed) = item {
                        descriptors.extend(passed);
                    }
                }
                Ok((message.bytes, message.flags))
            });
            match received {
                Ok((_, flags)) if flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > DESCRIPTORS_MAX => {
                    let received = descriptors.len() + 1;
                    return Err(Error::Descriptors { peer: self.peer(), received, wanted: DESCRIPTORS_MAX });
                }
                Ok((bytes, _)) => return Ok((bytes, descriptors)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_readable(timeout).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { peer: self.peer(), source }),
            }
        }
    }

    fn needs_unix(&self) -> Result<(), Error> {
        if self.is_unix() {
            return Ok(());
        }
        let source = io::Error::new(io::ErrorKind::Unsupported, "descriptors can only be passed over a Unix socket");
        Err(Error::Socket { peer: self.peer(), source })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::fd::AsFd;

    use super::super::pair;
    use super::*;
    use crate::stream::ReceiveBuffer;

    const WAIT: Duration = Duration::from_secs(60);

    fn file_with(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn text_of(descriptor: OwnedFd) -> String {
        let mut file = File::from(descriptor);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[tokio::test]
    async fn descriptors_arrive_with_their_byte() {
        let (one, other) = pair().unwrap();
        let files = [file_with("data"), file_with("meta")];
        one.write_all(b"answer", WAIT).await.unwrap();
        one.send_with_descriptors(&[1], &[files[0].as_fd(), files[1].as_fd()], WAIT).await.unwrap();
        one.write_all(b"more", WAIT).await.unwrap();

        // All bytes before the descriptor have arrived, and none after it was taken.
        let mut buffer = ReceiveBuffer::new(100, 100);
        buffer.fill_no_further(&other, 6, WAIT).await.unwrap();
        assert_eq!(buffer.available(), b"answer");
        let mut byte = [0; 1];
        let (received, descriptors) = other.receive_with_descriptors(&mut byte, WAIT).await.unwrap();
        assert_eq!((received, byte), (1, [1]));
        for descriptor in &descriptors {
            let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        assert_eq!(descriptors.into_iter().map(text_of).collect::<Vec<_>>(), ["data", "meta"]);
        let mut rest = [0; 4];
        other.read_exact(&mut rest, WAIT).await.unwrap();
        assert_eq!(&rest, b"more");

        drop(one);
        let (received, descriptors) = other.receive_with_descriptors(&mut byte, WAIT).await.unwrap();
        assert_eq!((received, descriptors.len()), (0, 0));
    }

    #[tokio::test]
    async fn too_many_descriptors_are_refused_and_closed() {
        let (one, other) = pair().unwrap();
        let (watched, sent) = pair().unwrap();
        // More than our own send allows, as a foreign peer could send.
        let many = vec![sent.stream().as_fd(); DESCRIPTORS_MAX + 3];
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
        rustix::net::sendmsg(one.stream(), &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        drop(sent);
        let error = other.receive_with_descriptors(&mut [0; 1], WAIT).await.unwrap_err();
        assert!(matches!(error, Error::Descriptors { .. }), "{error}");
        // The last copy of the other end is closed, so the stream ends.
        assert_eq!(watched.read(&mut [0; 1], WAIT).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn waits_time_out() {
        let (_one, other) = pair().unwrap();
        let error = other.receive_with_descriptors(&mut [0; 1], Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(error, Error::ReadTimedOut { .. }), "{error}");
    }
}
