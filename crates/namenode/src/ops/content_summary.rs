//! What a tree holds in all, for `du`, `count` and quotas.

use bytes::Bytes;
use hearth_wire::proto::hdfs::{
    ContentSummaryProto, GetContentSummaryRequestProto, GetContentSummaryResponseProto, GetQuotaUsageRequestProto,
    GetQuotaUsageResponseProto, QuotaUsageProto,
};

use crate::error::Error;
use crate::namespace::Summary;
use crate::state::{Context, Namenode, encode};

/// "No quota": -1 in Java's long.
const NONE: u64 = u64::MAX;
/// The quota of names that a fresh root has.
const ROOT_NAMES: u64 = i64::MAX as u64;

fn name_quota(summary: &Summary) -> u64 {
    if summary.is_root { ROOT_NAMES } else { NONE }
}

pub async fn get_content_summary(
    namenode: &Namenode,
    context: &Context,
    request: GetContentSummaryRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let summary = state.namespace.summarize(&context.caller, &request.path, |path| Error::FileMissing { path })?;
    let answer = ContentSummaryProto {
        length: summary.length,
        file_count: summary.files,
        directory_count: summary.directories,
        quota: name_quota(&summary),
        space_consumed: summary.space_consumed,
        space_quota: NONE,
        type_quota_infos: None,
        snapshot_length: Some(0),
        snapshot_file_count: Some(0),
        snapshot_directory_count: Some(0),
        snapshot_space_consumed: Some(0),
        erasure_coding_policy: Some(if summary.is_directory { String::new() } else { "Replicated".into() }),
    };
    Ok(encode(&GetContentSummaryResponseProto { summary: answer }))
}

pub async fn get_quota_usage(
    namenode: &Namenode,
    context: &Context,
    request: GetQuotaUsageRequestProto,
) -> Result<Bytes, Error> {
    let state = namenode.read();
    let missing = |path| Error::FileOrDirectoryMissing { path };
    let summary = state.namespace.summarize(&context.caller, &request.path, missing)?;
    let usage = QuotaUsageProto {
        file_and_directory_count: summary.files + summary.directories,
        quota: name_quota(&summary),
        space_consumed: summary.space_consumed,
        space_quota: NONE,
        type_quota_infos: None,
    };
    Ok(encode(&GetQuotaUsageResponseProto { usage }))
}
