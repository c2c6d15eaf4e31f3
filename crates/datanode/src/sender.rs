//! Sends a replica's bytes as packets to readers, other DataNodes and the balancer.

use std::time::Duration;

use hearth_blockstore::{DataSource, PageCacheFill, ReplicaReader, StoreError};
use hearth_fabric::tcp::{self, Connection};
use hearth_types::{ByteRange, ChecksumKind, ChecksumSpec};
use hearth_wire::data_transfer::{PACKET_HEADER_BYTES_MAX, PacketHeader};

use crate::disk_reads::{DiskReadError, DiskReads};
use crate::metrics::Metrics;
use crate::read_ahead::ReadAhead;
use crate::throttle::Throttle;

/// Maximum data size that is sent in one write together with its header and CRCs: up to this size, copying is cheaper
/// than a second system call.
const INLINE_BYTES_MAX: u64 = 32 << 10;

/// Bytes of a replica on disk that are read into the page cache at once if they are missing there.
const FETCH_BYTES: u64 = 1 << 20;

/// Data bytes whose CRCs are fetched in one call.
const CHECKSUM_STEP_BYTES: u64 = 4 << 20;

/// Prefetched CRCs of the next packets.
#[derive(Default)]
struct ChecksumsAhead {
    bytes: Vec<u8>,
    taken: usize,
}

impl ChecksumsAhead {
    /// Returns the CRCs of `length` bytes from `offset`. Also fetches those of the following data, up to `step` bytes
    /// or `end`. Called for the packets in order.
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

/// Returns the subrange of `length` bytes from `offset`, which lies in the range to send.
fn part(offset: u64, length: u64) -> ByteRange {
    ByteRange::with_length(offset, length).expect("lies in the range to send, which is valid")
}

/// Reason why a replica could not be sent completely.
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
    /// Returns true if the reader disconnected, as readers do once they have what they need.
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_disconnect())
    }
}

/// Sender of one replica's packets.
pub struct PacketSender<'a> {
    pub reader: &'a ReplicaReader,
    pub disk_reads: &'a DiskReads,
    pub connection: &'a Connection,
    /// Checksum type announced to the receiver: the replica's own, or `Null`.
    pub checksum: ChecksumSpec,
    /// Use sendfile if the replica is in a file.
    pub transfer_to: bool,
    /// Data bytes of a packet.
    pub packet_bytes: usize,
    pub write_timeout: Duration,
    pub throttle: Option<&'a Throttle>,
    /// Metrics to update with each packet if the receiver is a client.
    pub client_metrics: Option<&'a Metrics>,
    /// Read the replica around the page cache if it is on disk: the whole of it goes to a receiver that will not read
    /// it again.
    pub bypass_page_cache: bool,
}

impl PacketSender<'_> {
    /// Sends `range`, whose ends must be aligned as by `ByteRange::widened`, and the empty packet that ends it.
    ///
    /// `lead`: bytes that are sent before the first packet, in the same write.
    pub async fn send(&self, lead: Vec<u8>, range: ByteRange) -> Result<(), SendError> {
        let chunk = self.checksum.bytes_per_chunk.max(1) as usize;
        let packet_bytes = ((self.packet_bytes / chunk).max(1) * chunk) as u64;
        let mut head = lead;
        let mut scratch = Vec::new();
        let mut crcs = ChecksumsAhead::default();
        let mut offset = range.start();
        let mut seqno = 0;
        // The page cache need not be checked again up to this offset.
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

    /// Waits until a blocking thread has read the missing data into the page cache.
    async fn fetch(&self, due: Option<PageCacheFill>) -> Result<(), SendError> {
        let Some(due) = due else { return Ok(()) };
        let fetch = move || Ok::<_, DiskReadError>(due.fetch());
        let fetched = self.disk_reads.run(self.reader.storage().0, fetch).await?;
        fetched.map_err(|error| self.reader.disk_error(error).into())
    }

    /// Appends the data to the next write.
    fn append_data(&self, offset: u64, length: u64, head: &mut Vec<u8>) -> Result<(), StoreError> {
        let start = head.len();
        head.resize(start + length as usize, 0);
        self.reader.read_at(offset, &mut head[start..])
    }

    /// Sends `head` followed by `length` bytes of data.
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
