//! `viewfs://`: a tree of mount points, each of which leads into another file system. The directories above the mount
//! points belong to no file system: they can be listed, but not changed.
//!
//! Source: InodeTree.java, ViewFileSystem.java.

use std::collections::BTreeMap;

use hearth_config::Configuration;
use hearth_types::{FileFlags, FileKind, FileStatus, FsPermission};

use super::failure::Failure;
use super::paths;
use super::store::{Store, name_of};

const PREFIX: &str = "fs.viewfs.mounttable.";

/// Name of the mount table for URIs without an authority.
pub const DEFAULT_TABLE: &str = "default";

/// Targets of the paths of a mount table, from its configuration keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MountTable {
    /// URIs by mount point.
    pub links: BTreeMap<String, String>,
    /// Target of paths that are below no mount point.
    pub fallback: Option<String>,
    home_prefix: String,
}

impl MountTable {
    /// Reads `fs.viewfs.mounttable.NAME.*`.
    ///
    /// Errors: the table does not exist, or it has links of an unsupported kind.
    pub fn read(configuration: &Configuration, name: &str) -> Result<Self, Failure> {
        let mut table = Self { home_prefix: "/user".to_owned(), ..Self::default() };
        let prefix = format!("{PREFIX}{name}.");
        let mut keys: Vec<String> = configuration.entries().iter().map(|entry| entry.name.to_owned()).collect();
        keys.retain(|key| key.starts_with(&prefix));
        for key in keys {
            let value =
                configuration.text(&key).map_err(|error| Failure::Message(error.to_string()))?.unwrap_or_default();
            match key[prefix.len()..].split_once('.').unwrap_or((&key[prefix.len()..], "")) {
                ("link", point) => {
                    table.links.insert(paths::absolute(point, "/"), value);
                }
                ("linkMergeSlash", _) => {
                    table.links.insert("/".to_owned(), value);
                }
                ("linkFallback", _) => table.fallback = Some(value),
                ("homedir", _) => table.home_prefix = value,
                _ => {
                    return Err(Failure::Message(format!(
                        "{key}: links of this kind are not supported; use `hdfs dfs`"
                    )));
                }
            }
        }
        if table.links.is_empty() && table.fallback.is_none() {
            let why = format!("ViewFs: Cannot initialize: Empty Mount table in config for viewfs://{name}/");
            return Err(Failure::Message(why));
        }
        Ok(table)
    }
}

/// Mount table with its file systems resolved.
#[derive(Debug)]
pub struct View {
    uri: String,
    home: String,
    user: String,
    /// File systems, with paths there, by mount point.
    links: BTreeMap<String, (Store, String)>,
    fallback: Option<(Store, String)>,
    made_ms: u64,
}

/// Result of resolving a path of a mount table.
pub enum Resolved {
    /// A path of another file system. It may or may not exist there.
    In(Store, String),
    /// A directory above mount points.
    Directory,
    Nothing,
}

impl View {
    /// Resolves the targets. `find` returns the file system and path of a URI of the table.
    pub fn new(
        uri: String,
        table: MountTable,
        user: &str,
        now_ms: u64,
        mut find: impl FnMut(&str) -> Result<(Store, String), Failure>,
    ) -> Result<Self, Failure> {
        let mut links = BTreeMap::new();
        for (point, target) in &table.links {
            links.insert(point.clone(), find(target)?);
        }
        let fallback = table.fallback.as_deref().map(&mut find).transpose()?;
        let home = format!("{}/{user}", table.home_prefix.trim_end_matches('/'));
        Ok(Self { uri, home, user: user.to_owned(), links, fallback, made_ms: now_ms })
    }

    pub fn uri(&self) -> &str {
        &self.uri
    }

    pub fn home(&self) -> &str {
        &self.home
    }

    /// Resolves `path`, which is absolute and has no `.` and `..`.
    pub fn resolve(&self, path: &str) -> Resolved {
        let above = |point: &str, path: &str| point == "/" || path == point || path.starts_with(&format!("{point}/"));
        // The longest of several links applies: it is the last.
        let link = self.links.iter().rev().find(|(point, _)| above(point, path));
        if let Some((point, (store, base))) = link {
            let rest = if point == "/" { path } else { &path[point.len()..] };
            return Resolved::In(store.clone(), joined(base, rest));
        }
        if self.links.keys().any(|point| above(path, point)) || path == "/" {
            return Resolved::Directory;
        }
        match &self.fallback {
            Some((store, base)) => Resolved::In(store.clone(), joined(base, path)),
            None => Resolved::Nothing,
        }
    }

    pub fn status(&self, path: &str) -> Option<FileStatus> {
        matches!(self.resolve(path), Resolved::Directory).then(|| self.entry("", FileKind::Directory))
    }

