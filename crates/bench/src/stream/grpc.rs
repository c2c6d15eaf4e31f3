//! Replicas over gRPC, like Apache Ozone's former protocol described in HDDS-5188. The receiver requests a replica, and
//! it arrives as a stream of protobuf messages, each with a piece of its bytes. The reference for Hearth's streams.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt};
use rustix::buffer::spare_capacity;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::codegen::{Service, http};
use tonic::server::{NamedService, ServerStreamingService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::open_into;

const SERVICE: &str = "hearth.bench.Replication";
const DOWNLOAD: &str = "/hearth.bench.Replication/Download";

/// Bytes of one message's payload, as in Ozone.
pub const PIECE: usize = 1 << 20;

/// Maximum message size: more than a piece with its frame.
const MESSAGE_BYTES_MAX: usize = 2 * PIECE;

/// Number of pieces of a replica that are read ahead of the connection. HTTP/2's own window limits the rest.
const AHEAD: usize = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct DownloadRequest {
    #[prost(uint64, tag = "1")]
    replica: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Piece {
    #[prost(uint64, tag = "1")]
    replica: u64,
    #[prost(uint64, tag = "2")]
    offset: u64,
    #[prost(bool, tag = "3")]
    is_last: bool,
    #[prost(bytes = "bytes", tag = "4")]
    data: Bytes,
}

/// Sending end: serves the file `replica-N` of a folder as replica N.
#[derive(Clone)]
struct Source {
    folder: PathBuf,
}

impl ServerStreamingService<DownloadRequest> for Source {
    type Response = Piece;
    type ResponseStream = BoxStream<'static, Result<Piece, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<DownloadRequest>) -> Self::Future {
        let replica = request.into_inner().replica;
        let path = self.folder.join(file_name(replica));
        Box::pin(async move {
            let file = File::open(&path).map_err(|error| Status::not_found(format!("{}: {error}", path.display())))?;
            let (pieces, stream) = mpsc::channel(AHEAD);
            tokio::task::spawn_blocking(move || {
                let failed = |error: std::io::Error| Status::internal(format!("{}: {error}", path.display()));
                let outcome = read(&file, replica, |piece| pieces.blocking_send(Ok(piece)).is_ok());
                if let Err(error) = outcome {
                    let _ = pieces.blocking_send(Err(failed(error)));
                }
            });
            Ok(Response::new(ReceiverStream::new(stream).boxed()))
        })
    }
}

/// Reads a replica piece by piece until `hand_on` returns false.
fn read(file: &File, replica: u64, mut hand_on: impl FnMut(Piece) -> bool) -> std::io::Result<()> {
    let length = file.metadata()?.len();
    let mut offset = 0;
    loop {
        let wanted = PIECE.min((length - offset) as usize);
        // Not zero-filled first: that would add cost to the reference, and the zeros are not needed.
        let mut data: Vec<u8> = Vec::with_capacity(wanted);
        while data.len() < wanted {
            let at = offset + data.len() as u64;
            if rustix::io::pread(file, spare_capacity(&mut data), at)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        // The buffer may have more capacity than was requested.
        data.truncate(wanted);
        let end = offset + data.len() as u64;
        let is_last = end == length;
        if !hand_on(Piece { replica, offset, is_last, data: data.into() }) || is_last {
            return Ok(());
        }
        offset = end;
    }
}

pub fn file_name(replica: u64) -> String {
    format!("replica-{replica}")
}

impl NamedService for Source {
    const NAME: &'static str = SERVICE;
}

impl Service<http::Request<tonic::body::Body>> for Source {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let source = self.clone();
        Box::pin(async move {
            if request.uri().path() != DOWNLOAD {
                return Ok(Status::unimplemented(request.uri().path()).into_http());
            }
            let codec: ProstCodec<Piece, DownloadRequest> = ProstCodec::default();
            Ok(tonic::server::Grpc::new(codec).server_streaming(source, request).await)
        })
    }
}

/// Serves the replicas in `folder` until the task is dropped.
pub async fn serve(listener: TcpListener, folder: PathBuf) -> Result<()> {
    tonic::transport::Server::builder()
        .add_service(Source { folder })
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
        .context("the gRPC server")
}

/// Connection of the receiving end, which many downloads share.
#[derive(Clone)]
pub struct Receiver {
    client: tonic::client::Grpc<tonic::transport::Channel>,
}

impl Receiver {
    pub async fn connect(to: SocketAddr) -> Result<Self> {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{to}"))?;
        let channel = endpoint.connect().await.with_context(|| format!("cannot connect to {to}"))?;
        let client = tonic::client::Grpc::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Self { client })
    }

    /// Fetches one replica into the file `into`, and waits for `slow` before it takes each piece. Returns the number of
    /// bytes. `taken` gets the bytes of each piece.
    pub async fn download(
        &mut self,
        replica: u64,
        into: &Path,
        slow: Option<Duration>,
        taken: impl Fn(u64),
    ) -> Result<u64> {
        self.client.ready().await.context("the gRPC connection")?;
        let codec: ProstCodec<DownloadRequest, Piece> = ProstCodec::default();
        let path = http::uri::PathAndQuery::from_static(DOWNLOAD);
        let request = Request::new(DownloadRequest { replica });
        let mut pieces = self.client.server_streaming(request, path, codec).await?.into_inner();
        let mut file = open_into(into).with_context(|| format!("cannot make {}", into.display()))?;
        let mut length = 0;
        while let Some(piece) = pieces.message().await? {
            if let Some(slow) = slow {
                tokio::time::sleep(slow).await;
            }
            ensure!(piece.offset == length, "replica {replica}: a piece at {} instead of {length}", piece.offset);
            file.write_all(&piece.data).with_context(|| format!("cannot write {}", into.display()))?;
            length += piece.data.len() as u64;
            taken(piece.data.len() as u64);
            if piece.is_last {
                return Ok(length);
            }
        }
        bail!("replica {replica}: the stream ended at {length} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn download_copies_replica_and_fails_if_missing() {
        let folder = tempfile::tempdir().unwrap();
        let content = hearth_testkit::Content::new(5).bytes(0, 3 * PIECE + 17);
        std::fs::write(folder.path().join(file_name(7)), &content).unwrap();
        std::fs::write(folder.path().join(file_name(8)), b"").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, folder.path().to_owned()));
        let mut receiver = Receiver::connect(address).await.unwrap();
        let into = folder.path().join("into");
        assert_eq!(receiver.download(7, &into, None, |_| {}).await.unwrap(), content.len() as u64);
        assert!(std::fs::read(&into).unwrap() == content);
        assert_eq!(receiver.download(8, &into, None, |_| {}).await.unwrap(), 0);
        assert!(receiver.download(9, &into, None, |_| {}).await.is_err());
        server.abort();
    }
}
