//! Reading half of a connection: executes the peer's writes, receives its messages, queues its reads, and completes
//! this side's own reads.

use std::io;

use bytes::BytesMut;
use hearth_types::RemoteSlice;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

use super::frame::{HEADER_BYTES, PART_BYTES_MAX, SoftFrame};
use super::queues::{Read, SoftShared};
use super::{Step, Verdict};
use crate::one_sided::{MESSAGE_BYTES_MAX, Transfer};

/// Runs until the connection ends; returns the reason.
pub(super) async fn run(shared: &SoftShared, stream: impl AsyncRead + Unpin) -> String {
    let mut stream = BufReader::with_capacity(PART_BYTES_MAX as usize, stream);
    loop {
        let mut header = [0; HEADER_BYTES];
        match stream.read_exact(&mut header).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return "the peer disconnected".to_owned(),
            Err(error) => return error.to_string(),
        }
        let Some(frame) = SoftFrame::decode(&header) else { return "the peer sent an unknown frame".to_owned() };
        let result = match frame {
            SoftFrame::Read(slice) => asked(shared, slice),
            SoftFrame::Data { length } => data(shared, &mut stream, length).await,
            SoftFrame::Write(slice) => write(shared, &mut stream, slice).await,
            SoftFrame::Message { length } => message(shared, &mut stream, length).await,
            SoftFrame::Credit { messages } => credit(shared, messages),
        };
        if let Err(why) = result {
            return why;
        }
    }
}

async fn pass(shared: &SoftShared, step: Step) -> Result<(), String> {
    let Some(gate) = &shared.gate else { return Ok(()) };
    match gate.pass(step).await {
        Verdict::End => Err(format!("a fault at a {step:?}")),
        Verdict::Go | Verdict::Withhold => Ok(()),
    }
}

fn asked(shared: &SoftShared, slice: RemoteSlice) -> Result<(), String> {
    let mut state = shared.lock();
    if state.to_serve.len() >= usize::from(shared.limits.reads_in_flight) {
        return Err("the peer has more reads in flight than agreed".to_owned());
    }
    state.to_serve.push_back(slice);
    drop(state);
    shared.work.notify_one();
    Ok(())
}

/// Copies `length` bytes of the stream through `put`, which gets them in pieces, each with its offset.
async fn copy(
    stream: &mut (impl AsyncBufRead + Unpin),
    length: u64,
    mut put: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut at = 0;
    while at < length {
        let bytes = stream.fill_buf().await.map_err(|error| error.to_string())?;
        if bytes.is_empty() {
            return Err("the peer closed the connection in the middle of a transfer".to_owned());
        }
        let part = bytes.len().min(usize::try_from(length - at).unwrap_or(usize::MAX));
        put(at, &bytes[..part])?;
        stream.consume(part);
        at += part as u64;
    }
    Ok(())
}

async fn data(shared: &SoftShared, stream: &mut (impl AsyncBufRead + Unpin), length: u64) -> Result<(), String> {
    // Removed from the queue while its bytes arrive, so that the lock is free; no other code takes from the front.
    let Some(mut read) = shared.lock().reading.pop_front() else {
        return Err("the peer sent unrequested data".to_owned());
    };
    let Transfer { local, offset, remote } = &read.transfer;
    if length > remote.length - read.arrived {
        return Err("the peer sent more data than requested".to_owned());
    }
    let to = local.range().start + offset + read.arrived;
    let put = |at, bytes: &[u8]| {
        local.memory().write(to + at, bytes);
        Ok(())
    };
    copy(stream, length, put).await?;
    read.arrived += length;
    if read.arrived < read.transfer.remote.length {
        shared.lock().reading.push_front(read);
        return Ok(());
    }
    complete(read);
    shared.work.notify_one();
    Ok(())
}

fn complete(read: Read) {
    let Read { transfer, done, .. } = read;
    drop(transfer);
    if let Some(done) = done {
        // The caller may have stopped waiting.
        let _ = done.send(());
    }
}

async fn write(
    shared: &SoftShared,
    stream: &mut (impl AsyncBufRead + Unpin),
    slice: RemoteSlice,
) -> Result<(), String> {
    const NOT_ALLOWED: &str = "the peer wrote to memory that it may not write";
    if !shared.table.may_write(slice) {
        return Err(NOT_ALLOWED.to_owned());
    }
    pass(shared, Step::Write).await?;
    // The key may be withdrawn while bytes arrive, so it is validated for each piece.
    let put = |at, bytes: &[u8]| {
        let piece = slice.part(at, bytes.len() as u64);
        let written = piece.is_some_and(|piece| shared.table.write(piece, bytes));
        if written { Ok(()) } else { Err(NOT_ALLOWED.to_owned()) }
    };
    copy(stream, slice.length, put).await
}

async fn message(shared: &SoftShared, stream: &mut (impl AsyncRead + Unpin), length: u64) -> Result<(), String> {
    let length = usize::try_from(length).ok().filter(|length| (1..=MESSAGE_BYTES_MAX).contains(length));
    let Some(length) = length else { return Err("the peer sent a message that is empty or too long".to_owned()) };
    let mut message = BytesMut::zeroed(length);
    stream.read_exact(&mut message).await.map_err(|error| error.to_string())?;
    pass(shared, Step::Message).await?;
    let mut state = shared.lock();
    if state.received.len() as u64 + state.credit_to_return >= u64::from(shared.limits.messages) {
        return Err("the peer sent more messages than it has credit for".to_owned());
    }
    state.received.push_back(message.freeze());
    drop(state);
    shared.arrived.notify_one();
    Ok(())
}

fn credit(shared: &SoftShared, messages: u64) -> Result<(), String> {
    let mut state = shared.lock();
    let credit = state.credit.checked_add(messages).filter(|credit| *credit <= u64::from(shared.limits.messages));
    let Some(credit) = credit else { return Err("the peer returned more credit than it received".to_owned()) };
    state.credit = credit;
    drop(state);
    shared.work.notify_one();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::Memory;
    use crate::one_sided::{Access, Domain, Limits};
    use crate::soft::SoftDomain;

    #[tokio::test]
    async fn write_stops_when_its_region_is_dropped() {
        const LONG: Duration = Duration::from_secs(60);
        let domain = SoftDomain::default();
        let memory = Arc::new(Memory::fresh(8192).unwrap());
        let sink = domain.register(&memory, 0..8192, Access::RemoteWrite).unwrap();
        let peer = ([127, 0, 0, 1], 1).into();
        let shared = SoftShared::new(peer, Bytes::new(), Limits::default(), domain.table().clone(), None);
        let (mut near, far) = tokio::io::duplex(64 << 10);
        let writing = async move {
            near.write_all(&SoftFrame::Write(sink.remote()).encode()).await.unwrap();
            near.write_all(&[5; 4096]).await.unwrap();
            let mut last = [0];
            while last != [5] {
                tokio::task::yield_now().await;
                sink.memory().read(4095, &mut last);
            }
            drop(sink);
            // The other end may already have closed.
            let _ = near.write_all(&[6; 4096]).await;
            near
        };
        let both = async { tokio::join!(run(&shared, far), writing) };
        let (why, _near) = tokio::time::timeout(LONG, both).await.expect("the connection ends");
        assert_eq!(why, "the peer wrote to memory that it may not write");
        let mut bytes = [0; 8192];
        memory.read(0, &mut bytes);
        assert_eq!((&bytes[..4096], &bytes[4096..]), (&[5; 4096][..], &[0; 4096][..]));
    }
}
