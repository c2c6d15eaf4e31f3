//! Access control lists.

use hearth_types::AclEntry;
use hearth_web::webhdfs::{Exception, needed, not_of};
use hearth_wire::proto::hdfs::{
    AclEntryProto, GetAclStatusRequestProto, GetAclStatusResponseProto, ModifyAclEntriesRequestProto,
    ModifyAclEntriesResponseProto, RemoveAclEntriesRequestProto, RemoveAclEntriesResponseProto, RemoveAclRequestProto,
    RemoveAclResponseProto, RemoveDefaultAclRequestProto, RemoveDefaultAclResponseProto, SetAclRequestProto,
    SetAclResponseProto,
};
use hearth_wire::rpc::exceptions;
use serde_json::json;

use super::status::mode;
use super::{Answer, Operation, answer};

/// Name of the parameter.
const NAME: &str = "aclspec";
/// Source: the default of `dfs.webhdfs.acl.provider.permission.pattern`.
const DOMAIN: &str = "^(default:)?(user|group|mask|other):[[A-Za-z_][A-Za-z0-9._-]]*:([rwx-]{3})?\
    (,(default:)?(user|group|mask|other):[[A-Za-z_][A-Za-z0-9._-]]*:([rwx-]{3})?)*$";

impl Operation {
    pub(super) async fn acl_status(&self) -> Answer {
        let request = GetAclStatusRequestProto { src: self.path.clone() };
        let found: GetAclStatusResponseProto = self.call("getAclStatus", &request).await?;
        let status = found.result;
        let entries: Result<Vec<String>, _> =
            status.entries.into_iter().map(|entry| AclEntry::try_from(entry).map(|entry| entry.to_string())).collect();
        let entries = entries.map_err(|error| Exception::io(error.to_string()))?;
        let mut shown = json!({
            "owner": status.owner, "group": status.group, "stickyBit": status.sticky, "entries": entries,
        });
        if let Some(permission) = status.permission {
            shown["permission"] = mode(permission.perm).into();
        }
        Ok(answer(&json!({ "AclStatus": shown })))
    }

    pub(super) async fn modify_acl_entries(&self) -> Answer {
        let acl_spec = self.acl_spec("MODIFYACLENTRIES", true)?;
        let request = ModifyAclEntriesRequestProto { src: self.path.clone(), acl_spec };
        self.change::<ModifyAclEntriesResponseProto>("modifyAclEntries", &request).await
    }

    pub(super) async fn remove_acl_entries(&self) -> Answer {
        let acl_spec = self.acl_spec("REMOVEACLENTRIES", false)?;
        let request = RemoveAclEntriesRequestProto { src: self.path.clone(), acl_spec };
        self.change::<RemoveAclEntriesResponseProto>("removeAclEntries", &request).await
    }

    pub(super) async fn remove_default_acl(&self) -> Answer {
        let request = RemoveDefaultAclRequestProto { src: self.path.clone() };
        self.change::<RemoveDefaultAclResponseProto>("removeDefaultAcl", &request).await
    }

    pub(super) async fn remove_acl(&self) -> Answer {
        let request = RemoveAclRequestProto { src: self.path.clone() };
        self.change::<RemoveAclResponseProto>("removeAcl", &request).await
    }

    pub(super) async fn set_acl(&self) -> Answer {
        let acl_spec = self.acl_spec("SETACL", true)?;
        let request = SetAclRequestProto { src: self.path.clone(), acl_spec };
        self.change::<SetAclResponseProto>("setAcl", &request).await
    }

    /// Returns the ACL parameter if it has a valid form.
    pub(super) fn given_acl(&self) -> Result<Option<&str>, Exception> {
        match self.parameters.text(NAME) {
            Some(given) if !given.split(',').all(is_entry) => Err(not_of(NAME, given, DOMAIN)),
            given => Ok(given),
        }
    }

    /// `with_rights`: as for [`AclEntry::parse_all`].
    fn acl_spec(&self, operation: &str, with_rights: bool) -> Result<Vec<AclEntryProto>, Exception> {
        let given = self.given_acl()?.ok_or_else(|| needed(NAME, operation))?;
        let entries = AclEntry::parse_all(given, with_rights);
        let entries =
            entries.map_err(|error| Exception::new(exceptions::HADOOP_ILLEGAL_ARGUMENT, error.to_string()))?;
        Ok(entries.iter().map(Into::into).collect())
    }
}

/// Returns true if the text has the form of one entry of [`DOMAIN`].
fn is_entry(text: &str) -> bool {
    let text = text.strip_prefix("default:").unwrap_or(text);
    let mut parts = text.split(':');
    let (Some(kind), Some(name), Some(rights), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let is_of = |text: &str, others: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c));
    matches!(kind, "user" | "group" | "mask" | "other")
        && is_of(name, "._-")
        && (rights.is_empty() || rights.len() == 3 && rights.chars().all(|letter| "rwx-".contains(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acl_entries_match_hadoops_pattern() {
        for entry in ["user::rwx", "user:bruce.w_1:r-x", "default:group:a-b:", "mask::---", "other::"] {
            assert!(is_entry(entry), "{entry}");
        }
        for entry in ["", "user:bruce", "user:bruce:rw", "bruce:x:rwx", "user:a b:rwx", "default:default:user:"] {
            assert!(!is_entry(entry), "{entry}");
        }
    }
}
