//! HTTP/1.1 on the connections of a listener. Other versions are disabled, because the limits are written for HTTP/1.1.
//! Each connection serves one request at a time. The head of a request has a time-out, and so has the receipt of an
//! answer that is complete when it is sent.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::HttpBody;
use axum::extract::ConnectInfo;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::bounded::{Accepted, BoundedListener};
use crate::webhdfs::PREFIX;

/// Address of the client.
#[derive(Clone, Copy)]
pub(crate) struct Peer(pub SocketAddr);

/// Time-outs for clients.
#[derive(Clone, Copy)]
pub(crate) struct Timeouts {
    /// From the end of an answer, or the start of the connection, to the end of the next request's head.
    pub header: Duration,
    /// To receive an answer of known length. A streamed answer has a time-out of its own.
    pub answer: Duration,
}

/// Serves until the sender of `stopped` is dropped. Requests in progress are then completed.
pub(crate) async fn serve(
    mut listener: BoundedListener,
    router: Router,
    timeouts: Timeouts,
    mut stopped: watch::Receiver<()>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(timeouts.header);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.changed() => return,
        };
        tokio::spawn(answer(http.clone(), accepted, router.clone(), timeouts.answer, stopped.clone()));
    }
}

async fn answer(
    http: http1::Builder,
    (stream, peer, mut gives_way): Accepted,
    router: Router,
    patience: Duration,
    mut stopped: watch::Receiver<()>,
) {
    let (due, work, activity) = (stream.due(), stream.work(), stream.activity());
    let pages = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        // The production of the answer has time-outs of its own.
        due.set(None);
        activity.has_request();
        request.extensions_mut().insert(ConnectInfo(Peer(peer)));
        request.extensions_mut().insert(work.clone());
        // A download sets it while it is sent.
        request.extensions_mut().insert(due.clone());
        let is_page = !request.uri().path().starts_with(PREFIX);
        let (answered, due, work) = (pages.call(request), due.clone(), work.clone());
        async move {
            // The work of pages is limited in time, so it is tracked as a whole. The WebHDFS service tracks its own
            // work, because it also waits for its client.
            let answered = if is_page { work.track(answered).await } else { answered.await };
            answered.inspect(|answer| {
                let is_whole = answer.body().size_hint().exact().is_some();
                due.set(is_whole.then(|| Instant::now() + patience));
            })
        }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        Ok(()) = &mut gives_way => return tracing::debug!(%peer, "closing an idle web connection to make room"),
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(%peer, %error, "HTTP connection aborted");
    }
}
