use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a port of 127.0.0.1 without a listener. It is below the range of ports that Linux gives to outgoing
/// connections, so no connection takes it before its server starts. While this process lives, other processes that call
/// this function do not get the same port, even if the server starts late or restarts.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test programs run concurrently, so each starts its search at a different port.
    let start = std::process::id().wrapping_mul(7919);
    for _ in 0..COUNT {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("below 32000");
        if reserve(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port of 127.0.0.1 between {FIRST} and {}", FIRST + COUNT);
}

/// Reserves a port among the callers of this function. The reservation is an abstract socket name: it is in no file
/// system, belongs to the network namespace of the port, and disappears with this process.
fn reserve(port: u16) -> bool {
    static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let name = format!("hearth-test-port-{port}");
    let reserved = SocketAddr::from_abstract_name(name).and_then(|address| UnixListener::bind_addr(&address));
    match reserved {
        Ok(listener) => {
            RESERVED.lock().expect("no thread panics with it").push(listener);
            true
        }
        Err(_) => false,
    }
}
