//! The web user interface: files that are part of the program. They work without other servers and without a build step.
//!
//! The pages fetch their data from `/ui/...` and from WebHDFS, and put it into the document as text, never as HTML.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::protection::Server;

/// A file of the user interface.
struct Asset {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Files of both servers' pages.
const COMMON: [Asset; 6] = [
    Asset { path: "/ui/style.css", content_type: "text/css; charset=utf-8", text: include_str!("../assets/style.css") },
    Asset { path: "/ui/common.js", content_type: SCRIPT, text: include_str!("../assets/common.js") },
    Asset { path: "/ui/chart.js", content_type: SCRIPT, text: include_str!("../assets/chart.js") },
    Asset { path: "/ui/conf.js", content_type: SCRIPT, text: include_str!("../assets/conf.js") },
    Asset { path: "/ui/log.js", content_type: SCRIPT, text: include_str!("../assets/log.js") },
    Asset { path: "/ui/icon.svg", content_type: "image/svg+xml", text: include_str!("../assets/icon.svg") },
];

/// Files of the NameNode's pages. The first is the page itself.
const NAMENODE: [Asset; 4] = [
    Asset { path: "/", content_type: HTML, text: include_str!("../assets/namenode.html") },
    Asset { path: "/ui/namenode.js", content_type: SCRIPT, text: include_str!("../assets/namenode.js") },
    Asset { path: "/ui/files.js", content_type: SCRIPT, text: include_str!("../assets/files.js") },
    Asset { path: "/ui/cluster.js", content_type: SCRIPT, text: include_str!("../assets/cluster.js") },
];

/// Files of the DataNode's pages.
const DATANODE: [Asset; 2] = [
    Asset { path: "/", content_type: HTML, text: include_str!("../assets/datanode.html") },
    Asset { path: "/ui/datanode.js", content_type: SCRIPT, text: include_str!("../assets/datanode.js") },
];

/// Paths of Apache's pages and those that replace them. A browser keeps the part of the address after `#`, which the
/// pages understand.
const NAMENODE_REDIRECTS: [(&str, &str); 3] =
    [("/dfshealth.html", "/"), ("/explorer.html", "/?page=files"), ("/index.html", "/")];
const DATANODE_REDIRECTS: [(&str, &str); 2] = [("/datanode.html", "/"), ("/index.html", "/")];

impl Server {
    fn assets(self) -> impl Iterator<Item = &'static Asset> {
        let own: &'static [Asset] = match self {
            Self::Namenode => &NAMENODE,
            Self::Datanode => &DATANODE,
        };
        own.iter().chain(&COMMON)
    }

    fn redirects(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Namenode => &NAMENODE_REDIRECTS,
            Self::Datanode => &DATANODE_REDIRECTS,
        }
    }
}

/// Adds the files of a server's user interface, and the redirects to them.
pub(crate) fn add_routes<S: Clone + Send + Sync + 'static>(mut router: Router<S>, server: Server) -> Router<S> {
    for asset in server.assets() {
        router = router.route(asset.path, get(move || async move { asset.response() }));
    }
    for (from, to) in server.redirects() {
        router = router.route(from, get(move || async move { redirect(to) }));
    }
    router
}

impl Asset {
    fn response(&self) -> Response {
        // After an upgrade, files of both versions must not mix.
        let headers = [(header::CONTENT_TYPE, self.content_type), (header::CACHE_CONTROL, "no-cache")];
        (headers, self.text).into_response()
    }
}

fn redirect(to: &'static str) -> Response {
    let mut response = axum::http::StatusCode::FOUND.into_response();
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the rules that keep data from becoming code, and the pages usable offline.
    #[test]
    fn files_have_no_inline_scripts_and_load_nothing_from_elsewhere() {
        for asset in NAMENODE.iter().chain(&DATANODE).chain(&COMMON) {
            let Asset { path, text, .. } = asset;
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "javascript:"]
            {
                assert!(!text.contains(forbidden), "{path}: {forbidden}");
            }
            for (place, _) in text.match_indices("http") {
                let rest = &text[place..];
                let is_address = rest.starts_with("http://") || rest.starts_with("https://");
                // The name space of SVG is a name; the others are parts of checks and of addresses of DataNodes.
                let is_known = ["http://www.w3.org/2000/svg", "http://\"", "https://\"", "http://${", "http://`"]
                    .iter()
                    .any(|known| rest.starts_with(known));
                assert!(!is_address || is_known, "{path}: {}", &rest[..rest.len().min(60)]);
            }
            if asset.content_type == HTML {
                for forbidden in ["<style", " style=", " onclick", " onload", "<script>"] {
                    assert!(!text.contains(forbidden), "{path}: {forbidden}");
                }
                for needed in ["<html lang=\"en\">", "name=\"viewport\"", "<main", "<nav", "<header", "<footer"] {
                    assert!(text.contains(needed), "{path}: {needed}");
                }
            }
        }
    }

    #[test]
    fn every_file_that_a_page_loads_exists() {
        for server in [Server::Namenode, Server::Datanode] {
            let paths: Vec<&str> = server.assets().map(|asset| asset.path).collect();
            for asset in server.assets() {
                let is_file = |part: &&str| part.starts_with("/ui/") && part.contains('.') && !part.contains('?');
                for part in asset.text.split('"').filter(is_file) {
                    assert!(paths.contains(&part), "{} loads {part}", asset.path);
                }
            }
        }
    }
}
