use bytes::Bytes;
use hearth_wire::proto::hdfs::{GetServerDefaultsRequestProto, GetServerDefaultsResponseProto};

use crate::error::Error;
use crate::state::{CallContext, Namenode, encode};

/// Returns the defaults for clients without their own configuration.
pub async fn get_server_defaults(
    namenode: &Namenode,
    _: &CallContext,
    _: GetServerDefaultsRequestProto,
) -> Result<Bytes, Error> {
    Ok(encode(&GetServerDefaultsResponseProto { server_defaults: (&namenode.settings.defaults).into() }))
}
