//! The same bytes copied plainly, on the same machine in the same minute: what the demo's figures are compared with.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::median;

/// Number of measured rounds; one before them warms up.
pub const ROUNDS: usize = 3;

/// Length of one write or read.
const PIECE_BYTES: usize = 1 << 20;

/// Copies `from` to `to` in memory. Returns the seconds of the median round. Both have the same length.
pub fn memory(from: &[u8], to: &mut [u8]) -> f64 {
    let mut round = || {
        let started = Instant::now();
        to.copy_from_slice(black_box(from));
        black_box(&mut *to);
        started.elapsed().as_secs_f64()
    };
    round();
    median((0..ROUNDS).map(|_| round()).collect())
}

/// Writes `content` to `count` new files in `directory`, one after the other, as `cp` would, and removes them. Returns the
/// seconds of the writes. `progress` gets the number of bytes written.
pub async fn files(content: &[u8], count: usize, directory: &Path, mut progress: impl FnMut(u64)) -> io::Result<f64> {
    let paths: Vec<_> = (0..count).map(|number| directory.join(format!("copy{number}"))).collect();
    let started = Instant::now();
    for path in &paths {
        write(content, path, &mut progress).await?;
    }
    let seconds = started.elapsed().as_secs_f64();
    paths.iter().try_for_each(fs::remove_file)?;
    Ok(seconds)
}

/// Writes `from` to a new file in `directory`, and reads it into `to`, as `cat` would. Removes the file. Returns the
/// seconds of the median read. Both have the same length.
pub async fn file(from: &[u8], to: &mut [u8], directory: &Path) -> io::Result<f64> {
    let path = directory.join("copy");
    write(from, &path, &mut |_| {}).await?;
    let mut rounds = Vec::with_capacity(ROUNDS + 1);
    for _ in 0..=ROUNDS {
        let started = Instant::now();
        let mut file = File::open(&path)?;
        for piece in to.chunks_mut(PIECE_BYTES) {
            file.read_exact(piece)?;
        }
        rounds.push(started.elapsed().as_secs_f64());
        tokio::task::yield_now().await;
    }
    fs::remove_file(&path)?;
    Ok(median(rounds.split_off(1)))
}

async fn write(content: &[u8], path: &Path, progress: &mut impl FnMut(u64)) -> io::Result<()> {
    let mut file = File::create(path)?;
    for piece in content.chunks(PIECE_BYTES) {
        file.write_all(piece)?;
        progress(piece.len() as u64);
        // No call above waits, so without this the task that handles an interruption would not run.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Sends `from` over a TCP connection of this machine to `to`, with one write and one read for each MiB at best. Returns
/// the seconds of the median round. Both have the same length.
pub fn socket(from: &[u8], to: &mut [u8]) -> io::Result<f64> {
    let mut rounds = Vec::with_capacity(ROUNDS + 1);
    for _ in 0..=ROUNDS {
        rounds.push(socket_once(from, to)?);
    }
    Ok(median(rounds.split_off(1)))
}

/// Returns a connection within this machine that is not paced. BBR would slow it down, and Hearth's DataNodes do not pace
/// data within a machine.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if sockopt::tcp_congestion(&socket).is_ok_and(|name| name.starts_with("bbr")) {
        sockopt::set_tcp_congestion(&socket, "reno")?;
    }
    rustix::net::connect(&socket, &address)?;
    Ok(TcpStream::from(socket))
}

fn socket_once(from: &[u8], to: &mut [u8]) -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    // The closure owns the listener, so that a sender whose connection was not accepted fails.
    std::thread::scope(move |scope| {
        let sender = scope.spawn(move || -> io::Result<()> {
            let mut stream = connect(address)?;
            from.chunks(PIECE_BYTES).try_for_each(|piece| stream.write_all(piece))
        });
        let (mut stream, _) = listener.accept()?;
        let started = Instant::now();
        for piece in to.chunks_mut(PIECE_BYTES) {
            stream.read_exact(piece)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        sender.join().map_err(|_| io::Error::other("the sending thread panicked"))??;
        Ok(seconds)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn plain_copies_copy_and_leave_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|at| (at >> 3) as u8).collect();
        let mut copy = vec![0; content.len()];
        assert!(memory(&content, &mut copy) > 0.0);
        assert!(copy == content);
        copy.fill(0);
        assert!(socket(&content, &mut copy).unwrap() > 0.0);
        assert!(copy == content);
        copy.fill(0);
        assert!(file(&content, &mut copy, directory.path()).await.unwrap() > 0.0);
        assert!(copy == content);
        let mut told = 0;
        assert!(files(&content, 3, directory.path(), |bytes| told += bytes).await.unwrap() > 0.0);
        assert_eq!(told, 3 * content.len() as u64);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
