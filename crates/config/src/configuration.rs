use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::deprecated::current_name;
use crate::expand::expand;
use crate::xml::{read_file, to_xml};
use crate::{ConfigError, ConfigKey, Environment, KeyInfo, keys};

/// Origin of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Built in. The name is that of Hadoop's file of defaults (`core-default.xml`, `hdfs-default.xml`).
    Default(&'static str),
    File(PathBuf),
    /// Set by the program, or with `-D` on the command line.
    Set,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
            Self::Set => f.write_str("programmatically"),
        }
    }
}

#[derive(Clone, Debug)]
struct Stored {
    value: String,
    /// The value as it was set, if `value` is its expanded text.
    unexpanded: Option<String>,
    source: Source,
    /// Line of the property in its file.
    line: Option<u32>,
    /// Deprecated name under which the value was set.
    deprecated: Option<String>,
    is_final: bool,
}

impl Stored {
    /// Returns a copy with the expanded text of the value.
    fn with_text(&self, text: String) -> Self {
        let unexpanded = self.unexpanded.as_ref().unwrap_or(&self.value).clone();
        Self { value: text, unexpanded: Some(unexpanded), ..self.clone() }
    }

    /// Returns a copy with the value as it was set.
    fn as_set(&self) -> Self {
        let value = self.unexpanded.as_ref().unwrap_or(&self.value).clone();
        Self { value, unexpanded: None, ..self.clone() }
    }
}

/// One row of `/conf`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    pub name: &'a str,
    /// The value before variables are expanded. While a server runs: the value in force, expanded if it refers to a key
    /// that can change.
    pub value: &'a str,
    pub source: Source,
    /// Line of the property in its file.
    pub line: Option<u32>,
    /// Deprecated name under which the value was set.
    pub deprecated: Option<&'a str>,
    pub is_final: bool,
}

impl Entry<'_> {
    /// Returns where the value comes from, for messages: file and line if it is from a file.
    pub fn place(&self) -> String {
        place(&self.source, self.line)
    }
}

/// Describes where a value comes from.
fn place(source: &Source, line: Option<u32>) -> String {
    match (source, line) {
        (Source::File(path), Some(line)) => format!("{} line {line}", path.display()),
        (Source::Set, _) => "-D or the program".to_owned(),
        (source, _) => source.to_string(),
    }
}

/// The values of all keys that were set, and the defaults of the others. Cloning copies everything.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    set: BTreeMap<String, Stored>,
    environment: Environment,
    /// The files that were read, in this order.
    files: Vec<ReadFile>,
}

/// A file that values were read from.
#[derive(Clone, Debug)]
struct ReadFile {
    path: PathBuf,
    /// The file may be missing.
    is_optional: bool,
}

impl Configuration {
    /// Returns a configuration with defaults only. For tests and programs:
    /// `Configuration::empty().with("dfs.replication", "1")`.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Reads `core-site.xml`, then `hdfs-site.xml` from `dir` (HADOOP_CONF_DIR). Either file may be missing; the
    /// directory may not. A later file overrides an earlier one, unless the earlier value is final.
    pub fn load_dir(dir: &Path, environment: Environment) -> Result<Self, ConfigError> {
        std::fs::read_dir(dir).map_err(|source| ConfigError::Read { path: dir.to_owned(), source })?;
        let mut configuration = Self { environment, ..Self::default() };
        for name in ["core-site.xml", "hdfs-site.xml"] {
            configuration.read(ReadFile { path: dir.join(name), is_optional: true })?;
        }
        Ok(configuration)
    }

    /// Reads the same files again and keeps the values set by the program. For a server that is asked to reload its
    /// configuration.
    pub fn reread(&self) -> Result<Self, ConfigError> {
        let mut configuration = Self { environment: self.environment.clone(), ..Self::default() };
        for file in &self.files {
            configuration.read(file.clone())?;
        }
        let by_programs = self.set.iter().filter(|(_, stored)| matches!(stored.source, Source::Set));
        configuration.set.extend(by_programs.map(|(name, stored)| (name.clone(), stored.as_set())));
        Ok(configuration)
    }

