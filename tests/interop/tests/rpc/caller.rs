//! A client that sends any call of any protocol, and records the answers.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hearth_protocol::rpc::{HadoopMethod, hadoop_methods};
use hearth_wire::rpc::{
    AuthProtocol, ClientId, ConnectionContext, ConnectionHeader, FRAME_BYTES_MAX_DEFAULT, FRAME_LENGTH_BYTES, Outcome,
    decode_response, encode_context, exceptions, frame_length,
};
use serde_json::Value as Json;

use crate::schema::{Fields, Schema, fields, to_json};

/// Server's answer to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// Fields of its answer.
    Answer(Fields),
    /// Answer with a message type that the schema lacks.
    Unknown,
    /// Java class of an exception.
    Refused(String),
}

/// Names of calls with their answers.
pub type Heard = Vec<(String, Said)>;

/// Connection to one server, as one user.
pub struct Caller<'a> {
    schema: &'a Schema,
    stream: TcpStream,
    calls: i32,
    methods: Vec<HadoopMethod>,
    pub heard: Heard,
    /// Names of the called methods, with their protocols.
    pub called: BTreeSet<(&'static str, &'static str)>,
}

const PATIENCE: Duration = Duration::from_secs(60);

impl<'a> Caller<'a> {
    pub fn connect(schema: &'a Schema, port: u16, user: &str) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut stream = TcpStream::connect(address).with_context(|| format!("connecting to {address}"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let header = ConnectionHeader { service_class: 0, auth: AuthProtocol::Simple };
        stream.write_all(&header.encode())?;
        let context = ConnectionContext { effective_user: user.to_owned(), ..Default::default() };
        stream.write_all(&encode_context(CLIENT, &context))?;
        let methods = hadoop_methods().collect();
        Ok(Self { schema, stream, calls: 0, methods, heard: Vec::new(), called: BTreeSet::new() })
    }

    /// Sends the call and records the answer under the method's name and `situation`. Returns the answer as JSON, null
    /// for a refusal.
    pub fn call(&mut self, protocol: &str, method: &str, situation: &str, request: Json) -> Result<Json> {
        let row = self.methods.iter().find(|row| row.protocol == protocol && row.name == method);
        let row = *row.with_context(|| format!("{protocol} has no {method}"))?;
        let name = match situation {
            "" => method.to_owned(),
            situation => format!("{method}: {situation}"),
        };
        let request = match self.schema.message(row.request) {
            Some(_) => self.schema.encode(row.request, &request).with_context(|| name.clone())?,
            None => Bytes::new(),
        };
        let outcome = self.ask(protocol, method, &request).with_context(|| name.clone())?;
        self.called.insert((row.protocol, row.name));
        let (said, json) = match outcome {
            Outcome::Error(error) => (Said::Refused(error.class), Json::Null),
            Outcome::Success(bytes) => match self.schema.decode(row.response, &bytes).with_context(|| name.clone())? {
                None => (Said::Unknown, Json::Null),
                Some(message) => (Said::Answer(alike(method, fields(&message))), to_json(&message)),
            },
        };
        self.heard.push((name, said));
        Ok(json)
    }

    /// Returns whether the server has the method, by calling it with an empty message.
    pub fn knows(&mut self, method: &HadoopMethod) -> Result<bool> {
        let outcome = self.ask(method.protocol, method.name, &Bytes::new())?;
        let unknown = [exceptions::RPC_NO_SUCH_METHOD, exceptions::RPC_NO_SUCH_PROTOCOL];
        Ok(!matches!(outcome, Outcome::Error(error) if unknown.contains(&error.class.as_str())))
    }

    fn ask(&mut self, protocol: &str, method: &str, request: &Bytes) -> Result<Outcome> {
        self.calls += 1;
        self.stream.write_all(&frame_of(self.calls, protocol, method, request))?;
        let mut prefix = [0; FRAME_LENGTH_BYTES];
        self.stream.read_exact(&mut prefix)?;
        let mut frame = vec![0; frame_length(prefix, FRAME_BYTES_MAX_DEFAULT)?];
        self.stream.read_exact(&mut frame)?;
        let response = decode_response(frame.into())?;
        ensure!(response.call_id == self.calls, "an answer to call {}", response.call_id);
        Ok(response.outcome)
    }
}

/// Methods whose answers contain lists in random order, or random numbers.
const UNORDERED: &[&str] = &["getBlocks", "getProtocolSignature"];

/// Lists whose length depends on the server's age: Apache's NameNode makes another block key soon after its start.
const AGING: &str = "all_keys";

fn alike(method: &str, mut fields: Fields) -> Fields {
    for (name, values) in &mut fields {
        if UNORDERED.contains(&method) {
            values.sort();
        }
        if UNORDERED.contains(&method) || name.contains(AGING) {
            values.dedup();
        }
    }
    fields
}

const CLIENT: ClientId = ClientId(*b"comparing client");

fn frame_of(call_id: i32, protocol: &str, method: &str, request: &Bytes) -> Bytes {
    hearth_wire::rpc::encode_call(call_id, CLIENT, 0, protocol, method, &Encoded(request.clone()))
}

/// Message that is already encoded.
#[derive(Debug)]
struct Encoded(Bytes);

impl prost::Message for Encoded {
    fn encode_raw(&self, buffer: &mut impl bytes::BufMut) {
        buffer.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: prost::encoding::WireType,
        _: &mut impl bytes::Buf,
        _: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {}
}
