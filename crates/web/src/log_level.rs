//! Levels of the log, shown and changed while the server runs: `/logLevel`, in the form that `hadoop daemonlog` reads,
//! and the data of the user interface ([`INTERFACE_PATH`]). Source of the former: LogLevel.java of Hadoop 3.4.
//!
//! A process has one log, which its start registers here. So all sites of a process show and change the same levels.

use std::net::IpAddr;
use std::sync::OnceLock;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::page::escape;
use crate::site::Query;
use crate::webhdfs::Exception;

/// Path of the page that `hadoop daemonlog` uses.
pub(crate) const PATH: &str = "/logLevel";
/// Path of the user interface's data: `GET` shows the levels, `PUT` changes one, `DELETE` takes changes back.
pub const INTERFACE_PATH: &str = "/ui/log-level";
/// Parameter of `/logLevel`: the name of a log.
const LOG: &str = "log";
/// Parameter of the user interface: the name of a module, or of one of Java's classes; empty for all modules.
const MODULE: &str = "module";
/// Parameter: the new level.
pub(crate) const LEVEL: &str = "level";
/// Parameter: the user who asks.
const USER: &str = "user.name";
/// Starts of the User-Agent header of browsers.
const BROWSERS: [&str; 2] = ["Mozilla", "Opera"];
/// Apache's tool prints the lines that begin with this, without their tags.
const MARKER: &str = "<!-- OUTPUT -->";

/// Level of a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleLevel {
    /// Empty for all modules without an entry of their own.
    pub module: String,
    /// In capitals.
    pub level: &'static str,
    /// Whether the level was changed since the start.
    pub changed: bool,
}

/// The log of a process.
pub trait LogLevels: Send + Sync {
    /// Returns the filter that the process was started with, such as `info,hearth_datanode=debug`.
    fn at_start(&self) -> String;

    /// Returns the levels in force, those of all modules first.
    fn all(&self) -> Vec<ModuleLevel>;

    /// Returns the name of the log that `name` stands for, such as a module for one of Java's classes, and its level in
    /// capitals.
    fn effective(&self, name: &str) -> (String, &'static str);

    /// Changes a level until the process ends. Level names may have any case.
    ///
    /// Errors: the name or the level is not valid; says what is.
    fn set(&self, name: &str, level: &str) -> Result<(), String>;

    /// Gives a module the level of the start again. `None`: all modules.
    ///
    /// Errors: the level of this module was not changed.
    fn reset(&self, name: Option<&str>) -> Result<(), String>;

    /// Returns whether a user may change levels from other machines.
    fn is_administrator(&self, user: &str) -> bool;
}

static LEVELS: OnceLock<Box<dyn LogLevels>> = OnceLock::new();

/// Makes the levels of a log available at `/logLevel`. Called at most once.
pub fn register_log_levels(levels: Box<dyn LogLevels>) {
    assert!(LEVELS.set(levels).is_ok(), "the log is registered once");
}

/// Answers a request for `/logLevel`. Everyone may look. Only administrators, and users of this machine, may change a
/// level, and no page in a browser may do it for them.
pub(crate) fn answer(query: &Query, headers: &HeaderMap, peer: IpAddr) -> Response {
    let Some(levels) = LEVELS.get() else {
        return (StatusCode::NOT_FOUND, "the levels of this process's log cannot change").into_response();
    };
    let level = query.get(LEVEL).map(String::as_str).filter(|level| !level.is_empty());
    if level.is_some()
        && let Err(refusal) = check_change(&**levels, query, headers, peer)
    {
        return (StatusCode::FORBIDDEN, refusal).into_response();
    }
    let text = page(&**levels, query.get(LOG).map_or("", String::as_str), level);
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// `hadoop daemonlog` names no user, so it must connect to localhost to change a level.
fn check_change(levels: &dyn LogLevels, query: &Query, headers: &HeaderMap, peer: IpAddr) -> Result<(), &'static str> {
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    if BROWSERS.iter().any(|browser| agent.starts_with(browser)) {
        return Err("browsers may not change levels here; use the page Log at /#log, hadoop daemonlog or curl");
    }
    match is_administrator(Some(levels), query, peer) {
        true => Ok(()),
        false => {
            Err("only the user that runs the server may change levels: add user.name=USER, or connect to localhost")
        }
    }
}

/// Returns whether a request is of the user that runs the server, or names no user and comes from this machine.
pub fn is_of_administrator(query: &Query, peer: IpAddr) -> bool {
    is_administrator(LEVELS.get().map(|levels| &**levels), query, peer)
}

/// Allows only administrators and users of this machine to read the log and to change its levels, and refuses others
/// with 403.
pub fn check_administrator(query: &Query, peer: IpAddr) -> Result<(), Exception> {
    match is_of_administrator(query, peer) {
        true => Ok(()),
        false => {
            let message = "only the user that runs this server may read its log and change its levels: choose that \
                           user (user.name=USER), or open this page on the server's machine, at localhost";
            Err(Exception::new("org.apache.hadoop.security.AccessControlException", message))
        }
    }
}

/// Returns the levels as `{"start": ..., "levels": [{"module": ..., "level": ..., "changed": ...}], "administrators":
/// ...}`. `administrators`: text that says which users may change them. The caller has checked the
/// user.
pub fn shown(administrators: &str) -> Result<Value, Exception> {
    let levels = registered()?;
    let entry = |one: ModuleLevel| json!({ "module": one.module, "level": one.level, "changed": one.changed });
    let all: Vec<Value> = levels.all().into_iter().map(entry).collect();
    Ok(json!({ "start": levels.at_start(), "levels": all, "administrators": administrators }))
}

/// Changes the level of `module` to `level`. `user`: the user of the request, whom the caller has checked. Returns the
/// module and its new level.
///
/// Errors: a parameter is missing or not valid, or the levels of this process cannot change.
pub async fn change(query: Query, user: String) -> Result<Value, Exception> {
    let module = needed(&query, MODULE, "a module, or an empty value for all")?;
    let level = needed(&query, LEVEL, "a level, such as DEBUG")?;
    on_thread(move |levels| {
        let refused = |reason: String| {
            Exception::illegal_argument(format!("cannot set the level of '{module}' to '{level}': {reason}"))
        };
        levels.set(&module, &level).map_err(refused)?;
        let (log, level) = levels.effective(&module);
        tracing::warn!(log, level, user, "log level changed");
        Ok(json!({ "module": log, "level": level }))
    })
    .await
}

/// Gives `module`, or without this parameter all modules, the level of the start again. `user`: as in [`change`].
/// Returns the module and its level.
///
/// Errors: the level was not changed, or the levels of this process cannot change.
pub async fn reset(query: Query, user: String) -> Result<Value, Exception> {
    on_thread(move |levels| {
        let module = query.get(MODULE).map(String::as_str);
        let refused = |reason: String| Exception::illegal_argument(format!("cannot reset the level: {reason}"));
        levels.reset(module).map_err(refused)?;
        let (log, level) = levels.effective(module.unwrap_or_default());
        tracing::warn!(log, level, user, "log level reset");
        Ok(json!({ "module": log, "level": level }))
    })
    .await
}

fn needed(query: &Query, name: &str, wanted: &str) -> Result<String, Exception> {
    let missing = || Exception::illegal_argument(format!("{name} is missing: wanted {wanted}"));
    query.get(name).cloned().ok_or_else(missing)
}

fn registered() -> Result<&'static dyn LogLevels, Exception> {
    let missing = || Exception::unsupported("the levels of this process's log cannot change");
    LEVELS.get().map(|levels| &**levels).ok_or_else(missing)
}

