use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::Connection;
use hearth_wire::data_transfer::{
    BlockOpResponse, Operation, PACKET_HEADER_BYTES_MAX, PacketHeader, PipelineAck, Status, encode_client_read_status,
};

use super::TransferError;
use crate::trace;

/// The sending half of a connection. Clones send on the same connection; only one task may send at a time.
#[derive(Clone, Debug)]
pub struct DataSender {
    connection: Arc<Connection>,
    /// Longest wait for the peer to accept a byte.
    timeout: Duration,
}

impl DataSender {
    pub fn new(connection: Arc<Connection>, timeout: Duration) -> Self {
        Self { connection, timeout }
    }

    /// Returns the connection, for operations other than messages: sendfile, closing.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends a request, with the span at hand if its trace is sampled.
    pub async fn send_operation(&self, operation: &Operation) -> Result<(), TransferError> {
        self.send(&operation.encode_traced(trace::current())).await
    }

    pub async fn send_response(&self, response: &BlockOpResponse) -> Result<(), TransferError> {
        self.send(&response.encode()).await
    }

    pub async fn send_ack(&self, ack: &PipelineAck) -> Result<(), TransferError> {
        self.send(&ack.encode()).await
    }

    /// Sends the status that a reader reports after the last packet: `ChecksumOk` or `Success`.
    pub async fn send_read_status(&self, status: Status) -> Result<(), TransferError> {
        self.send(&encode_client_read_status(status)).await
    }

    /// Sends one packet in a single write. `header.data_bytes` must be the length of `data`.
    pub async fn send_packet(&self, header: &PacketHeader, checksums: &[u8], data: &[u8]) -> Result<(), TransferError> {
        assert_eq!(header.data_bytes as usize, data.len(), "header.data_bytes must match the data");
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let head_bytes = header.encode(checksums.len(), &mut head);
        Ok(self.connection.write_vectored(&[&head[..head_bytes], checksums, data], false, self.timeout).await?)
    }

    /// Sends header and checksums of a packet. The caller must send the `header.data_bytes` bytes of data right after
    /// it (with sendfile).
    pub async fn send_packet_head(&self, header: &PacketHeader, checksums: &[u8]) -> Result<(), TransferError> {
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let head_bytes = header.encode(checksums.len(), &mut head);
        let more = header.data_bytes > 0;
        Ok(self.connection.write_vectored(&[&head[..head_bytes], checksums], more, self.timeout).await?)
    }

    /// Sends bytes that are already encoded, such as a packet that is forwarded down a pipeline.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), TransferError> {
        Ok(self.connection.write_all(bytes, self.timeout).await?)
    }
}
