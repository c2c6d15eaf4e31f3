//! Protection of a web port against pages of other sites that a user's browser may show.
//!
//! - Answers carry headers: a content security policy without inline scripts, no guessing of content types, no frames
//!   (`dfs.xframe.*`).
//! - A change that a page of another site makes the browser send is refused, by the headers that only browsers send:
//!   `Sec-Fetch-Site`, `Origin`, `Referer`. Clients that are not browsers send none of them and are not affected.
//! - A browser's change must address the server by one of its names (`Host`). A page of another site can give its own
//!   name the address of this server (DNS rebinding), and is then of the same site by those headers.
//! - With `dfs.webhdfs.rest-csrf.enabled`, browsers must send a header of Hadoop's for changes, as with Apache's servers.
//! - With `hearth.web.read-only`, changes are refused altogether.
//!
//! Source of the fourth: Hadoop's `RestCsrfPreventionFilter`.

mod own_names;
mod user_agents;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hearth_config::{ConfigError, Configuration, keys};

use self::own_names::OwnNames;
use self::user_agents::Pattern;
use crate::log_level;
use crate::webhdfs::{Exception, PREFIX, decode, drain, waits_to_send};

/// Policy for all answers. Scripts and styles come from files of this server only. Pages of the NameNode talk to
/// DataNodes, whose addresses are not known beforehand, so connections are not limited to this server.
const CONTENT_SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                                connect-src 'self' http:; base-uri 'none'; form-action 'none'";
/// Values of `dfs.xframe.value`, with the part of the content security policy that means the same.
const FRAME_OPTIONS: [(&str, &str); 3] =
    [("DENY", "; frame-ancestors 'none'"), ("SAMEORIGIN", "; frame-ancestors 'self'"), ("ALLOW-FROM", "")];
/// Starts of the User-Agent header of browsers, for requests that carry no other sign of their origin.
const BROWSERS: [&str; 2] = ["Mozilla", "Opera"];
/// Path of the page that deletes files if its query says so, and the parameters that change something.
const FSCK: &str = "/fsck";
const FSCK_CHANGES: [&str; 3] = ["delete", "move", "replicate"];
/// Path of the page that writes and sends an image. Few of these are made at a time.
const IMAGE: &str = "/imagetransfer";
/// Data of the page *Log*, which changes nothing, and may have names of files.
const LOG: &str = "/ui/log";
/// Exception classes of the refusals.
const ACCESS_CONTROL: &str = "org.apache.hadoop.security.AccessControlException";
/// Message of Hadoop's filter.
const HEADER_MISSING: &str = "Missing Required Header for CSRF Vulnerability Protection";

/// The server that a port belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    Namenode,
    /// Pages of the NameNode, which have another origin, create files here.
    Datanode,
}

/// Rules for requests, and headers for answers. Read at start; clones share what can change later.
#[derive(Clone, Debug)]
pub struct Protection {
    server: Server,
    frame_options: Option<HeaderValue>,
    content_security: HeaderValue,
    csrf: Option<RequiredHeader>,
    own_names: Arc<OwnNames>,
    read_only: Arc<AtomicBool>,
}

/// `dfs.webhdfs.rest-csrf.*`.
#[derive(Clone, Debug)]
struct RequiredHeader {
    name: HeaderName,
    methods_to_ignore: Vec<String>,
    browsers: Vec<Pattern>,
}

impl Protection {
    /// Reads the rules. `host_name`: the name of this machine. Errors name the key and its value.
    pub fn read(conf: &Configuration, host_name: &str, server: Server) -> Result<Self, ConfigError> {
        let value = conf.get(keys::DFS_XFRAME_VALUE)?;
        let known = FRAME_OPTIONS.iter().copied().find(|(name, _)| name.eq_ignore_ascii_case(&value));
        let Some((name, ancestors)) = known else {
            let wanted = "wanted DENY, SAMEORIGIN or ALLOW-FROM";
            return Err(conf.value_error(keys::DFS_XFRAME_VALUE.name, &value, wanted));
        };
        let sends_frame_options = conf.get(keys::DFS_XFRAME_ENABLED)?;
        let content_security = format!("{CONTENT_SECURITY}{}", if sends_frame_options { ancestors } else { "" });
        let csrf = match conf.get(keys::DFS_WEBHDFS_REST_CSRF_ENABLED)? {
            true => Some(RequiredHeader::read(conf)?),
            false => None,
        };
        Ok(Self {
            server,
            frame_options: sends_frame_options.then(|| HeaderValue::from_static(name)),
            content_security: HeaderValue::from_str(&content_security).expect("the parts are ASCII"),
            csrf,
            own_names: Arc::new(OwnNames::read(conf, host_name)?),
            read_only: Arc::new(AtomicBool::new(conf.get(keys::HEARTH_WEB_READ_ONLY)?)),
        })
    }

