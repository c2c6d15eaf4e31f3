//! Forwards to the next DataNode by packets, which every DataNode accepts.

use std::sync::Arc;
use std::time::Duration;

use hearth_blockstore::DataSource;
use hearth_fabric::tcp::{self, Connection};
use hearth_wire::data_transfer::{PACKET_HEADER_BYTES_MAX, PacketHeader};

use super::{ForwardError, PacketData, part_of};
use crate::session::Session;

/// Receives acknowledgements from the next DataNode.
pub struct PacketMirror {
    pub session: Session,
    pub read_timeout: Duration,
}

/// Sends packets to the next DataNode.
pub struct MirrorPacketSender {
    connection: Arc<Connection>,
    write_timeout: Duration,
}

impl MirrorPacketSender {
    pub fn new(session: &Session) -> Self {
        Self { connection: session.connection.clone(), write_timeout: session.write_timeout }
    }

    pub fn peer(&self) -> String {
        self.connection.peer().to_string()
    }

    pub async fn send(&self, packets: &[u8]) -> Result<(), ForwardError> {
        self.connection.write_all(packets, self.write_timeout).await.map_err(ForwardError::Connection)
    }

    /// Sends `parts` one after the other.
    pub async fn send_parts(&self, parts: &[&[u8]]) -> Result<(), ForwardError> {
        self.connection.write_vectored(parts, false, self.write_timeout).await.map_err(ForwardError::Connection)
    }

    /// Sends a packet; data of a replica in a file is sent with sendfile.
    pub async fn send_packet(
        &self,
        header: &PacketHeader,
        crcs: &[u8],
        data: PacketData<'_>,
    ) -> Result<(), ForwardError> {
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let head_bytes = header.encode(crcs.len(), &mut head);
        let head = &head[..head_bytes];
        let (start, length) = (header.offset, u64::from(header.data_bytes));
        let timeout = self.write_timeout;
        let source = match data {
            PacketData::Bytes(bytes) => DataSource::Bytes(bytes),
            PacketData::Replica(reader) => match reader.data() {
                DataSource::Bytes(all) => DataSource::Bytes(part_of(all, start, length).map_err(ForwardError::Read)?),
                file @ DataSource::File { .. } => file,
            },
        };
        let sent = async {
            match source {
                DataSource::Bytes(bytes) => self.connection.write_vectored(&[head, crcs, bytes], false, timeout).await,
                DataSource::File { file, offset } => {
                    self.connection.write_vectored(&[head, crcs], true, timeout).await?;
                    self.connection.send_file_range(file, offset + start, length, timeout).await
                }
            }
        };
        sent.await.map_err(|error| match error {
            tcp::Error::File { source, .. } => ForwardError::Read(source),
            error => ForwardError::Connection(error),
        })
    }
}