    /// Returns the entries of the directory `path`: directories, and mount points, which are shown as links.
    pub async fn list(&self, path: &str) -> Result<Vec<FileStatus>, Failure> {
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let mut entries: BTreeMap<String, FileStatus> = BTreeMap::new();
        for point in self.links.keys() {
            let Some(rest) = point.strip_prefix(&prefix) else { continue };
            let (name, kind) = match rest.split_once('/') {
                Some((name, _)) => (name, FileKind::Directory),
                None => (rest, FileKind::Symlink),
            };
            entries.entry(name.to_owned()).or_insert_with(|| self.entry(name, kind));
        }
        if let Some((store, base)) = &self.fallback {
            let of_fallback = Box::pin(store.list_if_there(&joined(base, path))).await?;
            for entry in of_fallback.unwrap_or_default() {
                entries.entry(super::shown_name(&entry.local_name)).or_insert(entry);
            }
        }
        Ok(entries.into_values().collect())
    }

    fn entry(&self, name: &str, kind: FileKind) -> FileStatus {
        FileStatus {
            kind,
            local_name: name.as_bytes().to_vec(),
            length: 0,
            permission: FsPermission(0o555),
            owner: self.user.clone(),
            group: name_of("/etc/group", rustix::process::getgid().as_raw()),
            modification_time_ms: self.made_ms,
            access_time_ms: self.made_ms,
            replication: 0,
            block_size: 0,
            inode: 0,
            children: -1,
            storage_policy: 0,
            flags: FileFlags(0),
            symlink: None,
            erasure_coding_policy: None,
        }
    }
}

fn joined(base: &str, rest: &str) -> String {
    match (base.trim_end_matches('/'), rest.trim_end_matches('/')) {
        ("", "") => "/".to_owned(),
        (base, rest) => format!("{base}{rest}"),
    }
}

/// Failure of a change in a directory above mount points.
pub fn read_only(operation: &str, path: &str) -> Failure {
    Failure::Message(format!(
        "InternalDir of ViewFileSystem is readonly, operation {operation} not permitted on path {path}."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(entries: &[(&str, &str)]) -> Result<View, Failure> {
        let mut configuration = Configuration::empty();
        for (key, value) in entries {
            configuration.set(&format!("{PREFIX}c.{key}"), *value);
        }
        let table = MountTable::read(&configuration, "c")?;
        View::new("viewfs://c".to_owned(), table, "ann", 5, |target| Ok((Store::Local, target.to_owned())))
    }

    fn resolved(view: &View, path: &str) -> Option<String> {
        match view.resolve(path) {
            Resolved::In(_, path) => Some(path),
            Resolved::Directory => Some("directory".to_owned()),
            Resolved::Nothing => None,
        }
    }

    #[tokio::test]
    async fn paths_resolve_to_mount_targets() {
        let view =
            view(&[("link./data/one", "/x/one"), ("link./data/two", "/"), ("link./tmp", "/t/"), ("homedir", "/home")])
                .unwrap();
        for (path, wanted) in [
            ("/", Some("directory")),
            ("/data", Some("directory")),
            ("/data/one", Some("/x/one")),
            ("/data/one/a/b", Some("/x/one/a/b")),
            ("/data/onemore", None),
            ("/data/two", Some("/")),
            ("/data/two/a", Some("/a")),
            ("/tmp/a", Some("/t/a")),
            ("/other", None),
        ] {
            assert_eq!(resolved(&view, path).as_deref(), wanted, "{path}");
        }
        assert_eq!(view.home(), "/home/ann");
        let names = |entries: Vec<FileStatus>| {
            entries
                .into_iter()
                .map(|entry| (String::from_utf8(entry.local_name).unwrap(), entry.kind))
                .collect::<Vec<_>>()
        };
        let top = names(view.list("/").await.unwrap());
        assert_eq!(top, [("data".to_owned(), FileKind::Directory), ("tmp".to_owned(), FileKind::Symlink)]);
        assert_eq!(names(view.list("/data").await.unwrap()).len(), 2);
    }

    #[tokio::test]
    async fn unmounted_paths_use_the_fallback() {
        let view = view(&[("link./data", "/x"), ("linkFallback", "/rest")]).unwrap();
        assert_eq!(resolved(&view, "/other/a").as_deref(), Some("/rest/other/a"));
        assert_eq!(resolved(&view, "/").as_deref(), Some("directory"));
        let merged = super::tests::view(&[("linkMergeSlash", "/x")]).unwrap();
        assert_eq!(resolved(&merged, "/").as_deref(), Some("/x"));
        assert_eq!(resolved(&merged, "/a").as_deref(), Some("/x/a"));
    }

    #[test]
    fn unsupported_mount_tables_are_rejected() {
        assert!(view(&[]).unwrap_err().to_string().contains("Empty Mount table"));
        assert!(view(&[("linkNfly.min./x", "a,b")]).unwrap_err().to_string().contains("linkNfly"));
        assert!(view(&[("linkRegex.0", "a")]).unwrap_err().to_string().contains("linkRegex"));
    }
}
