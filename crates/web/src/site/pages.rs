//! The pages that every site has: `/plain`, `/jmx`, `/metrics`, `/conf`, `/stacks`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use tokio::sync::Semaphore;

use super::data::Document;
use super::query::parse_query;
use crate::conf::{self, ConfEntry};
use crate::jmx::{self, Bean};
use crate::metrics::{self, MetricSource};
use crate::process;
use crate::stacks::{self, Tasks};

/// Maximum number of pages produced at a time on blocking threads, which may wait for a disk or a lock. If one hangs,
/// only this number of threads is held.
pub(super) const RENDERING_MAX: usize = 2;

/// Sources of the pages' content, and the limits on producing them.
#[derive(Clone)]
pub(super) struct Shared {
    pub beans: Arc<dyn Fn() -> Vec<Bean> + Send + Sync>,
    pub conf: Arc<dyn Fn() -> Vec<ConfEntry> + Send + Sync>,
    pub front: Arc<dyn Fn() -> String + Send + Sync>,
    pub metrics: MetricSource,
    pub render_permits: Arc<Semaphore>,
    pub patience: Duration,
}

impl Shared {
    /// Runs `make` on a blocking thread, once one of the permits is free.
    ///
    /// Errors: 503 if that takes too long; 500 if `make` panicked.
    pub(super) async fn render<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StatusCode> {
        let made = async {
            let place = self.render_permits.clone().acquire_owned().await.ok()?;
            let making = move || {
                // Hold the permit as long as the thread is busy, even if the request has timed out.
                let _place = place;
                make()
            };
            tokio::task::spawn_blocking(making).await.ok()
        };
        match tokio::time::timeout(self.patience, made).await {
            Ok(made) => made.ok_or(StatusCode::INTERNAL_SERVER_ERROR),
            Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
        }
    }
}

/// Returns an answer that consists of a status only.
pub(super) fn refused(status: StatusCode) -> Response {
    match status {
        StatusCode::SERVICE_UNAVAILABLE => (status, "busy: try again\n").into_response(),
        status => status.into_response(),
    }
}

pub(super) async fn front(State(shared): State<Shared>) -> Response {
    let front = shared.front.clone();
    match shared.render(move || Html(front())).await {
        Ok(page) => page.into_response(),
        Err(status) => refused(status),
    }
}

/// Content type as Hadoop writes it.
const JSON: &str = "application/json; charset=utf8";

pub(super) async fn jmx(State(shared): State<Shared>, RawQuery(raw): RawQuery) -> Response {
    let query = match parse_query(raw.as_deref().unwrap_or("")) {
        Ok(query) => query,
        Err(status) => return status.into_response(),
    };
    let beans = shared.beans.clone();
    let made = shared.render(move || {
        let asked = |name: &str| query.get(name).map(String::as_str);
        let (status, answer) = jmx::answer(&beans(), asked("get"), asked("qry"));
        (status, serde_json::to_string_pretty(&answer).unwrap_or_else(|_| "{}".to_string()))
    });
    match made.await {
        Ok((status, text)) => (status, [(header::CONTENT_TYPE, JSON)], text).into_response(),
        Err(status) => refused(status),
    }
}

pub(super) async fn metrics(State(shared): State<Shared>) -> Response {
    let metrics = shared.metrics.clone();
    let made = shared.render(move || {
        let mut all = metrics();
        all.extend(process::metrics());
        metrics::text(&all)
    });
    match made.await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Ok(Err(_)) => refused(StatusCode::INTERNAL_SERVER_ERROR),
        Err(status) => refused(status),
    }
}

pub(super) async fn stacks(State(shared): State<Shared>) -> Response {
    let tasks = Tasks::now();
    match shared.render(move || stacks::text(tasks)).await {
        Ok(text) => Document::text(text).into_response(),
        Err(status) => refused(status),
    }
}

pub(super) async fn conf(State(shared): State<Shared>, headers: HeaderMap, RawQuery(raw): RawQuery) -> Response {
    let query = match parse_query(raw.as_deref().unwrap_or("")) {
        Ok(query) => query,
        Err(status) => return status.into_response(),
    };
    let accepts_json = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.contains("application/json"));
    let as_json = query.get("format").map_or(accepts_json, |format| format == "json");
    let wanted = query.get("name");
    let entries: Vec<ConfEntry> =
        (shared.conf)().into_iter().filter(|entry| wanted.is_none_or(|name| *name == entry.key)).collect();
    if let (Some(name), true) = (wanted, entries.is_empty()) {
        return (StatusCode::NOT_FOUND, format!("Property {name} not found")).into_response();
    }
    if as_json {
        let kind = "application/json; charset=utf-8";
        return ([(header::CONTENT_TYPE, kind)], conf::json(&entries)).into_response();
    }
    ([(header::CONTENT_TYPE, "text/xml; charset=utf-8")], conf::xml(&entries)).into_response()
}
