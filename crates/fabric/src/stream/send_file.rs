//! Sends files to sockets without a copy through this process.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tokio::io::Interest;

use super::{Connection, Error};

/// Maximum length of one call, so that one connection's transfer leaves time for the others on its thread.
const SEND_BYTES_MAX: usize = 4 << 20;

impl Connection {
    /// Sends `length` bytes of `file` from `offset` by sendfile. `timeout` bounds each wait for the peer to accept
    /// bytes.
    ///
    /// Errors: `File` if the file ends before the range does (it was truncated while it was sent), `WriteTimedOut`,
    /// `Socket`.
    pub async fn send_file_range(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: u64,
        timeout: Duration,
    ) -> Result<(), Error> {
        let mut position = offset;
        let end = offset + length;
        while position < end {
            let wanted = (end - position).min(SEND_BYTES_MAX as u64) as usize;
            let sent = self.stream().try_io(Interest::WRITABLE, || {
                rustix::fs::sendfile(self.stream(), file, Some(&mut position), wanted).map_err(io::Error::from)
            });
            match sent {
                Ok(0) => {
                    let source = io::Error::new(io::ErrorKind::UnexpectedEof, "file ends before the requested range");
                    return Err(Error::File { peer: self.peer(), source });
                }
                Ok(_) => tokio::task::consume_budget().await,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable(timeout).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // EIO and similar errors come from the file's device; all errors of a socket concern the connection.
                Err(source) if source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Err(Error::File { peer: self.peer(), source });
                }
                Err(source) => return Err(Error::Socket { peer: self.peer(), source }),
            }
        }
        Ok(())
    }

    /// Sends the same bytes through `scratch` with pread and write, for when sendfile is switched off.
    pub async fn copy_file_range(
        &self,
        file: BorrowedFd<'_>,
        offset: u64,
        length: u64,
        scratch: &mut [u8],
        timeout: Duration,
    ) -> Result<(), Error> {
        assert!(!scratch.is_empty(), "copying needs a buffer");
        let mut position = offset;
        let end = offset + length;
        while position < end {
            let wanted = (end - position).min(scratch.len() as u64) as usize;
            let bytes = match rustix::io::pread(file, &mut scratch[..wanted], position) {
                Ok(0) => {
                    let source = io::Error::new(io::ErrorKind::UnexpectedEof, "file ends before the requested range");
                    return Err(Error::File { peer: self.peer(), source });
                }
                Ok(bytes) => bytes,
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(Error::File { peer: self.peer(), source: errno.into() }),
            };
            self.write_all(&scratch[..bytes], timeout).await?;
            tokio::task::consume_budget().await;
            position += bytes as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;
    use crate::tcp::{Listener, SocketOptions, connect};

    const WAIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn sendfile_and_copy_send_the_same_range() {
        let mut file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..9_000_001u32).map(|i| (i / 3) as u8).collect();
        file.write_all(&data).unwrap();

        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
        let (client, server) =
            tokio::join!(connect(listener.address(), None, SocketOptions::default(), WAIT), listener.accept());
        let (client, server) = (client.unwrap(), server.unwrap());
        let (offset, length) = (513u64, data.len() as u64 - 513);
        let send = async {
            client.write_vectored(&[b"head"], true, WAIT).await.unwrap();
            client.send_file_range(file.as_fd(), offset, length, WAIT).await.unwrap();
            let mut scratch = vec![0; 100_000];
            client.copy_file_range(file.as_fd(), offset, length, &mut scratch, WAIT).await.unwrap();
        };
        let receive = async {
            let mut head = [0; 4];
            server.read_exact(&mut head, WAIT).await.unwrap();
            assert_eq!(&head, b"head");
            for _ in 0..2 {
                let mut received = vec![0; length as usize];
                server.read_exact(&mut received, WAIT).await.unwrap();
                assert!(received == data[513..]);
            }
        };
        tokio::join!(send, receive);

        let error = client.send_file_range(file.as_fd(), data.len() as u64 - 1, 2, WAIT).await.unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
}
