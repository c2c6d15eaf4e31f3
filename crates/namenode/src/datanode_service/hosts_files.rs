//! The files of `dfs.hosts` and `dfs.hosts.exclude`: one name per line, optionally with a port; `#` begins a comment.
//! Or one JSON file, which also lists nodes in maintenance.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;

use super::DatanodeServiceSettings;
use crate::blocks::{HostEntry, HostLists};

const FILE_MAX: u64 = 16 << 20;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the configured files and resolves the names. A configured text file that cannot be read is an error: treating
/// it as empty would admit every datanode.
pub async fn read_hosts(settings: &DatanodeServiceSettings) -> std::io::Result<HostLists> {
    if settings.hosts_are_json {
        return match &settings.include_file {
            Some(file) => combined(file).await,
            None => Ok(HostLists::default()),
        };
    }
    let include = read(settings.include_file.as_deref()).await?;
    Ok(HostLists {
        expected: include.clone(),
        include,
        exclude: read(settings.exclude_file.as_deref()).await?,
        maintenance: Vec::new(),
    })
}

async fn read(file: Option<&Path>) -> std::io::Result<Vec<HostEntry>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let text = text_of(file).await?;
    let mut entries = Vec::new();
    for word in text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace()) {
        let (host, port) = split(word);
        entries.push(HostEntry { names: names_of(host, file).await, port });
    }
    Ok(entries)
}

async fn text_of(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let named = |error: std::io::Error| std::io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    let opened = tokio::fs::File::open(file).await.map_err(named)?;
    opened.take(FILE_MAX).read_to_string(&mut text).await.map_err(named)?;
    Ok(text)
}

async fn names_of(host: &str, file: &Path) -> Vec<String> {
    let mut names = vec![host.to_owned()];
    if let Ok(Ok(found)) = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, 0))).await {
        names.extend(found.map(|address| address.ip().to_canonical().to_string()));
    } else {
        tracing::warn!(host, file = %file.display(), "cannot resolve a name of the hosts file");
    }
    names
}

/// Reads the single file of Apache's CombinedHostFileManager: an array of objects, or (in the old format) a sequence of
/// objects. A missing file counts as empty, as in Apache.
async fn combined(file: &Path) -> std::io::Result<HostLists> {
    let text = match text_of(file).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!(file = %file.display(), "the file of dfs.hosts is missing: every DataNode may register");
            return Ok(HostLists::default());
        }
        other => other?,
    };
    let wrong = |problem: String| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, format!("{}: {problem}", file.display()))
    };
    let mut objects = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        match value.map_err(|error| wrong(error.to_string()))? {
            Value::Array(several) => objects.extend(several),
            one => objects.push(one),
        }
    }
    let mut lists = HostLists::default();
    let mut any_in_service = false;
    for object in objects {
        let Some(host) = object["hostName"].as_str() else {
            return Err(wrong(format!("entry without hostName: {object}")));
        };
        let port = match &object["port"] {
            Value::Null => None,
            number => match number.as_u64().map(u16::try_from) {
                // 0 means any port, as in Java.
                Some(Ok(port)) => Some(port).filter(|port| *port != 0),
                _ => return Err(wrong(format!("{host}: invalid port {number}"))),
            },
        };
        let entry = HostEntry { names: names_of(host, file).await, port };
        match object["adminState"].as_str().unwrap_or("NORMAL") {
            "NORMAL" => any_in_service = true,
            "DECOMMISSIONED" => lists.exclude.push(entry.clone()),
            // Without an end time the node is not in maintenance.
            "IN_MAINTENANCE" => {
                let until = object["maintenanceExpireTimeInMS"].as_u64().unwrap_or(u64::MAX);
                lists.maintenance.push((entry.clone(), until));
            }
            other => {
                return Err(wrong(format!(
                    "{host}: adminState {other:?}; wanted NORMAL, DECOMMISSIONED or IN_MAINTENANCE"
                )));
            }
        }
        lists.include.push(entry);
    }
    lists.expected.clone_from(&lists.include);
    // A file that lists only leaving nodes excludes no other node.
    if !any_in_service {
        lists.include.clear();
    }
    Ok(lists)
}

