use hearth_types::{FileKind, FileStatus};

use super::failure::Failure;
use super::glob::Found;
use super::paths::{self, PathStyle};
use super::store::Store;

/// Path of the command line, or one below it, and its status.
#[derive(Clone, Debug)]
pub struct Item {
    pub store: Store,
    /// Absolute path, as sent to the file system.
    pub path: String,
    /// Path as the user wrote it, for output.
    pub shown: String,
    /// `None` if the path does not exist.
    pub status: Option<FileStatus>,
}

impl Item {
    /// Creates the item of a path found by a pattern.
    pub fn found(found: Found, naming: &PathStyle) -> Self {
        let Found { store, path, named, status } = found;
        let shown = naming.shown(&named, status.kind == FileKind::Directory);
        Self { store, path, shown, status: Some(status) }
    }

    /// Requests the status of `path`.
    pub async fn look(store: Store, path: String, shown: String) -> Result<Self, Failure> {
        let status = store.status(&path, &shown).await?;
        Ok(Self { store, path, shown, status })
    }

    /// Requests the status again.
    pub async fn refresh(&mut self) -> Result<(), Failure> {
        self.status = self.store.status(&self.path, &self.shown).await?;
        Ok(())
    }

    pub fn exists(&self) -> bool {
        self.status.is_some()
    }

    pub fn is_directory(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.kind == FileKind::Directory)
    }

    /// Returns the status. Errors: "No such file or directory".
    pub fn status(&self) -> Result<&FileStatus, Failure> {
        self.status.as_ref().ok_or_else(|| Failure::not_found(&self.shown))
    }

    /// Last component of the path, empty for the root. A mount point has its name in the mount table.
    pub fn name(&self) -> &str {
        match self.shown.rsplit('/').next() {
            None | Some("" | "." | "..") => self.path.rsplit('/').next().unwrap_or_default(),
            Some(name) => name,
        }
    }

    /// `hdfs://host:port/path`
    pub fn uri(&self) -> String {
        format!("{}{}", self.store.uri(), self.path)
    }

    fn below(&self, name: &str, status: Option<FileStatus>) -> Self {
        let join = |base: &str| {
            if base.is_empty() || base.ends_with('/') { format!("{base}{name}") } else { format!("{base}/{name}") }
        };
        let shown = if self.shown == "." { name.to_owned() } else { join(&self.shown) };
        let (store, path) = self.store.below(&self.path, name);
        Self { store, path, shown, status }
    }

    pub async fn child(&self, name: &str) -> Result<Self, Failure> {
        let mut child = self.below(name, None);
        child.refresh().await?;
        Ok(child)
    }

    /// Returns the entries of this directory, sorted by path as Hadoop sorts them.
    pub async fn sorted_children(&self) -> Result<Vec<Self>, Failure> {
        let mut children = self.children().await?;
        children.sort_by_cached_key(|child| paths::sort_key(&child.path));
        Ok(children)
    }

    /// Returns the entries of this directory, in the order of the file system.
    pub async fn children(&self) -> Result<Vec<Self>, Failure> {
        let entries = self.store.list(&self.path, &self.shown).await?;
        Ok(entries
            .into_iter()
            .map(|status| {
                let name = super::shown_name(&status.local_name);
                self.below(&name, Some(status))
            })
            .collect())
    }

    /// Returns whether the directory exists in which this path would be created. A path written as a directory, for
    /// example with a slash at the end, must exist itself.
    pub async fn parent_exists(&self) -> Result<bool, Failure> {
        if self.represents_directory() {
            return Ok(self.exists());
        }
        Ok(self.store.status(self.parent_path(), &self.shown).await?.is_some())
    }

    /// Returns whether the path is written as a directory: with a slash, `.` or `..` at the end.
    pub fn represents_directory(&self) -> bool {
        matches!(self.shown.rsplit('/').next(), Some("" | "." | ".."))
    }

    pub fn parent_path(&self) -> &str {
        match self.path.rfind('/') {
            Some(0) | None => "/",
            Some(at) => &self.path[..at],
        }
    }
}