    /// Returns true if changes are refused (`hearth.web.read-only`).
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Refuses changes from now on, or allows them.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.read_only.store(is_read_only, Ordering::Relaxed);
    }

    /// Returns the name of the header that browsers must send for changes, if one is required.
    pub fn required_header(&self) -> Option<&str> {
        self.csrf.as_ref().map(|csrf| csrf.name.as_str())
    }

    /// Answers a request: refuses it here, or has `next` answer it, and adds the headers.
    pub(crate) async fn guard(&self, request: Request, next: Next) -> Response {
        let checked = self.check(&request);
        let mut response = match checked {
            Ok(()) => next.run(request).await,
            Err(refusal) => {
                if !waits_to_send(request.headers()) {
                    drain(&mut request.into_body().into_data_stream()).await;
                }
                refusal.into_response()
            }
        };
        self.add_headers(response.headers_mut());
        response
    }

    fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(header::CONTENT_SECURITY_POLICY, self.content_security.clone());
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
        if let Some(value) = &self.frame_options {
            headers.insert(header::X_FRAME_OPTIONS, value.clone());
        }
    }

    fn check(&self, request: &Request) -> Result<(), Exception> {
        let headers = request.headers();
        if let Some(csrf) = &self.csrf
            && csrf.is_missing(request.method(), headers)
        {
            return Err(Exception::illegal_argument(HEADER_MISSING));
        }
        let Some(change) = Change::of(request) else { return Ok(()) };
        if self.is_read_only() && !matches!(change, Change::Download | Change::Log) {
            let message = "this port takes no changes because hearth.web.read-only is true; change files over hdfs://";
            return Err(Exception::new(ACCESS_CONTROL, message));
        }
        // A browser asks before it sends this to another origin, and Hadoop's DataNodes allow it to any.
        let is_open_to_pages = self.server == Server::Datanode && change == Change::Created;
        if is_open_to_pages || !is_of_browser(headers) {
            return Ok(());
        }
        let host = text(headers, header::HOST).unwrap_or_default();
        if !self.own_names.contains(host) {
            let message = format!(
                "`{host}` is not a known name of this server; add it to {} if users reach the server by it",
                keys::HEARTH_WEB_HOSTS.name
            );
            return Err(Exception::new(ACCESS_CONTROL, message));
        }
        if change == Change::Log || is_of_this_site(headers, change) {
            return Ok(());
        }
        let message = "a page of another site sent this request; send it from a page of this server, \
                       or with a program that is not a browser";
        Err(Exception::new(ACCESS_CONTROL, message))
    }
}

impl RequiredHeader {
    fn read(conf: &Configuration) -> Result<Self, ConfigError> {
        let key = keys::DFS_WEBHDFS_REST_CSRF_CUSTOM_HEADER;
        let name = conf.get(key)?;
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| conf.value_error(key.name, &name, "wanted the name of an HTTP header"))?;
        let key = keys::DFS_WEBHDFS_REST_CSRF_BROWSER_USERAGENTS_REGEX;
        let browsers = conf.get(key)?;
        let browsers = browsers.iter().map(|text| {
            Pattern::parse(text).unwrap_or_else(|| {
                tracing::warn!(key = key.name, pattern = %text, "only text, `.` and `.*` are understood: this one matches every browser");
                Pattern::any()
            })
        });
        let browsers = browsers.collect();
        let methods_to_ignore = conf.get(keys::DFS_WEBHDFS_REST_CSRF_METHODS_TO_IGNORE)?;
        Ok(Self { name, methods_to_ignore, browsers })
    }

    fn is_missing(&self, method: &Method, headers: &HeaderMap) -> bool {
        let user_agent = text(headers, header::USER_AGENT);
        user_agent.is_some_and(|agent| self.browsers.iter().any(|browser| browser.matches(agent)))
            && !self.methods_to_ignore.iter().any(|ignored| ignored == method.as_str())
            && !headers.contains_key(&self.name)
    }
}

