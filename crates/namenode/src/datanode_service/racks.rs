//! Racks of machines, from `net.topology.table.file.name` or `net.topology.script.file.name`.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;

use crate::blocks::normalized_rack;

/// A script that takes longer is killed.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of bytes read from a script's output or a table.
const OUTPUT_MAX: u64 = 1 << 20;
const TABLE_MAX: u64 = 16 << 20;
/// Limit of machines whose rack is remembered.
const CACHE_MAX: usize = 100_000;

enum Source {
    None,
    /// File with lines of two columns: address or host name, rack.
    Table(PathBuf),
    /// Script that takes addresses as arguments and prints their racks.
    Script(PathBuf),
}

/// Looks up racks and caches them.
pub struct Racks {
    source: Source,
    cache: Mutex<HashMap<String, String>>,
    /// Client machines for which the script was called, whatever its result.
    asked: Mutex<HashSet<String>>,
}

impl Racks {
    /// Assigns every machine to the default rack.
    pub fn none() -> Self {
        Self::new(Source::None)
    }

    pub fn from_configuration(configuration: &Configuration) -> Result<Self, ConfigError> {
        let set = |name: Option<String>| name.filter(|name| !name.is_empty()).map(PathBuf::from);
        if let Some(file) = set(configuration.get(keys::NET_TOPOLOGY_TABLE_FILE_NAME)?) {
            return Ok(Self::from_table(file));
        }
        Ok(set(configuration.get(keys::NET_TOPOLOGY_SCRIPT_FILE_NAME)?).map_or_else(Self::none, Self::from_script))
    }

    pub fn from_table(file: PathBuf) -> Self {
        Self::new(Source::Table(file))
    }

    pub fn from_script(file: PathBuf) -> Self {
        Self::new(Source::Script(file))
    }

    fn new(source: Source) -> Self {
        Self { source, cache: Mutex::default(), asked: Mutex::default() }
    }

    /// Clears the cache, so that changes of the table or of the script's output take effect (refreshNodes).
    pub fn forget(&self) {
        self.cache.lock().clear();
        self.asked.lock().clear();
    }

    /// Returns the whole table, for clients that are not datanodes; empty without a table.
    pub async fn all(&self) -> HashMap<String, String> {
        match &self.source {
            Source::Table(file) => read_table(file).await.unwrap_or_default(),
            Source::None | Source::Script(_) => HashMap::new(),
        }
    }

    /// Returns the rack of a client's machine from the script, which is called once per machine until `forget`. `None`:
    /// no new result. Clients' racks from a table are in `all`.
    pub async fn of_client(&self, ip: &str) -> Option<String> {
        if !matches!(self.source, Source::Script(_)) {
            return None;
        }
        {
            let mut asked = self.asked.lock();
            if asked.contains(ip) {
                return None;
            }
            if asked.len() >= CACHE_MAX {
                asked.clear();
            }
            asked.insert(ip.to_owned());
        }
        self.resolve(ip, ip).await
    }

    /// Returns the rack of a machine; `None` if the source does not know it, or fails (which is logged).
    pub async fn resolve(&self, ip: &str, host_name: &str) -> Option<String> {
        if matches!(self.source, Source::None) {
            return None;
        }
        if let Some(known) = self.cache.lock().get(ip) {
            return Some(known.clone());
        }
        let found = match &self.source {
            Source::None => None,
            Source::Table(file) => {
                let table = read_table(file).await?;
                table.get(ip).or_else(|| table.get(host_name)).cloned()
            }
            Source::Script(file) => run_script(file, ip).await,
        }?;
        let mut cache = self.cache.lock();
        if cache.len() >= CACHE_MAX {
            cache.clear();
        }
        cache.insert(ip.to_owned(), found.clone());
        Some(found)
    }
}

async fn read_table(file: &Path) -> Option<HashMap<String, String>> {
    let read = async {
        let mut text = String::new();
        tokio::fs::File::open(file).await?.take(TABLE_MAX).read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    match read.await {
        Ok(text) => Some(parse_table(&text)),
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "cannot read the rack table");
            None
        }
    }
}

fn parse_table(text: &str) -> HashMap<String, String> {
    let mut table = HashMap::new();
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut columns = line.split_whitespace();
        match (columns.next(), columns.next().and_then(normalized_rack), columns.next()) {
            (Some(host), Some(rack), None) => {
                table.insert(host.to_owned(), rack);
            }
            _ => tracing::warn!(line, "ignored a line of the rack table that is not `host /rack`"),
        }
    }
    table
}

/// Returns the first word that the script prints for one address.
async fn run_script(file: &Path, ip: &str) -> Option<String> {
    let run = async {
        let mut child = tokio::process::Command::new(file)
            .arg(ip)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut output = String::new();
        if let Some(stdout) = child.stdout.take() {
            stdout.take(OUTPUT_MAX).read_to_string(&mut output).await?;
        }
        let status = child.wait().await?;
        std::io::Result::Ok((status, output))
    };
    match tokio::time::timeout(SCRIPT_TIMEOUT, run).await {
        Ok(Ok((status, output))) if status.success() => {
            let rack = output.split_whitespace().next().and_then(normalized_rack);
            if rack.is_none() {
                tracing::warn!(script = %file.display(), ip, output, "the topology script printed no rack");
            }
            rack
        }
        Ok(Ok((status, _))) => {
            tracing::warn!(script = %file.display(), ip, %status, "the topology script failed");
            None
        }
        Ok(Err(error)) => {
            tracing::warn!(script = %file.display(), ip, %error, "cannot run the topology script");
            None
        }
        Err(_) => {
            tracing::warn!(script = %file.display(), ip, seconds = SCRIPT_TIMEOUT.as_secs(), "killed the topology script: it took too long");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn racks_from_a_table() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("racks");
        std::fs::write(&file, "# comment\n10.0.0.1 /row1/rack1\nhost2\t/row1/rack2/\nnonsense\n").unwrap();
        let racks = Racks::from_table(file);
        assert_eq!(racks.resolve("10.0.0.1", "h").await.as_deref(), Some("/row1/rack1"));
        assert_eq!(racks.resolve("10.0.0.2", "host2").await.as_deref(), Some("/row1/rack2"));
        assert_eq!(racks.resolve("10.0.0.3", "host3").await, None);
        assert_eq!(Racks::from_table("/nonexistent/table".into()).resolve("10.0.0.1", "h").await, None);
    }

    #[tokio::test]
    async fn racks_from_a_script() {
        let directory = tempfile::tempdir().unwrap();
        let (text, file) = (directory.path().join("text"), directory.path().join("script"));
        std::fs::write(&text, "#!/bin/sh\n[ \"$1\" = 10.0.0.9 ] && exit 3\necho /rack-of-$1\n").unwrap();
        // Written by a separate process: if this process had it open for writing, a child process of another test could
        // inherit the descriptor, and the script could not be executed.
        let made = std::process::Command::new("install").args(["-m", "755"]).arg(&text).arg(&file).status().unwrap();
        assert!(made.success());
        let racks = Racks::from_script(file);
        assert_eq!(racks.resolve("10.0.0.1", "h").await.as_deref(), Some("/rack-of-10.0.0.1"));
        assert_eq!(racks.resolve("10.0.0.9", "h").await, None);
        assert_eq!(racks.of_client("10.0.0.2").await.as_deref(), Some("/rack-of-10.0.0.2"));
        assert_eq!(racks.of_client("10.0.0.2").await, None);
        racks.forget();
        assert_eq!(racks.of_client("10.0.0.2").await.as_deref(), Some("/rack-of-10.0.0.2"));
    }
}
