use bytes::Bytes;
use hearth_types::StorageType;
use hearth_wire::proto::hdfs::{SetQuotaRequestProto, SetQuotaResponseProto};

use super::audited::Audited;
use crate::error::Error;
use crate::namespace::Limit;
use crate::state::{CallContext, Namenode, Remember};

/// Java's value for "leave it unchanged".
const KEEP: i64 = i64::MAX;
/// Java's value for "remove it".
const CLEAR: i64 = -1;

/// Hadoop's name for a change of these two limits. Source: `FSNamesystem.getQuotaCommand`.
fn operation_name(names: i64, space: i64) -> &'static str {
    match (names, space) {
        (CLEAR, KEEP) => "clearQuota",
        (KEEP, CLEAR) => "clearSpaceQuota",
        (_, KEEP) => "setQuota",
        _ => "setSpaceQuota",
    }
}

/// Limits the names and the bytes of a directory's tree, or the bytes on one medium.
pub async fn set_quota(
    namenode: &Namenode,
    context: &CallContext,
    request: SetQuotaRequestProto,
) -> Result<Bytes, Error> {
    let (names, space) = (request.namespace_quota as i64, request.storagespace_quota as i64);
    let medium = request.storage_type.map(|number| {
        StorageType::from_number(number).ok_or_else(|| Error::Malformed(format!("storage type {number}")))
    });
    let medium = medium.transpose()?;
    let operation = operation_name(names, space);
    namenode
        .change_once(context, |state, now| {
            if !state.namespace.owner_sets_quota() {
                state.namespace.require_superuser(&context.caller, operation)?;
            }
            namenode.check_safe_mode(state, now, || format!("set quota on {}", request.path))?;
            let limit = |value: i64| match value {
                KEEP => Some(Limit::Keep),
                CLEAR => Some(Limit::Clear),
                value => u64::try_from(value).ok().map(Limit::Set),
            };
            let (Some(names_limit), Some(space_limit)) = (limit(names), limit(space)) else {
                return Err(Error::QuotaIllegal { names, space });
            };
            if let Some(medium) = medium
                && (names != KEEP || !namenode.settings.type_quotas_enabled)
            {
                return Err(Error::QuotaType { medium: medium.name() });
            }
            state.namespace.set_quota(&context.caller, &request.path, names_limit, space_limit, medium)?;
            Ok((SetQuotaResponseProto {}, Remember::Yes))
        })
        .await
}

pub fn audit(request: &SetQuotaRequestProto) -> Audited {
    let command = operation_name(request.namespace_quota as i64, request.storagespace_quota as i64);
    Audited::on(command, &request.path)
}

#[cfg(test)]
mod tests {
    use super::operation_name;

    #[test]
    fn quotas_have_four_commands() {
        assert_eq!(operation_name(-1, i64::MAX), "clearQuota");
        assert_eq!(operation_name(i64::MAX, -1), "clearSpaceQuota");
        assert_eq!(operation_name(5, i64::MAX), "setQuota");
        assert_eq!(operation_name(i64::MAX, 5), "setSpaceQuota");
        assert_eq!(operation_name(5, 5), "setSpaceQuota");
    }
}
