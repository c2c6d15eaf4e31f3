//! `har://`: Hadoop archives, which store many files in a few. Read only. An index maps each file to a range of bytes
//! of a part file.
//!
//! Source: HarFileSystem.java, versions 1 to 3 of the index.

use std::collections::BTreeMap;

use hearth_types::{FileFlags, FileKind, FileStatus};
use percent_encoding::percent_decode_str;
use tokio::sync::OnceCell;

use super::failure::Failure;
use super::store::{Source, Store};

/// Maximum size of an index, which is held in memory as a whole.
const INDEX_BYTES_MAX: u64 = 256 << 20;

const NEWEST_VERSION: u32 = 3;

#[derive(Debug)]
pub struct Archive {
    /// File system of the archive's directory, and the directory's path there.
    store: Store,
    directory: String,
    /// URI as printed: `har://hdfs-host:8020`.
    uri: String,
    index: OnceCell<Index>,
}

/// An entry of the index.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Entry {
    /// Names of the directory's entries.
    Directory {
        names: Vec<String>,
        modified_ms: Option<u64>,
    },
    File {
        part: String,
        start: u64,
        length: u64,
        modified_ms: Option<u64>,
    },
}

/// Index entries by path in the archive.
type Index = BTreeMap<String, Entry>;

/// Returns the archive part of a path: the longest prefix that ends with `.har`.
pub fn archive_of(path: &str) -> Option<&str> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| &path[..end]).rfind(|above| above.ends_with(".har"))
}

/// Returns the scheme and authority that `hdfs-host:8020` stands for.
pub fn underlying(authority: &str) -> Option<String> {
    let (scheme, host) = authority.split_once('-')?;
    Some(if host.is_empty() || host == ":" { format!("{scheme}:") } else { format!("{scheme}://{host}") })
}

impl Archive {
    pub fn new(store: Store, directory: String, uri: String) -> Self {
        Self { store, directory, uri, index: OnceCell::new() }
    }

    pub fn uri(&self) -> &str {
        &self.uri
    }

    pub fn directory(&self) -> &str {
        &self.directory
    }

    async fn index(&self) -> Result<&Index, Failure> {
        self.index.get_or_try_init(|| self.read_index()).await
    }

    async fn read_index(&self) -> Result<Index, Failure> {
        let none = || {
            // Without a host, the URI is printed as `har:/path`.
            let uri = if self.uri == "har://" { "har:" } else { &self.uri };
            let why = format!("Invalid path for the Har Filesystem. No index file in {uri}{}", self.directory);
            Failure::Message(why)
        };
        let mut texts = Vec::new();
        for name in ["_masterindex", "_index"] {
            let path = format!("{}/{name}", self.directory);
            let status = self.store.status(&path, &path).await?.ok_or_else(none)?;
            if status.length > INDEX_BYTES_MAX {
                return Err(Failure::path(
                    path,
                    format!("the index is longer than {INDEX_BYTES_MAX} bytes, the supported maximum"),
                ));
            }
            let mut source = self.store.open(&path, &path).await?;
            let mut bytes = Vec::new();
            loop {
                let next = source.next().await?;
                if next.is_empty() || bytes.len() as u64 > INDEX_BYTES_MAX {
                    break;
                }
                bytes.extend_from_slice(next);
                let count = next.len();
                source.consume(count);
            }
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        index_of(&texts[0], &texts[1]).map_err(|why| Failure::path(format!("{}/_index", self.directory), why))
    }

    /// Returns the path inside the archive.
    fn inside<'a>(&self, path: &'a str) -> Option<&'a str> {
        match path.strip_prefix(&self.directory)? {
            "" => Some("/"),
            inside if inside.starts_with('/') => Some(inside),
            _ => None,
        }
    }

    async fn entry(&self, path: &str) -> Result<Option<&Entry>, Failure> {
        let Some(inside) = self.inside(path) else {
            return Err(Failure::Message(format!("Invalid file name: {path} in {}{}", self.uri, self.directory)));
        };
        Ok(self.index().await?.get(inside))
    }

    /// Returns the status of an entry. Owner and permissions are those of the archive's own files.
    async fn status_of(&self, name: &str, entry: &Entry) -> Result<FileStatus, Failure> {
        let (own, kind, length, modified_ms) = match entry {
            Entry::Directory { modified_ms, .. } => (self.directory.clone(), FileKind::Directory, 0, modified_ms),
            Entry::File { part, length, modified_ms, .. } => {
                (format!("{}/{part}", self.directory), FileKind::File, *length, modified_ms)
            }
        };
        let own = self.store.status(&own, &own).await?.ok_or_else(|| Failure::not_found(own))?;
        Ok(FileStatus {
            kind,
            length,
            local_name: name.as_bytes().to_vec(),
            modification_time_ms: modified_ms.unwrap_or(own.modification_time_ms),
            children: -1,
            flags: FileFlags(0),
            ..own
        })
    }

    pub async fn status(&self, path: &str) -> Result<Option<FileStatus>, Failure> {
        match self.entry(path).await? {
            Some(entry) => self.status_of("", entry).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the entries of a directory, or a file itself. `None`: the path does not exist.
    pub async fn list(&self, path: &str) -> Result<Option<Vec<FileStatus>>, Failure> {
        let names = match self.entry(path).await? {
            None => return Ok(None),
            Some(entry @ Entry::File { .. }) => return Ok(Some(vec![self.status_of("", entry).await?])),
            Some(Entry::Directory { names, .. }) => names,
        };
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let below = format!("{}/{name}", path.trim_end_matches('/'));
            let entry = self.entry(&below).await?.ok_or_else(|| Failure::not_found(below))?;
            entries.push(self.status_of(name, entry).await?);
        }
        Ok(Some(entries))
    }

    pub async fn open(&self, path: &str, shown: &str) -> Result<Source, Failure> {
        match self.entry(path).await? {
            Some(Entry::File { part, start, length, .. }) => {
                let whole = self.store.open(&format!("{}/{part}", self.directory), shown).await?;
                Source::part(whole, *start, *length).await
            }
            Some(Entry::Directory { .. }) => Err(Failure::is_directory(shown)),
            None => Err(Failure::not_found(shown)),
        }
    }
}

