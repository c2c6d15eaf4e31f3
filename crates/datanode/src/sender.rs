//! Sends a replica's bytes as packets: to readers, to other datanodes, to the balancer.

use std::time::Duration;

use hearth_blockstore::{DataSource, PageCacheFill, ReplicaReader, StoreError};
use hearth_fabric::tcp::{self, Connection};
use hearth_types::{ByteRange, ChecksumKind, ChecksumSpec};
use hearth_wire::data_transfer::{PACKET_HEADER_BYTES_MAX, PacketHeader};

use crate::disk_reads::{DiskReadError, DiskReads};
use crate::metrics::Metrics;
use crate::read_ahead::ReadAhead;
use crate::throttle::Throttle;

/// Data up to this many bytes goes out in one write with everything around it: below it, copying is cheaper than a
/// second system call.
const INLINE_BYTES_MAX: u64 = 32 << 10;

/// So much of a replica on disk that is not in the page cache is brought there at once.
const FETCH_BYTES: u64 = 1 << 20;

/// The CRCs of so much data are fetched in one call.
const CHECKSUM_STEP_BYTES: u64 = 4 << 20;

/// CRCs of the packets that come next.
#[derive(Default)]
struct ChecksumsAhead {
    bytes: Vec<u8>,
    taken: usize,
}

impl ChecksumsAhead {
    /// The CRCs of `length` bytes from `offset`; those behind, up to `step` bytes of data or `end`, are fetched with them.
    /// Called for one packet after the other.
    async fn take(
        &mut self,
        sender: &PacketSender<'_>,
        offset: u64,
        length: u64,
        end: u64,
        step: u64,
    ) -> Result<&[u8], SendError> {
        let reader = sender.reader;
        let wanted = reader.checksum().checksum_bytes(length) as usize;
        if self.bytes.len() - self.taken < wanted {
            self.bytes.clear();
            self.taken = 0;
            let covered = part(offset, step.max(length).min(end - offset));
            sender.fetch(reader.checksum_prefetch(covered)).await?;
            reader.checksums(covered, &mut self.bytes)?;
        }
        let from = self.taken;
        self.taken += wanted;
        Ok(&self.bytes[from..self.taken])
    }
}

/// `length` bytes from `offset` of the range that is sent.
fn part(offset: u64, length: u64) -> ByteRange {
    ByteRange::with_length(offset, length).expect("lies in the range to send, which is valid")
}

/// Why a replica could not be sent to its end.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Connection(#[from] tcp::Error),
    #[error(transparent)]
    Disk(#[from] DiskReadError),
}

impl SendError {
    /// The reader went away, as readers that need no more do.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_disconnect())
    }
}

/// How to send.
pub struct PacketSender<'a> {
    pub reader: &'a ReplicaReader,
    pub disk_reads: &'a DiskReads,
    pub connection: &'a Connection,
    /// What the receiver was told stands over the data: the replica's own, or `Null`.
    pub checksum: ChecksumSpec,
    /// By sendfile, where the replica is in a file.
    pub transfer_to: bool,
    /// Data bytes of a packet.
    pub packet_bytes: usize,
    pub write_timeout: Duration,
    pub throttle: Option<&'a Throttle>,
    /// A client is served by each packet.
    pub client_metrics: Option<&'a Metrics>,
    /// All of the replica goes to one who will not ask again: if it is on disk it is read around the page cache.
    pub bypass_page_cache: bool,
}

