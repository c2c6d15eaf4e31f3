//! What the commands share: configuration, file systems by URI, standard output, and the count of failures.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::{Component, PathBuf};

use hearth_client::{DataPath, FileSystem, Statistics};
use hearth_config::{Configuration, keys};

use super::commands::Command;
use super::failure::Failure;
use super::glob;
use super::item::Item;
use super::store::Store;

pub struct Shell {
    pub configuration: Configuration,
    pub user: String,
    stores: HashMap<String, FileSystem>,
    out: BufWriter<std::io::Stdout>,
    out_failed: bool,
    name: &'static str,
    failures: u32,
}

impl Shell {
    pub fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            user: crate::configuration::user(),
            stores: HashMap::new(),
            out: BufWriter::with_capacity(64 << 10, std::io::stdout()),
            out_failed: false,
            name: "",
            failures: 0,
        }
    }

    pub fn start(&mut self, command: &'static Command) {
        self.name = command.name;
    }

    /// Prints a failure as `command: message` and remembers that there was one.
    pub fn report(&mut self, failure: &Failure) {
        self.flush();
        self.failures += 1;
        eprintln!("{}: {failure}", self.name);
    }

    /// How many there were so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn exit_code(&self) -> u8 {
        u8::from(self.failures > 0)
    }

    /// Says on standard error which path carried how many of the bytes that were read from HDFS so far.
    pub fn report_paths_read(&mut self) {
        self.report_paths("read", Statistics::read_bytes);
    }

    /// The same of those that were written to HDFS: by which path they went to the first DataNode of their pipelines.
    pub fn report_paths_written(&mut self) {
        self.report_paths("written", Statistics::written_bytes);
    }

    fn report_paths(&mut self, what: &str, bytes: fn(&Statistics, DataPath) -> u64) {
        self.flush();
        let of = |path| self.stores.values().map(|fs| bytes(&fs.statistics(), path)).sum::<u64>();
        let by_path = DataPath::ALL.map(|path| (path, of(path)));
        let paths: Vec<_> = by_path.iter().map(|(path, bytes)| format!("{path} {bytes}")).collect();
        let all: u64 = by_path.iter().map(|(_, bytes)| bytes).sum();
        eprintln!("{}: {all} bytes {what}: {}", self.name, paths.join(", "));
    }

    /// Writes one line to standard output.
    pub fn line(&mut self, line: impl std::fmt::Display) {
        if writeln!(self.out, "{line}").is_err() {
            self.out_failed = true;
        }
    }

    /// Writes bytes to standard output. Errors: a closed pipe ends the command.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| {
            self.out_failed = true;
            Failure::Message(format!("standard output: {error}"))
        })
    }

    /// False when standard output took not everything.
    pub fn flush(&mut self) -> bool {
        if self.out.flush().is_err() {
            self.out_failed = true;
        }
        !self.out_failed
    }

    /// The file system of `fs.defaultFS`.
    pub fn default_store(&mut self) -> Result<Store, Failure> {
        let uri = self.default_uri()?;
        self.store_of(&uri)
    }

    fn default_uri(&self) -> Result<String, Failure> {
        self.configuration.get(keys::FS_DEFAULT_FS).map_err(|error| Failure::Message(error.to_string()))
    }

    fn store_of(&mut self, uri: &str) -> Result<Store, Failure> {
        if uri.starts_with("file:") {
            return Ok(Store::Local);
        }
        if let Some(fs) = self.stores.get(uri) {
            return Ok(Store::Hdfs(fs.clone()));
        }
        let fs = FileSystem::connect(&self.configuration, Some(uri), &self.user)?;
        self.stores.insert(uri.to_owned(), fs.clone());
        Ok(Store::Hdfs(fs))
    }

    /// Which file system an argument is in, and its absolute path there.
    pub fn locate(&mut self, argument: &str) -> Result<(Store, String), Failure> {
        if argument.is_empty() {
            return Err(Failure::Usage("Can not create a Path from an empty string".to_owned()));
        }
        if let Some(path) = argument.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return Ok((Store::Local, local_path(path)));
        }
        if let Some((scheme, authority, path)) = split_uri(argument) {
            let is = |other: &str| scheme.eq_ignore_ascii_case(other);
            // Of another scheme the default is another file system: what is meant is not there.
            let is_default = self.default_uri()?.split_once(':').is_some_and(|(default, _)| is(default));
            let store = match authority {
                "" if is_default => self.default_store()?,
                "" if is("hdfs") => return Err(Failure::Message(format!("Incomplete HDFS URI, no host: {argument}"))),
                authority if is("hdfs") => self.store_of(&format!("hdfs://{authority}"))?,
                _ => return Err(Failure::Message(format!("No FileSystem for scheme \"{scheme}\""))),
            };
            let path = absolute(&store, path)?;
            return Ok((store, path));
        }
        let store = self.default_store()?;
        let path = absolute(&store, argument)?;
        Ok((store, path))
    }

    /// What one argument names, without globbing.
    pub async fn item(&mut self, argument: &str) -> Result<Item, Failure> {
        let (store, path) = self.locate(argument)?;
        Item::look(store, path, argument.to_owned()).await
    }

    /// What an argument names; a pattern may name several. What does not exist is in the result without status, unless
    /// it is a pattern: then it is a failure.
    pub async fn items(&mut self, argument: &str) -> Result<Vec<Item>, Failure> {
        if !glob::is_pattern(argument) {
            return Ok(vec![self.item(argument).await?]);
        }
        let (store, path) = self.locate(argument)?;
        let found = glob::expand(&store, &path, argument).await?;
        if found.is_empty() {
            return Err(Failure::not_found(argument));
        }
        Ok(found)
    }

    /// As `items`, of all arguments; failures are reported and passed over.
    pub async fn all_items(&mut self, arguments: &[String]) -> Vec<Item> {
        let mut all = Vec::new();
        for argument in arguments {
            match self.items(argument).await {
                Ok(items) => all.extend(items),
                Err(failure) => self.report(&failure),
            }
        }
        all
    }

    /// As `all_items`, of what exists; what does not is reported as well.
    pub async fn existing(&mut self, arguments: &[String]) -> Vec<Item> {
        let mut all = self.all_items(arguments).await;
        all.retain(|item| {
            if !item.exists() {
                self.report(&Failure::not_found(&item.shown));
            }
            item.exists()
        });
        all
    }

    /// A local path of `put` or `get`: never looked for in the default file system.
    pub async fn local_item(&mut self, argument: &str) -> Result<Item, Failure> {
        let path = argument.strip_prefix("file:").map_or(argument, |path| path.strip_prefix("//").unwrap_or(path));
        Item::look(Store::Local, local_path(path), argument.to_owned()).await
    }

    /// Local paths with globs.
    pub async fn local_items(&mut self, argument: &str) -> Result<Vec<Item>, Failure> {
        let item = self.local_item(argument).await?;
        // A file whose name holds such characters is meant literally.
        if item.exists() || !glob::is_pattern(argument) {
            return Ok(vec![item]);
        }
        let found = glob::expand(&Store::Local, &item.path, argument).await?;
        if found.is_empty() { Err(Failure::not_found(argument)) } else { Ok(found) }
    }
}

