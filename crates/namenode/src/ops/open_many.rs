use bytes::Bytes;
use hearth_wire::open_many::{OpenFailure, OpenManyAnswer, PATHS_MAX};
use hearth_wire::proto::hearth::OpenManyRequestProto;

use super::audited::Audited;
use super::get_block_locations::{locate, touch};
use crate::error::Error;
use crate::state::{CallContext, Namenode};

/// Number of files that are looked up before the lock is released for other callers.
const AT_ONCE: usize = 64;

/// `openMany`, Hearth's own call: the answer of `getBlockLocations` for each of many paths, errors included.
pub async fn open_many(
    namenode: &Namenode,
    context: &CallContext,
    request: OpenManyRequestProto,
) -> Result<Bytes, Error> {
    if request.paths.len() > PATHS_MAX {
        return Err(Error::Malformed(format!("too many paths: {}, the limit is {PATHS_MAX}", request.paths.len())));
    }
    let range = (request.offset, request.length);
    let mut answer = OpenManyAnswer::default();
    let mut read = Vec::new();
    for paths in request.paths.chunks(AT_ONCE) {
        {
            let state = namenode.read();
            let now = namenode.now();
            for path in paths {
                if answer.is_full() {
                    break;
                }
                answer.push(match locate(namenode, &state, context, path, range, now) {
                    Ok((located, touched)) => {
                        read.extend(touched);
                        Ok(located)
                    }
                    Err(error) => Err(OpenFailure { exception: error.class().to_owned(), message: error.to_string() }),
                });
            }
        }
        tokio::task::consume_budget().await;
    }
    read.into_iter().for_each(|id| touch(namenode, id));
    Ok(answer.encode())
}

pub fn audit(request: &OpenManyRequestProto) -> Option<Audited> {
    Audited::on_each("open", &request.paths)
}
