//! `-mkdir`, `-touchz`, `-touch`

use hearth_client::CreateOptions;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::time::{Calendar, now_ms};

pub async fn mkdir(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let parents = arguments.has("p");
    for item in shell.all_items(&arguments.rest).await? {
        let made = async {
            if item.exists() {
                return match (item.is_directory(), parents) {
                    (true, true) => Ok(()),
                    (true, false) => Err(Failure::exists(&item.shown)),
                    (false, _) => Err(Failure::not_directory(&item.shown)),
                };
            }
            // This also applies to a path with a slash at the end: the path names a directory in either form.
            if !parents && item.store.status(item.parent_path(), &item.shown).await?.is_none() {
                return Err(Failure::not_found(format!("{}{}", item.store.uri(), item.parent_path())));
            }
            item.store.mkdirs(&item.path, &item.shown, parents).await
        };
        if let Err(failure) = made.await {
            shell.report(&failure);
        }
    }
    Ok(())
}

pub async fn touchz(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    for item in shell.all_items(&arguments.rest).await? {
        let touched = async {
            if item.is_directory() {
                return Err(Failure::is_directory(&item.shown));
            }
            match &item.status {
                Some(status) if status.length > 0 => return Err(Failure::path(&item.shown, "Not a zero-length file")),
                Some(_) => {}
                None if !item.parent_exists().await? => {
                    return Err(Failure::parent_not_found(&item.shown, &item.uri()));
                }
                None => {}
            }
            create_empty(&item).await
        };
        if let Err(failure) = touched.await {
            shell.report(&failure);
        }
    }
    Ok(())
}

async fn create_empty(item: &Item) -> Result<(), Failure> {
    let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
    item.store.create(&item.path, &item.shown, options).await?.close().await
}

pub async fn touch(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    let ms = match arguments.given("t") {
        None => now_ms(),
        Some(text) => timestamp(text).ok_or_else(|| {
            Failure::Usage(format!(
                "Unable to parse the specified timestamp {text}. The expected format is yyyyMMdd:HHmmss"
            ))
        })?,
    };
    // Without -a and -m, both times are set.
    let both = arguments.has("a") == arguments.has("m");
    let modified = (both || arguments.has("m")).then_some(ms);
    let accessed = (both || arguments.has("a")).then_some(ms);
    for item in shell.all_items(&arguments.rest).await? {
        let touched = async {
            if !item.exists() {
                if arguments.has("c") {
                    return Ok(());
                }
                if !item.parent_exists().await? {
                    return Err(Failure::parent_not_found(&item.shown, &item.uri()));
                }
                create_empty(&item).await?;
                // The file already has the current time. If access times are off, setting them would be refused.
                if arguments.given("t").is_none() {
                    return Ok(());
                }
            }
            item.store.set_times(&item.path, &item.shown, modified, accessed).await
        };
        if let Err(failure) = touched.await {
            shell.report(&failure);
        }
    }
    Ok(())
}

/// `yyyyMMdd:HHmmss`, local time.
fn timestamp(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(':')?;
    if date.len() != 8 || time.len() != 6 || !text.is_ascii() {
        return None;
    }
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    let calendar = Calendar {
        year: i64::from(number(&date[..4])?),
        month: number(&date[4..6]).filter(|month| (1..=12).contains(month))?,
        day: number(&date[6..]).filter(|day| (1..=31).contains(day))?,
        hour: number(&time[..2]).filter(|hour| *hour < 24)?,
        minute: number(&time[2..4]).filter(|minute| *minute < 60)?,
        second: number(&time[4..]).filter(|second| *second < 60)?,
    };
    calendar.local_to_ms()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps() {
        let ms = timestamp("20180809:230000").unwrap();
        assert_eq!(Calendar::local(ms).to_the_second(), "2018-08-09 23:00:00");
        for wrong in ["2018", "20181309:000000", "2018ab09:000000", "20180809-230000", "20180809:2300"] {
            assert_eq!(timestamp(wrong), None, "{wrong}");
        }
    }
}
