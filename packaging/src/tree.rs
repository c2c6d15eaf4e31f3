//! A tree of files in memory, and its tar archive.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

#[derive(Clone)]
pub enum Content {
    Directory,
    File(Vec<u8>),
    /// Symbolic link to this target.
    Link(String),
}

#[derive(Clone)]
pub struct Node {
    pub content: Content,
    pub mode: u32,
    /// Number of the owner and of the group.
    pub owner: u64,
    /// A file that the administrator may change: an upgrade keeps it.
    pub is_configuration: bool,
}

/// Files by path. Paths are relative, without `.` at the front, and sorted, so that a directory comes before its files.
#[derive(Clone, Default)]
pub struct Tree(BTreeMap<String, Node>);

impl Tree {
    /// Adds a file, a directory or a link, and the directories above it. Replaces what has the same path.
    pub fn insert(&mut self, path: &str, node: Node) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            self.0.entry(path[..end].to_owned()).or_insert(Node::directory(0o755));
        }
        self.0.insert(path.to_owned(), node);
    }

    pub fn file(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        self.insert(path, Node { content: Content::File(bytes.into()), ..Node::directory(mode) });
    }

    pub fn link(&mut self, path: &str, target: &str) {
        self.insert(path, Node { content: Content::Link(target.to_owned()), ..Node::directory(0o777) });
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(path, node)| (path.as_str(), node))
    }

    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8], &Node)> {
        self.iter().filter_map(|(path, node)| match &node.content {
            Content::File(bytes) => Some((path, bytes.as_slice(), node)),
            Content::Directory | Content::Link(_) => None,
        })
    }

    pub fn contains(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Returns what a path of this tree leads to, after all symbolic links. `None`: nothing is there, or links form a circle.
    pub fn resolve(&self, path: &str) -> Option<&Node> {
        /// The limit of Linux. Source: path_resolution(7).
        const LINKS_MAX: usize = 40;
        fn parts(path: &str) -> impl Iterator<Item = String> {
            path.rsplit('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned)
        }
        // The next part is the last.
        let mut left: Vec<String> = parts(path).collect();
        let (mut at, mut links): (Vec<String>, usize) = (Vec::new(), 0);
        while let Some(part) = left.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            at.push(part);
            if let Content::Link(target) = &self.0.get(&at.join("/"))?.content {
                links += 1;
                if links > LINKS_MAX {
                    return None;
                }
                at.pop();
                if target.starts_with('/') {
                    at.clear();
                }
                left.extend(parts(target));
            }
        }
        self.0.get(&at.join("/"))
    }

    /// Returns the tar archive. `prefix` is put before all paths, and has its own `/`.
    pub fn tar(&self, prefix: &str, time: u64) -> Result<Vec<u8>> {
        let mut builder = Builder::new(Vec::new());
        for (path, node) in self.iter() {
            let mut header = Header::new_gnu();
            header.set_mode(node.mode);
            header.set_uid(node.owner);
            header.set_gid(node.owner);
            header.set_mtime(time);
            let name = format!("{prefix}{path}");
            let appended = match &node.content {
                Content::Directory => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_size(0);
                    builder.append_data(&mut header, format!("{name}/"), std::io::empty())
                }
                Content::File(bytes) => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_size(bytes.len() as u64);
                    builder.append_data(&mut header, name, bytes.as_slice())
                }
                Content::Link(target) => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_size(0);
                    builder.append_link(&mut header, name, Path::new(target))
                }
            };
            appended.with_context(|| format!("cannot archive {path}"))?;
        }
        Ok(builder.into_inner()?)
    }
}

impl Node {
    pub fn directory(mode: u32) -> Self {
        Self { content: Content::Directory, mode, owner: 0, is_configuration: false }
    }
}

/// Compresses. The header has no time and no name, so that the same input gives the same bytes.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_to_the_file() {
        let mut tree = Tree::default();
        tree.file("usr/lib/a/file", 0o644, "bytes");
        tree.link("lib", "usr/lib");
        tree.link("usr/lib64/relative", "../lib/a/file");
        tree.link("usr/lib64/absolute", "/lib/a/../a/./file");
        tree.link("circle", "circle");
        tree.link("dangling", "nothing");
        for path in ["usr/lib/a/file", "/lib/a/file", "usr/lib64/relative", "usr/lib64/absolute"] {
            let found = tree.resolve(path).map(|node| &node.content);
            assert!(matches!(found, Some(Content::File(bytes)) if bytes == b"bytes"), "{path}");
        }
        assert!(matches!(tree.resolve("lib/a").map(|node| &node.content), Some(Content::Directory)));
        for path in ["circle", "dangling", "lib/b", "usr/lib/a/file/more"] {
            assert!(tree.resolve(path).is_none(), "{path}");
        }
    }
}
