//! Operations on a DataNode's transfer port, and the first messages of their answers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde_json::{Value as Json, json};

use crate::caller::{Heard, Said};
use crate::schema::{Schema, fields};

const VERSION: u16 = 28;
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum answer length.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

struct Conversation<'a> {
    schema: &'a Schema,
    stream: TcpStream,
}

impl<'a> Conversation<'a> {
    fn start(schema: &'a Schema, port: u16, operation: u8, message: &str, request: &Json) -> Result<Self> {
        let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = schema.encode(message, request)?;
        let mut bytes = VERSION.to_be_bytes().to_vec();
        bytes.push(operation);
        prost::encoding::encode_varint(request.len() as u64, &mut bytes);
        bytes.extend_from_slice(&request);
        stream.write_all(&bytes)?;
        Ok(Self { schema, stream })
    }

    /// Reads the next delimited message. Reports "closed" if the server has ended the connection instead.
    fn said(&mut self, message: &str) -> Result<Said> {
        let mut length = 0usize;
        for shift in (0..35).step_by(7) {
            let mut byte = [0];
            match self.stream.read(&mut byte) {
                Ok(0) => return Ok(Said::Refused("closed".into())),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(Said::Refused("closed".into())),
                count => count?,
            };
            length |= usize::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                break;
            }
        }
        ensure!(length <= MESSAGE_BYTES_MAX, "an answer of {length} bytes");
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        let decoded =
            self.schema.decode(message, &Bytes::from(bytes))?.with_context(|| format!("no message {message}"))?;
        let mut told = fields(&decoded);
        // The implementations word their messages differently.
        told.entry("message".into()).and_modify(|texts| texts.iter_mut().for_each(|text| *text = "_".into()));
        told.retain(|_, values| !values.is_empty());
        Ok(Said::Answer(told))
    }
}

/// Sends each operation, for the block and for one that does not exist. `reading`: a DataNode's port and a block that
/// it has. `writing`: a port and a block to write there.
pub fn operations(schema: &Schema, reading: (u16, &Json), nothing: &Json, writing: (u16, &Json)) -> Result<Heard> {
    let ((port, block), (fresh_port, fresh)) = (reading, writing);
    let mut heard = Heard::new();
    let token = json!({"identifier": "", "password": "", "kind": "", "service": ""});
    let base = |block: &Json| json!({"block": block, "token": token});
    let header = |block: &Json| json!({"base_header": base(block), "client_name": "DFSClient_comparing"});
    let mut one = |name: &str, operation: u8, message: &str, request: Json| -> Result<()> {
        let said = Conversation::start(schema, port, operation, message, &request)?.said("BlockOpResponseProto")?;
        heard.push((name.to_owned(), said));
        Ok(())
    };
    for (situation, block) in [("", block), (", no such block", nothing)] {
        one(
            &format!("readBlock{situation}"),
            81,
            "OpReadBlockProto",
            json!({"header": header(block), "offset": 0, "len": 1}),
        )?;
        one(
            &format!("readBlock without checksums{situation}"),
            81,
            "OpReadBlockProto",
            json!({
                "header": header(block), "offset": 0, "len": 1, "send_checksums": false,
            }),
        )?;
        one(&format!("blockChecksum{situation}"), 85, "OpBlockChecksumProto", json!({"header": base(block)}))?;
        one(
            &format!("blockChecksum, composite{situation}"),
            85,
            "OpBlockChecksumProto",
            json!({
                "header": base(block), "block_checksum_options": {"block_checksum_type": 2, "stripe_length": 0},
            }),
        )?;
        one(&format!("copyBlock{situation}"), 84, "OpCopyBlockProto", json!({"header": base(block)}))?;
        one(
            &format!("requestShortCircuitFds over TCP{situation}"),
            87,
            "OpRequestShortCircuitAccessProto",
            json!({
                "header": base(block), "max_version": 1,
            }),
        )?;
    }
    one(
        "readBlock, behind the end",
        81,
        "OpReadBlockProto",
        json!({"header": header(block), "offset": 1u64 << 40, "len": 1}),
    )?;
    let write = |block: &Json| {
        json!({
            "header": header(block), "stage": 6, "pipeline_size": 1, "min_bytes_rcvd": 0, "max_bytes_rcvd": 0,
            "latest_generation_stamp": block["generation_stamp"], "requested_checksum": {"type": 2, "bytes_per_checksum": 512},
            "storage_type": 1,
        })
    };
    one("writeBlock, finalized already", 80, "OpWriteBlockProto", write(block))?;
    let mut writing = Conversation::start(schema, fresh_port, 80, "OpWriteBlockProto", &write(fresh))?;
    heard.push(("writeBlock".into(), writing.said("BlockOpResponseProto")?));
    let packet = schema.encode(
        "PacketHeaderProto",
        &json!({
            "offset_in_block": 0, "seqno": 0, "last_packet_in_block": true, "data_len": 0,
        }),
    )?;
    let mut bytes = 4u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&(packet.len() as u16).to_be_bytes());
    bytes.extend_from_slice(&packet);
    // A server that has refused the block may have closed the connection. Its next message shows that.
    let _ = writing.stream.write_all(&bytes);
    heard.push(("writeBlock, its acknowledgement".into(), writing.said("PipelineAckProto")?));
    Ok(heard)
}
