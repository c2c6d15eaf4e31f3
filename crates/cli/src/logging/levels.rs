//! Levels of the log that change while the process runs: the page of the log, `/logLevel`, `hadoop daemonlog`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hearth_web::log_level::{LogLevels, ModuleLevel};
use tracing_subscriber::EnvFilter;

use super::level;

/// Packages of Apache's servers, and the modules that do the same here. More specific ones first.
const MODULES: [(&str, &str); 8] = [
    ("org.apache.hadoop.hdfs.server.blockmanagement", "hearth_namenode::blocks"),
    ("org.apache.hadoop.hdfs.server.namenode", "hearth_namenode"),
    ("org.apache.hadoop.hdfs.server.datanode", "hearth_datanode"),
    ("org.apache.hadoop.hdfs.web", "hearth_webhdfs"),
    ("org.apache.hadoop.http", "hearth_web"),
    ("org.apache.hadoop.ipc", "hearth_protocol::rpc"),
    ("org.apache.hadoop", ""),
    ("root", ""),
];

/// Longest name of a module, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Maximum number of modules whose level was changed.
const CHANGED_MAX: usize = 100;

/// Puts a filter into force.
pub type Reload = Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>;

/// Level by module; all modules have the empty name.
type Changes = BTreeMap<String, &'static str>;

/// Levels at the start, and those that were changed since.
pub struct Levels {
    /// Directives at the start, such as `info,hearth_datanode=debug`.
    start: String,
    changed: Mutex<Changes>,
    reload: Reload,
}

impl Levels {
    pub fn new(start: String, reload: Reload) -> Self {
        Self { start, changed: Mutex::default(), reload }
    }

    fn changed(&self) -> MutexGuard<'_, Changes> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `next` into force, and into the place of `changed`.
    fn apply(&self, changed: &mut Changes, next: Changes) -> Result<(), String> {
        let filter = EnvFilter::try_new(directives(&self.start, &next)).map_err(|error| error.to_string())?;
        (self.reload)(filter)?;
        *changed = next;
        Ok(())
    }
}

impl LogLevels for Levels {
    fn at_start(&self) -> String {
        self.start.clone()
    }

    fn all(&self) -> Vec<ModuleLevel> {
        // The empty name is the least, so all modules are the first entry.
        let mut all = BTreeMap::from([(String::new(), ("off", false))]);
        for (module, level) in parts(&self.start) {
            all.insert(module.to_owned(), (level, false));
        }
        for (module, level) in self.changed().iter() {
            all.insert(module.clone(), (*level, true));
        }
        let all = all.into_iter();
        all.map(|(module, (level, changed))| ModuleLevel { module, level: capitals(level), changed }).collect()
    }

    fn effective(&self, name: &str) -> (String, &'static str) {
        let module = module_of(name);
        let level = level_of(&directives(&self.start, &self.changed()), module);
        (shown(module).to_owned(), level)
    }

    fn set(&self, name: &str, new: &str) -> Result<(), String> {
        let module = module_of(name);
        if module.len() > NAME_BYTES_MAX {
            return Err(format!("the name has more than {NAME_BYTES_MAX} bytes"));
        }
        if !module.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':') {
            return Err("wanted a module such as hearth_datanode, a class of Hadoop, or root".to_owned());
        }
        let new = level(new)?;
        let mut changed = self.changed();
        if changed.len() >= CHANGED_MAX && !changed.contains_key(module) {
            return Err(format!(
                "the levels of {CHANGED_MAX} modules were changed; reset one of these, or restart the server"
            ));
        }
        let mut next = changed.clone();
        next.insert(module.to_owned(), new);
        self.apply(&mut changed, next)
    }

    fn reset(&self, name: Option<&str>) -> Result<(), String> {
        let mut changed = self.changed();
        let mut next = changed.clone();
        match name.map(module_of) {
            None => next.clear(),
            Some(module) => {
                if next.remove(module).is_none() {
                    return Err(format!("that of {} was not changed since the start", shown(module)));
                }
            }
        }
        self.apply(&mut changed, next)
    }

    fn is_administrator(&self, user: &str) -> bool {
        user == crate::configuration::user()
    }
}

/// Returns the module that a name stands for: itself, or that of a Java class. Empty for all modules.
fn module_of(name: &str) -> &str {
    let is_of = |package: &str| name.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    MODULES.iter().find(|(package, _)| is_of(package)).map_or(name, |(_, module)| *module)
}

/// Returns the name of a module for a person.
fn shown(module: &str) -> &str {
    if module.is_empty() { "all modules" } else { module }
}

/// Of two directives for the same module, the later one counts.
fn directives(start: &str, changed: &Changes) -> String {
    let mut all = start.to_owned();
    for (module, level) in changed {
        let separator = if module.is_empty() { "" } else { "=" };
        all.push_str(&format!(",{module}{separator}{level}"));
    }
    all
}

/// Returns the modules and levels of directives. Those for spans do not name a module and are left out.
fn parts(directives: &str) -> impl Iterator<Item = (&str, &'static str)> {
    let directives = directives.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    directives.filter_map(|directive| {
        let (module, text) = match directive.rsplit_once('=') {
            Some(parts) => parts,
            None if level(directive).is_ok() => ("", directive),
            // A module alone has all levels.
            None => (directive, "trace"),
        };
        let is_span = module.contains('[');
        level(text).ok().filter(|_| !is_span).map(|level| (module, level))
    })
}

