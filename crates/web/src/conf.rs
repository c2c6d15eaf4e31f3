//! The entries of `/conf`, as Hadoop writes them in JSON and XML.

use hearth_config::{Configuration, Program};
use serde_json::{Value, json};

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

/// Returns what the check of the start has found: keys that are probably misspelled, values of other programs that cannot
/// be used, and keys without effect. In the form `{"findings": [{"key": ..., "value": ..., "place": ..., "problem": ...}]}`.
pub fn configuration_findings(configuration: &Configuration, program: Program) -> Value {
    let report = configuration.check(&[program]);
    let questionable = report.warnings.into_iter().map(|finding| {
        let problem = match finding.cure.as_str() {
            "" => finding.problem,
            cure => format!("{}; {cure}", finding.problem),
        };
        json!({ "key": finding.key, "value": finding.value, "place": finding.place, "problem": problem })
    });
    let ineffective = report.ineffective.into_iter().map(|setting| {
        let problem = format!("has no effect: {}", setting.why);
        json!({ "key": setting.key, "value": setting.value, "place": setting.source, "problem": problem })
    });
    json!({ "findings": questionable.chain(ineffective).collect::<Vec<_>>() })
}

/// Returns `{"properties": [{"key": ..., "value": ..., "isFinal": ..., "resource": ...}]}`.
pub(crate) fn json(entries: &[ConfEntry]) -> String {
    let list: Vec<Value> = entries
        .iter()
        .map(|entry| {
            json!({
                "key": entry.key, "value": entry.value, "isFinal": entry.is_final, "resource": entry.source,
            })
        })
        .collect();
    json!({ "properties": list }).to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_and_ineffective_keys_are_found() {
        let conf = Configuration::empty()
            .with("fs.defaultFS", "hdfs://nn:8020")
            .with("hearth.memroy.limit", "1g")
            .with("dfs.namenode.plugins", "com.example.Plugin");
        let findings = configuration_findings(&conf, Program::Namenode)["findings"].clone();
        let keys: Vec<&str> = findings.as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
        assert_eq!(keys, ["hearth.memroy.limit", "dfs.namenode.plugins"]);
        assert!(findings[0]["problem"].as_str().unwrap().contains("hearth.memory.limit"), "{findings}");
        assert!(findings[1]["problem"].as_str().unwrap().starts_with("has no effect: "), "{findings}");
    }
}