impl PacketSender<'_> {
    /// Sends `range`, which begins and ends as `ByteRange::widened` leaves it, and the empty packet that ends it.
    ///
    /// `lead`: bytes that go out before the first packet, in the same write.
    pub async fn send(&self, lead: Vec<u8>, range: ByteRange) -> Result<(), SendError> {
        let chunk = self.checksum.bytes_per_chunk.max(1) as usize;
        let packet_bytes = ((self.packet_bytes / chunk).max(1) * chunk) as u64;
        let mut head = lead;
        let mut scratch = Vec::new();
        let mut crcs = ChecksumsAhead::default();
        let mut offset = range.start();
        let mut seqno = 0;
        // Up to here nobody has to look again whether it is in the page cache.
        let mut fetched = 0;
        let whole = range == ByteRange::new(0, self.reader.length()).unwrap_or(range);
        let mut ahead =
            if self.bypass_page_cache && whole { ReadAhead::start(self.reader, packet_bytes) } else { None };
        while offset < range.end() {
            let data_bytes = packet_bytes.min(range.end() - offset);
            if let Some(throttle) = self.throttle {
                throttle.pass(data_bytes).await;
            }
            if let Some(metrics) = self.client_metrics {
                metrics.note_client_activity();
            }
            let header = PacketHeader { offset, seqno, last: false, data_bytes: data_bytes as u32, sync: false };
            put_header(&header, self.checksum.checksum_bytes(data_bytes) as usize, &mut head);
            if self.checksum.kind != ChecksumKind::Null {
                let step = CHECKSUM_STEP_BYTES / packet_bytes * packet_bytes;
                head.extend_from_slice(crcs.take(self, offset, data_bytes, range.end(), step).await?);
            }
            if ahead.is_none() && offset + data_bytes > fetched {
                let at_once = FETCH_BYTES.max(data_bytes).min(range.end() - offset);
                let due = self.reader.data_prefetch(part(offset, data_bytes), at_once);
                if due.is_some() {
                    fetched = offset + at_once;
                }
                self.fetch(due).await?;
            }
            offset += data_bytes;
            seqno += 1;
            let ends = offset == range.end();
            if let Some(ahead) = &mut ahead {
                let data = ahead.packet(offset - data_bytes, data_bytes).await?;
                self.connection.write_vectored(&[&head, data], false, self.write_timeout).await?;
                head.clear();
            } else if ends && data_bytes <= INLINE_BYTES_MAX {
                self.append_data(offset - data_bytes, data_bytes, &mut head)?;
            } else {
                self.send_data(&head, offset - data_bytes, data_bytes, &mut scratch).await?;
                head.clear();
            }
        }
        let last = PacketHeader { offset: range.end(), seqno, last: true, data_bytes: 0, sync: false };
        put_header(&last, 0, &mut head);
        self.connection.write_all(&head, self.write_timeout).await?;
        Ok(())
    }

    /// Waits until a thread has brought into the page cache what is not there.
    async fn fetch(&self, due: Option<PageCacheFill>) -> Result<(), SendError> {
        let Some(due) = due else { return Ok(()) };
        let fetch = move || Ok::<_, DiskReadError>(due.fetch());
        let fetched = self.disk_reads.run(self.reader.storage().0, fetch).await?;
        fetched.map_err(|error| self.reader.disk_error(error).into())
    }

    /// Adds the data to what is written next.
    fn append_data(&self, offset: u64, length: u64, head: &mut Vec<u8>) -> Result<(), StoreError> {
        let start = head.len();
        head.resize(start + length as usize, 0);
        self.reader.read_at(offset, &mut head[start..])
    }

    /// Sends `head` and, right behind it, `length` bytes of data.
    async fn send_data(&self, head: &[u8], offset: u64, length: u64, scratch: &mut Vec<u8>) -> Result<(), SendError> {
        match self.reader.data() {
            DataSource::Bytes(bytes) => {
                let data = &bytes[offset as usize..(offset + length) as usize];
                self.connection.write_vectored(&[head, data], false, self.write_timeout).await?;
            }
            DataSource::File { file, offset: base } if self.transfer_to => {
                self.reader.note_sent(length);
                self.connection.write_vectored(&[head], true, self.write_timeout).await?;
                let sent = self.connection.send_file_range(file, base + offset, length, self.write_timeout).await;
                if let Err(tcp::Error::File { .. }) = &sent {
                    self.reader.suspect();
                }
                sent?;
            }
            DataSource::File { .. } => {
                scratch.resize(length as usize, 0);
                self.reader.read_at(offset, scratch)?;
                self.connection.write_vectored(&[head, scratch], false, self.write_timeout).await?;
            }
        }
        Ok(())
    }
}

/// Appends a packet's lengths and header.
fn put_header(header: &PacketHeader, checksum_bytes: usize, into: &mut Vec<u8>) {
    let mut bytes = [0; PACKET_HEADER_BYTES_MAX];
    let length = header.encode(checksum_bytes, &mut bytes);
    into.extend_from_slice(&bytes[..length]);
}
