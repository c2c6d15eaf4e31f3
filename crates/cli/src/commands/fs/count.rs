//! `-count`

use hearth_client::QuotaUsage;
use hearth_types::{ContentSummary, StorageType, TypeQuota};

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::size::size;
use super::store::Store;

/// Columns to print for each path.
struct Columns {
    human: bool,
    main: MainColumns,
    policy: bool,
    in_snapshots: bool,
}

enum MainColumns {
    /// Directories, files and bytes. `quotas`: quotas in front of them.
    Counts { quotas: bool, without_snapshots: bool },
    /// Quotas only.
    Quotas,
    /// Only the quotas of these storage types.
    Types(Vec<StorageType>),
}

pub async fn count(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let (quotas, quotas_only) = (arguments.has("q"), arguments.has("u"));
    let mut without_snapshots = arguments.has("x");
    let types = match arguments.given("t") {
        Some(names) if quotas || quotas_only => Some(storage_types(names)?),
        _ => None,
    };
    if without_snapshots && (quotas || quotas_only) {
        shell.line("q or u option is given, the -x option is ignored.");
        without_snapshots = false;
    }
    let main = match types {
        Some(types) => MainColumns::Types(types),
        None if quotas_only => MainColumns::Quotas,
        None => MainColumns::Counts { quotas, without_snapshots },
    };
    let columns =
        Columns { human: arguments.has("h"), main, policy: arguments.has("e"), in_snapshots: arguments.has("s") };
    if arguments.has("v") {
        shell.line(format_args!("{}PATHNAME", columns.header()));
    }
    for item in shell.existing(&arguments.rest).await? {
        match columns.of(&item).await {
            Ok(line) => shell.line(format_args!("{line}{}", item.shown)),
            Err(failure) => shell.report(&failure),
        }
    }
    Ok(())
}

/// Parses the value of `-t`: names separated by commas. An empty value or `all` means all types that have quotas.
fn storage_types(names: &str) -> Result<Vec<StorageType>, Failure> {
    if names.is_empty() || names.eq_ignore_ascii_case("all") {
        return Ok(StorageType::WITH_QUOTA.to_vec());
    }
    let of = |name: &str| {
        let constant = || format!("No enum constant org.apache.hadoop.fs.StorageType.{}", name.to_ascii_uppercase());
        StorageType::named(name).ok_or_else(|| Failure::Usage(constant()))
    };
    names.split(',').filter(|name| !name.is_empty()).map(of).collect()
}

impl Columns {
    fn header(&self) -> String {
        let mut line = String::new();
        let quotas = || format!("{:>12} {:>15} {:>15} {:>15} ", "QUOTA", "REM_QUOTA", "SPACE_QUOTA", "REM_SPACE_QUOTA");
        match &self.main {
            MainColumns::Types(types) => {
                for name in types.iter().map(|storage_type| storage_type.name()) {
                    line += &type_columns(&format!("{name}_QUOTA"), &format!("REM_{name}_QUOTA"));
                }
            }
            MainColumns::Quotas => line += &quotas(),
            MainColumns::Counts { quotas: with_quotas, .. } => {
                if *with_quotas {
                    line += &quotas();
                }
                line += &format!("{:>12} {:>12} {:>18} ", "DIR_COUNT", "FILE_COUNT", "CONTENT_SIZE");
            }
        }
        if self.policy {
            line += "ERASURECODING_POLICY ";
        }
        if self.in_snapshots {
            line += &snapshot_columns([
                "SNAPSHOT_LENGTH".into(),
                "SNAPSHOT_FILE_COUNT".into(),
                "SNAPSHOT_DIR_COUNT".into(),
                "SNAPSHOT_SPACE_CONSUMED".into(),
            ]);
        }
        line
    }

