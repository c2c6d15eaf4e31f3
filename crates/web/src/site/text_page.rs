//! Pages of text that a server's task writes while the client reads.

use std::future::{Future, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{StreamExt, once};
use tokio::sync::Semaphore;

use super::pages::refused;
use super::query::{Query, parse_query};
use crate::text_stream::{Disconnected, TextSender, body_stream};

type TextAnswer = Pin<Box<dyn Future<Output = Result<(), Disconnected>> + Send>>;
pub(super) type TextPage = Arc<dyn Fn(Query, IpAddr, TextSender) -> TextAnswer + Send + Sync>;

pub(super) async fn text_page(
    page: TextPage,
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
        let permit = permits.acquire_owned().await.ok()?;
        let (telling, mut listening) = TextSender::new(patience);
        let made = page(query, peer, telling.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if made.await.is_ok() {
                // A client that has disconnected needs no end marker.
                let _ = telling.end().await;
            }
        });
        Some((listening.next().await, listening))
    };
    let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    match tokio::time::timeout(patience, answer).await {
        Ok(Some((Some(first), listening))) => {
            let body = once(ready(Ok(first))).chain(body_stream(listening));
            (kind, Body::from_stream(body)).into_response()
        }
        Ok(Some((None, listening))) if listening.is_whole() => (kind, "").into_response(),
        Ok(Some((None, _))) => refused(StatusCode::INTERNAL_SERVER_ERROR),
        _ => refused(StatusCode::SERVICE_UNAVAILABLE),
    }
}
