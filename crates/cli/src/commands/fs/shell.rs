//! State shared by the commands: configuration, file systems by URI, standard output, and the count of failures.

use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use hearth_client::{DataPath, Statistics};
use hearth_config::{Configuration, keys};

use super::archive::{self, Archive};
use super::commands::Command;
use super::failure::Failure;
use super::glob;
use super::item::Item;
use super::paths::{self, ParsedArgument};
use super::remote::Remote;
use super::store::{Source, Store};
use super::time::now_ms;
use super::view::{self, View};

pub struct Shell {
    pub configuration: Configuration,
    stores: HashMap<String, Remote>,
    views: HashMap<String, Arc<View>>,
    out: BufWriter<io::Stdout>,
    /// Error of standard output, if it failed.
    out_failed: Option<io::Error>,
    name: &'static str,
    failures: u32,
    /// Verify file contents against their checksums.
    verify: bool,
}

impl Shell {
    pub fn new(configuration: Configuration) -> Self {
        Self {
            configuration,
            stores: HashMap::new(),
            views: HashMap::new(),
            out: BufWriter::with_capacity(64 << 10, io::stdout()),
            out_failed: None,
            name: "",
            failures: 0,
            verify: true,
        }
    }

    pub fn start(&mut self, command: &'static Command) {
        self.name = command.name;
    }

    /// `-ignoreCrc`: from now on files are read without verification.
    pub fn ignore_checksums(&mut self, ignore: bool) {
        self.verify = !ignore;
    }

    pub async fn open(&self, item: &Item) -> Result<Source, Failure> {
        item.store.open_with(&item.path, &item.shown, self.verify).await
    }

    /// Prints a failure as `command: message` and counts it.
    pub fn report(&mut self, failure: &Failure) {
        self.flush();
        // Reported once, at the end.
        if matches!(failure, Failure::OutputEnded) {
            return;
        }
        self.failures += 1;
        eprintln!("{}: {failure}", self.name);
    }

