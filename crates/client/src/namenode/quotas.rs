//! Calls that set quotas.

use hearth_types::StorageType;
use hearth_wire::proto::hdfs::{SetQuotaRequestProto, SetQuotaResponseProto};

use crate::Error;
use crate::file_system::FileSystem;

/// Change of one quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaChange {
    /// Leave the quota as it is.
    Keep,
    /// Remove the quota.
    Clear,
    /// Set the quota: names, or bytes of all replicas. The namenode refuses values that are not quotas.
    Set(i64),
}

impl QuotaChange {
    /// Returns the number that stands for this change. Source: HdfsConstants.java, `QUOTA_DONT_SET`, `QUOTA_RESET`.
    fn to_wire(self) -> u64 {
        match self {
            Self::Keep => i64::MAX as u64,
            Self::Clear => -1_i64 as u64,
            Self::Set(quota) => quota as u64,
        }
    }
}

impl FileSystem {
    /// Changes the quotas of a directory. Requires superuser rights.
    pub async fn set_quota(&self, path: &str, names: QuotaChange, space: QuotaChange) -> Result<(), Error> {
        self.change_quota(path, names, space, None).await
    }

    /// Changes the quota of a directory for replicas on one type of storage. Requires superuser rights.
    pub async fn set_type_quota(&self, path: &str, storage_type: StorageType, space: QuotaChange) -> Result<(), Error> {
        self.change_quota(path, QuotaChange::Keep, space, Some(storage_type)).await
    }

    async fn change_quota(
        &self,
        path: &str,
        names: QuotaChange,
        space: QuotaChange,
        storage_type: Option<StorageType>,
    ) -> Result<(), Error> {
        let request = SetQuotaRequestProto {
            path: self.absolute(path)?,
            namespace_quota: names.to_wire(),
            storagespace_quota: space.to_wire(),
            storage_type: storage_type.map(|storage_type| storage_type as i32),
        };
        let SetQuotaResponseProto {} = self.session.namenode.call("setQuota", &request).await?;
        Ok(())
    }
}