    /// Returns the files that values were read from, in this order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path()).filter(|path| path.exists())
    }

    /// Replaces the environment that `${env.NAME}` and `${user.name}` refer to.
    pub fn with_environment(mut self, environment: Environment) -> Self {
        self.environment = environment;
        self
    }

    /// Reads one more file on top of those already read (`-conf FILE`). As in Hadoop, it does not override values set
    /// by the program.
    pub fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        self.read(ReadFile { path: path.to_owned(), is_optional: false })
    }

    fn read(&mut self, file: ReadFile) -> Result<(), ConfigError> {
        let properties = match file.is_optional && !file.path.exists() {
            true => Vec::new(),
            false => read_file(&file.path)?,
        };
        self.files.push(file);
        for property in properties {
            let name = current_name(&property.name);
            if self.set.get(name).is_some_and(|stored| stored.is_final || matches!(stored.source, Source::Set)) {
                continue;
            }
            let name = name.to_owned();
            let stored = Stored {
                value: property.value,
                unexpanded: None,
                source: Source::File(property.file),
                line: Some(property.line),
                deprecated: (name != property.name).then_some(property.name),
                is_final: property.is_final,
            };
            self.set.insert(name, stored);
        }
        Ok(())
    }

    /// Sets a value. It overrides values from files, even final ones (Hadoop's rule for programs and `-D`).
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        let current = current_name(name);
        let stored = Stored {
            value: value.into(),
            unexpanded: None,
            source: Source::Set,
            line: None,
            deprecated: (current != name).then(|| name.to_owned()),
            is_final: false,
        };
        self.set.insert(current.to_owned(), stored);
    }

    /// Like `set`, for building a configuration in an expression.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    /// Copies the expanded value of `from` to `to`, even if `to` has a value. Returns false if `from` has none.
    pub(crate) fn copy(&mut self, from: &str, to: &str) -> Result<bool, ConfigError> {
        let Some(value) = self.get_as(from, crate::parse::text)? else { return Ok(false) };
        let stored = Stored { value, unexpanded: None, ..self.set[current_name(from)].clone() };
        self.set.insert(current_name(to).to_owned(), stored);
        Ok(true)
    }

    /// Takes over the expanded value of a key from another configuration, or its default if it is unset there.
    pub(crate) fn adopt(&mut self, name: &str, from: &Self) -> Result<(), ConfigError> {
        match from.set.get(name) {
            Some(stored) => {
                let value = from.expanded(name, &stored.value)?.trim().to_owned();
                self.set.insert(name.to_owned(), stored.with_text(value));
            }
            None => self.unset(name),
        }
        Ok(())
    }

    /// Expands each value that refers to a key for which `may_change` is true, directly or through other keys. The
    /// value then stays as it is when that key changes. Values that cannot be expanded are left unexpanded.
    pub(crate) fn fix_references(&mut self, may_change: impl Fn(&str) -> bool) {
        let mut fixed = Vec::new();
        for (name, stored) in &self.set {
            let refers = Cell::new(false);
            let lookup = |variable: &str| {
                let variable = current_name(variable);
                refers.set(refers.get() || may_change(variable));
                self.raw(variable).map(str::to_owned)
            };
            if let Ok(text) = expand(&stored.value, &self.environment, lookup)
                && refers.get()
            {
                fixed.push((name.clone(), stored.with_text(text)));
            }
        }
        self.set.extend(fixed);
    }

    /// Resets a key to its default.
    pub fn unset(&mut self, name: &str) {
        self.set.remove(current_name(name));
    }

    /// Returns the value of a typed key, or its default if it is unset.
    ///
    /// Errors: `Value`, with the key, the text and the file, if the text is not valid for the key.
    pub fn get<K: ConfigKey>(&self, key: K) -> Result<K::Value, ConfigError> {
        key.read(self)
    }

    /// Duration that [`timeout`](Self::timeout) returns for 0.
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

    /// Like [`get`](Self::get), for a time-out or an interval. In Hadoop's keys 0 means "forever". Here it means one
    /// day, because every wait must end.
    pub fn timeout<K: ConfigKey<Value = Duration>>(&self, key: K) -> Result<Duration, ConfigError> {
        let wait = self.get(key)?;
        Ok(if wait.is_zero() { Self::TIMEOUT_MAX } else { wait })
    }

    /// Returns the expanded and trimmed text of any key, or of its built-in default. `None` if there is no value or it
    /// is empty.
    pub fn text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        let name = current_name(name);
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let expanded = self.expanded(name, raw)?;
        let trimmed = expanded.trim();
        Ok((!trimmed.is_empty()).then(|| trimmed.to_owned()))
    }

    /// Returns the value of a key whose name is known only at run time (`dfs.namenode.rpc-address.NS.NN`), read by a
    /// parser of [`crate::parse`]. `None` if it is unset or empty; built-in defaults are ignored.
    pub fn get_as<T>(&self, name: &str, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, ConfigError> {
        let name = current_name(name);
        let Some(stored) = self.set.get(name) else { return Ok(None) };
        let expanded = self.expanded(name, &stored.value)?;
        let value = expanded.trim();
        if value.is_empty() {
            return Ok(None);
        }
        parse(value).map(Some).map_err(|wanted| self.value_error(name, value, wanted))
    }

    pub(crate) fn parse_default<T>(
        &self,
        name: &str,
        default: &str,
        parse: fn(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let expanded = self.expanded(name, default)?;
        parse(expanded.trim()).map_err(|wanted| self.value_error(name, &expanded, wanted))
    }

    /// Returns true if a file or the program set the key, to whatever value.
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains_key(current_name(name))
    }

    /// Returns the sorted names of all keys that were set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.set.keys().map(String::as_str)
    }

    /// Creates an error about the value of `name`, for checks that involve more than one key.
    pub fn value_error(&self, name: &str, value: &str, wanted: impl Into<String>) -> ConfigError {
        ConfigError::Value {
            key: name.to_owned(),
            value: value.to_owned(),
            source_name: self.place(name),
            wanted: wanted.into(),
        }
    }

    /// Returns where the value of a key, or its default, comes from.
    pub(crate) fn place(&self, name: &str) -> String {
        match self.set.get(current_name(name)) {
            Some(stored) => place(&stored.source, stored.line),
            None => default_source(name).to_string(),
        }
    }

    /// Checks the value of a key, or its default, against the table of keys. `name`: the key, possibly with the suffix
    /// of a nameservice or NameNode. An unset key without a default is valid.
    ///
    /// Errors: `Value`, with a description of valid values.
    pub(crate) fn check_value(&self, name: &str, key: &KeyInfo) -> Result<(), ConfigError> {
        let value = match self.get_as(name, crate::parse::text)? {
            Some(value) => value,
            None => match key.default.filter(|default| name == key.name && !default.is_empty()) {
                Some(default) => self.expanded(name, default)?.trim().to_owned(),
                None => return Ok(()),
            },
        };
        key.check(&value).map_err(|wanted| self.value_error(name, &value, wanted))
    }

    /// Returns all entries, including defaults, sorted by name.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let defaults = keys::ALL.iter().filter_map(|key| {
            let value = key.default?;
            (!self.set.contains_key(key.name)).then(|| Entry {
                name: key.name,
                value,
                source: default_source(key.name),
                line: None,
                deprecated: None,
                is_final: false,
            })
        });
        let mut entries: Vec<_> = defaults.chain(self.entries_set()).collect();
        entries.sort_by_key(|entry| entry.name);
        entries
    }

    /// Returns the entries set by files or the program, sorted by name.
    pub fn entries_set(&self) -> impl Iterator<Item = Entry<'_>> {
        self.set.iter().map(|(name, stored)| Entry {
            name,
            value: &stored.value,
            source: stored.source.clone(),
            line: stored.line,
            deprecated: stored.deprecated.as_deref(),
            is_final: stored.is_final,
        })
    }

    /// Like [`entries`](Self::entries), but with secret values redacted, for display (`/conf`).
    pub fn redacted_entries(&self) -> Vec<Entry<'_>> {
        let mut entries = self.entries();
        for entry in &mut entries {
            entry.value = redacted(entry.name, entry.value);
        }
        entries
    }

    /// Writes all values that were set, without expanding them, as `core-site.xml` and `hdfs-site.xml` into `dir`,
    /// which is created if missing. Any Hadoop client can use it as HADOOP_CONF_DIR.
    pub fn write_dir(&self, dir: &Path) -> Result<(), ConfigError> {
        let wrong = |path: &Path, source| ConfigError::Write { path: path.to_owned(), source };
        std::fs::create_dir_all(dir).map_err(|source| wrong(dir, source))?;
        for (file, core) in [("core-site.xml", true), ("hdfs-site.xml", false)] {
            let path = dir.join(file);
            let rows = self.set.iter().filter(|(name, _)| KeyInfo::is_core(name) == core);
            let text = to_xml(rows.map(|(name, stored)| (name.as_str(), stored.value.as_str())));
            std::fs::write(&path, text).map_err(|source| wrong(&path, source))?;
        }
        Ok(())
    }

    /// Returns the unexpanded value of a key, or its default. `name`: not a deprecated one.
    fn raw(&self, name: &str) -> Option<&str> {
        self.set.get(name).map(|stored| stored.value.as_str()).or_else(|| default_of(name))
    }

    fn expanded(&self, name: &str, raw: &str) -> Result<String, ConfigError> {
        if !raw.contains("${") {
            return Ok(raw.to_owned());
        }
        let lookup = |variable: &str| self.raw(current_name(variable)).map(str::to_owned);
        expand(raw, &self.environment, lookup)
            .map_err(|()| ConfigError::ExpansionDepth { key: name.to_owned(), value: raw.to_owned() })
    }
}

