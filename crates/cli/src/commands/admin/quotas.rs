//! `-setQuota`, `-clrQuota`, `-setSpaceQuota`, `-clrSpaceQuota`

use hearth_client::{FileSystem, QuotaChange};
use hearth_types::StorageType;

use crate::commands::fs::hdfs_paths;
use crate::commands::tool::{FAILED, IllegalArgument, Tool, binary_number, first_line, pop_value};

pub async fn set(tool: &Tool, words: Vec<String>) -> anyhow::Result<u8> {
    let mut words = options_parsed(words, 2, None)?.0;
    let quota = binary_number(&words.remove(0))?;
    each(tool, "setQuota", &words, Change::Names(QuotaChange::Set(quota))).await
}

pub async fn clear(tool: &Tool, words: Vec<String>) -> anyhow::Result<u8> {
    let words = options_parsed(words, 1, None)?.0;
    each(tool, "clrQuota", &words, Change::Names(QuotaChange::Clear)).await
}

pub async fn set_space(tool: &Tool, words: Vec<String>) -> anyhow::Result<u8> {
    let mut words = options_parsed(words, 2, None)?.0;
    let text = words.remove(0).trim().to_owned();
    let quota = binary_number(&text).map_err(|error| match error.downcast_ref::<IllegalArgument>() {
        Some(wrong) if wrong.is_number_format() => {
            IllegalArgument::new(format!("\"{text}\" is not a valid value for a quota.")).into()
        }
        _ => error,
    })?;
    let change = match pop_value("-storageType", &mut words)? {
        None => Change::Space(QuotaChange::Set(quota)),
        Some(name) => {
            let storage_type = StorageType::named(&name).ok_or_else(|| {
                let known = StorageType::WITH_QUOTA.map(StorageType::name).join(", ");
                IllegalArgument::new(format!(
                    "Storage type {name} is not available. Available storage types are [{known}]"
                ))
            })?;
            Change::SpaceOn(storage_type, QuotaChange::Set(quota))
        }
    };
    each(tool, "setSpaceQuota", &words, change).await
}

pub async fn clear_space(tool: &Tool, words: Vec<String>) -> anyhow::Result<u8> {
    let (words, storage_type) = options_parsed(words, 1, Some("storageType"))?;
    let change = match storage_type {
        None => Change::Space(QuotaChange::Clear),
        Some(name) => {
            let storage_type = StorageType::named(&name).ok_or_else(|| {
                let name = name.to_uppercase();
                IllegalArgument::new(format!("No enum constant org.apache.hadoop.fs.StorageType.{name}"))
            })?;
            Change::SpaceOn(storage_type, QuotaChange::Clear)
        }
    };
    each(tool, "clrSpaceQuota", &words, change).await
}

/// Change that a command makes to each directory.
#[derive(Clone, Copy)]
enum Change {
    Names(QuotaChange),
    Space(QuotaChange),
    SpaceOn(StorageType, QuotaChange),
}

impl Change {
    /// Refuses values as Java's client does, before a call. -1 is the number that clears a quota. Source:
    /// DFSClient.java, `setQuota`, `setQuotaByStorageType`.
    fn check(self) -> anyhow::Result<()> {
        const KEEP: i64 = i64::MAX;
        let message = match self {
            Self::Names(QuotaChange::Set(quota)) if quota <= 0 && quota != -1 => {
                format!("Invalid values for quota : {quota} and {KEEP}")
            }
            Self::Space(QuotaChange::Set(quota)) if quota < 0 && quota != -1 => {
                format!("Invalid values for quota : {KEEP} and {quota}")
            }
            Self::SpaceOn(_, QuotaChange::Set(quota)) if quota <= 0 && quota != -1 => {
                format!("Invalid values for quota :{quota}")
            }
            Self::SpaceOn(storage_type @ StorageType::RamDisk, _) => {
                format!("Don't support Quota for storage type : {}", storage_type.name())
            }
            _ => return Ok(()),
        };
        Err(IllegalArgument::new(message).into())
    }

