use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port of 127.0.0.1 that nobody listens on now. Taken below the range from which Linux gives outgoing connections
/// their ports, so that no connection takes it before the server that it is meant for; and no other process that looks
/// for ports here gets it while this one lives, though the server may be long in coming, or go and come again.
pub fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test programs run side by side: each starts looking somewhere else.
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

/// Makes a port ours among those who ask here: by a name that is in no file system, belongs to the same network namespace
/// as the port, and goes with this process.
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