const REDACTED: &str = "<redacted>";

/// Returns the value for display: a placeholder if the key is that of a secret.
pub(crate) fn redacted<'a>(name: &str, value: &'a str) -> &'a str {
    if is_sensitive(name) { REDACTED } else { value }
}

/// Returns true for keys whose value is a secret. Source: core-default.xml, `hadoop.security.sensitive-config-keys`. A
/// configured value of that key is ignored.
fn is_sensitive(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let ends = ["secret", "password", "keystore.pass", "credential"];
    let begins = [
        "fs.azure.account.key.",
        "fs.azure.oauth2.",
        "fs.adl.oauth2.",
        "fs.gs.encryption.",
        "fs.gs.proxy.",
        "fs.gs.auth.",
    ];
    let of_s3 =
        ["secret", "encryption.key", "encryption.algorithm", "encryption-algorithm", "session.key", "session.token"];
    let of_oauth = ["secret", "password", "token"];
    ends.iter().any(|end| name.ends_with(end))
        || begins.iter().any(|begin| name.starts_with(begin))
        || name.starts_with("fs.s3") && of_s3.iter().any(|part| name.contains(part))
        || name.split_once("oauth").is_some_and(|(_, rest)| of_oauth.iter().any(|part| rest.contains(part)))
}

fn default_of(name: &str) -> Option<&'static str> {
    keys::ALL.iter().find(|key| key.name == name).and_then(|key| key.default)
}