/// Returns the level of a module in capitals: that of the most specific directive, of which the last counts.
fn level_of(directives: &str, module: &str) -> &'static str {
    let mut found = (0, "off");
    for (name, level) in parts(directives) {
        if module.starts_with(name) && name.len() >= found.0 {
            found = (name.len(), level);
        }
    }
    capitals(found.1)
}

fn capitals(level: &str) -> &'static str {
    match level {
        "error" => "ERROR",
        "warn" => "WARN",
        "info" => "INFO",
        "debug" => "DEBUG",
        "trace" => "TRACE",
        _ => "OFF",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn levels_change_by_module_and_by_class() {
        let filters = Arc::new(Mutex::new(Vec::new()));
        let seen = filters.clone();
        let reload = move |filter: EnvFilter| {
            seen.lock().unwrap().push(filter.to_string());
            Ok(())
        };
        let levels = Levels::new("info,hearth_datanode=debug".to_owned(), Box::new(reload));
        let of = |name: &str| levels.effective(name).1;
        assert_eq!((of("root"), of("hearth_namenode::ops"), of("hearth_datanode::ops")), ("INFO", "INFO", "DEBUG"));
        assert_eq!(levels.effective("org.apache.hadoop.hdfs.server.datanode.DataNode").0, "hearth_datanode");
        assert_eq!(levels.effective("org.apache.hadoop.hdfs.server.namenodes"), ("all modules".to_owned(), "INFO"));
        levels.set("org.apache.hadoop.hdfs.server.namenode.NameNode", "trace").unwrap();
        levels.set("root", "WARN").unwrap();
        levels.set("hearth_datanode", "Error").unwrap();
        assert_eq!((of(""), of("hearth_namenode::ops"), of("hearth_datanode")), ("WARN", "TRACE", "ERROR"));
        let filter = filters.lock().unwrap().last().unwrap().clone();
        for part in ["hearth_namenode=trace", "hearth_datanode=error", "warn"] {
            assert!(filter.contains(part), "{part}: {filter}");
        }
        assert!(!filter.contains("info") && !filter.contains("debug"), "{filter}");
        assert!(levels.set("hearth_datanode", "loud").unwrap_err().contains("DEBUG"));
        assert!(levels.set("a,b=c", "info").unwrap_err().contains("module"));
        assert_eq!(filters.lock().unwrap().len(), 3);
    }

    #[test]
    fn levels_are_listed_and_reset() {
        let start = "info,hearth_datanode=debug,a[span{x=1}]=trace";
        let levels = Levels::new(start.to_owned(), Box::new(|_| Ok(())));
        let listed = || -> Vec<(String, &str, bool)> {
            levels.all().into_iter().map(|entry| (entry.module, entry.level, entry.changed)).collect()
        };
        let entry = |module: &str, level: &'static str, changed: bool| (module.to_owned(), level, changed);
        let at_start = [entry("", "INFO", false), entry("hearth_datanode", "DEBUG", false)];
        assert_eq!((levels.at_start().as_str(), listed()), (start, at_start.to_vec()));
        levels.set("hearth_web", "trace").unwrap();
        levels.set("hearth_datanode", "warn").unwrap();
        levels.set("root", "error").unwrap();
        let changed =
            [entry("", "ERROR", true), entry("hearth_datanode", "WARN", true), entry("hearth_web", "TRACE", true)];
        assert_eq!(listed(), changed);
        levels.reset(Some("org.apache.hadoop.hdfs.server.datanode")).unwrap();
        assert_eq!(listed()[1], entry("hearth_datanode", "DEBUG", false));
        let refused = levels.reset(Some("hearth_datanode")).unwrap_err();
        assert_eq!(refused, "that of hearth_datanode was not changed since the start");
        levels.reset(Some("")).unwrap();
        assert_eq!(listed()[0], entry("", "INFO", false));
        levels.reset(None).unwrap();
        assert_eq!(listed(), at_start);
        // Without a level for all modules, the others are off.
        assert_eq!(Levels::new("a=debug".to_owned(), Box::new(|_| Ok(()))).all()[0].level, "OFF");
    }

    #[test]
    fn number_and_length_of_names_are_limited() {
        let levels = Levels::new("info".to_owned(), Box::new(|_| Ok(())));
        assert!(levels.set(&"m".repeat(NAME_BYTES_MAX + 1), "debug").unwrap_err().contains("128 bytes"));
        levels.set("", "warn").unwrap();
        for number in 1..CHANGED_MAX {
            levels.set(&format!("m{number}"), "debug").unwrap();
        }
        assert!(levels.set("one_more", "debug").unwrap_err().contains("100 modules"));
        assert_eq!(levels.effective("one_more").1, "WARN");
        levels.set("m1", "error").unwrap();
        assert_eq!(levels.effective("m1").1, "ERROR");
    }

    #[test]
    fn levels_follow_from_directives() {
        for (directives, module, level) in [
            ("", "x", "OFF"),
            ("warn", "x", "WARN"),
            ("hearth_datanode", "hearth_datanode::ops", "TRACE"),
            ("info,a=off", "a::b", "OFF"),
            ("info,a=off,a::b=debug", "a::b::c", "DEBUG"),
            ("a[span{x=1}]=debug,info", "b", "INFO"),
        ] {
            assert_eq!(level_of(directives, module), level, "{directives} {module}");
        }
    }
}