/// Parses the index. Errors: why it cannot be read.
fn index_of(master: &str, text: &str) -> Result<Index, String> {
    let first = master.lines().next().unwrap_or_default();
    let version = first.split(' ').next().and_then(|version| version.parse::<u32>().ok());
    let version = version.ok_or("an index without a version")?;
    if version > NEWEST_VERSION {
        return Err(format!("Invalid version {version} expected {NEWEST_VERSION}"));
    }
    text.lines().map(|line| entry_of(version, line).ok_or_else(|| format!("an invalid line: {line:.200}"))).collect()
}

fn entry_of(version: u32, line: &str) -> Option<(String, Entry)> {
    let decoded = |text: &str| match version {
        1 => text.to_owned(),
        _ => percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned(),
    };
    let parts: Vec<&str> = line.split(' ').collect();
    let [name, kind, part, start, length, rest @ ..] = parts.as_slice() else { return None };
    // Time, permission, owner and group. Only the time is used.
    let modified_ms = |properties: &str| match version {
        3 => decoded(properties).split(' ').next().and_then(|ms| ms.parse().ok()).or(Some(0)),
        _ => None,
    };
    let entry = match *kind {
        "dir" => {
            let names = rest.iter().filter(|name| !name.is_empty()).map(|name| decoded(name)).collect();
            Entry::Directory { names, modified_ms: modified_ms(part) }
        }
        _ => Entry::File {
            part: (*part).to_owned(),
            start: start.parse().ok()?,
            length: length.parse().ok()?,
            modified_ms: modified_ms(rest.first().copied().unwrap_or_default()),
        },
    };
    // Neither path may lead out of the archive.
    let leads_out = |name: &str| name.split('/').any(|part| part == "..");
    let outside = match &entry {
        Entry::File { part, .. } => part.contains('/') || leads_out(part),
        Entry::Directory { names, .. } => names.iter().any(|name| name.contains('/') || leads_out(name)),
    };
    (!outside).then(|| (decoded(name), entry))
}

#[cfg(test)]
mod tests {
    use hearth_config::Configuration;

    use super::super::shell::Shell;
    use super::*;

    #[test]
    fn archive_of_path_is_the_deepest() {
        assert_eq!(archive_of("/x/a.har/d/f"), Some("/x/a.har"));
        assert_eq!(archive_of("/x/a.har"), Some("/x/a.har"));
        assert_eq!(archive_of("/x/a.har/b.har/c"), Some("/x/a.har/b.har"));
        assert_eq!(archive_of("/x/a.harvest"), None);
        assert_eq!(underlying("hdfs-h:8020").as_deref(), Some("hdfs://h:8020"));
        assert_eq!(underlying("file-:").as_deref(), Some("file:"));
        assert_eq!(underlying("h"), None);
    }

    #[tokio::test]
    async fn files_of_an_archive_are_listed_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let archive = directory.path().join("a.har");
        std::fs::create_dir(&archive).unwrap();
        std::fs::write(archive.join("_masterindex"), "3 \n0 2147483647 0 200 \n").unwrap();
        let index = "%2F dir 5+493+ann+g 0 0 d \n%2Fd dir 6+493+ann+g 0 0 a+b empty \n\
                     %2Fd%2Fa+b file part-0 3 4 7+420+ann+g \n%2Fd%2Fempty file part-0 7 0 8+420+ann+g \n";
        std::fs::write(archive.join("_index"), index).unwrap();
        std::fs::write(archive.join("part-0"), "xyzbytesmore").unwrap();
        let mut shell = Shell::new(Configuration::empty());
        let at = |inside: &str| format!("har://file-:{}/a.har{inside}", directory.path().display());
        let items = shell.items(&at("/d/*")).await.unwrap();
        let shown: Vec<_> = items.iter().map(|item| item.shown.as_str()).collect();
        assert_eq!(shown, [at("/d/a b"), at("/d/empty")]);
        let status = items[0].status().unwrap();
        assert_eq!((status.length, status.modification_time_ms, status.kind), (4, 7, FileKind::File));
        let mut source = items[0].store.open(&items[0].path, "").await.unwrap();
        let mut bytes = [0; 9];
        assert_eq!(source.read(&mut bytes).await.unwrap(), 4);
        assert_eq!((&bytes[..4], source.length()), (&b"byte"[..], Some(4)));
        assert_eq!(source.read(&mut bytes).await.unwrap(), 0);
        assert!(!shell.item(&at("/none")).await.unwrap().exists());
        assert_eq!(shell.item(&at("")).await.unwrap().children().await.unwrap().len(), 1);
        let refused = items[0].store.delete(&items[0].path, "x", true).await.unwrap_err();
        assert!(refused.to_string().contains("read-only"), "{refused}");
        for (master, index) in [
            ("4 \n", ""),
            ("x", ""),
            ("3 \n", "nothing"),
            ("3 \n", "%2Fa file ../part 0 1 x"),
            ("3 \n", "%2Fa file p x 1 x"),
        ] {
            assert!(index_of(master, index).is_err(), "{index}");
        }
    }
}