/// Runs `work` on a thread that may block, because a change builds the whole filter.
async fn on_thread(
    work: impl FnOnce(&dyn LogLevels) -> Result<Value, Exception> + Send + 'static,
) -> Result<Value, Exception> {
    let levels = registered()?;
    let done = tokio::task::spawn_blocking(move || work(levels)).await;
    done.unwrap_or_else(|error| Err(Exception::io(error.to_string())))
}

/// Returns whether the request is of an administrator. A request without a user must come from this machine. Without
/// `levels`, no user is an administrator.
fn is_administrator(levels: Option<&dyn LogLevels>, query: &Query, peer: IpAddr) -> bool {
    match query.get(USER).filter(|user| !user.is_empty()) {
        Some(user) => levels.is_some_and(|levels| levels.is_administrator(user)),
        None => peer.is_loopback(),
    }
}

/// Changes the level if one is given, and returns the page.
fn page(levels: &dyn LogLevels, name: &str, level: Option<&str>) -> String {
    let mut lines = vec![format!("Submitted Class Name: <b>{}</b>", escape(name))];
    let (log, _) = levels.effective(name);
    lines.push(format!("Log Class: <b>{}</b>", escape(&log)));
    if let Some(level) = level {
        lines.push(format!("Submitted Level: <b>{}</b>", escape(level)));
        lines.push(match levels.set(name, level) {
            Ok(()) => {
                tracing::warn!(log, level, "log level changed");
                format!("Setting Level to {} ...", escape(level))
            }
            Err(reason) => format!("Bad Level : <b>{}</b>: {}", escape(level), escape(&reason)),
        });
    }
    lines.push(format!("Effective Level: <b>{}</b>", levels.effective(name).1));
    let lines: String = lines.iter().map(|line| format!("{MARKER}{line}<br />\n")).collect();
    format!(
        "<!DOCTYPE html>\n<html><head><title>Log Level</title></head><body><h1>Log Level</h1>\n{lines}</body></html>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use axum::http::HeaderValue;
    use parking_lot::Mutex;

    use super::*;

    /// One log with one level.
    struct One(Mutex<&'static str>);

    impl LogLevels for One {
        fn at_start(&self) -> String {
            "info".to_owned()
        }

        fn all(&self) -> Vec<ModuleLevel> {
            let level = *self.0.lock();
            vec![ModuleLevel { module: String::new(), level, changed: level != "INFO" }]
        }

        fn effective(&self, name: &str) -> (String, &'static str) {
            (format!("log of {name}"), *self.0.lock())
        }

        fn set(&self, _: &str, level: &str) -> Result<(), String> {
            match level {
                "DEBUG" => *self.0.lock() = "DEBUG",
                _ => return Err("wanted DEBUG".to_owned()),
            }
            Ok(())
        }

        fn reset(&self, _: Option<&str>) -> Result<(), String> {
            match std::mem::replace(&mut *self.0.lock(), "INFO") {
                "INFO" => Err("it was not changed".to_owned()),
                _ => Ok(()),
            }
        }

        fn is_administrator(&self, user: &str) -> bool {
            user == "root"
        }
    }

    /// Lines that Apache's tool prints.
    fn printed(page: &str) -> Vec<&str> {
        page.lines().filter_map(|line| line.strip_prefix(MARKER)).collect()
    }

    #[test]
    fn lines_are_those_of_apaches_page() {
        let levels = One(Mutex::new("INFO"));
        let shown = page(&levels, "a<b", None);
        let wanted = [
            "Submitted Class Name: <b>a&lt;b</b><br />",
            "Log Class: <b>log of a&lt;b</b><br />",
            "Effective Level: <b>INFO</b><br />",
        ];
        assert_eq!(printed(&shown), wanted);
        let changed = page(&levels, "x", Some("DEBUG"));
        let lines = printed(&changed);
        assert_eq!(
            lines[2..],
            [
                "Submitted Level: <b>DEBUG</b><br />",
                "Setting Level to DEBUG ...<br />",
                "Effective Level: <b>DEBUG</b><br />",
            ]
        );
        let refused = page(&levels, "x", Some("<LOUD>"));
        assert_eq!(printed(&refused)[3], "Bad Level : <b>&lt;LOUD&gt;</b>: wanted DEBUG<br />");
    }

    fn query(parameters: &[(&str, &str)]) -> Query {
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[tokio::test]
    async fn user_interface_changes_and_resets_levels() {
        // For all tests of this program. None of the others depends on whether a log is registered.
        register_log_levels(Box::new(One(Mutex::new("INFO"))));
        let root = || "root".to_owned();
        let before = shown("superusers").unwrap();
        let all = json!([{ "module": "", "level": "INFO", "changed": false }]);
        assert_eq!(before, json!({ "start": "info", "levels": all, "administrators": "superusers" }));

        let changed = change(query(&[("module", "a"), ("level", "DEBUG")]), root()).await.unwrap();
        assert_eq!(changed, json!({ "module": "log of a", "level": "DEBUG" }));
        let entry = &shown("superusers").unwrap()["levels"][0];
        assert_eq!((&entry["level"], &entry["changed"]), (&json!("DEBUG"), &json!(true)));
        for (parameters, named) in [
            (query(&[("module", "a"), ("level", "LOUD")]), "cannot set the level of 'a' to 'LOUD': wanted DEBUG"),
            (query(&[("module", "a")]), "level is missing"),
            (query(&[("level", "DEBUG")]), "module is missing"),
        ] {
            let refused = change(parameters, root()).await.unwrap_err();
            assert!(refused.message.contains(named) && refused.status() == StatusCode::BAD_REQUEST, "{refused}");
        }

        assert_eq!(reset(Query::new(), root()).await.unwrap()["level"], "INFO");
        let refused = reset(query(&[("module", "a")]), root()).await.unwrap_err();
        assert!(refused.message.contains("it was not changed"), "{refused}");
    }

    #[test]
    fn administrators_and_local_users_change_levels() {
        let levels = One(Mutex::new("INFO"));
        let (local, remote) = (IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from([10, 0, 0, 7]));
        let check = |user: &str, agent: &'static str, peer: IpAddr| {
            let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static(agent))]);
            check_change(&levels, &Query::from([(USER.to_owned(), user.to_owned())]), &headers, peer)
        };
        for (user, peer, allowed) in [
            ("root", remote, true),
            ("bob", remote, false),
            ("bob", local, false),
            ("", local, true),
            ("", remote, false),
        ] {
            assert_eq!(check(user, "Java/17", peer).is_ok(), allowed, "{user} at {peer}");
            let query = query(&[(USER, user)]);
            assert_eq!(is_administrator(Some(&levels), &query, peer), allowed, "{user} at {peer}");
            // Without a registered log, only users of this machine are allowed.
            assert_eq!(is_administrator(None, &query, peer), user.is_empty() && peer == local, "{user} at {peer}");
        }
        assert!(check("root", "Mozilla/5.0 (X11)", local).unwrap_err().contains("browsers"));
        let refused = check_administrator(&query(&[(USER, "bob")]), local).unwrap_err();
        assert!(refused.status() == StatusCode::FORBIDDEN && refused.message.contains("only the user that runs"));
    }
}
