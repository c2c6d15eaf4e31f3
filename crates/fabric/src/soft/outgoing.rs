//! Writing half of a connection: sends answers to the peer's reads, this side's own operations, and credit.

use std::sync::Arc;

use hearth_types::RemoteSlice;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;

use super::frame::{PART_BYTES_MAX, SoftFrame};
use super::queues::{SoftShared, Write};
use super::{Step, Verdict};
use crate::Memory;

/// A read by the peer that is being answered. It holds the memory, which therefore outlives its region.
struct Answer {
    memory: Arc<Memory>,
    offset: u64,
    left: u64,
}

/// Runs until the connection ends; returns the reason.
pub(super) async fn run(shared: &SoftShared, mut stream: impl AsyncWrite + Unpin) -> String {
    let mut buffer = Vec::new();
    let mut answer = None;
    let mut write = None;
    loop {
        buffer.clear();
        if let Err(why) = next_answer(shared, &mut answer).await {
            return why;
        }
        if let Err(why) = credit(shared, &mut buffer).await {
            return why;
        }
        ask(shared, &mut buffer);
        answer = answer.and_then(|answer| answer_part(answer, &mut buffer));
        if write.is_none() {
            write = next_write(shared);
        }
        let mut written = None;
        write = match write {
            Some(write) => write_part(write, &mut buffer).map_err(|done| written = Some(done)).ok(),
            None => None,
        };
        if buffer.is_empty() && written.is_none() {
            shared.work.notified().await;
            continue;
        }
        if let Err(error) = stream.write_all(&buffer).await {
            return error.to_string();
        }
        if let Some(done) = written {
            // The caller may have stopped waiting.
            let _ = done.send(());
        }
    }
}

/// Starts answering the peer's oldest read, if no answer is in progress.
async fn next_answer(shared: &SoftShared, answer: &mut Option<Answer>) -> Result<(), String> {
    if answer.is_some() {
        return Ok(());
    }
    let Some(slice) = shared.lock().to_serve.pop_front() else { return Ok(()) };
    let Some((memory, offset)) = shared.table.find(slice) else {
        return Err("the peer read memory that it may not read".to_owned());
    };
    if let Some(gate) = &shared.gate
        && gate.pass(Step::Read).await == Verdict::End
    {
        return Err("a fault at a Read".to_owned());
    }
    *answer = Some(Answer { memory, offset, left: slice.length });
    Ok(())
}

/// Appends the next bytes of an answer; returns the remaining answer.
fn answer_part(answer: Answer, buffer: &mut Vec<u8>) -> Option<Answer> {
    let Answer { memory, offset, left } = answer;
    let length = left.min(PART_BYTES_MAX);
    buffer.extend_from_slice(&SoftFrame::Data { length }.encode());
    append(buffer, &memory, offset, length);
    (left > length).then(|| Answer { memory, offset: offset + length, left: left - length })
}

fn append(buffer: &mut Vec<u8>, memory: &Memory, offset: u64, length: u64) {
    let start = buffer.len();
    buffer.resize(start + length as usize, 0);
    memory.read(offset, &mut buffer[start..]);
}

/// Requests reads, up to the maximum in flight.
fn ask(shared: &SoftShared, buffer: &mut Vec<u8>) {
    let mut state = shared.lock();
    while state.reading.len() < usize::from(shared.limits.reads_in_flight) {
        let Some(read) = state.reads.pop_front() else { break };
        buffer.extend_from_slice(&SoftFrame::Read(read.transfer.remote).encode());
        state.reading.push_back(read);
    }
}

async fn credit(shared: &SoftShared, buffer: &mut Vec<u8>) -> Result<(), String> {
    let messages = {
        let mut state = shared.lock();
        // Return credit in halves: the peer can continue with the other half.
        if state.credit_to_return < u64::from(shared.limits.messages).div_ceil(2) {
            return Ok(());
        }
        std::mem::take(&mut state.credit_to_return)
    };
    if let Some(gate) = &shared.gate {
        match gate.pass(Step::Credit).await {
            Verdict::Go => {}
            Verdict::Withhold => return Ok(()),
            Verdict::End => return Err("a fault at a Credit".to_owned()),
        }
    }
    buffer.extend_from_slice(&SoftFrame::Credit { messages }.encode());
    Ok(())
}

/// Takes the oldest write, if there is credit for its message.
fn next_write(shared: &SoftShared) -> Option<Write> {
    let mut state = shared.lock();
    let with_message = state.writes.front()?.message.is_some();
    if with_message {
        state.credit = state.credit.checked_sub(1)?;
    }
    state.writes.pop_front()
}

/// Appends the next bytes of a write, or its message. `Err`: the write is complete; contains the channel to notify.
fn write_part(mut write: Write, buffer: &mut Vec<u8>) -> Result<Write, oneshot::Sender<()>> {
    if let Some(transfer) = write.transfers.front_mut() {
        let RemoteSlice { address, length, key } = transfer.remote;
        let part = length.min(PART_BYTES_MAX);
        buffer.extend_from_slice(&SoftFrame::Write(RemoteSlice { address, length: part, key }).encode());
        append(buffer, transfer.local.memory(), transfer.local.range().start + transfer.offset, part);
        if part < length {
            transfer.offset += part;
            transfer.remote = RemoteSlice { address: address + part, length: length - part, key };
            return Ok(write);
        }
        write.transfers.pop_front();
        if !write.transfers.is_empty() {
            return Ok(write);
        }
    }
    if let Some(message) = write.message.take() {
        buffer.extend_from_slice(&SoftFrame::Message { length: message.len() as u64 }.encode());
        buffer.extend_from_slice(&message);
    }
    Err(write.done)
}
