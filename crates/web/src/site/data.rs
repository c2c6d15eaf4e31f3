//! Pages that answer with JSON or short text, for the user interface and for tools that probe servers.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodFilter;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::pages::{Shared, refused};
use super::query::{Query, parse_query};
use crate::webhdfs::Exception;

/// Maximum number of answers of one data page that are produced at a time. Further ones wait. Each page has its own
/// limit, so a page that waits for a hung disk delays no other page.
pub(super) const DATA_MAX: usize = 8;

pub(super) type DataAnswer = Pin<Box<dyn Future<Output = Result<Value, Exception>> + Send>>;
pub(super) type DataSource = Arc<dyn Fn(Query, IpAddr) -> DataAnswer + Send + Sync>;
pub(super) type DocumentSource = Arc<dyn Fn(&HeaderMap) -> Document + Send + Sync>;

/// A page of JSON, or a change that answers with JSON.
pub(super) struct DataPage {
    /// GET for a page.
    pub method: MethodFilter,
    pub path: &'static str,
    pub source: DataSource,
    /// Pages of other origins may read it.
    pub is_public: bool,
}

/// A complete answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub text: String,
}

impl Document {
    /// Returns an answer of plain text, with status 200.
    pub fn text(text: impl Into<String>) -> Self {
        Self { status: StatusCode::OK, content_type: "text/plain; charset=utf-8", text: text.into() }
    }

    /// Returns an answer of JSON, with status 200.
    pub fn json(value: &Value) -> Self {
        Self { status: StatusCode::OK, content_type: "application/json; charset=utf-8", text: value.to_string() }
    }
}

pub(super) async fn data(
    source: DataSource,
    is_public: bool,
    permits: Arc<Semaphore>,
    patience: Duration,
    raw: Option<String>,
    peer: IpAddr,
) -> Response {
    let query = match parse_query(raw.as_deref().unwrap_or("")) {
        Ok(query) => query,
        Err(status) => return status.into_response(),
    };
    let answer = async {
        let _permit = permits.acquire().await.ok()?;
        Some(source(query, peer).await)
    };
    let mut response = match tokio::time::timeout(patience, answer).await {
        Ok(Some(Ok(value))) => Document::json(&value).into_response(),
        Ok(Some(Err(refusal))) => refusal.into_response(),
        _ => refused(StatusCode::SERVICE_UNAVAILABLE),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if is_public {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    }
    response
}

pub(super) async fn document(State(shared): State<Shared>, source: DocumentSource, headers: HeaderMap) -> Response {
    match shared.render(move || source(&headers)).await {
        Ok(document) => document.into_response(),
        Err(status) => refused(status),
    }
}

impl IntoResponse for Document {
    fn into_response(self) -> Response {
        (self.status, [(header::CONTENT_TYPE, self.content_type)], self.text).into_response()
    }
}
