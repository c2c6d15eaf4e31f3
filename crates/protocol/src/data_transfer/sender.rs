use std::sync::Arc;
use std::time::Duration;

use hearth_fabric::tcp::Connection;
use hearth_wire::data_transfer::{
    BlockOpResponse, Operation, PACKET_HEADER_BYTES_MAX, PacketHeader, PipelineAck, Status, encode_client_read_status,
};

use super::TransferError;

/// The sending half of a connection. Clones send on the same connection: one task at a time.
#[derive(Clone, Debug)]
pub struct DataSender {
    connection: Arc<Connection>,
    /// Ends a wait for the peer to take a byte.
    timeout: Duration,
}

impl DataSender {
    pub fn new(connection: Arc<Connection>, timeout: Duration) -> Self {
        Self { connection, timeout }
    }

    /// For what is not a message: sendfile, closing.
    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub async fn send_operation(&self, operation: &Operation) -> Result<(), TransferError> {
        self.send(&operation.encode()).await
    }

    pub async fn send_response(&self, response: &BlockOpResponse) -> Result<(), TransferError> {
        self.send(&response.encode()).await
    }

    pub async fn send_ack(&self, ack: &PipelineAck) -> Result<(), TransferError> {
        self.send(&ack.encode()).await
    }

    /// What a reader says after the last packet: `ChecksumOk` or `Success`.
    pub async fn send_read_status(&self, status: Status) -> Result<(), TransferError> {
        self.send(&encode_client_read_status(status)).await
    }

    /// Sends one packet in one piece. `header.data_bytes` is the length of `data`.
    pub async fn send_packet(&self, header: &PacketHeader, checksums: &[u8], data: &[u8]) -> Result<(), TransferError> {
        assert_eq!(header.data_bytes as usize, data.len(), "a packet's header says how much data it has");
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let head_bytes = header.encode(checksums.len(), &mut head);
        Ok(self.connection.write_vectored(&[&head[..head_bytes], checksums, data], false, self.timeout).await?)
    }

    /// Sends header and checksums of a packet whose `header.data_bytes` bytes of data the caller sends right after it
    /// (by sendfile).
    pub async fn send_packet_head(&self, header: &PacketHeader, checksums: &[u8]) -> Result<(), TransferError> {
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let head_bytes = header.encode(checksums.len(), &mut head);
        let more = header.data_bytes > 0;
        Ok(self.connection.write_vectored(&[&head[..head_bytes], checksums], more, self.timeout).await?)
    }

    /// Sends bytes that are encoded already, such as a packet on its way down a pipeline.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), TransferError> {
        Ok(self.connection.write_all(bytes, self.timeout).await?)
    }
}
