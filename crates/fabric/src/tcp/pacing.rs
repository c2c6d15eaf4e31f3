//! Whether what a connection sends is paced (`TCP_CONGESTION`, tcp(7)).
//!
//! Where the system's congestion control is BBR, the kernel spreads over time what a socket has to send, by a timer. Between two machines
//! that is what its administrator wants. Within one there is nothing to give way to: all that came of it was a sender that took three
//! times the processor time (0.20 s/GB of `sendfile` to 0.06 without).
//!
//! What was paced once stays so, whatever is set afterwards. So sockets are taken out of it before they listen or connect, and put back
//! when it is known that the other end is on another machine: nothing has been sent by then.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// In every kernel, and open to every user: `net.ipv4.tcp_allowed_congestion_control`.
const UNPACED: &str = "reno";

/// What the names of those that pace begin with: `bbr`, and what out-of-tree kernels have as `bbr2`, `bbr3`.
const PACED: &str = "bbr";

/// The system's way of pacing, out of which a socket was taken.
#[derive(Clone, Debug)]
pub(super) struct Pacing(String);

impl Pacing {
    /// Takes `socket`, which neither listens nor is connected, out of it. `None` where nothing is paced, or cannot be helped.
    pub fn take_out(socket: &impl AsFd) -> Option<Self> {
        let name = sockopt::tcp_congestion(socket).ok().filter(|name| name.starts_with(PACED))?;
        sockopt::set_tcp_congestion(socket, UNPACED).ok()?;
        Some(Self(name))
    }

    /// Has what is sent to another machine paced, as the system has it. `stream` has come of a socket that was taken out.
    pub fn put_back(&self, stream: &impl AsFd, own: SocketAddr, peer: SocketAddr) {
        // A route may have a congestion control of its own (`congctl`, ip-route(8)).
        let is_ours = || sockopt::tcp_congestion(stream).is_ok_and(|name| name == UNPACED);
        if !is_within_machine(own, peer)
            && is_ours()
            && let Err(error) = sockopt::set_tcp_congestion(stream, &self.0)
        {
            tracing::debug!(%peer, %error, "the system's congestion control, {}, cannot be had", self.0);
        }
    }
}

/// Who connects to an address of the machine's own has that address, too, if it asked for no other.
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

    use rustix::thread::{UnshareFlags, unshare_unsafe};
    use socket2::{Domain, Socket, Type};

    use crate::tcp::{Listener, SocketOptions, connect};

    fn congestion(socket: &impl AsFd) -> String {
        sockopt::tcp_congestion(socket).unwrap()
    }

    /// `None` where this kernel does not have BBR, or not for this user.
    fn paced_socket() -> Option<Socket> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        sockopt::set_tcp_congestion(&socket, PACED).ok()?;
        Some(socket)
    }

    #[test]
    fn within_a_machine_nothing_is_paced_and_to_another_all_is_as_the_system_has_it() {
        let (Some(listening), Some(connecting)) = (paced_socket(), paced_socket()) else {
            return crate::left_out("pacing of TCP: no BBR here");
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

    /// In a network of its own, whose default is BBR: for root only.
    #[test]
    fn neither_end_of_a_connection_within_the_machine_is_paced() {
        let in_a_network_of_its_own = || {
            // SAFETY: of all that this thread shares, it is the network that it leaves; it is a new thread, which opens its own sockets.
            let left = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
            let paced_by_default = || fs::write("/proc/sys/net/ipv4/tcp_congestion_control", PACED);
            let up = || Command::new("ip").args(["link", "set", "lo", "up"]).status();
            if left.is_err() || paced_by_default().is_err() || !up().is_ok_and(|status| status.success()) {
                return crate::left_out("pacing of TCP: no BBR, or no network, to be had");
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
    fn what_a_route_or_somebody_else_has_chosen_stays() {
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
    fn an_address_of_the_machines_own_is_known_by_both_ends_having_it() {
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