    /// Number of failures so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn exit_code(&self) -> u8 {
        u8::from(self.failures > 0)
    }

    /// Prints on standard error how many of the bytes read from HDFS so far each path carried.
    pub fn report_paths_read(&mut self) {
        self.report_paths("read", Statistics::read_bytes);
    }

    /// Prints the same for bytes written to HDFS, by the path to the first DataNode of their pipelines.
    pub fn report_paths_written(&mut self) {
        self.report_paths("written", Statistics::written_bytes);
    }

    fn report_paths(&mut self, what: &str, bytes: fn(&Statistics, DataPath) -> u64) {
        self.flush();
        let all = self.stores.values().filter_map(Remote::statistics).collect::<Vec<_>>();
        let of = |path| all.iter().map(|statistics| bytes(statistics, path)).sum::<u64>();
        let by_path = DataPath::ALL.map(|path| (path, of(path)));
        let paths: Vec<_> = by_path.iter().map(|(path, bytes)| format!("{path} {bytes}")).collect();
        let all: u64 = by_path.iter().map(|(_, bytes)| bytes).sum();
        eprintln!("{}: {all} bytes {what}: {}", self.name, paths.join(", "));
    }

    /// Writes one line to standard output. A closed or full output shows in `output_taken`, and at the end.
    pub fn line(&mut self, line: impl std::fmt::Display) {
        if self.out_failed.is_none()
            && let Err(error) = writeln!(self.out, "{line}")
        {
            self.out_failed = Some(error);
        }
    }

    /// Writes bytes to standard output. Errors: the output is closed or full, and printing must stop.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.out_failed.is_none()
            && let Err(error) = self.out.write_all(bytes)
        {
            self.out_failed = Some(error);
        }
        if self.out_failed.is_some() { Err(Failure::OutputEnded) } else { Ok(()) }
    }

    /// Returns false once a write to standard output has failed, so that further output would be lost.
    pub fn output_taken(&self) -> bool {
        self.out_failed.is_none()
    }

    pub fn flush(&mut self) {
        if self.out_failed.is_none()
            && let Err(error) = self.out.flush()
        {
            self.out_failed = Some(error);
        }
    }

    /// Flushes standard output for the last time. A reader that has closed it (`| head`) is not a failure; a full disk
    /// is.
    ///
    /// Errors: why not everything could be written.
    pub fn finish(&mut self) -> Result<(), String> {
        self.flush();
        let failed = self.out_failed.take();
        // Unwritten data must not be written again when the buffer is dropped.
        let ended = std::mem::replace(&mut self.out, BufWriter::with_capacity(0, io::stdout()));
        let _ = ended.into_parts();
        match failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("cannot write to standard output: {error}; the output is incomplete"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the file system of `fs.defaultFS`.
    pub fn default_store(&mut self) -> Result<Store, Failure> {
        let uri = self.default_uri()?;
        match ParsedArgument::parse(&uri)?.scheme {
            Some("viewfs") => self.view_of(&uri),
            _ => self.store_of(&uri),
        }
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
        let fs = match uri.strip_prefix("webhdfs://") {
            Some(authority) => crate::configuration::connect_web(&self.configuration, authority).map(Remote::Web),
            None => crate::configuration::connect(&self.configuration, Some(uri)).map(Remote::Native),
        };
        let fs = fs.map_err(Failure::from_any)?;
        self.stores.insert(uri.to_owned(), fs.clone());
        Ok(Store::Hdfs(fs))
    }

    /// Returns the file system of an argument, and its absolute path there.
    pub fn locate(&mut self, argument: &str) -> Result<(Store, String), Failure> {
        let typed = ParsedArgument::parse(argument)?;
        let store = self.store_for(&typed, argument)?;
        let path = store.absolute(typed.path_or_home())?;
        Ok(store.enter(path))
    }

    /// Returns the file system that an argument names.
    fn store_for(&mut self, typed: &ParsedArgument, argument: &str) -> Result<Store, Failure> {
        let none = |scheme: &str| Failure::Message(format!("No FileSystem for scheme \"{scheme}\""));
        let (scheme, authority) = match (typed.scheme, typed.authority) {
            (None, None) => return self.default_store(),
            // A host without a scheme: the user typed two slashes instead of one.
            (None, Some(_)) => return Err(none("null")),
            (Some(scheme), authority) => (scheme, authority),
        };
        let is = |other: &str| scheme.eq_ignore_ascii_case(other);
        // If the default file system has another scheme, it is not the one that the argument means.
        let is_default = self.default_uri()?.split_once(':').is_some_and(|(default, _)| is(default));
        match authority {
            None if is("file") => Ok(Store::Local),
            Some(_) if is("file") => Err(Failure::Usage(format!("Wrong FS: {argument}, expected: file:///"))),
            None if is_default => self.default_store(),
            None if is("hdfs") => Err(Failure::Message(format!("Incomplete HDFS URI, no host: {argument}"))),
            None if is("webhdfs") => Err(Failure::Message(format!("Incomplete WebHDFS URI, no host: {argument}"))),
            Some(authority) if is("hdfs") => self.store_of(&format!("hdfs://{authority}")),
            _ if is("viewfs") => self.view_of(argument),
            authority if is("har") => self.archive_of(typed, authority, argument),
            Some(authority) if is("webhdfs") => self.store_of(&format!("webhdfs://{authority}")),
            _ => Err(match NOT_YET.iter().find(|(name, _)| is(name)) {
                Some((_, why)) => Failure::Message(format!("{scheme}:// paths are not supported: {why} ({argument})")),
                None => none(scheme),
            }),
        }
    }

    /// Returns the mount table that an argument names.
    fn view_of(&mut self, argument: &str) -> Result<Store, Failure> {
        let typed = ParsedArgument::parse(argument)?;
        let name = typed.authority.unwrap_or(view::DEFAULT_TABLE);
        let uri = format!("viewfs://{}", typed.authority.unwrap_or_default());
        if let Some(view) = self.views.get(&uri) {
            return Ok(Store::View(Arc::clone(view)));
        }
        let table = view::MountTable::read(&self.configuration, name)?;
        let user = crate::configuration::Identity::of_process().map_err(|error| Failure::from_any(error.into()))?.user;
        let find = |target: &str| {
            let typed = ParsedArgument::parse(target)?;
            if typed.scheme == Some("viewfs") || typed.scheme.is_none() {
                return Err(Failure::Message(format!(
                    "{target}: the target of a mount point must be the URI of another file system"
                )));
            }
            let store = self.store_for(&typed, target)?;
            let path = store.absolute(if typed.path.is_empty() { "/" } else { typed.path })?;
            Ok((store, path))
        };
        let view = Arc::new(View::new(uri.clone(), table, &user, now_ms(), find)?);
        self.views.insert(uri, Arc::clone(&view));
        Ok(Store::View(view))
    }

    /// Returns the archive that an argument leads into.
    fn archive_of(
        &mut self,
        typed: &ParsedArgument,
        authority: Option<&str>,
        argument: &str,
    ) -> Result<Store, Failure> {
        let none = || Failure::Message(format!("Invalid path for the Har Filesystem. {argument}"));
        let plain = paths::absolute(typed.path, "/");
        let directory = archive::archive_of(&plain).ok_or_else(none)?.to_owned();
        let store = match authority {
            None => self.default_store()?,
            Some(authority) => {
                let wrong = || {
                    let why = "is an invalid Har URI. Expecting har://<scheme>-<host>/<path>.";
                    Failure::Message(format!("URI: {argument} {why}"))
                };
                let uri = format!("{}/", archive::underlying(authority).ok_or_else(wrong)?);
                self.store_for(&ParsedArgument::parse(&uri)?, &uri)?
            }
        };
        let (store, there) = store.enter(directory);
        Ok(Store::Archive(Arc::new(Archive::new(store, there, format!("har://{}", authority.unwrap_or_default())))))
    }

    /// Resolves one argument without globbing.
    pub async fn item(&mut self, argument: &str) -> Result<Item, Failure> {
        let (store, path) = self.locate(argument)?;
        Item::look(store, path, argument.to_owned()).await
    }

    /// Resolves an argument. A pattern may name several paths, which are sorted. A path that does not exist is returned
    /// without status; a pattern without matches is a failure.
    ///
    /// Errors: kind `Usage` for an invalid path. The command then ends without doing anything.
    pub async fn items(&mut self, argument: &str) -> Result<Vec<Item>, Failure> {
        let typed = ParsedArgument::parse(argument)?;
        let store = self.store_for(&typed, argument)?;
        match glob::expand(&store, typed.path_or_home()).await? {
            Some(found) if found.is_empty() => Err(Failure::not_found(argument)),
            Some(found) => {
                let naming = typed.naming(&store.working_directory());
                Ok(found.into_iter().map(|found| Item::found(found, &naming)).collect())
            }
            None => {
                let argument = glob::unescaped(argument);
                let (store, path) = self.locate(&argument)?;
                Ok(vec![Item { store, path, shown: argument, status: None }])
            }
        }
    }

    /// Like `items`, for all arguments. Failures are reported and skipped.
    ///
    /// Errors: kind `Usage`. The command then ends before it has done anything.
    pub async fn all_items(&mut self, arguments: &[String]) -> Result<Vec<Item>, Failure> {
        let mut all = Vec::new();
        for argument in arguments {
            match self.items(argument).await {
                Ok(items) => all.extend(items),
                Err(failure @ Failure::Usage(_)) => return Err(failure),
                Err(failure) => self.report(&failure),
            }
        }
        Ok(all)
    }

    /// Like `all_items`, but only existing paths. A missing one is reported as well.
    pub async fn existing(&mut self, arguments: &[String]) -> Result<Vec<Item>, Failure> {
        let mut all = self.all_items(arguments).await?;
        all.retain(|item| {
            if !item.exists() {
                self.report(&Failure::not_found(&item.shown));
            }
            item.exists()
        });
        Ok(all)
    }

    /// Resolves a local path of `put` or `get`. It is never looked up in the default file system.
    pub async fn local_item(&mut self, argument: &str) -> Result<Item, Failure> {
        Item::look(Store::Local, Store::Local.absolute(local_path(argument)?)?, argument.to_owned()).await
    }

    /// Resolves local paths with globs.
    pub async fn local_items(&mut self, argument: &str) -> Result<Vec<Item>, Failure> {
        let item = self.local_item(argument).await?;
        glob::refuse_up_from_pattern(&item.shown)?;
        // A file whose name contains glob characters is meant literally.
        if item.exists() {
            return Ok(vec![item]);
        }
        let typed = ParsedArgument {
            scheme: argument.starts_with("file:").then_some("file"),
            authority: None,
            path: local_path(argument)?,
        };
        match glob::expand(&Store::Local, typed.path).await? {
            None => Ok(vec![item]),
            Some(found) if found.is_empty() => Err(Failure::not_found(argument)),
            Some(found) => {
                let naming = typed.naming(&Store::Local.working_directory());
                Ok(found.into_iter().map(|found| Item::found(found, &naming)).collect())
            }
        }
    }
}

/// Hadoop file systems that Hearth does not support, and the alternative to use.
const NOT_YET: [(&str, &str); 1] = [("swebhdfs", "HTTPS is not supported; use webhdfs:// or hdfs://")];

/// Returns the path of an argument that means a local file, with or without `file:`.
///
/// Errors: an empty argument, or one with another scheme.
fn local_path(argument: &str) -> Result<&str, Failure> {
    let Some(behind) = argument.strip_prefix("file:") else {
        // A colon can be part of a local name. A scheme with a host names another file system.
        return match ParsedArgument::parse(argument) {
            Ok(typed) if typed.scheme.is_some() => {
                Err(Failure::Usage(format!("Wrong FS: {argument}, expected: file:///")))
            }
            Err(failure) if argument.is_empty() => Err(failure),
            _ => Ok(argument),
        };
    };
    match ParsedArgument::parse(argument)?.authority {
        None => Ok(behind.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(behind)),
        Some(_) => Err(Failure::Usage(format!("Wrong FS: {argument}, expected: file:///"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_paths_are_made_absolute() {
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
            assert_eq!(Store::Local.absolute(given).unwrap(), wanted, "{given}");
        }
    }

    #[tokio::test]
    async fn uri_without_host_needs_default_of_same_scheme() {
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
            let said = refused(shell, "swebhdfs://h:1/a");
            assert!(said.starts_with("swebhdfs:") && said.contains("HTTPS"), "{said}");
            assert!(refused(shell, "har:///a").starts_with("Invalid path for the Har Filesystem."));
            assert!(refused(shell, "har://h/a.har").contains("is an invalid Har URI"));
            assert!(refused(shell, "viewfs://c/a").contains("Empty Mount table in config for viewfs://c/"));
            assert_eq!(refused(shell, "webhdfs:///a"), "Incomplete WebHDFS URI, no host: webhdfs:///a");
            for uri in ["s3a:///a", "s3a:/a", "s3a://bucket/a"] {
                assert_eq!(refused(shell, uri), "No FileSystem for scheme \"s3a\"");
            }
        }
    }

    #[tokio::test]
    async fn invalid_path_ends_command_without_effect() {
        let mut shell = Shell::new(Configuration::empty());
        for wrong in ["", "a:b", "file://host/x", "file:x"] {
            let arguments = ["/".to_owned(), wrong.to_owned()];
            let failure = shell.all_items(&arguments).await.unwrap_err();
            assert!(matches!(failure, Failure::Usage(_)), "{wrong}: {failure}");
        }
        assert!(matches!(shell.locate("//host/x"), Err(Failure::Message(_))));
        let mut of_hdfs = Shell::new(Configuration::empty().with("fs.defaultFS", "hdfs://h:1"));
        for wrong in ["/../x", "/a/../../x", "../../../x", "/a:b"] {
            let failure = of_hdfs.locate(wrong).unwrap_err();
            assert!(failure.to_string().ends_with("is not a valid DFS filename."), "{wrong}: {failure}");
        }
        // A name with a colon is a local name.
        assert!(shell.local_item("a:b").await.unwrap().status.is_none());
        for wrong in ["", "file://host/x", "hdfs://host/x"] {
            assert!(matches!(shell.local_item(wrong).await, Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
