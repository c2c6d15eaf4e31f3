//! Tells systemd how a service of `Type=notify` is doing. Source: sd_notify(3).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells systemd that the service is ready, with one line for `systemctl status`. Does nothing if systemd does not ask for it.
///
/// May be called again with another line. A failure is logged: the service works without it, until systemd's timeout.
pub fn ready(status: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        notify(&socket, status);
    }
}

fn notify(socket: &OsStr, status: &str) {
    let address = match socket.as_bytes() {
        // A name that is not in the file system.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(socket),
    };
    let message = format!("READY=1\nSTATUS={status}\n");
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(socket = %socket.display(), %error, "cannot tell systemd that the service is ready");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_sockets_get_the_state() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let named = UnixDatagram::bind(&path).unwrap();
        let name = format!("hearth-notify-{}", std::process::id());
        let unnamed = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        for (receiver, socket) in [(named, path.into_os_string()), (unnamed, format!("@{name}").into())] {
            notify(&socket, "serving clients");
            let mut buffer = [0; 64];
            let length = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1\nSTATUS=serving clients\n");
        }
    }
}
