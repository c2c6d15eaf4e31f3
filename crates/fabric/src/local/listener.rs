use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;

use crate::stream::Connection;

/// Errors of listening on a Unix socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("another process listens on the socket {}", path.display())]
    InUse { path: PathBuf },
    #[error("{} exists and is not a socket", path.display())]
    NotASocket { path: PathBuf },
    #[error("cannot listen on the socket {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// Accepts connections on a path. On drop it removes the path, unless another process has replaced the socket.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our socket.
    identity: (u64, u64),
}

impl Listener {
    /// Listens on `path`. Replaces a socket there without a listener, such as a killed process leaves behind.
    ///
    /// `mode`: permissions to connect (0666: all users). `backlog`: maximum number of waiting connections.
    pub fn bind(path: &Path, mode: u32, backlog: u32) -> Result<Self, ListenError> {
        let failed = |source| ListenError::Io { path: path.to_owned(), source };
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        match socket.bind(&SockAddr::unix(path).map_err(failed)?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(ListenError::InUse { path: path.to_owned() });
            }
            other => other.map_err(failed)?,
        }
        let ours = (|| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
            let found = fs::symlink_metadata(path)?;
            let listener = UnixListener::from_std(socket.into())?;
            Ok((listener, (found.dev(), found.ino())))
        })();
        let (listener, identity) = ours.map_err(|source| {
            let _ = fs::remove_file(path);
            failed(source)
        })?;
        Ok(Self { listener, path: path.to_owned(), identity })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts the next connection. An error concerns that one connection, or a lack of file descriptors; the caller
    /// should wait a moment and continue.
    pub async fn accept(&self) -> io::Result<Connection> {
        let (stream, _) = self.listener.accept().await?;
        Connection::from_unix(stream)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(ListenError::NotASocket { path: path.to_owned() }),
        Ok(_) => {}
    }
    // Connecting is refused if no process listens. Any other result means that one does, even if its queue is full.
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    match socket.connect(&SockAddr::unix(path).map_err(failed)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        _ => Err(ListenError::InUse { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hearth_testkit::eventually;

    use super::super::connect;
    use super::*;

    const WAIT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn stale_socket_is_replaced_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let first = Listener::bind(&path, 0o666, 16).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(matches!(Listener::bind(&path, 0o666, 16), Err(ListenError::InUse { .. })));
        // The failed `bind` connected in order to detect that the path is in use.
        drop(first.accept().await.unwrap());
        let (client, server) = tokio::join!(connect(&path), first.accept());
        let (client, server) = (client.unwrap(), server.unwrap());
        assert!(client.is_unix());
        assert_eq!(
            server.peer().to_string(),
            format!("process {} of user {}", std::process::id(), { rustix::process::geteuid().as_raw() })
        );
        client.write_all(b"hello", WAIT).await.unwrap();
        let mut text = [0; 5];
        server.read_exact(&mut text, WAIT).await.unwrap();
        assert_eq!(&text, b"hello");

        drop(first);
        assert!(!path.exists());
        // The socket that a killed process leaves behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        // A process started by another test also inherits the descriptor until it executes its program.
        let second =
            eventually("the replacement of the stale socket", async || match Listener::bind(&path, 0o660, 16) {
                Err(ListenError::InUse { .. }) => None,
                bound => Some(bound.unwrap()),
            })
            .await;
        // Another process has replaced the socket, so it must not be removed.
        fs::remove_file(&path).unwrap();
        let third = Listener::bind(&path, 0o660, 16).unwrap();
        drop(second);
        assert!(path.exists());
        drop(third);

        fs::write(&path, b"a file").unwrap();
        assert!(matches!(Listener::bind(&path, 0o666, 16), Err(ListenError::NotASocket { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"a file");
    }

    #[tokio::test]
    async fn files_are_sent_over_unix_sockets() {
        use std::io::Write;
        use std::os::fd::AsFd;
        let mut file = tempfile::tempfile().unwrap();
        let data: Vec<u8> = (0..5_000_001u32).map(|i| (i / 3) as u8).collect();
        file.write_all(&data).unwrap();
        let (client, server) = super::super::pair().unwrap();
        let send = async {
            client.write_vectored(&[b"head", b"er"], true, WAIT).await.unwrap();
            client.send_file_range(file.as_fd(), 513, data.len() as u64 - 513, WAIT).await.unwrap();
        };
        let receive = async {
            let mut received = vec![0; 6 + data.len() - 513];
            server.read_exact(&mut received, WAIT).await.unwrap();
            assert_eq!(&received[..6], b"header");
            assert!(received[6..] == data[513..]);
        };
        tokio::join!(send, receive);
        assert!(!server.wait_closed(Duration::from_millis(10)).await);
        drop(client);
        assert!(server.wait_closed(WAIT).await);
    }
}
