//! Totals of a tree, for `du`, `count` and quotas.

use bytes::Bytes;
use hearth_types::StorageType;
use hearth_wire::proto::hdfs::{
    ContentSummaryProto, GetContentSummaryRequestProto, GetContentSummaryResponseProto, GetQuotaUsageRequestProto,
    GetQuotaUsageResponseProto, QuotaUsageProto, StorageTypeQuotaInfoProto, StorageTypeQuotaInfosProto,
};

use super::audited::Audited;
use crate::error::Error;
use crate::namespace::{QUOTA_TYPES, Summary};
use crate::state::{CallContext, Namenode, encode};

/// "No quota": -1 as a Java long.
const NONE: u64 = u64::MAX;
/// The namespace quota of a fresh root.
const ROOT_NAMES: u64 = i64::MAX as u64;

fn name_quota(summary: &Summary) -> u64 {
    let unset = if summary.is_root { ROOT_NAMES } else { NONE };
    summary.quota.as_ref().and_then(|quota| quota.names).unwrap_or(unset)
}

fn space_quota(summary: &Summary) -> u64 {
    summary.quota.as_ref().and_then(|quota| quota.space).unwrap_or(NONE)
}

/// Returns the quotas by medium if one is set, or if the tree uses a medium that counts.
fn type_quotas(summary: &Summary) -> Option<StorageTypeQuotaInfosProto> {
    let limits = summary.quota.as_ref().map(|quota| quota.types).unwrap_or_default();
    let told =
        limits.iter().any(Option::is_some) || summary.usage.reported_types().iter().any(|consumed| *consumed > 0);
    told.then(|| {
        let infos = QUOTA_TYPES.iter().zip(limits).zip(summary.usage.reported_types());
        let info = |((medium, limit), consumed): ((&StorageType, Option<u64>), u64)| StorageTypeQuotaInfoProto {
            r#type: Some(*medium as i32),
            quota: limit.unwrap_or(NONE),
            consumed,
        };
        let mut type_quota_info: Vec<_> = infos.map(info).collect();
        // Java's order of media.
        type_quota_info.sort_by_key(|info| info.r#type != Some(StorageType::Ssd as i32));
        StorageTypeQuotaInfosProto { type_quota_info }
    })
}

/// Sums up a file or tree. A concurrent change is counted either as before or as after it.
async fn summarize(
    namenode: &Namenode,
    context: &CallContext,
    path: &str,
    missing: impl FnOnce(String) -> Error,
) -> Result<Summary, Error> {
    let mut summing = namenode.read().namespace.start_summing(&context.caller, path, missing)?;
    loop {
        // The lock is free between two rounds.
        let summed = namenode.read().namespace.continue_summing(&mut summing, namenode.settings.summed_max)?;
        match summed {
            Some(summary) => return Ok(summary),
            None => tokio::task::yield_now().await,
        }
    }
}

pub async fn get_content_summary(
    namenode: &Namenode,
    context: &CallContext,
    request: GetContentSummaryRequestProto,
) -> Result<Bytes, Error> {
    let summary = summarize(namenode, context, &request.path, |path| Error::FileMissing { path }).await?;
    let answer = ContentSummaryProto {
        length: summary.length,
        file_count: summary.files,
        directory_count: summary.directories,
        quota: name_quota(&summary),
        space_consumed: summary.space_consumed,
        space_quota: space_quota(&summary),
        type_quota_infos: type_quotas(&summary),
        snapshot_length: Some(summary.in_snapshots.length),
        snapshot_file_count: Some(summary.in_snapshots.files),
        snapshot_directory_count: Some(summary.in_snapshots.directories),
        snapshot_space_consumed: Some(summary.in_snapshots.space_consumed),
        erasure_coding_policy: Some(if summary.is_directory { String::new() } else { "Replicated".into() }),
    };
    Ok(encode(&GetContentSummaryResponseProto { summary: answer }))
}

pub fn audit_get_content_summary(request: &GetContentSummaryRequestProto) -> Audited {
    Audited::on("contentSummary", &request.path)
}

pub async fn get_quota_usage(
    namenode: &Namenode,
    context: &CallContext,
    request: GetQuotaUsageRequestProto,
) -> Result<Bytes, Error> {
    let missing = |path| Error::FileOrDirectoryMissing { path };
    let summary = summarize(namenode, context, &request.path, missing).await?;
    let usage = QuotaUsageProto {
        file_and_directory_count: summary.files + summary.directories,
        quota: name_quota(&summary),
        space_consumed: summary.space_consumed,
        space_quota: space_quota(&summary),
        type_quota_infos: type_quotas(&summary),
    };
    Ok(encode(&GetQuotaUsageResponseProto { usage }))
}

pub fn audit_get_quota_usage(request: &GetQuotaUsageRequestProto) -> Audited {
    Audited::on("quotaUsage", &request.path)
}