    async fn of(&self, item: &Item) -> Result<String, Failure> {
        let human = self.human;
        let wants_summary = matches!(self.main, MainColumns::Counts { .. }) || self.policy || self.in_snapshots;
        let summary = if wants_summary { Some(summary(item).await?) } else { None };
        let mut line = match &self.main {
            MainColumns::Types(types) => {
                let usage = usage(item).await?;
                types.iter().map(|storage_type| of_type(&usage.type_quotas, *storage_type, human)).collect()
            }
            MainColumns::Quotas => quota_columns(&usage(item).await?, human),
            MainColumns::Counts { .. } => String::new(),
        };
        let Some(summary) = summary else { return Ok(line) };
        let share = &summary.in_snapshots;
        if let MainColumns::Counts { quotas, without_snapshots } = self.main {
            if quotas {
                line += &quota_columns(&usage_of(&summary), human);
            }
            let less =
                |all: u64, share: u64| size(if without_snapshots { all.saturating_sub(share) } else { all }, human);
            line += &format!(
                "{:>12} {:>12} {:>18} ",
                less(summary.directories, share.directories),
                less(summary.files, share.files),
                less(summary.length, share.length)
            );
        }
        if self.policy {
            line += &format!("{:>20} ", policy(&summary));
        }
        if self.in_snapshots {
            line += &snapshot_columns(
                [share.length, share.files, share.directories, share.space_consumed].map(|value| size(value, human)),
            );
        }
        Ok(line)
    }
}

/// Returns the erasure coding policy as ContentSummary.java prints it: with the prefix unless replicated, also for a
/// directory without a policy.
fn policy(summary: &ContentSummary) -> String {
    match summary.erasure_coding_policy.as_str() {
        "Replicated" => "Replicated".to_owned(),
        other => format!("EC:{other}"),
    }
}

fn type_columns(quota: &str, left: &str) -> String {
    format!("{quota:>14} {left:>18} ")
}

fn snapshot_columns([length, files, directories, space]: [String; 4]) -> String {
    format!("{length:>18} {files:>24} {directories:>24} {space:>28} ")
}

fn of_type(quotas: &[TypeQuota], storage_type: StorageType, human: bool) -> String {
    let found = quotas.iter().find(|of| of.storage_type == storage_type);
    match found.and_then(|of| Some((of.quota?, of.consumed))) {
        Some((quota, consumed)) => type_columns(&size(quota, human), &remaining(quota, consumed, human)),
        None => type_columns("none", "inf"),
    }
}

fn remaining(quota: u64, used: u64, human: bool) -> String {
    if quota >= used { size(quota - used, human) } else { format!("-{}", size(used - quota, human)) }
}

fn quota_columns(usage: &QuotaUsage, human: bool) -> String {
    let column = |quota: Option<u64>, used: u64| match quota {
        Some(quota) => (size(quota, human), remaining(quota, used, human)),
        None => ("none".to_owned(), "inf".to_owned()),
    };
    let (name, left) = column(usage.name_quota, usage.names);
    let (space, space_left) = column(usage.space_quota, usage.space_consumed);
    format!("{name:>12} {left:>15} {space:>15} {space_left:>15} ")
}

fn usage_of(summary: &ContentSummary) -> QuotaUsage {
    QuotaUsage {
        names: summary.files + summary.directories,
        name_quota: summary.name_quota,
        space_consumed: summary.space_consumed,
        space_quota: summary.space_quota,
        type_quotas: summary.type_quotas.clone(),
    }
}

/// Returns the quota usage. For a local directory it is counted here.
async fn usage(item: &Item) -> Result<QuotaUsage, Failure> {
    match &item.store {
        Store::Hdfs(fs) => fs.quota_usage(&item.path).await.map_err(|error| Failure::of(&item.shown, error)),
        _ => Ok(usage_of(&summary(item).await?)),
    }
}

/// Returns the content summary. For a local directory it is counted here.
pub async fn summary(item: &Item) -> Result<ContentSummary, Failure> {
    if let Store::Hdfs(fs) = &item.store {
        return fs.content_summary(&item.path).await.map_err(|error| Failure::of(&item.shown, error));
    }
    let mut sum = ContentSummary::default();
    let mut left = vec![item.clone()];
    while let Some(item) = left.pop() {
        if item.is_directory() {
            sum.directories += 1;
            left.extend(item.children().await?);
        } else {
            sum.files += 1;
            sum.length += item.status()?.length;
            sum.space_consumed += item.status()?.length;
        }
    }
    Ok(sum)
}
