//! Calls about storage policies.

use hearth_types::StorageType;
use hearth_wire::convert::storage_types_from_wire;
use hearth_wire::proto::hdfs::*;

use crate::Error;
use crate::error::Failure;
use crate::file_system::FileSystem;

/// Rule that says on which types of storage the replicas of a file belong. Source: hdfs.proto,
/// `BlockStoragePolicyProto`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoragePolicy {
    /// Number of the policy, as in [`hearth_types::FileStatus::storage_policy`].
    pub id: u8,
    /// Name, such as `HOT`.
    pub name: String,
    /// Types for the first replica, the second, and so on. The last one holds for all further replicas.
    pub storage_types: Vec<StorageType>,
    /// Types to use for a new block if the chosen type is full.
    pub creation_fallbacks: Vec<StorageType>,
    /// Types to use for a further replica if the chosen type is full.
    pub replication_fallbacks: Vec<StorageType>,
}

impl FileSystem {
    /// Returns all policies of the namenode.
    pub async fn storage_policies(&self) -> Result<Vec<StoragePolicy>, Error> {
        const METHOD: &str = "getStoragePolicies";
        let answer: GetStoragePoliciesResponseProto =
            self.session.namenode.call(METHOD, &GetStoragePoliciesRequestProto {}).await?;
        let types = |message: Option<StorageTypesProto>| {
            message.map(|message| storage_types_from_wire(&message.storage_types)).unwrap_or_default()
        };
        let policies = answer.policies.into_iter().map(|policy| {
            let id = u8::try_from(policy.policy_id).map_err(|_| Failure::Answer {
                method: METHOD,
                why: format!("{} is not the number of a storage policy", policy.policy_id),
            })?;
            Ok(StoragePolicy {
                id,
                name: policy.name,
                storage_types: types(Some(policy.creation_policy)),
                creation_fallbacks: types(policy.creation_fallback_policy),
                replication_fallbacks: types(policy.replication_fallback_policy),
            })
        });
        policies.collect()
    }

    /// Sets the policy of a file or directory.
    pub async fn set_storage_policy(&self, path: &str, policy: &str) -> Result<(), Error> {
        let request = SetStoragePolicyRequestProto { src: self.absolute(path)?, policy_name: policy.to_owned() };
        let SetStoragePolicyResponseProto {} = self.session.namenode.call("setStoragePolicy", &request).await?;
        Ok(())
    }

    /// Removes the policy of a file or directory. It then has the one of its parent.
    pub async fn unset_storage_policy(&self, path: &str) -> Result<(), Error> {
        let request = UnsetStoragePolicyRequestProto { src: self.absolute(path)? };
        let UnsetStoragePolicyResponseProto {} = self.session.namenode.call("unsetStoragePolicy", &request).await?;
        Ok(())
    }

    /// Makes the namenode move replicas to where their policy wants them.
    pub async fn satisfy_storage_policy(&self, path: &str) -> Result<(), Error> {
        let request = SatisfyStoragePolicyRequestProto { src: self.absolute(path)? };
        let SatisfyStoragePolicyResponseProto {} = self.session.namenode.call("satisfyStoragePolicy", &request).await?;
        Ok(())
    }
}
