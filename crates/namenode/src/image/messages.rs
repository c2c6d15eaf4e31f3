//! Inodes of the store as messages of an image.

use bytes::Bytes;
use hearth_types::{AclEntry, AclType, Xattr, XattrSpace};
use hearth_wire::proto::hdfs::fsimage::{
    AclFeatureProto, FileUnderConstructionProto, ImageBlockTypeProto, InodeDirectoryProto, InodeFileProto, InodeProto,
    InodeTypeProto, TypeQuotaProto, TypeQuotasProto, XattrCompactProto, XattrFeatureProto,
};
use hearth_wire::proto::hdfs::{BlockProto, StorageTypeProto};

use super::strings::{Kind, StringsOut};
use super::{ImageError, POLICY_XATTR};
use crate::namespace::{BlockRecord, FilePart, Inode, InodeId, PrincipalId, Quota};

/// Media that can have a quota, in the order of `QUOTA_TYPES`.
pub(super) const QUOTA_MEDIA: [StorageTypeProto; 5] = [
    StorageTypeProto::Disk,
    StorageTypeProto::Ssd,
    StorageTypeProto::Archive,
    StorageTypeProto::Provided,
    StorageTypeProto::Nvdimm,
];

/// Value of a quota that is not set: Java's -1.
pub(super) const NO_QUOTA: u64 = u64::MAX;
/// Limit of names of a root directory whose quota is not set: Java's `Long.MAX_VALUE`. Source: `FSDirectory.createRoot`.
pub(super) const ROOT_NAMES: u64 = i64::MAX as u64;

/// Converts inodes and collects the names that they use.
pub(super) struct Messages {
    pub strings: StringsOut,
    /// User and group names by their number in the store.
    principals: Vec<String>,
}

impl Messages {
    pub fn new(principals: Vec<String>) -> Self {
        Self { strings: StringsOut::default(), principals }
    }

    fn principal(&self, id: PrincipalId) -> Result<&str, ImageError> {
        let name = self.principals.get(id.0 as usize).map(String::as_str);
        name.ok_or_else(|| ImageError::Inexpressible { what: format!("owner or group {} has no name", id.0) })
    }

    fn permission(&mut self, inode: &Inode) -> Result<u64, ImageError> {
        let (owner, group) = (self.principal(inode.owner())?.to_owned(), self.principal(inode.group())?.to_owned());
        let user = self.strings.number(Kind::User, &owner)?;
        let group = self.strings.number(Kind::Group, &group)?;
        Ok(u64::from(user) << 40 | u64::from(group) << 16 | u64::from(inode.permission().0))
    }

