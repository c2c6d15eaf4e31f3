//! Copies of files and directories, within a file system and between two.

use crate::{CreateOptions, Error, ErrorKind, FileKind, FileStatus, FileSystem};

impl FileSystem {
    /// Copies a file, or a directory with everything below it, to `target` in `to`, which may be another file system or
    /// this one. The bytes pass through this client.
    ///
    /// If `target` is a directory, the copy is put into it. An existing file is replaced.
    ///
    /// Errors: kind `IsADirectory` if that place in an existing directory is a directory as well. Kind `InvalidInput`
    /// for a copy of a directory into itself, and of a file onto itself. A copy that fails leaves behind what it has
    /// made.
    ///
    /// Source: `FileUtil.copy` of Hadoop.
    pub async fn copy(&self, source: &str, to: &FileSystem, target: &str) -> Result<(), Error> {
        let source = self.absolute(source)?;
        let status = self.status(&source).await?;
        let target = destination(to, &source, to.absolute(target)?).await?;
        let same = self.session.uri.eq_ignore_ascii_case(&to.session.uri);
        if same && contains(&source, &target) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("cannot copy {source} to {target}, which is a part of it"),
            ));
        }
        let mut left = vec![(source, target, status.kind)];
        while let Some((source, target, kind)) = left.pop() {
            if kind != FileKind::Directory {
                self.copy_file(&source, to, &target).await?;
                continue;
            }
            to.mkdirs(&target).await?;
            for entry in self.list_all(&source).await? {
                let name = name_of(&entry)?;
                left.push((below(&source, name), below(&target, name), entry.kind));
            }
        }
        Ok(())
    }

    async fn copy_file(&self, source: &str, to: &FileSystem, target: &str) -> Result<(), Error> {
        if let Ok(existing) = to.status(target).await {
            let marks = |status: &FileStatus| (status.inode, status.modification_time_ms, status.length);
            let source_marks = marks(&self.status(source).await?);
            if existing.inode != 0 && marks(&existing) == source_marks {
                // The same namenode under another name, such as an address and its nameservice.
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("cannot copy {source} to {target}, which is the same file"),
                ));
            }
        }
        let mut reader = self.open(source).await?;
        let mut writer = to.create(target, CreateOptions { overwrite: true, ..CreateOptions::default() }).await?;
        loop {
            let bytes = reader.next().await?;
            if bytes.is_empty() {
                return writer.close().await;
            }
            writer.write(bytes).await?;
            let count = bytes.len();
            reader.consume(count);
        }
    }
}

/// Returns where a copy of `source` goes: `target`, or in it if it is a directory.
async fn destination(to: &FileSystem, source: &str, target: String) -> Result<String, Error> {
    let is_directory = async |path: &str| match to.status(path).await {
        Ok(status) => Ok(status.kind == FileKind::Directory),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    if !is_directory(&target).await? {
        return Ok(target);
    }
    let name = source.rsplit('/').next().unwrap_or_default();
    let within = below(&target, name);
    match is_directory(&within).await? {
        true => Err(Error::new(ErrorKind::IsADirectory, format!("{within}: Is a directory"))),
        false => Ok(within),
    }
}

/// Returns true if `path` is `directory` or lies in or below it. Both are absolute.
fn contains(directory: &str, path: &str) -> bool {
    let rest = path.strip_prefix(directory.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn below(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

fn name_of(entry: &FileStatus) -> Result<&str, Error> {
    std::str::from_utf8(&entry.local_name).map_err(|_| {
        let name = String::from_utf8_lossy(&entry.local_name);
        Error::new(ErrorKind::InvalidPath, format!("{name}: the name is not UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_a_directory() {
        for (directory, path) in [("/a", "/a"), ("/a", "/a/b"), ("/", "/a"), ("/", "/")] {
            assert!(contains(directory, path), "{directory} {path}");
        }
        for (directory, path) in [("/a", "/ab"), ("/a/b", "/a"), ("/a", "/")] {
            assert!(!contains(directory, path), "{directory} {path}");
        }
        assert_eq!([below("/", "x"), below("/a", "x")], ["/x", "/a/x"]);
    }
}
