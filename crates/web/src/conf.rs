//! The entries of `/conf`, as Hadoop writes them in JSON and XML.

use hearth_config::Configuration;

use crate::page::escape;

/// One entry of `/conf`.
#[derive(Clone, Debug)]
pub struct ConfEntry {
    pub key: String,
    pub value: String,
    pub is_final: bool,
    /// The file it came from, or `code`.
    pub source: String,
}

impl ConfEntry {
    /// Returns all entries of a server's configuration by name, without secrets.
    pub fn all(configuration: &Configuration) -> Vec<Self> {
        let entries = configuration.redacted_entries().into_iter();
        entries
            .map(|entry| Self {
                key: entry.name.to_owned(),
                value: entry.value.to_owned(),
                is_final: entry.is_final,
                source: entry.source.to_string(),
            })
            .collect()
    }
}

/// Returns `{"properties": [{"key": ..., "value": ..., "isFinal": ..., "resource": ...}]}`.
pub(crate) fn json(entries: &[ConfEntry]) -> String {
    let list: Vec<serde_json::Value> = entries
        .iter()
        .map(|entry| {
            serde_json::json!({
                "key": entry.key, "value": entry.value, "isFinal": entry.is_final, "resource": entry.source,
            })
        })
        .collect();
    serde_json::json!({ "properties": list }).to_string()
}

/// Returns the entries in the form of Hadoop's configuration files, with the source of each.
pub(crate) fn xml(entries: &[ConfEntry]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?><configuration>\n");
    for entry in entries {
        text.push_str(&format!(
            "<property><name>{}</name><value>{}</value><final>{}</final><source>{}</source></property>\n",
            escape(&entry.key),
            escape(&entry.value),
            entry.is_final,
            escape(&entry.source)
        ));
    }
    text.push_str("</configuration>\n");
    text
}
