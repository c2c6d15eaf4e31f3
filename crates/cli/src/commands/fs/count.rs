//! `-count`

use hearth_types::ContentSummary;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::size::size;
use super::store::Store;

pub async fn count(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let human = arguments.has("h");
    let quotas = arguments.has("q") || arguments.has("u");
    let counts = !arguments.has("u");
    if arguments.has("v") {
        header(shell, &arguments, quotas, counts);
    }
    for item in shell.existing(&arguments.rest).await {
        match summary(&item).await {
            Ok(summary) => {
                let mut line = String::new();
                if quotas {
                    line.push_str(&quota_columns(&summary, human));
                }
                if counts {
                    line.push_str(&format!(
                        "{:>12} {:>12} {:>18} ",
                        size(summary.directories, human),
                        size(summary.files, human),
                        size(summary.length, human)
                    ));
                }
                if arguments.has("e") {
                    line.push_str(&format!("{} ", summary.erasure_coding_policy));
                }
                shell.line(format_args!("{line}{}", item.shown));
            }
            Err(failure) => shell.report(&failure),
        }
    }
    Ok(())
}

fn header(shell: &mut Shell, arguments: &Arguments, quotas: bool, counts: bool) {
    let mut line = String::new();
    if quotas {
        line.push_str(&format!("{:>12} {:>15} {:>15} {:>15} ", "QUOTA", "REM_QUOTA", "SPACE_QUOTA", "REM_SPACE_QUOTA"));
    }
    if counts {
        line.push_str(&format!("{:>12} {:>12} {:>18} ", "DIR_COUNT", "FILE_COUNT", "CONTENT_SIZE"));
    }
    if arguments.has("e") {
        line.push_str("ERASURECODING_POLICY ");
    }
    shell.line(format_args!("{line}PATHNAME"));
}

fn quota_columns(summary: &ContentSummary, human: bool) -> String {
    let remaining = |quota: u64, used: u64| {
        if quota >= used { size(quota - used, human) } else { format!("-{}", size(used - quota, human)) }
    };
    let (name, left) = match summary.name_quota {
        Some(quota) => (size(quota, human), remaining(quota, summary.files + summary.directories)),
        None => ("none".to_owned(), "inf".to_owned()),
    };
    let (space, space_left) = match summary.space_quota {
        Some(quota) => (size(quota, human), remaining(quota, summary.space_consumed)),
        None => ("none".to_owned(), "inf".to_owned()),
    };
    format!("{name:>12} {left:>15} {space:>15} {space_left:>15} ")
}

/// Of a local directory, counted here.
pub async fn summary(item: &Item) -> Result<ContentSummary, Failure> {
    if let Store::Hdfs(fs) = &item.store {
        return fs.content_summary(&item.path).await.map_err(|error| Failure::of(&item.shown, error));
    }
    let mut sum = ContentSummary {
        length: 0,
        files: 0,
        directories: 0,
        name_quota: None,
        space_consumed: 0,
        space_quota: None,
        erasure_coding_policy: String::new(),
    };
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