    async fn make(self, fs: &FileSystem, path: &str) -> anyhow::Result<()> {
        self.check()?;
        match self {
            Self::Names(names) => fs.set_quota(path, names, QuotaChange::Keep).await?,
            Self::Space(space) => fs.set_quota(path, QuotaChange::Keep, space).await?,
            Self::SpaceOn(storage_type, space) => fs.set_type_quota(path, storage_type, space).await?,
        }
        Ok(())
    }
}

/// Changes the quotas of all paths. A failure of one is reported, and the others follow.
async fn each(tool: &Tool, name: &str, paths: &[String], change: Change) -> anyhow::Result<u8> {
    let mut code = 0;
    for path in paths {
        let mut outcome = Ok(());
        match hdfs_paths(&tool.configuration, path).await {
            Ok(found) => {
                for (fs, path) in found {
                    outcome = change.make(&fs, &path).await;
                    if outcome.is_err() {
                        break;
                    }
                }
            }
            Err(error) => outcome = Err(error),
        }
        match outcome {
            Ok(()) => {}
            Err(error) if error.is::<IllegalArgument>() => return Err(error),
            Err(error) => {
                eprintln!("{name}: {}", first_line(&error));
                code = FAILED;
            }
        }
    }
    Ok(code)
}

/// Parses the options before the first argument. `with_value`: the only one that is known. Returns the arguments and its
/// value. Source: CommandFormat.java, `parse`.
fn options_parsed(
    mut words: Vec<String>,
    least: usize,
    with_value: Option<&str>,
) -> anyhow::Result<(Vec<String>, Option<String>)> {
    let mut value = None;
    while let Some(word) = words.first() {
        let Some(option) = word.strip_prefix('-').filter(|option| !option.is_empty()) else { break };
        if option == "-" {
            words.remove(0);
            break;
        }
        if Some(option) != with_value {
            return Err(IllegalArgument::new(format!("Illegal option {word}")).into());
        }
        words.remove(0);
        if words.len() > least && !words[0].starts_with('-') {
            value = Some(words.remove(0));
        } else {
            value = Some(String::new());
        }
    }
    if words.len() < least {
        let message = format!("Not enough arguments: expected {least} but got {}", words.len());
        return Err(IllegalArgument::new(message).into());
    }
    Ok((words, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, least: usize, with_value: Option<&str>) -> Result<(Vec<String>, Option<String>), String> {
        let words = line.split_whitespace().map(str::to_owned).collect();
        options_parsed(words, least, with_value).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_parsed_as_by_command_format() {
        let storage_type = Some("storageType");
        assert_eq!(
            parsed("-storageType SSD /a", 1, storage_type).unwrap(),
            (vec!["/a".to_owned()], Some("SSD".to_owned()))
        );
        assert_eq!(parsed("-storageType /a", 1, storage_type).unwrap(), (vec!["/a".to_owned()], Some(String::new())));
        assert_eq!(parsed("-5 /a", 2, None).unwrap_err(), "Illegal option -5");
        assert_eq!(parsed("5", 2, None).unwrap_err(), "Not enough arguments: expected 2 but got 1");
        assert_eq!(parsed("-- -a", 1, None).unwrap().0, ["-a"]);
    }

    #[test]
    fn wrong_values_are_refused_before_a_call() {
        let refused = |change: Change| change.check().map_err(|error| error.to_string());
        let message = "Invalid values for quota : 0 and 9223372036854775807";
        assert_eq!(refused(Change::Names(QuotaChange::Set(0))).unwrap_err(), message);
        assert_eq!(refused(Change::Space(QuotaChange::Set(0))), Ok(()));
        assert_eq!(refused(Change::Names(QuotaChange::Set(-1))), Ok(()));
        let on = Change::SpaceOn(StorageType::Ssd, QuotaChange::Set(-2));
        assert_eq!(refused(on).unwrap_err(), "Invalid values for quota :-2");
    }
}
