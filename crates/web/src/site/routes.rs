//! The page or service that answers each path.

use std::sync::Arc;

use axum::Router;
use axum::extract::{ConnectInfo, RawQuery};
use axum::response::IntoResponse;
use axum::routing::{any, get};
use tokio::sync::Semaphore;

use super::Site;
use super::file_page::{FILES_MAX, file_page};
use super::pages::{self, RENDERING_MAX, Shared};
use super::text_page::text_page;
use crate::connections::Peer;
use crate::webhdfs;

/// Maximum number of requests served at a time. Further ones wait.
pub(super) const REQUESTS_MAX: usize = 64;

/// Answer to WebHDFS requests if no service is set.
const NO_WEBHDFS: &str =
    "WebHDFS is not enabled here: use hdfs://, with the NameNode's RPC port, instead of webhdfs://";

impl Site {
    pub(super) fn router(self) -> Router {
        let state = Shared {
            beans: self.beans,
            conf: self.conf,
            front: self.front,
            metrics: self.metrics,
            render_permits: Arc::new(Semaphore::new(RENDERING_MAX)),
            patience: self.request_timeout,
        };
        let mut router = Router::new()
            .route("/", get(pages::front))
            .route("/jmx", get(pages::jmx))
            .route("/metrics", get(pages::metrics))
            .route("/prom", get(pages::metrics))
            .route("/conf", get(pages::conf));
        for path in ["/webhdfs/v1", "/webhdfs/v1/", "/webhdfs/v1/{*path}"] {
            let service = self.webhdfs.clone();
            router = router.route(
                path,
                any(move |ConnectInfo(Peer(address)): ConnectInfo<Peer>, request: axum::extract::Request| {
                    let service = service.clone();
                    async move {
                        match (service, webhdfs::Request::parse(request, address.ip().to_canonical())) {
                            (Some(service), Ok(request)) => service.answer(request).await,
                            (None, Ok(_)) => webhdfs::Exception::unsupported(NO_WEBHDFS).into_response(),
                            (_, Err(refusal)) => refusal.into_response(),
                        }
                    }
                }),
            );
        }
        let requests = Arc::new(Semaphore::new(REQUESTS_MAX));
        for (path, page) in self.pages {
            let (permits, patience) = (requests.clone(), self.request_timeout);
            router = router.route(
                path,
                get(move |ConnectInfo(Peer(address)): ConnectInfo<Peer>, RawQuery(raw): RawQuery| {
                    text_page(page.clone(), permits.clone(), patience, raw, address.ip().to_canonical())
                }),
            );
        }
        let downloads = Arc::new(Semaphore::new(FILES_MAX));
        for (path, page) in self.files {
            let permits = downloads.clone();
            router =
                router.route(path, get(move |RawQuery(raw): RawQuery| file_page(page.clone(), permits.clone(), raw)));
        }
        router.with_state(state)
    }
}
