//! Opening of many files by one call (`openMany`) if the namenode is Hearth's, else by concurrent calls.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use hearth_types::LocatedBlocks;
use hearth_wire::open_many;
use hearth_wire::proto::hearth::OpenManyResponseProto;
use tokio::time::Instant;

use super::files::converted;
use super::{Exception, Namenode, without_stack_trace};
use crate::Error;
use crate::error::Failure;

/// Maximum paths per call, and maximum concurrent calls of this kind.
const PATHS_PER_CALL_MAX: usize = 1024;
const CONCURRENT_CALLS: usize = 2;

/// Maximum concurrent calls for single files, if the namenode does not support `openMany`.
const CONCURRENT_SINGLE_CALLS: usize = 64;

/// Time for which the client remembers that a namenode does not support the method.
const UNSUPPORTED_TTL: Duration = Duration::from_secs(600);

impl Namenode {
    /// Locates a range of each of `paths`. Returns the results in the same order.
    pub(crate) async fn open_many(
        &self,
        paths: &[String],
        offset: u64,
        length: u64,
    ) -> Vec<Result<LocatedBlocks, Error>> {
        let calls = paths.chunks(PATHS_PER_CALL_MAX).map(|paths| self.open_batch(paths, offset, length));
        let parts: Vec<_> = stream::iter(calls).buffered(CONCURRENT_CALLS).collect().await;
        parts.into_iter().flatten().collect()
    }

    async fn open_batch(&self, paths: &[String], offset: u64, length: u64) -> Vec<Result<LocatedBlocks, Error>> {
        let mut located: Vec<Result<LocatedBlocks, Error>> = Vec::with_capacity(paths.len());
        while located.len() < paths.len() {
            let rest = &paths[located.len()..];
            // For a single path, `openMany` saves no call.
            if rest.len() == 1 || !self.supports_open_many() {
                let calls = rest.iter().map(|path| self.block_locations(path, offset, length));
                located.extend(stream::iter(calls).buffered(CONCURRENT_SINGLE_CALLS).collect::<Vec<_>>().await);
                break;
            }
            let answer: Result<OpenManyResponseProto, Error> =
                self.call(open_many::METHOD, &open_many::request(rest, offset, length)).await;
            let parts = match answer {
                Ok(answer) => converted(open_many::METHOD, open_many::decode_response(answer, rest.len())),
                Err(error) if error.exception() == Some(Exception::NoSuchMethod) => {
                    *self.open_many_unsupported.lock() = Some(Instant::now());
                    continue;
                }
                Err(error) => Err(error),
            };
            match parts {
                Ok(parts) => located.extend(parts.into_iter().map(|part| part.map_err(not_opened))),
                Err(error) => {
                    located.extend(rest.iter().map(|_| Err(error.clone())));
                    break;
                }
            }
        }
        located
    }

    /// Returns true if the namenode may support the method.
    fn supports_open_many(&self) -> bool {
        self.open_many_unsupported.lock().is_none_or(|since| since.elapsed() >= UNSUPPORTED_TTL)
    }
}

fn not_opened(why: open_many::OpenFailure) -> Error {
    Failure::Refused {
        exception: Exception::from_class(&why.exception),
        message: without_stack_trace(&why.message).to_owned(),
        class: why.exception,
    }
    .into()
}
