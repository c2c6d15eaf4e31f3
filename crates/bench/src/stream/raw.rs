//! The kernel's limit: each file by sendfile, one after the other, read into a buffer and written to a file. Nothing is
//! verified.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};

use super::end::Plan;
use super::{grpc, into_name, open_into};

/// Size of the receiver's reads: fits in the cache.
const BUFFER: usize = 256 << 10;

pub fn send(stream: &TcpStream, plan: &Plan) -> Result<()> {
    for replica in 0..plan.payload.streams {
        let file = File::open(plan.folder.join(grpc::file_name(replica))).context("a replica")?;
        let mut offset = 0;
        while offset < plan.payload.bytes {
            let sent = rustix::fs::sendfile(stream, &file, Some(&mut offset), 4 << 20)?;
            ensure!(sent > 0, "replica {replica} is too short");
        }
    }
    Ok(())
}

pub fn receive(listener: &TcpListener, plan: &Plan) -> Result<()> {
    let (mut stream, _) = listener.accept()?;
    let mut buffer = vec![0; BUFFER];
    for replica in 0..plan.payload.streams {
        let mut file = open_into(&plan.folder.join(into_name(replica)))?;
        let mut left = plan.payload.bytes;
        while left > 0 {
            let most = (BUFFER as u64).min(left) as usize;
            let bytes = stream.read(&mut buffer[..most])?;
            ensure!(bytes > 0, "the sender has ended");
            if let Some(slow) = plan.slow {
                std::thread::sleep(slow);
            }
            file.write_all(&buffer[..bytes])?;
            left -= bytes as u64;
            plan.take(bytes as u64);
        }
    }
    Ok(())
}