/// Scheme, authority (empty when there is none) and path of a URI. `None`: a path alone, which may have a colon behind
/// its first slash.
fn split_uri(argument: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = argument.split_once(':')?;
    if scheme.contains('/') || !rest.starts_with('/') {
        return None;
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    Some((scheme, authority, if path.is_empty() { "/" } else { path }))
}

fn absolute(store: &Store, path: &str) -> Result<String, Failure> {
    match store {
        Store::Hdfs(fs) => Ok(fs.absolute(path)?),
        Store::Local => Ok(local_path(path)),
    }
}

/// Absolute and without `.`, `..` and slashes at the end, as paths in HDFS are: the last part is the name that a copy gets. `..` goes
/// up by name, whatever links are there (as Hadoop's `Path` does).
fn local_path(path: &str) -> String {
    let Ok(path) = std::path::absolute(path) else { return path.to_owned() };
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_paths_are_absolute_and_plain() {
        let here = std::env::current_dir().unwrap();
        let above = here.parent().unwrap();
        let below = |name: &str| here.join(name).to_str().unwrap().to_owned();
        for (given, wanted) in [
            ("/a/b/", "/a/b".to_owned()),
            ("//a//./b/../c/.", "/a/c".to_owned()),
            ("/../..", "/".to_owned()),
            ("/", "/".to_owned()),
            ("a/", below("a")),
            ("./a*", below("a*")),
            (".", here.to_str().unwrap().to_owned()),
            ("..", above.to_str().unwrap().to_owned()),
            ("../", above.to_str().unwrap().to_owned()),
        ] {
            assert_eq!(local_path(given), wanted, "{given}");
        }
    }

    #[tokio::test]
    async fn a_uri_without_a_host_is_of_the_default_file_system_only_if_that_is_of_its_scheme() {
        fn refused(shell: &mut Shell, uri: &str) -> String {
            shell.locate(uri).unwrap_err().to_string()
        }
        let mut shell = Shell::new(Configuration::empty());
        for local in ["/a", "file:/a", "file:///a"] {
            assert!(matches!(shell.locate(local), Ok((Store::Local, path)) if path == "/a"), "{local}");
        }
        for uri in ["hdfs:///a", "hdfs:/a", "hdfs://"] {
            assert_eq!(refused(&mut shell, uri), format!("Incomplete HDFS URI, no host: {uri}"));
        }
        let mut of_hdfs = Shell::new(Configuration::empty().with("fs.defaultFS", "hdfs://h:1"));
        for uri in ["hdfs:///a", "hdfs:/a", "hdfs://h:1/a", "/a"] {
            let (store, path) = of_hdfs.locate(uri).unwrap();
            assert_eq!((store.uri().as_str(), path.as_str()), ("hdfs://h:1", "/a"), "{uri}");
        }
        for shell in [&mut shell, &mut of_hdfs] {
            for uri in ["s3a:///a", "s3a:/a", "s3a://bucket/a"] {
                assert_eq!(refused(shell, uri), "No FileSystem for scheme \"s3a\"");
            }
        }
    }

    #[test]
    fn uris_have_a_scheme_in_front_of_their_first_slash() {
        for (given, wanted) in [
            ("hdfs://h:1/a:/b", Some(("hdfs", "h:1", "/a:/b"))),
            ("hdfs://h:1", Some(("hdfs", "h:1", "/"))),
            ("hdfs:///a//b", Some(("hdfs", "", "/a//b"))),
            ("hdfs:/a", Some(("hdfs", "", "/a"))),
            ("/a:/b", None),
            ("a:b", None),
            ("a", None),
        ] {
            assert_eq!(split_uri(given), wanted, "{given}");
        }
    }
}
