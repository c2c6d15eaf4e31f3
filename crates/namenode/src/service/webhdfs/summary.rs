//! Totals of a tree or of the whole file system, and the server's defaults for writers.

use hearth_types::StorageType;
use hearth_wire::proto::hdfs::{
    GetContentSummaryRequestProto, GetContentSummaryResponseProto, GetFsStatsResponseProto, GetFsStatusRequestProto,
    GetQuotaUsageRequestProto, GetQuotaUsageResponseProto, GetServerDefaultsRequestProto,
    GetServerDefaultsResponseProto, StorageTypeQuotaInfosProto,
};
use serde_json::{Map, Value, json};

use super::{Answer, Operation, answer};

/// Java's "no quota".
const NONE: i64 = -1;

impl Operation {
    pub(super) async fn content_summary(&self) -> Answer {
        let request = GetContentSummaryRequestProto { path: self.path.clone() };
        let found: GetContentSummaryResponseProto = self.call("getContentSummary", &request).await?;
        let summary = found.summary;
        Ok(answer(&json!({ "ContentSummary": {
            "length": summary.length as i64,
            "fileCount": summary.file_count as i64,
            "directoryCount": summary.directory_count as i64,
            "ecPolicy": summary.erasure_coding_policy(),
            "quota": summary.quota as i64,
            "spaceConsumed": summary.space_consumed as i64,
            "spaceQuota": summary.space_quota as i64,
            "typeQuota": type_quotas(summary.type_quota_infos.as_ref()),
            "snapshotLength": summary.snapshot_length() as i64,
            "snapshotFileCount": summary.snapshot_file_count() as i64,
            "snapshotDirectoryCount": summary.snapshot_directory_count() as i64,
            "snapshotSpaceConsumed": summary.snapshot_space_consumed() as i64,
        }})))
    }

    pub(super) async fn quota_usage(&self) -> Answer {
        let request = GetQuotaUsageRequestProto { path: self.path.clone() };
        let found: GetQuotaUsageResponseProto = self.call("getQuotaUsage", &request).await?;
        let usage = found.usage;
        Ok(answer(&json!({ "QuotaUsage": {
            "fileAndDirectoryCount": usage.file_and_directory_count as i64,
            "quota": usage.quota as i64,
            "spaceConsumed": usage.space_consumed as i64,
            "spaceQuota": usage.space_quota as i64,
            "typeQuota": type_quotas(usage.type_quota_infos.as_ref()),
        }})))
    }

    pub(super) async fn fs_status(&self) -> Answer {
        let found: GetFsStatsResponseProto = self.call("getFsStats", &GetFsStatusRequestProto {}).await?;
        Ok(answer(&json!({ "FsStatus": {
            "capacity": found.capacity as i64,
            "used": found.used as i64,
            "remaining": found.remaining as i64,
        }})))
    }

    pub(super) async fn server_defaults(&self) -> Answer {
        let found: GetServerDefaultsResponseProto =
            self.call("getServerDefaults", &GetServerDefaultsRequestProto {}).await?;
        let defaults = found.server_defaults;
        Ok(answer(&json!({ "FsServerDefaults": {
            "blockSize": defaults.block_size as i64,
            "bytesPerChecksum": defaults.bytes_per_checksum,
            "writePacketSize": defaults.write_packet_size,
            "replication": defaults.replication,
            "fileBufferSize": defaults.file_buffer_size,
            "encryptDataTransfer": defaults.encrypt_data_transfer(),
            "trashInterval": defaults.trash_interval() as i64,
            "checksumType": defaults.checksum_type() as i32,
            "keyProviderUri": defaults.key_provider_uri,
            "defaultStoragePolicyId": defaults.policy_id(),
        }})))
    }
}

/// Quotas of the media that have one. Source: `JsonUtil.toJsonMap(QuotaUsage, boolean)`.
fn type_quotas(infos: Option<&StorageTypeQuotaInfosProto>) -> Value {
    let mut shown = Map::new();
    for info in infos.map(|infos| infos.type_quota_info.as_slice()).unwrap_or_default() {
        let quota = info.quota as i64;
        if quota != NONE {
            let medium = info.r#type.and_then(StorageType::from_number).unwrap_or_default();
            shown.insert(medium.name().to_owned(), json!({ "consumed": info.consumed as i64, "quota": quota }));
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use hearth_wire::proto::hdfs::StorageTypeQuotaInfoProto;

    use super::*;

    #[test]
    fn only_media_with_quota_are_listed() {
        let info = |number: i32, quota: u64| StorageTypeQuotaInfoProto { r#type: Some(number), quota, consumed: 3 };
        let infos = StorageTypeQuotaInfosProto { type_quota_info: vec![info(1, u64::MAX), info(2, 10)] };
        assert_eq!(type_quotas(Some(&infos)), json!({ "SSD": { "consumed": 3, "quota": 10 } }));
        assert_eq!(type_quotas(None), json!({}));
    }
}
