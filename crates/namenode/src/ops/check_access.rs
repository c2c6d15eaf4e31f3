use bytes::Bytes;
use hearth_types::Access;
use hearth_wire::proto::hdfs::{CheckAccessRequestProto, CheckAccessResponseProto};

use super::audited::Audited;
use crate::error::Error;
use crate::namespace::{Need, Purpose};
use crate::state::{CallContext, Namenode, encode};

/// Checks that the caller has the access that a mode describes.
pub async fn check_access(
    namenode: &Namenode,
    context: &CallContext,
    request: CheckAccessRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let missing = |path| Error::PathMissing { path };
    let (trail, _) = state.namespace.resolve_existing(&context.caller, &request.path, Purpose::Read, missing)?;
    let target = Some(Access::from_bits(request.mode as u8));
    state.namespace.check(&context.caller, &trail, Need { target, ..Need::default() })?;
    Ok(encode(&CheckAccessResponseProto {}))
}

pub fn audit(request: &CheckAccessRequestProto) -> Audited {
    Audited::on("checkAccess", &request.path)
}
