//! A TCP proxy between a real client and a real server that records the traffic: the source of golden vectors.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// Bytes of one connection, each direction complete and in order.
#[derive(Clone, Default, Debug)]
pub struct Recorded {
    pub to_server: Vec<u8>,
    pub to_client: Vec<u8>,
}

pub struct RecordingProxy {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<Arc<Mutex<Recorded>>>>>,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

/// Maximum recorded bytes of each direction of a connection. Further bytes are forwarded but not recorded.
const RECORDED_BYTES_MAX: usize = 4 << 20;

impl RecordingProxy {
    /// Forwards connections to `listen_on` on to `server`.
    pub fn start(listen_on: SocketAddr, server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(listen_on).with_context(|| format!("cannot listen on {listen_on}"))?;
        let address = listener.local_addr().context("the proxy's address")?;
        let connections: Arc<Mutex<Vec<Arc<Mutex<Recorded>>>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let acceptor = std::thread::spawn({
            let (connections, stop) = (connections.clone(), stop.clone());
            move || {
                for client in listener.incoming().map_while(Result::ok) {
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                    let recorded = Arc::default();
                    connections.lock().expect("no thread panics with it").push(Arc::clone(&recorded));
                    // If the server is down, the client sees a closed connection.
                    let Ok(server) = TcpStream::connect(server) else { continue };
                    forward(&client, &server, Direction::ToServer, recorded.clone());
                    forward(&server, &client, Direction::ToClient, recorded);
                }
            }
        });
        Ok(Self { address, connections, stop, acceptor: Some(acceptor) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the traffic so far, one entry for each connection, in the order of their arrival.
    pub fn recorded(&self) -> Vec<Recorded> {
        let connections = self.connections.lock().expect("no thread panics with it");
        connections.iter().map(|one| one.lock().expect("no thread panics with it").clone()).collect()
    }
}

fn forward(from: &TcpStream, to: &TcpStream, direction: Direction, recorded: Arc<Mutex<Recorded>>) {
    let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let bytes = &buffer[..count];
            {
                let mut recorded = recorded.lock().expect("no thread panics with it");
                let kept = match direction {
                    Direction::ToServer => &mut recorded.to_server,
                    Direction::ToClient => &mut recorded.to_client,
                };
                let room = RECORDED_BYTES_MAX.saturating_sub(kept.len());
                kept.extend_from_slice(&bytes[..count.min(room)]);
            }
            if to.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    });
}

impl Drop for RecordingProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the acceptor thread.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn both_directions_are_forwarded_and_recorded() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let served = std::thread::spawn(move || {
            let (mut connection, _) = server.accept().unwrap();
            let mut question = [0; 4];
            connection.read_exact(&mut question).unwrap();
            connection.write_all(b"pong!").unwrap();
            question
        });
        let proxy = RecordingProxy::start((Ipv4Addr::LOCALHOST, 0).into(), address).unwrap();
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(b"ping").unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!((&served.join().unwrap(), &answer[..]), (b"ping", &b"pong!"[..]));
        let recorded = proxy.recorded();
        assert_eq!((&recorded[0].to_server[..], &recorded[0].to_client[..]), (&b"ping"[..], &b"pong!"[..]));
    }
}