    fn acl(&mut self, entries: &[AclEntry]) -> Result<Option<AclFeatureProto>, ImageError> {
        if entries.is_empty() {
            return Ok(None);
        }
        let mut packed = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = match (entry.kind, entry.name.as_deref()) {
                (AclType::User, Some(name)) => self.strings.number(Kind::User, name)?,
                (AclType::Group, Some(name)) => self.strings.number(Kind::Group, name)?,
                _ => 0,
            };
            let (rights, kind, scope) = (u32::from(entry.access.bits()), entry.kind as u32, entry.scope as u32);
            packed.push(rights | kind << 3 | scope << 5 | name << 6);
        }
        Ok(Some(AclFeatureProto { entries: packed }))
    }

    fn xattr(&mut self, space: XattrSpace, name: &str, value: &[u8]) -> Result<XattrCompactProto, ImageError> {
        let (number, space) = (self.strings.number(Kind::Xattr, name)?, space as u32);
        let value = (!value.is_empty()).then(|| Bytes::copy_from_slice(value));
        Ok(XattrCompactProto { name: (space & 3) << 30 | number << 6 | (space >> 2) << 5, value })
    }

    fn xattrs(&mut self, xattrs: &[Xattr], policy: Option<u8>) -> Result<Option<XattrFeatureProto>, ImageError> {
        let mut all = Vec::with_capacity(xattrs.len());
        for xattr in xattrs {
            all.push(self.xattr(xattr.space, &xattr.name, &xattr.value)?);
        }
        if let Some(policy) = policy {
            all.push(self.xattr(XattrSpace::System, POLICY_XATTR, &[policy])?);
        }
        Ok((!all.is_empty()).then_some(XattrFeatureProto { xattrs: all }))
    }

    /// Returns a directory's attributes.
    pub fn directory(&mut self, inode: &Inode) -> Result<InodeDirectoryProto, ImageError> {
        let none = Quota::default();
        let quota = inode.quota().unwrap_or(&none);
        let types = quota
            .types
            .iter()
            .zip(QUOTA_MEDIA)
            .filter_map(|(limit, medium)| Some(TypeQuotaProto { storage_type: medium as i32, quota: (*limit)? }));
        let types: Vec<TypeQuotaProto> = types.collect();
        let without = if inode.id() == InodeId::ROOT { ROOT_NAMES } else { NO_QUOTA };
        let policy = Some(inode.storage_policy()).filter(|policy| *policy != 0);
        Ok(InodeDirectoryProto {
            modification_time: Some(inode.modification_time_ms()),
            ns_quota: Some(quota.names.unwrap_or(without)),
            ds_quota: Some(quota.space.unwrap_or(NO_QUOTA)),
            permission: Some(self.permission(inode)?),
            acl: self.acl(inode.acl())?,
            xattrs: self.xattrs(inode.xattrs(), policy)?,
            type_quotas: (!types.is_empty()).then_some(TypeQuotasProto { quotas: types }),
        })
    }

    /// Returns a file's attributes, without its blocks and its writer.
    pub fn file(&mut self, inode: &Inode) -> Result<InodeFileProto, ImageError> {
        Ok(InodeFileProto {
            replication: Some(u32::from(inode.replication())),
            modification_time: Some(inode.modification_time_ms()),
            access_time: Some(inode.access_time_ms()),
            preferred_block_size: Some(inode.block_size()),
            permission: Some(self.permission(inode)?),
            blocks: Vec::new(),
            file_uc: None,
            acl: self.acl(inode.acl())?,
            xattrs: self.xattrs(inode.xattrs(), None)?,
            storage_policy_id: Some(u32::from(inode.storage_policy())),
            block_type: Some(ImageBlockTypeProto::Contiguous as i32),
            erasure_coding_policy_id: None,
        })
    }

    /// Returns an inode for the section INODE.
    ///
    /// Errors: `Inexpressible` if the file is being truncated: DataNodes would not be told to finish that.
    pub fn inode(&mut self, inode: &Inode) -> Result<InodeProto, ImageError> {
        let id = inode.id().0;
        let name = Some(Bytes::copy_from_slice(&inode.name));
        let Some(part) = inode.as_file() else {
            let (kind, directory) = (InodeTypeProto::Directory as i32, Some(self.directory(inode)?));
            return Ok(InodeProto { r#type: kind, id, name, file: None, directory, symlink: None });
        };
        let mut file = self.file(inode)?;
        file.blocks = part.blocks().iter().map(block).collect();
        file.file_uc = writer(part, id)?;
        let kind = InodeTypeProto::File as i32;
        Ok(InodeProto { r#type: kind, id, name, file: Some(file), directory: None, symlink: None })
    }
}

fn writer(file: &FilePart, inode: u64) -> Result<Option<FileUnderConstructionProto>, ImageError> {
    let Some(writer) = file.writer() else { return Ok(None) };
    if writer.truncation.is_some() {
        return Err(being_truncated(inode));
    }
    let (client, machine) = (writer.client.clone(), writer.machine.clone());
    Ok(Some(FileUnderConstructionProto { client_name: Some(client), client_machine: Some(machine) }))
}

/// Returns the error for a file whose truncation the DataNodes have not finished.
pub(super) fn being_truncated(inode: u64) -> ImageError {
    let what = format!(
        "the file with inode {inode} (/.reserved/.inodes/{inode}) is being truncated, which an fsimage cannot say; try again when that is done"
    );
    ImageError::Inexpressible { what }
}

pub(super) fn block(record: BlockRecord) -> BlockProto {
    let (id, stamp) = (record.id.0 as u64, record.stamp().0);
    BlockProto { block_id: id, gen_stamp: stamp, num_bytes: Some(record.length) }
}
