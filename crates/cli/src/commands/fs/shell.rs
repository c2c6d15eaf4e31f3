//! What the commands share: configuration, file systems by URI, standard output, and the count of failures.

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
    /// Why standard output takes no more.
    out_failed: Option<io::Error>,
    name: &'static str,
    failures: u32,
    /// Bytes of files are verified against their checksums.
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

    /// `-ignoreCrc`: files are read as they are stored from here on.
    pub fn ignore_checksums(&mut self, ignore: bool) {
        self.verify = !ignore;
    }

    pub async fn open(&self, item: &Item) -> Result<Source, Failure> {
        item.store.open_with(&item.path, &item.shown, self.verify).await
    }

    /// Prints a failure as `command: message` and remembers that there was one.
    pub fn report(&mut self, failure: &Failure) {
        self.flush();
        // Said once, at the end.
        if matches!(failure, Failure::OutputEnded) {
            return;
        }
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
        let all = self.stores.values().filter_map(Remote::statistics).collect::<Vec<_>>();
        let of = |path| all.iter().map(|statistics| bytes(statistics, path)).sum::<u64>();
        let by_path = DataPath::ALL.map(|path| (path, of(path)));
        let paths: Vec<_> = by_path.iter().map(|(path, bytes)| format!("{path} {bytes}")).collect();
        let all: u64 = by_path.iter().map(|(_, bytes)| bytes).sum();
        eprintln!("{}: {all} bytes {what}: {}", self.name, paths.join(", "));
    }

    /// Writes one line to standard output. That it is closed or full shows in `output_taken`, and at the end.
    pub fn line(&mut self, line: impl std::fmt::Display) {
        if self.out_failed.is_none()
            && let Err(error) = writeln!(self.out, "{line}")
        {
            self.out_failed = Some(error);
        }
    }

    /// Writes bytes to standard output. Errors: it takes no more, which ends what is printed.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.out_failed.is_none()
            && let Err(error) = self.out.write_all(bytes)
        {
            self.out_failed = Some(error);
        }
        if self.out_failed.is_some() { Err(Failure::OutputEnded) } else { Ok(()) }
    }

    /// False when standard output has not taken everything: there is no use in printing more.
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

    /// Flushes standard output for the last time. A reader that has seen enough (`| head`) is no failure; a full disk is one.
    ///
    /// Errors: why not everything could be written.
    pub fn finish(&mut self) -> Result<(), String> {
        self.flush();
        let failed = self.out_failed.take();
        // What could not be written is not tried again when the buffer is dropped.
        let ended = std::mem::replace(&mut self.out, BufWriter::with_capacity(0, io::stdout()));
        let _ = ended.into_parts();
        match failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("cannot write to standard output: {error}; what was printed is not complete"))
            }
            _ => Ok(()),
        }
    }

    /// The file system of `fs.defaultFS`.
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

    /// Which file system an argument is in, and its absolute path there.
    pub fn locate(&mut self, argument: &str) -> Result<(Store, String), Failure> {
        let typed = ParsedArgument::parse(argument)?;
        let store = self.store_for(&typed, argument)?;
        let path = store.absolute(typed.path_or_home())?;
        Ok(store.enter(path))
    }

    /// The file system that an argument names.
    fn store_for(&mut self, typed: &ParsedArgument, argument: &str) -> Result<Store, Failure> {
        let none = |scheme: &str| Failure::Message(format!("No FileSystem for scheme \"{scheme}\""));
        let (scheme, authority) = match (typed.scheme, typed.authority) {
            (None, None) => return self.default_store(),
            // A host without a scheme: two slashes where one was meant.
            (None, Some(_)) => return Err(none("null")),
            (Some(scheme), authority) => (scheme, authority),
        };
        let is = |other: &str| scheme.eq_ignore_ascii_case(other);
        // Of another scheme the default is another file system: what is meant is not there.
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

    /// The mount table that an argument names.
    fn view_of(&mut self, argument: &str) -> Result<Store, Failure> {
        let typed = ParsedArgument::parse(argument)?;
        let name = typed.authority.unwrap_or(view::DEFAULT_TABLE);
        let uri = format!("viewfs://{}", typed.authority.unwrap_or_default());
        if let Some(view) = self.views.get(&uri) {
            return Ok(Store::View(Arc::clone(view)));
        }
        let table = view::MountTable::read(&self.configuration, name)?;
        let user = crate::configuration::Identity::of_process().map_err(Failure::from_any)?.user;
        let find = |target: &str| {
            let typed = ParsedArgument::parse(target)?;
            if typed.scheme == Some("viewfs") || typed.scheme.is_none() {
                return Err(Failure::Message(format!(
                    "{target}: a mount point leads to another file system, by its URI"
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

    /// The archive that an argument leads into.
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

    /// What one argument names, without globbing.
    pub async fn item(&mut self, argument: &str) -> Result<Item, Failure> {
        let (store, path) = self.locate(argument)?;
        Item::look(store, path, argument.to_owned()).await
    }

    /// What an argument names; a pattern may name several, which are sorted. What does not exist is in the result without status, unless
    /// it is a pattern: then it is a failure.
    ///
    /// Errors: kind `Usage` for what can be no path; the command ends with it and does nothing.
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

    /// As `items`, of all arguments. What fails is reported and passed over.
    ///
    /// Errors: kind `Usage`; the command ends with it before it has done anything.
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

    /// As `all_items`, of what exists; what does not is reported as well.
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

    /// A local path of `put` or `get`: never looked for in the default file system.
    pub async fn local_item(&mut self, argument: &str) -> Result<Item, Failure> {
        Item::look(Store::Local, Store::Local.absolute(local_path(argument)?)?, argument.to_owned()).await
    }

    /// Local paths with globs.
    pub async fn local_items(&mut self, argument: &str) -> Result<Vec<Item>, Failure> {
        let item = self.local_item(argument).await?;
        glob::refuse_up_from_pattern(&item.shown)?;
        // A file whose name holds such characters is meant literally.
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

/// File systems of Hadoop that are none here, and what to do instead.
const NOT_YET: [(&str, &str); 1] = [("swebhdfs", "there is no HTTPS; use webhdfs:// or hdfs://")];

/// The path of an argument that means a local file, `file:` or not.
///
/// Errors: an empty one, or one of another scheme.
fn local_path(argument: &str) -> Result<&str, Failure> {
    let Some(behind) = argument.strip_prefix("file:") else {
        // A colon is a part of a local name; a scheme with a host is another file system's.
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
            assert_eq!(Store::Local.absolute(given).unwrap(), wanted, "{given}");
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
    async fn what_can_be_no_path_ends_the_command_before_anything_is_done() {
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
        // A name with a colon is one on this machine.
        assert!(shell.local_item("a:b").await.unwrap().status.is_none());
        for wrong in ["", "file://host/x", "hdfs://host/x"] {
            assert!(matches!(shell.local_item(wrong).await, Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
