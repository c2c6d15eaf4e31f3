//! `hearth cacheadmin`: the commands, output and exit codes of `hdfs cacheadmin`. Source: CacheAdmin.java of Hadoop 3.4.

use std::process::ExitCode;

use hearth_client::{CacheDirective, CacheExpiration, CachePool, FileSystem, FsPermission};

use super::admin_helper::{HelperCommand, dispatch};
use super::fs::time::Calendar;
use super::tool::{
    self, Align, Rebuilt, Tool, ToolArguments, duration_ms, duration_text, number, pop_option, pop_value, pop_word,
    prettified, table,
};

/// Exit code if a call fails.
const CALL_FAILED: u8 = 2;

const PATH: (&str, &str) = ("<path>", "A path to cache. The path can be a directory or a file.");
const FORCE: (&str, &str) = ("-force", "Skips checking of cache pool resource limits.");

const COMMANDS: &[HelperCommand] = &[
    HelperCommand {
        name: "-addDirective",
        takes: " -path <path> -pool <pool-name> [-force] [-replication <replication>] [-ttl <time-to-live>]",
        about: "Add a new cache directive.",
        arguments: &[
            PATH,
            ("<pool-name>", "The pool that the directive is added to. It must be writable for the user."),
            FORCE,
            ("<replication>", "Number of cached replicas. Default: that of the pool."),
            (
                "<time-to-live>",
                "Life of the directive: 120s, 30m, 4h, 2d, or never. Default: as long as the pool allows.",
            ),
        ],
    },
    HelperCommand {
        name: "-modifyDirective",
        takes: " -id <id> [-path <path>] [-force] [-replication <replication>] [-pool <pool-name>] [-ttl <time-to-live>]",
        about: "Modify a cache directive.",
        arguments: &[
            ("<id>", "Number of the directive."),
            PATH,
            FORCE,
            ("<replication>", "Number of cached replicas."),
            ("<pool-name>", "The pool that the directive moves to. It must be writable for the user."),
            ("<time-to-live>", "Life of the directive from now on: 120s, 30m, 4h, 2d, or never."),
        ],
    },
    HelperCommand {
        name: "-listDirectives",
        takes: " [-stats] [-path <path>] [-pool <pool>] [-id <id>]",
        about: "List cache directives.",
        arguments: &[
            ("-stats", "With bytes and files that are needed and cached."),
            ("<path>", "Only directives with this path, in pools that the user may read."),
            ("<pool>", "Only directives in this pool."),
            ("<id>", "Only the directive with this number."),
        ],
    },
    HelperCommand {
        name: "-removeDirective",
        takes: " <id>",
        about: "Remove a cache directive.",
        arguments: &[("<id>", "Number of the directive, whose pool must be writable for the user.")],
    },
    HelperCommand {
        name: "-removeDirectives",
        takes: " -path <path>",
        about: "Remove every cache directive with the specified path.",
        arguments: &[("-path <path>", "Path of the directives, whose pools must be writable for the user.")],
    },
    HelperCommand {
        name: "-addPool",
        takes: " <name> [-owner <owner>] [-group <group>] [-mode <mode>] [-limit <limit>] [-defaultReplication \
                <defaultReplication>] [-maxTtl <maxTtl>]",
        about: "Add a new cache pool.",
        arguments: &[
            ("<name>", "Name of the pool."),
            ("<owner>", "Owner. Default: the user."),
            ("<group>", "Group. Default: the first group of the user."),
            ("<mode>", "Permissions in octal. Default: 0755."),
            ("<limit>", "Maximum of cached bytes of all directives, or unlimited, which is the default."),
            ("<defaultReplication>", "Cached replicas of directives that name no number. Default: 1."),
            ("<maxTtl>", "Longest life of a directive: 120s, 30m, 4h, 2d, or never, which is the default."),
        ],
    },
    HelperCommand {
        name: "-modifyPool",
        takes: " <name> [-owner <owner>] [-group <group>] [-mode <mode>] [-limit <limit>] [-defaultReplication \
                <defaultReplication>] [-maxTtl <maxTtl>]",
        about: "Modify a cache pool.",
        arguments: &[
            ("<name>", "Name of the pool."),
            ("<owner>", "Owner."),
            ("<group>", "Group."),
            ("<mode>", "Permissions in octal."),
            ("<limit>", "Maximum of cached bytes of all directives, or unlimited."),
            ("<defaultReplication>", "Cached replicas of directives that name no number."),
            ("<maxTtl>", "Longest life of a directive: 120s, 30m, 4h, 2d, or never."),
        ],
    },
    HelperCommand {
        name: "-removePool",
        takes: " <name>",
        about: "Remove a cache pool and its directives.",
        arguments: &[("<name>", "Name of the pool.")],
    },
    HelperCommand {
        name: "-listPools",
        takes: " [-stats] [<name>]",
        about: "List cache pools.",
        arguments: &[("-stats", "With bytes and files that are needed and cached."), ("<name>", "Only this pool.")],
    },
];

