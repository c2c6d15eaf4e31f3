//! Answers of a NameNode to real clients and DataNodes, from the bytes that a proxy recorded.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use bytes::{Buf, Bytes};
use hearth_protocol::rpc::hadoop_methods;
use hearth_testkit::Recorded;
use hearth_wire::rpc::{
    CONNECTION_HEADER_BYTES, FRAME_LENGTH_BYTES, Outcome, Request, decode_request, decode_response,
};
use prost_reflect::{DynamicMessage, Value};

use crate::schema::{Fields, Schema, fields};

/// Fields that were seen in the answers to a method. Commands to DataNodes are distinguished by their kind.
pub type Seen = BTreeMap<String, BTreeSet<String>>;

/// End of the name of a command to delete replicas: a `BlockCommand` with the action `INVALIDATE`.
pub const DELETION: &str = ": command /1/2";

/// Adds the fields of one connection's answers.
pub fn add(schema: &Schema, recorded: &Recorded, seen: &mut Seen) -> Result<()> {
    let mut requests = Bytes::copy_from_slice(&recorded.to_server);
    if requests.len() < CONNECTION_HEADER_BYTES || !requests.starts_with(b"hrpc") {
        return Ok(());
    }
    requests.advance(CONNECTION_HEADER_BYTES);
    let mut methods = BTreeMap::new();
    while let Some(frame) = next_frame(&mut requests) {
        let Ok(Request::Call(call)) = decode_request(frame) else { continue };
        let row = hadoop_methods().find(|row| row.protocol == call.protocol && row.name == call.method);
        methods.extend(row.map(|row| (call.call_id, row)));
    }
    let mut answers = Bytes::copy_from_slice(&recorded.to_client);
    while let Some(frame) = next_frame(&mut answers) {
        let response = decode_response(frame)?;
        let Some(row) = methods.get(&response.call_id) else { continue };
        let Outcome::Success(bytes) = response.outcome else { continue };
        let Some(message) = schema.decode(row.response, &bytes)? else { continue };
        let short = row.protocol.rsplit('.').next().unwrap_or_default();
        let method = format!("{short}.{}", row.name);
        for command in commands(&message) {
            let told = fields(&command);
            let kind = ["cmd_type", "blk_cmd.action", "blk_id_cmd.action"].map(|name| one(&told, name));
            note(seen, format!("{method}: command {}", kind.concat()), told);
        }
        let mut told = fields(&message);
        told.retain(|name, _| !name.starts_with("cmds."));
        note(seen, method, told);
    }
    Ok(())
}

fn one(told: &Fields, name: &str) -> String {
    told.get(name).and_then(|values| values.first()).map(|value| format!("/{value}")).unwrap_or_default()
}

fn note(seen: &mut Seen, method: String, told: Fields) {
    seen.entry(method).or_default().extend(told.into_keys());
}

/// Returns the commands in the answer to a heartbeat.
fn commands(message: &DynamicMessage) -> Vec<DynamicMessage> {
    let Some(list) = message.get_field_by_name("cmds") else { return Vec::new() };
    let commands = list.as_list().unwrap_or_default().iter();
    commands.filter_map(Value::as_message).cloned().collect()
}

/// Returns the next complete frame. The proxy may have recorded only the start of a longer conversation.
fn next_frame(bytes: &mut Bytes) -> Option<Bytes> {
    let length = u32::from_be_bytes(bytes.get(..FRAME_LENGTH_BYTES)?.try_into().ok()?) as usize;
    if bytes.len() < FRAME_LENGTH_BYTES + length {
        return None;
    }
    bytes.advance(FRAME_LENGTH_BYTES);
    Some(bytes.split_to(length))
}