/// Kind of a request that a page of another site must not send: it changes something, is costly, or tells secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    /// A new file, by PUT.
    Created,
    /// Any other change by a method that exists for changes.
    ByMethod,
    /// A page that is fetched like any other: a browser sends no `Origin`.
    ByPage,
    /// An image, fetched like any other page. It changes nothing.
    Download,
    /// Lines of the log. They change nothing, and browsers let no page of another origin read them.
    Log,
}

impl Change {
    fn of(request: &Request) -> Option<Self> {
        let query = request.uri().query().unwrap_or("");
        let mut parameters = query.split('&').map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            // Parameters that cannot be decoded are refused where they are needed.
            let decoded = |text: &str| decode(text, true).unwrap_or_default();
            (decoded(name), decoded(value))
        });
        match request.method().as_str() {
            "GET" | "HEAD" if request.uri().path() == IMAGE => Some(Self::Download),
            "GET" | "HEAD" if request.uri().path() == LOG => Some(Self::Log),
            "GET" | "HEAD" => {
                let is_change = match request.uri().path() {
                    FSCK => parameters.any(|(name, _)| FSCK_CHANGES.contains(&name.as_str())),
                    log_level::PATH => parameters.any(|(name, value)| name == log_level::LEVEL && !value.is_empty()),
                    _ => false,
                };
                is_change.then_some(Self::ByPage)
            }
            "OPTIONS" | "TRACE" => None,
            "PUT" => {
                let is_create = |(name, value): (String, String)| {
                    name.eq_ignore_ascii_case("op") && value.eq_ignore_ascii_case("create")
                };
                let creates = request.uri().path().starts_with(PREFIX) && parameters.any(is_create);
                Some(if creates { Self::Created } else { Self::ByMethod })
            }
            _ => Some(Self::ByMethod),
        }
    }
}

/// Returns true if the headers show that a browser sent the request.
fn is_of_browser(headers: &HeaderMap) -> bool {
    let user_agent = text(headers, header::USER_AGENT).unwrap_or_default();
    headers.contains_key("sec-fetch-site")
        || headers.contains_key(header::ORIGIN)
        || headers.contains_key(header::REFERER)
        || BROWSERS.iter().any(|browser| user_agent.starts_with(browser))
}