/// Splits a word into host and port; a bare IPv6 address has no port.
fn split(word: &str) -> (&str, Option<u16>) {
    match word.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => match port.parse() {
            // 0 means any port, as in Java.
            Ok(0) | Err(_) => (host, None),
            Ok(port) => (host, Some(port)),
        },
        _ => (word, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_ports_and_comments() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts");
        std::fs::write(&file, "127.0.0.1:50 # one\n\n  127.0.0.2 127.0.0.3:0\n").unwrap();
        let settings = DatanodeServiceSettings { include_file: Some(file), ..Default::default() };
        let hosts = read_hosts(&settings).await.unwrap();
        assert!(hosts.exclude.is_empty());
        let read: Vec<_> = hosts.include.iter().map(|entry| (entry.names[0].as_str(), entry.port)).collect();
        assert_eq!(read, [("127.0.0.1", Some(50)), ("127.0.0.2", None), ("127.0.0.3", None)]);
        let settings = DatanodeServiceSettings { include_file: Some("/nonexistent/x".into()), ..Default::default() };
        assert!(read_hosts(&settings).await.is_err());
    }

    async fn read_json(text: &str) -> std::io::Result<HostLists> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("hosts.json");
        std::fs::write(&file, text).unwrap();
        let settings = DatanodeServiceSettings { include_file: Some(file), hosts_are_json: true, ..Default::default() };
        read_hosts(&settings).await
    }

    #[tokio::test]
    async fn json_file_sets_admin_states() {
        let hosts = read_json(
            r#"[{"hostName": "127.0.0.1"}, {"hostName": "127.0.0.2", "port": 9866, "adminState": "DECOMMISSIONED"},
                {"hostName": "127.0.0.3", "port": 0, "adminState": "IN_MAINTENANCE", "maintenanceExpireTimeInMS": 77}]"#,
        );
        let hosts = hosts.await.unwrap();
        let named = |entries: &[HostEntry]| -> Vec<(String, Option<u16>)> {
            entries.iter().map(|entry| (entry.names[0].clone(), entry.port)).collect()
        };
        assert_eq!((hosts.include.len(), hosts.expected.len()), (3, 3));
        assert_eq!(named(&hosts.exclude), [("127.0.0.2".to_owned(), Some(9866))]);
        assert_eq!(hosts.maintenance.len(), 1);
        assert_eq!((hosts.maintenance[0].0.port, hosts.maintenance[0].1), (None, 77));
        // The old format, without any node in service.
        let hosts = read_json(
            r#"{"hostName": "127.0.0.2", "adminState": "DECOMMISSIONED"} {"hostName": "127.0.0.3", "adminState": "IN_MAINTENANCE"}"#,
        );
        let hosts = hosts.await.unwrap();
        assert_eq!(hosts.expected.len(), 2);
        assert!(hosts.include.is_empty() && hosts.exclude.len() == 1 && hosts.maintenance[0].1 == u64::MAX);
        assert_eq!(read_json("").await.unwrap(), HostLists::default());
        let missing = Some("/nonexistent/hosts.json".into());
        let missing = DatanodeServiceSettings { include_file: missing, hosts_are_json: true, ..Default::default() };
        assert_eq!(read_hosts(&missing).await.unwrap(), HostLists::default());
        for bad in [
            "[",
            r#"[{"port": 1}]"#,
            r#"[{"hostName": "a", "adminState": "ASLEEP"}]"#,
            r#"[{"hostName": "127.0.0.1", "port": 70000}]"#,
        ] {
            assert!(read_json(bad).await.is_err(), "{bad}");
        }
    }
}
