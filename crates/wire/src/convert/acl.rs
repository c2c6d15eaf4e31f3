use hearth_types::{Access, AclEntry, AclScope, AclStatus, AclType, FsPermission};

use super::ConvertError;
use crate::proto::hdfs::{AclEntryProto, AclStatusProto};

impl From<&AclEntry> for AclEntryProto {
    fn from(entry: &AclEntry) -> Self {
        Self {
            r#type: entry.kind as i32,
            scope: entry.scope as i32,
            permissions: i32::from(entry.access.bits()),
            name: entry.name.as_deref().map(str::to_owned),
        }
    }
}

impl TryFrom<AclEntryProto> for AclEntry {
    type Error = ConvertError;

    fn try_from(message: AclEntryProto) -> Result<Self, ConvertError> {
        let unknown = |field, number| ConvertError::UnknownNumber { field, number };
        let byte = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
        let AclEntryProto { r#type: kind, scope, permissions, name } = message;
        if byte(permissions) > Access::ALL.bits() {
            return Err(unknown("the rights of an ACL entry", permissions));
        }
        Ok(Self {
            scope: AclScope::from_number(byte(scope)).ok_or(unknown("the scope of an ACL entry", scope))?,
            kind: AclType::from_number(byte(kind)).ok_or(unknown("the type of an ACL entry", kind))?,
            name: name.filter(|name| !name.is_empty()).map(Into::into),
            access: Access::from_bits(byte(permissions)),
        })
    }
}

impl From<&AclStatus> for AclStatusProto {
    fn from(status: &AclStatus) -> Self {
        Self {
            owner: status.owner.clone(),
            group: status.group.clone(),
            sticky: status.permission.0 & 0o1000 != 0,
            entries: status.entries.iter().map(Into::into).collect(),
            permission: Some(status.permission.into()),
        }
    }
}

impl TryFrom<AclStatusProto> for AclStatus {
    type Error = ConvertError;

    fn try_from(message: AclStatusProto) -> Result<Self, ConvertError> {
        let AclStatusProto { owner, group, sticky, entries, permission } = message;
        let FsPermission(bits) = permission.ok_or(ConvertError::Empty { field: "the mode of an ACL" })?.into();
        Ok(Self {
            owner,
            group,
            permission: FsPermission(bits & 0o777 | if sticky { 0o1000 } else { 0 }),
            entries: entries.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
        })
    }
}