/// Returns true unless the headers show that a page of another site caused the request.
fn is_of_this_site(headers: &HeaderMap, change: Change) -> bool {
    // Browsers send this to servers that they trust: over HTTPS, through a proxy, and to this machine.
    if let Some(site) = text(headers, "sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    // Browsers send this with each request of these methods.
    if let Some(origin) = text(headers, header::ORIGIN) {
        return is_this_server(headers, origin);
    }
    if !matches!(change, Change::ByPage | Change::Download) {
        return true;
    }
    if let Some(referer) = text(headers, header::REFERER) {
        return is_this_server(headers, referer);
    }
    let user_agent = text(headers, header::USER_AGENT).unwrap_or_default();
    !BROWSERS.iter().any(|browser| user_agent.starts_with(browser))
}

/// Returns true if the URL is of the server that the request is for. A proxy before it says which name its client used;
/// a page of another site cannot set that header.
fn is_this_server(headers: &HeaderMap, url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let names = [text(headers, header::HOST), text(headers, "x-forwarded-host")];
    !authority.is_empty() && names.into_iter().flatten().any(|name| name.eq_ignore_ascii_case(authority))
}

/// Returns the first header of this name. `None` if it is absent or not ASCII.
fn text(headers: &HeaderMap, name: impl header::AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn protection(server: Server, set: &[(&str, &str)]) -> Protection {
        let conf = set.iter().fold(Configuration::empty(), |conf, (key, value)| conf.with(key, *value));
        Protection::read(&conf, "nn1", server).unwrap()
    }

    fn request(method: &str, url: &str, headers: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::builder().method(method).uri(url).body(Body::empty()).unwrap();
        for (name, value) in [("host", "nn1:9870")].iter().chain(headers) {
            request.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        request
    }

    #[test]
    fn changes_of_other_sites_pages_are_refused() {
        let namenode = protection(Server::Namenode, &[]);
        const MKDIRS: &str = "/webhdfs/v1/a?op=MKDIRS";
        const FSCK: &str = "/fsck?path=/&delete=1";
        type Headers = &'static [(&'static str, &'static str)];
        let cases: &[(&str, &str, Headers, bool)] = &[
            ("PUT", MKDIRS, &[], true),
            ("PUT", MKDIRS, &[("user-agent", "Mozilla/5.0")], true),
            ("PUT", MKDIRS, &[("origin", "http://nn1:9870")], true),
            ("PUT", MKDIRS, &[("origin", "http://NN1:9870")], true),
            ("PUT", MKDIRS, &[("origin", "http://nn1:9871")], false),
            ("PUT", MKDIRS, &[("origin", "http://evil.example")], false),
            ("PUT", MKDIRS, &[("origin", "http://evil.example/?nn1:9870")], false),
            ("PUT", MKDIRS, &[("origin", "null")], false),
            ("PUT", MKDIRS, &[("origin", "https://proxy"), ("x-forwarded-host", "proxy")], true),
            ("PUT", MKDIRS, &[("origin", "https://proxy"), ("sec-fetch-site", "same-origin")], true),
            ("PUT", MKDIRS, &[("origin", "http://nn1:9870"), ("sec-fetch-site", "same-site")], false),
            ("PUT", "/webhdfs/v1/a?op=CREATE", &[("origin", "http://evil.example")], false),
            ("POST", "/webhdfs/v1/a?op=TRUNCATE&newlength=0", &[("origin", "http://evil.example")], false),
            ("DELETE", "/webhdfs/v1/a?op=DELETE", &[("origin", "http://evil.example")], false),
            ("GET", "/webhdfs/v1/a?op=OPEN", &[("origin", "http://evil.example")], true),
            ("GET", FSCK, &[], true),
            ("GET", FSCK, &[("user-agent", "Java/11")], true),
            ("GET", FSCK, &[("user-agent", "Mozilla/5.0")], false),
            ("GET", FSCK, &[("user-agent", "Mozilla/5.0"), ("referer", "http://nn1:9870/")], true),
            ("GET", FSCK, &[("user-agent", "Mozilla/5.0"), ("referer", "http://evil.example/")], false),
            ("GET", FSCK, &[("user-agent", "Mozilla/5.0"), ("sec-fetch-site", "none")], true),
            ("GET", "/fsck?path=/&dele%74e=1", &[("user-agent", "Mozilla/5.0")], false),
            ("GET", "/fsck?path=/delete", &[("user-agent", "Mozilla/5.0")], true),
            ("GET", "/logLevel?log=a&level=DEBUG", &[("user-agent", "Java/11")], true),
            ("GET", "/logLevel?log=a&level=DEBUG", &[("sec-fetch-site", "cross-site")], false),
            ("GET", "/logLevel?log=a", &[("sec-fetch-site", "cross-site")], true),
            ("PUT", "/ui/log-level?module=a&level=DEBUG", &[("origin", "http://nn1:9870")], true),
            ("PUT", "/ui/log-level?module=a&level=DEBUG", &[("origin", "http://evil.example")], false),
            ("DELETE", "/ui/log-level", &[("origin", "http://evil.example")], false),
            ("GET", "/imagetransfer?getimage=1", &[("user-agent", "Java/11")], true),
            ("GET", "/imagetransfer?getimage=1", &[("sec-fetch-site", "cross-site")], false),
            ("GET", "/imagetransfer?getimage=1", &[("referer", "http://evil.example/")], false),
            ("GET", "/imagetransfer?getimage=1", &[("sec-fetch-site", "same-origin")], true),
            // The site's own name has the address of this server.
            ("PUT", MKDIRS, &[("host", "evil.example:9870"), ("origin", "http://evil.example:9870")], false),
            ("PUT", MKDIRS, &[("host", "evil.example"), ("sec-fetch-site", "same-origin")], false),
            ("PUT", MKDIRS, &[("host", "evil.example"), ("user-agent", "Mozilla/5.0")], false),
            ("PUT", MKDIRS, &[("host", "nn1.evil.example"), ("user-agent", "Mozilla/5.0")], false),
            ("PUT", MKDIRS, &[("host", "alias.example")], true),
            ("PUT", MKDIRS, &[("host", "192.0.2.1:9870"), ("origin", "http://192.0.2.1:9870")], true),
            ("PUT", MKDIRS, &[("host", "[::1]:9870"), ("origin", "http://[::1]:9870")], true),
            ("PUT", MKDIRS, &[("host", "localhost:9870"), ("origin", "http://localhost:9870")], true),
            ("GET", FSCK, &[("host", "evil.example"), ("referer", "http://evil.example/")], false),
            ("GET", FSCK, &[("host", "evil.example"), ("user-agent", "Java/11")], true),
            ("GET", "/ui/log?from=0", &[("host", "evil.example"), ("user-agent", "Mozilla/5.0")], false),
            ("GET", "/ui/log?from=0", &[("host", "evil.example"), ("user-agent", "curl/8")], true),
            ("GET", "/ui/log?from=0", &[("user-agent", "Mozilla/5.0")], true),
            ("GET", "/ui/overview", &[("host", "evil.example"), ("user-agent", "Mozilla/5.0")], true),
        ];
        for (method, url, headers, is_allowed) in cases {
            let checked = namenode.check(&request(method, url, headers));
            assert_eq!(checked.is_ok(), *is_allowed, "{method} {url} {headers:?}");
            assert!(checked.err().is_none_or(|refused| refused.status().as_u16() == 403));
        }
    }

    #[test]
    fn names_of_key_are_known() {
        const HEADERS: [(&str, &str); 2] = [("host", "Files.example:9870"), ("origin", "http://Files.example:9870")];
        let checked = |set: &[(&str, &str)]| {
            protection(Server::Namenode, set).check(&request("PUT", "/webhdfs/v1/a?op=MKDIRS", &HEADERS))
        };
        let refused = checked(&[]).unwrap_err();
        assert!(refused.message.contains("hearth.web.hosts"), "{refused}");
        assert!(refused.message.contains("`Files.example:9870`"), "{refused}");
        assert_eq!(refused.status().as_u16(), 403);
        assert_eq!(checked(&[("hearth.web.hosts", "other.example, files.example")]), Ok(()));
    }

    #[test]
    fn datanode_lets_pages_create_files() {
        let datanode = protection(Server::Datanode, &[]);
        let of_page = [("origin", "http://nn1:9870"), ("host", "dn1:9864")];
        assert!(datanode.check(&request("PUT", "/webhdfs/v1/a?OP=create", &of_page)).is_ok());
        let alias = [("origin", "http://nn1:9870"), ("host", "alias.example:9864")];
        assert!(datanode.check(&request("PUT", "/webhdfs/v1/a?OP=create", &alias)).is_ok());
        assert!(datanode.check(&request("OPTIONS", "/webhdfs/v1/a?op=CREATE", &of_page)).is_ok());
        let elsewhere = [("origin", "http://evil.example")];
        assert!(datanode.check(&request("POST", "/webhdfs/v1/a?op=APPEND", &elsewhere)).is_err());
        assert!(datanode.check(&request("PUT", "/ui/log-level?module=a&level=OFF&op=create", &elsewhere)).is_err());
    }

    #[test]
    fn browsers_need_hadoops_header_if_it_is_enabled() {
        const ENABLED: (&str, &str) = ("dfs.webhdfs.rest-csrf.enabled", "true");
        const PUT: &str = "/webhdfs/v1/a?op=MKDIRS";
        let browser = ("user-agent", "Mozilla/5.0 (X11)");
        let of = |set: &[(&str, &str)], method: &str, headers: &[(&'static str, &'static str)]| {
            protection(Server::Namenode, set).check(&request(method, PUT, headers)).map_err(|refused| {
                assert_eq!((refused.status().as_u16(), &*refused.message), (400, HEADER_MISSING));
            })
        };
        assert!(of(&[], "PUT", &[browser]).is_ok());
        assert!(of(&[ENABLED], "PUT", &[browser]).is_err());
        assert!(of(&[ENABLED], "PUT", &[browser, ("x-xsrf-header", "")]).is_ok());
        assert!(of(&[ENABLED], "PUT", &[("user-agent", "curl/8")]).is_ok());
        assert!(of(&[ENABLED], "PUT", &[]).is_ok());
        assert!(of(&[ENABLED], "GET", &[browser]).is_ok());
        let other = ("dfs.webhdfs.rest-csrf.custom-header", "X-Other");
        assert!(of(&[ENABLED, other], "PUT", &[browser, ("x-xsrf-header", "")]).is_err());
        assert!(of(&[ENABLED, other], "PUT", &[browser, ("x-other", "1")]).is_ok());
        let ignored = ("dfs.webhdfs.rest-csrf.methods-to-ignore", "PUT");
        assert!(of(&[ENABLED, ignored], "PUT", &[browser]).is_ok());
        assert!(of(&[ENABLED, ignored], "GET", &[browser]).is_err());
        let agents = ("dfs.webhdfs.rest-csrf.browser-useragents-regex", "^Links.*");
        assert!(of(&[ENABLED, agents], "PUT", &[browser]).is_ok());
        assert!(of(&[ENABLED, agents], "PUT", &[("user-agent", "Links (2)")]).is_err());
    }

    #[test]
    fn read_only_port_refuses_all_changes() {
        for server in [Server::Namenode, Server::Datanode] {
            let protection = protection(server, &[("hearth.web.read-only", "true")]);
            let checked = |method: &str, url: &str| protection.check(&request(method, url, &[])).err();
            for (method, url) in [
                ("PUT", "/webhdfs/v1/a?op=CREATE"),
                ("POST", "/webhdfs/v1/a?op=APPEND"),
                ("DELETE", "/webhdfs/v1/a?op=DELETE"),
                ("GET", "/fsck?move=1"),
                ("GET", "/logLevel?log=a&level=DEBUG"),
                ("PUT", "/ui/log-level?module=a&level=DEBUG"),
                ("DELETE", "/ui/log-level"),
            ] {
                let refused = checked(method, url).unwrap();
                assert!(refused.message.contains("hearth.web.read-only"), "{refused}");
                assert_eq!(refused.status().as_u16(), 403);
            }
            assert_eq!(checked("GET", "/webhdfs/v1/a?op=OPEN"), None);
            assert_eq!(checked("GET", "/fsck?path=/"), None);
            assert_eq!(checked("GET", "/logLevel?log=a&level="), None);
            assert_eq!(checked("GET", "/ui/log-level"), None);
            assert_eq!(checked("GET", "/imagetransfer?getimage=1"), None);
            assert_eq!(checked("GET", "/ui/log"), None);
            protection.clone().set_read_only(false);
            assert_eq!(checked("PUT", "/webhdfs/v1/a?op=CREATE"), None);
        }
    }

    #[test]
    fn frame_options_are_as_configured() {
        let headers = |set: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            protection(Server::Namenode, set).add_headers(&mut headers);
            let of = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(of("x-content-type-options").as_deref(), Some("nosniff"));
            let policy = of("content-security-policy").unwrap();
            assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
            (of("x-frame-options"), policy.split_once("frame-ancestors ").map(|(_, value)| value.to_owned()))
        };
        let some = |option: &str, ancestors: &str| (Some(option.to_owned()), Some(ancestors.to_owned()));
        assert_eq!(headers(&[]), some("SAMEORIGIN", "'self'"));
        assert_eq!(headers(&[("dfs.xframe.value", "deny")]), some("DENY", "'none'"));
        assert_eq!(headers(&[("dfs.xframe.value", "ALLOW-FROM")]), (Some("ALLOW-FROM".to_owned()), None));
        assert_eq!(headers(&[("dfs.xframe.enabled", "false")]), (None, None));
        let wrong = [("dfs.xframe.value", "NEVER"), ("dfs.webhdfs.rest-csrf.custom-header", "a b")];
        for (key, value) in wrong {
            let conf = Configuration::empty().with("dfs.webhdfs.rest-csrf.enabled", "true").with(key, value);
            let said = Protection::read(&conf, "nn1", Server::Namenode).unwrap_err().to_string();
            assert!(said.contains(key) && said.contains(value), "{said}");
        }
    }

    #[test]
    fn pattern_with_other_operators_matches_every_browser() {
        let of_browsers = ("dfs.webhdfs.rest-csrf.browser-useragents-regex", "(Mozilla|Opera).*");
        let conf =
            Configuration::empty().with("dfs.webhdfs.rest-csrf.enabled", "true").with(of_browsers.0, of_browsers.1);
        let required = RequiredHeader::read(&conf).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, "Lynx".parse().unwrap());
        assert!(required.is_missing(&Method::PUT, &headers));
        headers.insert("x-xsrf-header", "1".parse().unwrap());
        assert!(!required.is_missing(&Method::PUT, &headers));
    }
}
