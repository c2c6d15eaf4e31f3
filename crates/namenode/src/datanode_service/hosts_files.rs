//! The files behind `dfs.hosts` and `dfs.hosts.exclude`: a name a line, perhaps with a port, `#` begins a comment.

use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::DatanodeServiceSettings;
use crate::blocks::{HostEntry, HostLists};

const FILE_MAX: u64 = 16 << 20;
const LOOKUP_PATIENCE: Duration = Duration::from_secs(5);

/// Reads both files and looks their names up. A file that is configured and cannot be read is an error: to take it for an
/// empty one would let everybody in.
pub async fn read_hosts(settings: &DatanodeServiceSettings) -> std::io::Result<HostLists> {
    Ok(HostLists {
        include: read(settings.include_file.as_deref()).await?,
        exclude: read(settings.exclude_file.as_deref()).await?,
    })
}

async fn read(file: Option<&Path>) -> std::io::Result<Vec<HostEntry>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let mut text = String::new();
    let named = |error: std::io::Error| std::io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    let opened = tokio::fs::File::open(file).await.map_err(named)?;
    opened.take(FILE_MAX).read_to_string(&mut text).await.map_err(named)?;
    let mut entries = Vec::new();
    for word in text.lines().flat_map(|line| line.split('#').next().unwrap_or_default().split_whitespace()) {
        let (host, port) = split(word);
        let mut names = vec![host.to_owned()];
        if let Ok(Ok(found)) = tokio::time::timeout(LOOKUP_PATIENCE, tokio::net::lookup_host((host, 0))).await {
            names.extend(found.map(|address| address.ip().to_canonical().to_string()));
        } else {
            tracing::warn!(host, file = %file.display(), "a name of the hosts file has no address");
        }
        entries.push(HostEntry { names, port });
    }
    Ok(entries)
}

/// Host and port; a bare IPv6 address has no port.
fn split(word: &str) -> (&str, Option<u16>) {
    match word.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => match port.parse() {
            // Java's 0: any port.
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
}