fn default_source(name: &str) -> Source {
    Source::Default(if name.starts_with("hearth.") {
        "hearth-default"
    } else if KeyInfo::is_core(name) {
        "core-default.xml"
    } else {
        "hdfs-default.xml"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn later_files_override_earlier_nonfinal_values() {
        let dir = tempfile::tempdir().unwrap();
        let core = "<configuration><property><name>fs.default.name</name><value>hdfs://nn:1</value><final>true</final>
            </property><property><name>dfs.replication</name><value>2</value></property></configuration>";
        let hdfs = "<configuration><property><name>fs.defaultFS</name><value>hdfs://other:1</value></property>
            <property><name>dfs.replication</name><value>five</value></property></configuration>";
        std::fs::write(dir.path().join("core-site.xml"), core).unwrap();
        std::fs::write(dir.path().join("hdfs-site.xml"), hdfs).unwrap();
        let mut conf = Configuration::load_dir(dir.path(), Environment::empty()).unwrap();
        assert_eq!(conf.get(keys::FS_DEFAULT_FS).unwrap(), "hdfs://nn:1");
        let error = conf.get(keys::DFS_REPLICATION).unwrap_err().to_string();
        assert!(error.contains("dfs.replication") && error.contains("five"), "{error}");
        assert!(error.contains("hdfs-site.xml line 2"), "{error}");
        conf.set("fs.default.name", "hdfs://set");
        assert_eq!(conf.get(keys::FS_DEFAULT_FS).unwrap(), "hdfs://set");
        // The set value also overrides a file that is read later.
        conf.set("my.own", "set");
        let later = dir.path().join("later.xml");
        let text = "<configuration><property><name>my.own</name><value>x</value></property>
            <property><name>my.other</name><value>x</value></property></configuration>";
        std::fs::write(&later, text).unwrap();
        conf.add_file(&later).unwrap();
        let of = |name| conf.entries().into_iter().find(|entry| entry.name == name).unwrap().value.to_owned();
        assert_eq!((of("my.own").as_str(), of("my.other").as_str()), ("set", "x"));
    }

    #[test]
    fn reread_keeps_values_set_by_programs() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, name: &str, value: &str| {
            let text = format!(
                "<configuration><property><name>{name}</name><value>{value}</value></property></configuration>"
            );
            std::fs::write(dir.path().join(file), text).unwrap();
        };
        write("core-site.xml", "a.key", "old");
        write("more.xml", "b.key", "old");
        let mut conf = Configuration::load_dir(dir.path(), Environment::empty()).unwrap();
        conf.add_file(&dir.path().join("more.xml")).unwrap();
        conf.set("c.key", "set");
        let of = |conf: &Configuration, name: &str| conf.text(name).unwrap().unwrap_or_default();
        write("core-site.xml", "a.key", "new");
        // This file did not exist before.
        write("hdfs-site.xml", "c.key", "new");
        write("more.xml", "d.key", "new");
        let again = conf.reread().unwrap();
        assert_eq!(["a.key", "b.key", "c.key", "d.key"].map(|name| of(&again, name)), ["new", "", "set", "new"]);
        assert_eq!(of(&conf, "a.key"), "old");
        std::fs::remove_file(dir.path().join("core-site.xml")).unwrap();
        assert_eq!(of(&again.reread().unwrap(), "a.key"), "");
        std::fs::remove_file(dir.path().join("more.xml")).unwrap();
        assert!(again.reread().is_err());
    }

    #[test]
    fn secrets_are_redacted() {
        for secret in [
            "my.client.secret",
            "ssl.server.keystore.password",
            "ssl.keystore.pass",
            "fs.s3a.secret.key",
            "fs.s3a.bucket.logs.secret.key",
            "fs.s3a.bucket.logs.session.token",
            "fs.s3a.bucket.logs.server-side-encryption.key",
            "fs.s3a.encryption.key",
            "fs.azure.account.key.me.blob.core.windows.net",
            "fs.azure.account.oauth2.client.secret",
            "dfs.webhdfs.oauth2.refresh.token",
            "my.credential",
        ] {
            let conf = Configuration::empty().with(secret, "hidden");
            let shown = conf.redacted_entries().into_iter().find(|entry| entry.name == secret).unwrap();
            assert_eq!(shown.value, REDACTED, "{secret}");
        }
        for plain in ["dfs.block.access.token.enable", "fs.s3a.endpoint", "hadoop.security.credential.provider.path"] {
            let conf = Configuration::empty().with(plain, "shown");
            assert!(
                conf.redacted_entries().iter().any(|entry| entry.name == plain && entry.value == "shown"),
                "{plain}"
            );
        }
    }

    #[test]
    fn only_a_missing_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Configuration::load_dir(&dir.path().join("no"), Environment::empty()).is_err());
        let conf = Configuration::load_dir(dir.path(), Environment::empty()).unwrap();
        assert_eq!(conf.get(keys::DFS_REPLICATION).unwrap(), 3);
    }

    #[test]
    fn every_default_parses() {
        let conf = Configuration::empty().with_environment(Environment::empty().with_property("user.name", "ada"));
        for key in keys::ALL {
            conf.check_value(key.name, key).unwrap();
        }
        assert_eq!(conf.get(keys::DFS_HEARTBEAT_INTERVAL).unwrap(), Duration::from_secs(3));
        let dirs = conf.get(keys::DFS_DATANODE_DATA_DIR).unwrap();
        assert_eq!(dirs[0].path, Path::new("/tmp/hadoop-ada/dfs/data"));
    }

    #[test]
    fn empty_values_use_the_default() {
        let conf = Configuration::empty().with("dfs.replication", "  ").with("my.own", "x");
        assert_eq!(conf.get(keys::DFS_REPLICATION).unwrap(), 3);
        let entries = conf.entries();
        assert!(entries.is_sorted_by_key(|entry| entry.name));
        let own = entries.iter().find(|entry| entry.name == "my.own").unwrap();
        assert_eq!(own.source, Source::Set);
        let block = entries.iter().find(|entry| entry.name == "dfs.blocksize").unwrap();
        assert_eq!((block.value, block.source.to_string().as_str()), ("134217728", "hdfs-default.xml"));
        assert_eq!(entries.iter().filter(|entry| entry.name == "dfs.replication").count(), 1);
    }

    #[test]
    fn a_written_directory_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let conf = Configuration::empty().with("fs.defaultFS", "hdfs://h:1").with("dfs.replication", "1");
        conf.write_dir(&dir.path().join("conf")).unwrap();
        let back = Configuration::load_dir(&dir.path().join("conf"), Environment::empty()).unwrap();
        assert_eq!(back.get(keys::FS_DEFAULT_FS).unwrap(), "hdfs://h:1");
        assert_eq!(back.get(keys::DFS_REPLICATION).unwrap(), 1);
        let core = std::fs::read_to_string(dir.path().join("conf/core-site.xml")).unwrap();
        assert!(!core.contains("dfs.replication"));
    }
}
