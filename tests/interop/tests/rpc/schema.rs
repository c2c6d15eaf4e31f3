//! Messages by name: encoded from JSON, and listed by field.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use hearth_testkit::workspace_root;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage, Value};
use serde_json::Value as Json;

/// All messages of Hadoop's protocols that Hearth knows.
pub struct Schema(DescriptorPool);

/// Suffixes of the paths of fields whose values differ between runs or implementations. Their presence is still
/// compared.
const VOLATILE: &[&str] = &[
    // Ids.
    "block_id",
    "block_pool_id",
    "cluster_id",
    "datanode_uuid",
    "datanode_uuids",
    "dir_id",
    "file_id",
    "full_block_report_lease_id",
    "gen_stamp",
    "generation_stamp",
    "id",
    "key_id",
    "namespace_id",
    "new_segment_tx_id",
    "parent_idx",
    "pool_id",
    "snapshot_id",
    "storage_ids",
    "storage_uuid",
    "storage_uuids",
    "tx_id",
    "txid",
    // Times.
    "access_time",
    "c_time",
    "expiry_date",
    "last_block_report_monotonic",
    "last_block_report_time",
    "last_update",
    "last_update_monotonic",
    "modification_time",
    "uptime",
    // Progress of DataNodes.
    "bandwidth",
    "expiration.millis",
    "pending_deletion_blocks",
    // Sizes and counts of this machine.
    "block_pool_used",
    "capacity",
    "dfs_used",
    "free_space",
    "non_dfs_used",
    "num_blocks",
    "remaining",
    "used",
    "used_space",
    "xceiver_count",
    // Names and ports of this run.
    "build_version",
    "first_bad_link",
    "info_port",
    "ipc_port",
    "volume_info.path",
    "xfer_port",
    // Secrets.
    "identifier",
    "key_bytes",
    "password",
];

/// A message as lines `path of the field` → values, in order. An empty nested message has its own line.
pub type Fields = BTreeMap<String, Vec<String>>;

impl Schema {
    pub fn read() -> Result<Self> {
        let include = workspace_root().join("crates/wire/proto");
        let mut files = Vec::new();
        for package in ["hadoop", "hearth"] {
            for entry in std::fs::read_dir(include.join(package))? {
                files.push(entry?.path());
            }
        }
        files.sort();
        let set = protox::compile(&files, [&include]).context("compiling the schema")?;
        // Converted through bytes, because the two crates may use different versions of the same types.
        Ok(Self(DescriptorPool::decode(set.encode_to_vec().as_slice())?))
    }

    pub fn message(&self, name: &str) -> Option<MessageDescriptor> {
        ["hadoop.hdfs", "hadoop.common"]
            .iter()
            .find_map(|package| self.0.get_message_by_name(&format!("{package}.{name}")))
    }

    /// Encodes the message `name` with the fields in `json`.
    pub fn encode(&self, name: &str, json: &Json) -> Result<Bytes> {
        let descriptor = self.message(name).with_context(|| format!("no message {name}"))?;
        let message = from_json(descriptor, json).with_context(|| format!("{name} from {json}"))?;
        Ok(message.encode_to_vec().into())
    }

    pub fn decode(&self, name: &str, bytes: &Bytes) -> Result<Option<DynamicMessage>> {
        let Some(descriptor) = self.message(name) else { return Ok(None) };
        Ok(Some(DynamicMessage::decode(descriptor, bytes.clone()).with_context(|| format!("decoding {name}"))?))
    }
}

fn from_json(descriptor: MessageDescriptor, json: &Json) -> Result<DynamicMessage> {
    let mut message = DynamicMessage::new(descriptor.clone());
    for (name, value) in json.as_object().context("an object is wanted")? {
        let field = descriptor.get_field_by_name(name).with_context(|| format!("{descriptor:?} has no {name}"))?;
        let value = match (field.is_list(), value) {
            (true, Json::Array(values)) => {
                Value::List(values.iter().map(|value| value_from(&field, value)).collect::<Result<_>>()?)
            }
            _ => value_from(&field, value)?,
        };
        message.set_field(&field, value);
    }
    Ok(message)
}

fn value_from(field: &FieldDescriptor, json: &Json) -> Result<Value> {
    let signed = || json.as_i64().or_else(|| json.as_u64().map(|number| number as i64)).context("a number is wanted");
    let text = || json.as_str().context("a text is wanted");
    Ok(match field.kind() {
        Kind::Message(descriptor) => Value::Message(from_json(descriptor, json)?),
        Kind::Enum(_) => Value::EnumNumber(signed()? as i32),
        Kind::String => Value::String(text()?.to_owned()),
        Kind::Bytes => Value::Bytes(text()?.as_bytes().to_vec().into()),
        Kind::Bool => Value::Bool(json.as_bool().context("true or false is wanted")?),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(signed()? as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(signed()?),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(signed()? as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(signed()? as u64),
        kind => bail!("{kind:?} is in none of the requests"),
    })
}

/// Returns a message as JSON, for later requests.
pub fn to_json(message: &DynamicMessage) -> Json {
    let fields = message.fields().map(|(field, value)| (field.name().to_owned(), value_to(value)));
    Json::Object(fields.collect())
}

fn value_to(value: &Value) -> Json {
    match value {
        Value::Message(message) => to_json(message),
        Value::List(values) => values.iter().map(value_to).collect(),
        Value::EnumNumber(number) | Value::I32(number) => Json::from(*number),
        Value::I64(number) => Json::from(*number),
        Value::U32(number) => Json::from(*number),
        Value::U64(number) => Json::from(*number),
        Value::Bool(value) => Json::from(*value),
        Value::String(text) => Json::from(text.as_str()),
        Value::Bytes(bytes) => Json::from(String::from_utf8_lossy(bytes)),
        other => Json::from(format!("{other:?}")),
    }
}

/// Lists every field that is present in the message, and the numbers of unknown fields.
pub fn fields(message: &DynamicMessage) -> Fields {
    let mut fields = Fields::new();
    tell(message, "", &mut fields);
    fields
}

fn tell(message: &DynamicMessage, path: &str, into: &mut Fields) {
    let mut add = |name: &str, value: String| into.entry(format!("{path}{name}")).or_default().push(value);
    for unknown in message.unknown_fields() {
        add(&format!("?{}", unknown.number()), "?".into());
    }
    for field in message.descriptor().fields() {
        let name = field.name();
        // Hearth's own additions, which other programs ignore.
        if name.starts_with("hearth_") || !message.has_field(&field) {
            continue;
        }
        let value = message.get_field(&field);
        let values = match &*value {
            Value::List(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values {
            match value {
                Value::Message(inner) => {
                    into.entry(format!("{path}{name}")).or_default().push("{}".into());
                    tell(inner, &format!("{path}{name}."), into);
                }
                _ => {
                    let path = format!("{path}{name}");
                    let value = shown(&path, value);
                    into.entry(path).or_default().push(value);
                }
            }
        }
    }
}

fn shown(path: &str, value: &Value) -> String {
    let is_volatile =
        |name: &&str| path.strip_suffix(*name).is_some_and(|before| before.is_empty() || before.ends_with('.'));
    if VOLATILE.iter().any(is_volatile) {
        return "_".into();
    }
    match value {
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::String(text) => text.clone(),
        value => value_to(value).to_string(),
    }
}
