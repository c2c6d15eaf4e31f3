//! `/logLevel`: shows and changes levels of the log while the server runs, in the form that `hadoop daemonlog` reads.
//! Source: LogLevel.java of Hadoop 3.4.
//!
//! A process has one log, which its start registers here. So all sites of a process show and change the same levels.

use std::net::IpAddr;
use std::sync::OnceLock;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::page::escape;
use crate::site::Query;
use crate::webhdfs::Exception;

/// Path of the page.
pub(crate) const PATH: &str = "/logLevel";
/// Parameter: the name of a log.
const LOG: &str = "log";
/// Parameter: its new level.
const LEVEL: &str = "level";
/// Parameter: the user who asks.
const USER: &str = "user.name";
/// Starts of the User-Agent header of browsers.
const BROWSERS: [&str; 2] = ["Mozilla", "Opera"];
/// Apache's tool prints the lines that begin with this, without their tags.
const MARKER: &str = "<!-- OUTPUT -->";

/// The log of a process.
pub trait LogLevels: Send + Sync {
    /// Returns the name of the log that `name` stands for, such as a module for one of Java's classes, and its level in
    /// capitals.
    fn effective(&self, name: &str) -> (String, &'static str);

    /// Changes a level until the process ends. Level names may have any case.
    ///
    /// Errors: the name or the level is not valid; says what is.
    fn set(&self, name: &str, level: &str) -> Result<(), String>;

    /// Returns whether a user may change levels from other machines.
    fn is_administrator(&self, user: &str) -> bool;
}

static LEVELS: OnceLock<Box<dyn LogLevels>> = OnceLock::new();

/// Makes the levels of a log available at `/logLevel`. Called at most once.
pub fn register_log_levels(levels: Box<dyn LogLevels>) {
    assert!(LEVELS.set(levels).is_ok(), "the log is registered once");
}

/// Answers a request. Everyone may look. Only administrators, and users of this machine, may change a level, and no page
/// in a browser may do it for them.
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
        return Err("browsers may not change levels; use hadoop daemonlog -setlevel or curl");
    }
    match is_administrator(Some(levels), query, peer) {
        true => Ok(()),
        false => {
            Err("only the user that runs the server may change levels: add user.name=USER, or connect to localhost")
        }
    }
}

/// Allows only administrators and users of this machine to read the log, and refuses others with 403.
pub fn check_log_reader(query: &Query, peer: IpAddr) -> Result<(), Exception> {
    match is_administrator(LEVELS.get().map(|levels| &**levels), query, peer) {
        true => Ok(()),
        false => {
            let message = "only the user that runs this server may read its log: add user.name=USER to the request, \
                           or open this page on the server's machine, at localhost";
            Err(Exception::new("org.apache.hadoop.security.AccessControlException", message))
        }
    }
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
            let query = Query::from([(USER.to_owned(), user.to_owned())]);
            assert_eq!(is_administrator(Some(&levels), &query, peer), allowed, "{user} at {peer}");
            // No log is registered in this test.
            let read = check_log_reader(&query, peer).map_err(|refusal| refusal.status());
            let wanted = if user.is_empty() && peer == local { Ok(()) } else { Err(StatusCode::FORBIDDEN) };
            assert_eq!(read, wanted, "{user} at {peer}");
        }
        assert!(check("root", "Mozilla/5.0 (X11)", local).unwrap_err().contains("browsers"));
    }
}