/// Returns a line for each command, for manual pages.
pub fn reference() -> String {
    super::admin_helper::reference(COMMANDS)
}

pub fn run(arguments: ToolArguments) -> anyhow::Result<ExitCode> {
    tool::run("cacheadmin", arguments, async |tool: &Tool, words: Vec<String>| {
        dispatch(tool, "cacheadmin", COMMANDS, words, call).await
    })
}

async fn call(tool: &Tool, command: &'static HelperCommand, words: Vec<String>) -> anyhow::Result<u8> {
    match command.name {
        "-addDirective" => add_directive(tool, words).await,
        "-modifyDirective" => modify_directive(tool, command, words).await,
        "-listDirectives" => list_directives(tool, words).await,
        "-removeDirective" => remove_directive(tool, command, words).await,
        "-removeDirectives" => remove_directives(tool, command, words).await,
        "-addPool" => add_pool(tool, command, words).await,
        "-modifyPool" => modify_pool(tool, command, words).await,
        "-removePool" => remove_pool(tool, command, words).await,
        "-listPools" => list_pools(tool, command, words).await,
        name => unreachable!("command {name} is in the table but not dispatched"),
    }
}

/// Reports a failed call. Returns the exit code.
fn reported(outcome: anyhow::Result<()>) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{}", prettified(&error, Rebuilt::All));
            CALL_FAILED
        }
    }
}

/// Reports words that a command does not understand. Returns its exit code.
fn not_understood(words: &[String], command: &HelperCommand) -> u8 {
    eprintln!("Can't understand arguments: {}", words.join(" "));
    eprintln!("Usage is {}", command.short_usage());
    1
}

/// Takes `-ttl` out of the words. Errors: the exit code, after a message.
fn popped_life(words: &mut Vec<String>) -> anyhow::Result<Result<Option<CacheExpiration>, u8>> {
    Ok(match pop_value("-ttl", words)? {
        None => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("never") => Ok(Some(CacheExpiration::NEVER)),
        Some(text) => match duration_ms(&text) {
            Ok(ms) => Ok(Some(CacheExpiration::In(ms))),
            Err(why) => {
                eprintln!("Error while parsing ttl value: {why}");
                Err(1)
            }
        },
    })
}

/// Parses the text of `-maxTtl`. Errors: the exit code, after a message.
fn longest_life(text: Option<&str>) -> Result<Option<i64>, u8> {
    match text {
        None => Ok(None),
        Some(text) if text.eq_ignore_ascii_case("never") => Ok(Some(NEVER_MS)),
        Some(text) => duration_ms(text).map(Some).map_err(|why| {
            eprintln!("Error while parsing maxTtl value: {why}");
            1
        }),
    }
}

/// A longest life without end. Source: CachePoolInfo.java, `RELATIVE_EXPIRY_NEVER`.
const NEVER_MS: i64 = i64::MAX / 4;

/// Connects to the file system that a path names, or to the default one.
fn fs_of_path(tool: &Tool, path: Option<&str>) -> anyhow::Result<(FileSystem, Option<String>)> {
    match path {
        None => Ok((tool.fs()?, None)),
        Some(path) => {
            let (fs, there) = tool.fs_of(path)?;
            Ok((fs, Some(there.to_owned())))
        }
    }
}

