//! Disables pacing of connections within one machine (`TCP_CONGESTION`, tcp(7)).
//!
//! If the system's congestion control is BBR, the kernel spreads a socket's data over time with a timer. Between two
//! machines that is what its administrator wants. Within one machine there is no congestion to avoid: pacing only makes
//! the sender take three times the processor time (0.20 s/GB of `sendfile`, compared with 0.06 without).
//!
//! A socket that was once paced stays paced, whatever is set afterwards. So pacing is removed from sockets before they
//! listen or connect, and restored once the other end is known to be on another machine; nothing has been sent by then.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// Available in every kernel, and to every user: `net.ipv4.tcp_allowed_congestion_control`.
const UNPACED: &str = "reno";

/// Name prefix of pacing congestion controls: `bbr`, and `bbr2`, `bbr3` of out-of-tree kernels.
const PACED: &str = "bbr";

/// The system's pacing congestion control that was removed from a socket.
#[derive(Clone, Debug)]
pub(super) struct Pacing(String);

impl Pacing {
    /// Removes pacing from `socket`, which must neither listen nor be connected. Returns `None` if it is not paced, or
    /// if that cannot be changed.
    pub fn take_out(socket: &impl AsFd) -> Option<Self> {
        let name = sockopt::tcp_congestion(socket).ok().filter(|name| name.starts_with(PACED))?;
        sockopt::set_tcp_congestion(socket, UNPACED).ok()?;
        Some(Self(name))
    }

    /// Restores the system's pacing if the peer is on another machine. `stream` comes from a socket whose pacing was
    /// removed.
    pub fn put_back(&self, stream: &impl AsFd, own: SocketAddr, peer: SocketAddr) {
        // A route may have its own congestion control (`congctl`, ip-route(8)).
        let is_ours = || sockopt::tcp_congestion(stream).is_ok_and(|name| name == UNPACED);
        if !is_within_machine(own, peer)
            && is_ours()
            && let Err(error) = sockopt::set_tcp_congestion(stream, &self.0)
        {
            tracing::debug!(%peer, %error, "cannot restore the system's congestion control {}", self.0);
        }
    }
}

/// Returns true if both ends are on this machine. A socket that connects to one of the machine's own addresses also
/// gets that address as its own, unless it was bound to another.
fn is_within_machine(own: SocketAddr, peer: SocketAddr) -> bool {
    let (own, peer) = (own.ip().to_canonical(), peer.ip().to_canonical());
    own == peer || own.is_loopback() && peer.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::process::Command;
    use std::time::Duration;

    use hearth_testkit::skip;
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    use socket2::{Domain, Socket, Type};

    use crate::tcp::{Listener, SocketOptions, connect};

    fn congestion(socket: &impl AsFd) -> String {
        sockopt::tcp_congestion(socket).unwrap()
    }

    /// Returns `None` if BBR is not available in this kernel, or not to this user.
    fn paced_socket() -> Option<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        sockopt::set_tcp_congestion(&socket, PACED).ok()?;
        Some(socket)
    }

    #[test]
    fn pacing_is_restored_only_for_remote_peers() {
        let (Some(listening), Some(connecting)) = (paced_socket(), paced_socket()) else {
            return skip("pacing_is_restored_only_for_remote_peers", "BBR is not available");
        };
        let of_listener = Pacing::take_out(&listening).unwrap();
        let of_connection = Pacing::take_out(&connecting).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        listening.bind(&any.into()).unwrap();
        listening.listen(1).unwrap();
        let listener = TcpListener::from(OwnedFd::from(listening));
        connecting.connect(&listener.local_addr().unwrap().into()).unwrap();
        let connected = TcpStream::from(OwnedFd::from(connecting));
        let (accepted, peer) = listener.accept().unwrap();
        let own = accepted.local_addr().unwrap();

        of_listener.put_back(&accepted, own, peer);
        of_connection.put_back(&connected, peer, own);
        assert_eq!(congestion(&accepted), UNPACED);
        assert_eq!(congestion(&connected), UNPACED);

        let far: SocketAddr = "192.0.2.7:50010".parse().unwrap();
        of_listener.put_back(&accepted, own, far);
        of_connection.put_back(&connected, peer, far);
        assert_eq!(congestion(&accepted), PACED);
        assert_eq!(congestion(&connected), PACED);
    }

    /// Runs in its own network namespace with BBR as the default, so it needs root.
    #[test]
    fn local_connections_are_not_paced() {
        let in_a_network_of_its_own = || {
            // SAFETY: of all resources that this thread shares, it leaves only the network namespace; it is a new
            // thread, which opens its own sockets.
            let left = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
            let paced_by_default = || fs::write("/proc/sys/net/ipv4/tcp_congestion_control", PACED);
            let up = || Command::new("ip").args(["link", "set", "lo", "up"]).status();
            if left.is_err() || paced_by_default().is_err() || !up().is_ok_and(|status| status.success()) {
                let why = "BBR or a network namespace is not available";
                return skip("local_connections_are_not_paced", why);
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let options = SocketOptions::default();
                let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), options, 1).unwrap();
                let connecting = connect(listener.address(), None, options, Duration::from_secs(60));
                let (connected, accepted) = tokio::join!(connecting, listener.accept());
                assert_eq!(congestion(connected.unwrap().stream()), UNPACED);
                assert_eq!(congestion(accepted.unwrap().stream()), UNPACED);
            });
        };
        std::thread::spawn(in_a_network_of_its_own).join().unwrap();
    }

    #[test]
    fn other_congestion_controls_are_kept() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let here: SocketAddr = "192.0.2.1:1".parse().unwrap();
        let far: SocketAddr = "192.0.2.7:50010".parse().unwrap();
        sockopt::set_tcp_congestion(&socket, UNPACED).unwrap();
        assert!(Pacing::take_out(&socket).is_none());
        if sockopt::set_tcp_congestion(&socket, "cubic").is_ok() {
            assert!(Pacing::take_out(&socket).is_none());
            Pacing(PACED.to_owned()).put_back(&socket, here, far);
            assert_eq!(congestion(&socket), "cubic");
        }
    }

    #[test]
    fn local_connections_are_detected_by_address() {
        let within = |own: &str, peer: &str| {
            is_within_machine(SocketAddr::new(own.parse().unwrap(), 1), SocketAddr::new(peer.parse().unwrap(), 2))
        };
        assert!(within("127.0.0.1", "127.0.0.1"));
        assert!(within("127.0.0.2", "127.0.0.1"));
        assert!(within("::1", "::1"));
        assert!(within("10.0.0.5", "10.0.0.5"));
        assert!(within("::ffff:10.0.0.5", "10.0.0.5"));
        assert!(!within("10.0.0.5", "10.0.0.6"));
        assert!(!within("fe80::1", "fe80::2"));
    }
}
