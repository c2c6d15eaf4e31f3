//! The page or service that answers each path.

use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::{any, get, on};
use tokio::sync::Semaphore;

use super::Site;
use super::data::{self, DATA_MAX, DataPage};
use super::file_page::{FILES_MAX, file_page};
use super::pages::{self, RENDERING_MAX, Shared};
use super::text_page::text_page;
use crate::application;
use crate::bounded::Deadline;
use crate::connections::Peer;
use crate::log_level;
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
        let mut router: Router<Shared> = match self.interface {
            Some(server) => application::add_routes(Router::new(), server).route("/plain", get(pages::front)),
            None => Router::new().route("/", get(pages::front)),
        };
        router = router
            .route("/jmx", get(pages::jmx))
            .route("/metrics", get(pages::metrics))
            .route("/prom", get(pages::metrics))
            .route("/conf", get(pages::conf))
            .route("/stacks", get(pages::stacks));
        for path in ["/webhdfs/v1", "/webhdfs/v1/", "/webhdfs/v1/{*path}"] {
            let service = self.webhdfs.clone();
            router = router.route(
                path,
                any(move |ConnectInfo(Peer(address)): ConnectInfo<Peer>, request: Request| {
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
        router = router.route(
            log_level::PATH,
            get(
                |ConnectInfo(Peer(address)): ConnectInfo<Peer>,
                 headers: axum::http::HeaderMap,
                 RawQuery(raw): RawQuery| async move {
                    match super::query::parse_query(raw.as_deref().unwrap_or("")) {
                        // The change of a level builds the whole filter, so it does not run on an async worker.
                        Ok(query) => tokio::task::spawn_blocking(move || {
                            log_level::answer(&query, &headers, address.ip().to_canonical())
                        })
                        .await
                        .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()),
                        Err(status) => status.into_response(),
                    }
                },
            )
            // Apache's tool asks with this method whether it must authenticate itself.
            .options(|| async { axum::http::StatusCode::OK }),
        );
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
            let download = get(move |Extension(due): Extension<Deadline>, RawQuery(raw): RawQuery| {
                file_page(page.clone(), permits.clone(), due, raw)
            });
            // Without this, HEAD would make the file too.
            router = router.route(path, download.head(|| async { StatusCode::METHOD_NOT_ALLOWED }));
        }
        for DataPage { method, path, source, is_public } in self.data {
            let (permits, patience) = (Arc::new(Semaphore::new(DATA_MAX)), self.request_timeout);
            router = router.route(
                path,
                on(method, move |ConnectInfo(Peer(address)): ConnectInfo<Peer>, RawQuery(raw): RawQuery| {
                    let peer = address.ip().to_canonical();
                    data::data(source.clone(), is_public, permits.clone(), patience, raw, peer)
                }),
            );
        }
        for (path, source) in self.documents {
            router = router.route(
                path,
                get(move |shared: State<Shared>, headers: HeaderMap| data::document(shared, source.clone(), headers)),
            );
        }
        let router = router.with_state(state);
        match self.protection {
            None => router,
            Some(protection) => {
                let protection = Arc::new(protection);
                router.layer(middleware::from_fn(move |request: Request, next: Next| {
                    let protection = protection.clone();
                    async move { protection.guard(request, next).await }
                }))
            }
        }
    }
}