async fn add_directive(tool: &Tool, mut words: Vec<String>) -> anyhow::Result<u8> {
    let Some(path) = pop_value("-path", &mut words)? else {
        eprintln!("You must specify a path with -path.");
        return Ok(1);
    };
    let Some(pool) = pop_value("-pool", &mut words)? else {
        eprintln!("You must specify a pool name with -pool.");
        return Ok(1);
    };
    let force = pop_option("-force", &mut words);
    let replication = pop_value("-replication", &mut words)?.as_deref().map(short).transpose()?;
    let expiration = match popped_life(&mut words)? {
        Ok(expiration) => expiration,
        Err(code) => return Ok(code),
    };
    if let Some(word) = words.first() {
        eprintln!("Can't understand argument: {word}");
        return Ok(1);
    }
    let (fs, path) = fs_of_path(tool, Some(&path))?;
    let directive = CacheDirective { id: None, path, replication, pool: Some(pool), expiration };
    Ok(reported(match fs.add_cache_directive(directive, force).await {
        Ok(id) => {
            println!("Added cache directive {id}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }))
}

async fn modify_directive(tool: &Tool, command: &HelperCommand, mut words: Vec<String>) -> anyhow::Result<u8> {
    let Some(text) = pop_value("-id", &mut words)? else {
        eprintln!("You must specify a directive ID with -id.");
        return Ok(1);
    };
    let id: i64 = number(&text)?;
    let path = pop_value("-path", &mut words)?;
    let force = pop_option("-force", &mut words);
    let replication = pop_value("-replication", &mut words)?.as_deref().map(short).transpose()?;
    let pool = pop_value("-pool", &mut words)?;
    let expiration = match popped_life(&mut words)? {
        Ok(expiration) => expiration,
        Err(code) => return Ok(code),
    };
    if let Some(word) = words.first() {
        eprintln!("Can't understand argument: {word}");
        eprintln!("Usage is {}", command.short_usage());
        return Ok(1);
    }
    if path.is_none() && replication.is_none() && pool.is_none() && expiration.is_none() {
        eprintln!("No modifications were specified.");
        return Ok(1);
    }
    let (fs, path) = fs_of_path(tool, path.as_deref())?;
    let directive = CacheDirective { id: Some(id), path, replication, pool, expiration };
    Ok(reported(match fs.modify_cache_directive(directive, force).await {
        Ok(()) => {
            println!("Modified cache directive {text}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }))
}

async fn list_directives(tool: &Tool, mut words: Vec<String>) -> anyhow::Result<u8> {
    let path = pop_value("-path", &mut words)?;
    let pool = pop_value("-pool", &mut words)?;
    let with_usage = pop_option("-stats", &mut words);
    let id = pop_value("-id", &mut words)?.as_deref().map(number::<i64>).transpose()?;
    if let Some(word) = words.first() {
        eprintln!("Can't understand argument: {word}");
        return Ok(1);
    }
    let (fs, path) = fs_of_path(tool, path.as_deref())?;
    let filter = CacheDirective { id, path, pool, ..CacheDirective::default() };
    Ok(reported(print_directives(&fs, filter, with_usage).await))
}

async fn print_directives(fs: &FileSystem, filter: CacheDirective, with_usage: bool) -> anyhow::Result<()> {
    let mut columns = vec![
        ("ID", Align::Right),
        ("POOL", Align::Left),
        ("REPL", Align::Right),
        ("EXPIRY", Align::Left),
        ("PATH", Align::Left),
    ];
    if with_usage {
        columns
            .extend(["BYTES_NEEDED", "BYTES_CACHED", "FILES_NEEDED", "FILES_CACHED"].map(|name| (name, Align::Right)));
    }
    let mut rows = Vec::new();
    for (directive, usage) in directives(fs, filter).await? {
        let expiry = match directive.expiration {
            // Source: CacheAdmin.java: more than half of the longest life counts as never.
            Some(CacheExpiration::In(ms) | CacheExpiration::At(ms)) if ms > NEVER_MS / 2 => "never".to_owned(),
            Some(CacheExpiration::In(ms)) => duration_text(ms),
            Some(CacheExpiration::At(ms)) => iso_time(ms),
            None => "never".to_owned(),
        };
        let mut row = vec![
            directive.id.unwrap_or_default().to_string(),
            directive.pool.unwrap_or_default(),
            directive.replication.unwrap_or_default().to_string(),
            expiry,
            directive.path.unwrap_or_default(),
        ];
        if with_usage {
            let numbers = [usage.bytes_needed, usage.bytes_cached, usage.files_needed, usage.files_cached];
            row.extend(numbers.map(|number| number.to_string()));
        }
        rows.push(row);
    }
    println!("Found {} entr{}", rows.len(), if rows.len() == 1 { "y" } else { "ies" });
    if !rows.is_empty() {
        print!("{}", table(&columns, &rows));
    }
    Ok(())
}

/// Returns all directives that match a filter.
async fn directives(
    fs: &FileSystem,
    filter: CacheDirective,
) -> anyhow::Result<Vec<(CacheDirective, hearth_client::CacheDirectiveUsage)>> {
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let page = fs.cache_directives(filter.clone(), after).await?;
        let last = page.entries.last().and_then(|(directive, _)| directive.id);
        found.extend(page.entries);
        match last {
            Some(last) if page.has_more && last > after => after = last,
            _ => return Ok(found),
        }
    }
}

/// Returns a time as `2026-11-28T21:00:00+0000`.
fn iso_time(ms: i64) -> String {
    let ms = ms.max(0) as u64;
    let (local, utc) = (Calendar::local(ms), Calendar::utc(ms));
    format!("{}{}", local.to_the_second().replace(' ', "T"), offset_text(local, utc))
}

/// Returns the offset of the local time from UTC: `+0100`. No time zone is further than 14 hours ahead.
fn offset_text(local: Calendar, utc: Calendar) -> String {
    let minutes = |time: Calendar| i64::from(time.hour * 60 + time.minute);
    let ahead = (minutes(local) - minutes(utc)).rem_euclid(24 * 60);
    let (sign, minutes) = if ahead > 14 * 60 { ('-', 24 * 60 - ahead) } else { ('+', ahead) };
    format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
}

async fn remove_directive(tool: &Tool, command: &HelperCommand, mut words: Vec<String>) -> anyhow::Result<u8> {
    let Some(text) = pop_word(&mut words) else {
        eprintln!("You must specify a directive ID to remove.");
        return Ok(1);
    };
    let Ok(id) = text.parse::<i64>() else {
        eprintln!("Invalid directive ID {text}: expected a numeric value.");
        return Ok(1);
    };
    if id <= 0 {
        eprintln!("Invalid directive ID {id}: ids must be greater than 0.");
        return Ok(1);
    }
    if let Some(word) = words.first() {
        eprintln!("Can't understand argument: {word}");
        eprintln!("Usage is {}", command.short_usage());
        return Ok(1);
    }
    let fs = tool.fs()?;
    Ok(reported(match fs.remove_cache_directive(id).await {
        Ok(()) => {
            println!("Removed cached directive {id}");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }))
}

async fn remove_directives(tool: &Tool, command: &HelperCommand, mut words: Vec<String>) -> anyhow::Result<u8> {
    let Some(path) = pop_value("-path", &mut words)? else {
        eprintln!("You must specify a path with -path.");
        return Ok(1);
    };
    if let Some(word) = words.first() {
        eprintln!("Can't understand argument: {word}");
        eprintln!("Usage is {}", command.short_usage());
        return Ok(1);
    }
    let (fs, there) = fs_of_path(tool, Some(&path))?;
    let found = match directives(&fs, CacheDirective { path: there, ..CacheDirective::default() }).await {
        Ok(found) => found,
        Err(error) => return Ok(reported(Err(error))),
    };
    let mut code = 0;
    for (directive, _) in found {
        let id = directive.id.unwrap_or_default();
        match fs.remove_cache_directive(id).await {
            Ok(()) => println!("Removed cache directive {id}"),
            Err(error) => code = reported(Err(error.into())),
        }
    }
    if code == 0 {
        println!("Removed every cache directive with path {path}");
    }
    Ok(code)
}

async fn add_pool(tool: &Tool, command: &HelperCommand, mut words: Vec<String>) -> anyhow::Result<u8> {
    let Some(name) = pop_word(&mut words) else {
        eprintln!("You must specify a name when creating a cache pool.");
        return Ok(1);
    };
    let pool = CachePool {
        name,
        owner: pop_value("-owner", &mut words)?,
        group: pop_value("-group", &mut words)?,
        mode: pop_value("-mode", &mut words)?.as_deref().map(mode).transpose()?,
        limit: pop_value("-limit", &mut words)?.as_deref().map(limit).transpose()?,
        default_replication: pop_value("-defaultReplication", &mut words)?.as_deref().map(short).transpose()?,
        max_life_ms: match longest_life(pop_value("-maxTtl", &mut words)?.as_deref()) {
            Ok(life) => life,
            Err(code) => return Ok(code),
        },
    };
    if !words.is_empty() {
        return Ok(not_understood(&words, command));
    }
    let fs = tool.fs()?;
    Ok(reported(match fs.add_cache_pool(&pool).await {
        Ok(()) => {
            println!("Successfully added cache pool {}.", pool.name);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }))
}

async fn modify_pool(tool: &Tool, command: &HelperCommand, mut words: Vec<String>) -> anyhow::Result<u8> {
    let owner = pop_value("-owner", &mut words)?;
    let group = pop_value("-group", &mut words)?;
    let mode = pop_value("-mode", &mut words)?.as_deref().map(mode).transpose()?;
    let limit = pop_value("-limit", &mut words)?.as_deref().map(limit).transpose()?;
    let default_replication = pop_value("-defaultReplication", &mut words)?.as_deref().map(short).transpose()?;
    let life_text = pop_value("-maxTtl", &mut words)?;
    let max_life_ms = match longest_life(life_text.as_deref()) {
        Ok(life) => life,
        Err(code) => return Ok(code),
    };
    let Some(name) = pop_word(&mut words) else {
        eprintln!("You must specify a name when creating a cache pool.");
        return Ok(1);
    };
    if !words.is_empty() {
        return Ok(not_understood(&words, command));
    }
    let pool = CachePool { name, owner, group, mode, limit, max_life_ms, default_replication };
    let changes = [
        pool.owner.as_ref().map(|owner| format!("owner name {owner}")),
        pool.group.as_ref().map(|group| format!("group name {group}")),
        pool.mode.map(|mode| format!("mode {mode}")),
        pool.limit.map(|limit| format!("limit {limit}")),
        // Apache's tool ends the line here and begins the next one with the word.
        pool.default_replication.map(|replication| format!("replication {replication}\n")),
        life_text.map(|life| format!("max time-to-live {life}")),
    ];
    if changes.iter().all(Option::is_none) {
        eprintln!("You must specify at least one attribute to change in the cache pool.");
        return Ok(1);
    }
    let fs = tool.fs()?;
    if let Err(error) = fs.modify_cache_pool(&pool).await {
        return Ok(reported(Err(error.into())));
    }
    print!("Successfully modified cache pool {}", pool.name);
    let mut before = " to have ";
    for change in changes.iter().flatten() {
        print!("{before}{change}");
        before = if change.ends_with('\n') { " replication " } else { " and " };
    }
    println!();
    Ok(0)
}

async fn remove_pool(tool: &Tool, command: &HelperCommand, mut words: Vec<String>) -> anyhow::Result<u8> {
    let Some(name) = pop_word(&mut words) else {
        eprintln!("You must specify a name when deleting a cache pool.");
        return Ok(1);
    };
    if !words.is_empty() {
        return Ok(not_understood(&words, command));
    }
    let fs = tool.fs()?;
    Ok(reported(match fs.remove_cache_pool(&name).await {
        Ok(()) => {
            println!("Successfully removed cache pool {name}.");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }))
}

async fn list_pools(tool: &Tool, command: &HelperCommand, mut words: Vec<String>) -> anyhow::Result<u8> {
    let name = pop_word(&mut words);
    let with_usage = pop_option("-stats", &mut words);
    if !words.is_empty() {
        return Ok(not_understood(&words, command));
    }
    let fs = tool.fs()?;
    Ok(reported(print_pools(&fs, name.as_deref(), with_usage).await))
}

async fn print_pools(fs: &FileSystem, name: Option<&str>, with_usage: bool) -> anyhow::Result<()> {
    let mut columns: Vec<_> = ["NAME", "OWNER", "GROUP", "MODE"].map(|name| (name, Align::Left)).to_vec();
    columns.extend(["LIMIT", "MAXTTL", "DEFAULT_REPLICATION"].map(|name| (name, Align::Right)));
    if with_usage {
        let names = ["BYTES_NEEDED", "BYTES_CACHED", "BYTES_OVERLIMIT", "FILES_NEEDED", "FILES_CACHED"];
        columns.extend(names.map(|name| (name, Align::Right)));
    }
    let mut rows = Vec::new();
    let mut after = String::new();
    loop {
        let page = fs.cache_pools(&after).await?;
        let last = page.entries.last().map(|(pool, _)| pool.name.clone());
        for (pool, usage) in page.entries {
            if name.is_some_and(|name| name != pool.name) {
                continue;
            }
            let limit = match pool.limit {
                Some(i64::MAX) => "unlimited".to_owned(),
                Some(limit) => limit.to_string(),
                None => "null".to_owned(),
            };
            let life = match pool.max_life_ms {
                Some(NEVER_MS) => "never".to_owned(),
                Some(ms) => duration_text(ms),
                None => String::new(),
            };
            let mut row = vec![
                pool.name,
                pool.owner.unwrap_or_default(),
                pool.group.unwrap_or_default(),
                pool.mode.map(|mode| mode.to_string()).unwrap_or_default(),
                limit,
                life,
                pool.default_replication.unwrap_or(1).to_string(),
            ];
            if with_usage {
                let numbers = [
                    usage.bytes_needed,
                    usage.bytes_cached,
                    usage.bytes_over_limit,
                    usage.files_needed,
                    usage.files_cached,
                ];
                row.extend(numbers.map(|number| number.to_string()));
            }
            rows.push(row);
        }
        match last {
            Some(last) if page.has_more && last > after => after = last,
            _ => break,
        }
    }
    println!("Found {} result{}.", rows.len(), if rows.len() == 1 { "" } else { "s" });
    if !rows.is_empty() {
        print!("{}", table(&columns, &rows));
    }
    Ok(())
}

/// Parses Java's `short`.
fn short(text: &str) -> anyhow::Result<u16> {
    Ok(number::<i16>(text)? as u16)
}

/// Parses permissions in octal.
fn mode(text: &str) -> anyhow::Result<FsPermission> {
    let bits = i16::from_str_radix(text, 8).map_err(|_| tool::IllegalArgument::not_octal(text))?;
    Ok(FsPermission(bits as u16 & FsPermission::MASK))
}

/// Parses a number of bytes, or `unlimited`.
fn limit(text: &str) -> anyhow::Result<i64> {
    if text.eq_ignore_ascii_case("unlimited") { Ok(i64::MAX) } else { number(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_dispatched() {
        let source = include_str!("cacheadmin.rs");
        for command in COMMANDS {
            assert!(source.contains(&format!("        \"{}\" => ", command.name)), "{}", command.name);
        }
    }

    #[test]
    fn offsets_are_those_of_time_zones() {
        let at = |hour: u32, minute: u32| Calendar { hour, minute, ..Calendar::utc(0) };
        assert_eq!(offset_text(at(3, 0), at(3, 0)), "+0000");
        assert_eq!(offset_text(at(2, 30), at(21, 0)), "+0530");
        assert_eq!(offset_text(at(20, 0), at(1, 0)), "-0500");
        assert_eq!(offset_text(at(9, 0), at(19, 0)), "+1400");
    }

    #[test]
    fn lives_and_limits_are_parsed() {
        assert_eq!(longest_life(Some("NEVER")), Ok(Some(NEVER_MS)));
        assert_eq!(longest_life(Some("2h")), Ok(Some(7_200_000)));
        assert_eq!(longest_life(None), Ok(None));
        assert_eq!(limit("unlimited").unwrap(), i64::MAX);
        assert_eq!(mode("0755").unwrap(), FsPermission(0o755));
        assert!(mode("9").is_err() && limit("x").is_err() && short("70000").is_err());
    }
}
