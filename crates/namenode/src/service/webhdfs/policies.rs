//! Queries of storage policies.

use hearth_wire::proto::hdfs::{
    BlockStoragePolicyProto, GetStoragePoliciesRequestProto, GetStoragePoliciesResponseProto,
    GetStoragePolicyRequestProto, GetStoragePolicyResponseProto, StorageTypesProto,
};
use serde_json::{Value, json};

use super::blocks::storage_types;
use super::{Answer, Operation, answer};
use crate::ops::storage_policy::LAZY_PERSIST;

impl Operation {
    pub(super) async fn storage_policies(&self) -> Answer {
        let found: GetStoragePoliciesResponseProto =
            self.call("getStoragePolicies", &GetStoragePoliciesRequestProto {}).await?;
        let policies: Vec<Value> = found.policies.iter().map(policy).collect();
        Ok(answer(&json!({ "BlockStoragePolicies": { "BlockStoragePolicy": policies } })))
    }

    pub(super) async fn storage_policy(&self) -> Answer {
        let request = GetStoragePolicyRequestProto { path: self.path.clone() };
        let found: GetStoragePolicyResponseProto = self.call("getStoragePolicy", &request).await?;
        Ok(answer(&json!({ "BlockStoragePolicy": policy(&found.storage_policy) })))
    }
}

/// Source: `JsonUtil.toJsonMap(BlockStoragePolicy)`, `BlockStoragePolicySuite`.
fn policy(policy: &BlockStoragePolicyProto) -> Value {
    let media = |types: Option<&StorageTypesProto>| {
        storage_types(types.map(|types| types.storage_types.as_slice()).unwrap_or_default())
    };
    json!({
        "id": policy.policy_id,
        "name": policy.name,
        "storageTypes": media(Some(&policy.creation_policy)),
        "creationFallbacks": media(policy.creation_fallback_policy.as_ref()),
        "replicationFallbacks": media(policy.replication_fallback_policy.as_ref()),
        "copyOnCreateFile": policy.policy_id == u32::from(LAZY_PERSIST),
    })
}
