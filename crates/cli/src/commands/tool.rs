//! Parts shared by the administrative commands: the process around a command, options as Java's tools pop them from
//! their arguments, and errors in the words of Java's tools.

use std::net::IpAddr;
use std::process::ExitCode;

use hearth_client::{Administration, Error, ErrorKind, FileSystem};
use hearth_config::{Configuration, HostPort};

use super::generic_options::with_generic_options;
use super::host_name::host_name_of;
use crate::configuration::Identity;

/// Exit code of a wrong command line and of most failures: Java's -1.
pub const FAILED: u8 = 255;

#[derive(clap::Args)]
pub struct ToolArguments {
    /// Generic options (-fs URI, -D key=value, -conf FILE), then the command and its arguments; see -help
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// A command's view of the process: configuration and user.
pub struct Tool {
    pub configuration: Configuration,
}

/// Runs a command. `name`: the subcommand, for errors of the generic options. `work` returns the exit code.
pub fn run<F>(name: &str, arguments: ToolArguments, work: F) -> anyhow::Result<ExitCode>
where
    F: AsyncFnOnce(&Tool, Vec<String>) -> u8,
{
    crate::logging::start("error");
    super::end_with_closed_output();
    let (configuration, words) = match with_generic_options(arguments.arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            eprintln!("hearth {name}: {error:#}");
            return Ok(ExitCode::from(FAILED));
        }
    };
    let tool = Tool { configuration };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(work(&tool, words));
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}

/// One namenode of a nameservice.
pub struct NamenodeOf {
    pub fs: FileSystem,
    /// Address as Java shows it: `localhost/127.0.0.1:8020`, `host/10.0.0.1:8020`.
    pub shown: String,
}

impl Tool {
    /// Connects to the default file system.
    pub fn fs(&self) -> anyhow::Result<FileSystem> {
        crate::configuration::connect(&self.configuration, None)
    }

    /// Connects to the file system that `path` names, or to the default one. Returns it and the path there.
    pub fn fs_of<'a>(&self, path: &'a str) -> anyhow::Result<(FileSystem, &'a str)> {
        let (uri, path) = split(path);
        if let Some((scheme, _)) = path.split_once("://") {
            return Err(IllegalArgument::new(format!("FileSystem {scheme}:/// is not an HDFS file system")).into());
        }
        Ok((crate::configuration::connect(&self.configuration, uri.as_deref())?, path))
    }

    pub fn administration(&self) -> anyhow::Result<Administration> {
        let Identity { user, real_user } = Identity::of_process()?;
        Ok(Administration::new(&self.configuration, &user, real_user.as_deref())?)
    }

    /// Returns the namenodes of a file system whose URI names a nameservice, or `None` for the URI of one namenode.
    pub async fn namenodes(&self, fs: &FileSystem) -> anyhow::Result<Option<Vec<NamenodeOf>>> {
        let authority = fs.uri().trim_start_matches("hdfs://");
        let service = self.configuration.client_nameservice(authority)?;
        if service.id.is_none() {
            return Ok(None);
        }
        let mut namenodes = Vec::new();
        for namenode in service.namenodes {
            let uri = format!("hdfs://{}", namenode.rpc);
            let fs = crate::configuration::connect(&self.configuration, Some(&uri))?;
            namenodes.push(NamenodeOf { fs, shown: shown_address(&namenode.rpc).await });
        }
        Ok(Some(namenodes))
    }

    /// Returns the address of the namenode that calls of `fs` go to.
    pub fn namenode_address(&self, fs: &FileSystem) -> anyhow::Result<HostPort> {
        address(&fs.namenode_address())
    }
}

/// Parses `host:port`.
pub fn address(text: &str) -> anyhow::Result<HostPort> {
    let wrong = || IllegalArgument::new(format!("Does not contain a valid host:port authority: {}", text.trim()));
    Ok(HostPort::parse(text.trim(), None).map_err(|_| wrong())?)
}

/// Returns an address as Java shows it after a connection: `localhost/127.0.0.1:8020`.
pub async fn shown_address(address: &HostPort) -> String {
    let HostPort { host, port } = address;
    if host.parse::<IpAddr>().is_ok() {
        return format!("{}/{address}", host_name_of(host));
    }
    match tokio::net::lookup_host((host.as_str(), *port)).await.ok().and_then(|mut found| found.next()) {
        Some(found) => format!("{host}/{found}"),
        None => format!("{host}/<unresolved>:{port}"),
    }
}

/// Splits a path into its file system, if it names one, and the path there.
pub fn split(path: &str) -> (Option<String>, &str) {
    let Some(rest) = path.strip_prefix("hdfs://") else { return (None, path) };
    match rest.find('/') {
        // Without a host, the path is in the default file system.
        Some(0) => (None, rest),
        Some(at) => (Some(format!("hdfs://{}", &rest[..at])), &rest[at..]),
        None => (Some(path.to_owned()), "/"),
    }
}

/// A wrong argument: Java's `IllegalArgumentException`, after which tools print their usage.
#[derive(Debug)]
pub struct IllegalArgument {
    /// Simple name of Java's class.
    class: &'static str,
    message: String,
}

impl IllegalArgument {
    pub fn new(message: impl Into<String>) -> Self {
        Self { class: "IllegalArgumentException", message: message.into() }
    }

    /// Text that is not a number.
    pub fn not_a_number(text: &str) -> Self {
        Self { class: "NumberFormatException", message: format!("For input string: \"{text}\"") }
    }

    /// Text that is not a number in octal.
    pub fn not_octal(text: &str) -> Self {
        Self { class: "NumberFormatException", message: format!("For input string: \"{text}\" under radix 8") }
    }

    /// Returns true if the text is not a number.
    pub fn is_number_format(&self) -> bool {
        self.class == "NumberFormatException"
    }
}

impl std::fmt::Display for IllegalArgument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for IllegalArgument {}

/// Returns the first line of an error. For a refusal of a server: of the server's message.
pub fn first_line(error: &anyhow::Error) -> String {
    let text = match error.downcast_ref::<Error>() {
        Some(refused) if refused.exception().is_some() => refused.to_string(),
        _ => format!("{error:#}"),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

/// Classes of exceptions that Java's client rebuilds from a server's answer. Others it shows as `RemoteException`.
#[derive(Clone, Copy)]
pub enum Rebuilt<'a> {
    /// All subclasses of `IOException`.
    All,
    /// Those with these simple names.
    Only(&'a [&'a str]),
}

/// Returns the full name of the class by which Java's client shows an error.
fn java_class(error: &anyhow::Error, rebuilt: Rebuilt<'_>) -> String {
    if let Some(wrong) = error.downcast_ref::<IllegalArgument>() {
        return format!("java.lang.{}", wrong.class);
    }
    let Some(error) = error.downcast_ref::<Error>() else { return "java.io.IOException".to_owned() };
    match error.exception_class() {
        Some(class) => {
            let is_rebuilt = match rebuilt {
                Rebuilt::All => !class.starts_with("java.lang.") && !class.ends_with(".HadoopIllegalArgumentException"),
                Rebuilt::Only(names) => names.contains(&simple_name(class)),
            };
            if is_rebuilt { class.to_owned() } else { "org.apache.hadoop.ipc.RemoteException".to_owned() }
        }
        None => match error.kind() {
            ErrorKind::NotFound => "java.io.FileNotFoundException".to_owned(),
            ErrorKind::Unreachable => "java.net.ConnectException".to_owned(),
            _ => "java.io.IOException".to_owned(),
        },
    }
}

/// Returns the last part of a class's name.
pub fn simple_name(class: &str) -> &str {
    class.rsplit(['.', '$']).next().unwrap_or(class)
}

/// Returns `Class: first line of the message`. Source: AdminHelper.java, `prettifyException`.
pub fn prettified(error: &anyhow::Error, rebuilt: Rebuilt<'_>) -> String {
    format!("{}: {}", simple_name(&java_class(error, rebuilt)), first_line(error))
}

/// Returns the text of Java's `toString` for an exception that the client did not rebuild.
pub fn java_text(error: &anyhow::Error) -> String {
    let class = error.downcast_ref::<Error>().and_then(Error::exception_class);
    match class {
        Some(class) => format!("org.apache.hadoop.ipc.RemoteException({class}): {}", first_line(error)),
        None => format!("{}: {}", java_class(error, Rebuilt::All), first_line(error)),
    }
}

/// Removes an option. Returns whether it was there. Source: StringUtils.java, `popOption`.
pub fn pop_option(name: &str, words: &mut Vec<String>) -> bool {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    match words[..end].iter().position(|word| word == name) {
        Some(at) => {
            words.remove(at);
            true
        }
        None => false,
    }
}

/// Removes an option and its value. Returns the value. Source: StringUtils.java, `popOptionWithArgument`.
pub fn pop_value(name: &str, words: &mut Vec<String>) -> anyhow::Result<Option<String>> {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let Some(at) = words[..end].iter().position(|word| word == name) else { return Ok(None) };
    words.remove(at);
    if at == words.len() {
        return Err(IllegalArgument::new(format!("option {name} requires 1 argument.")).into());
    }
    Ok(Some(words.remove(at)))
}

/// Removes the first word that is not an option. Source: StringUtils.java, `popFirstNonOption`.
pub fn pop_word(words: &mut Vec<String>) -> Option<String> {
    for at in 0..words.len() {
        if words[at] == "--" {
            return (at + 1 < words.len()).then(|| words.remove(at + 1));
        }
        if !words[at].starts_with('-') {
            return Some(words.remove(at));
        }
    }
    None
}

/// Parses a number as Java does.
pub fn number<T: std::str::FromStr>(text: &str) -> anyhow::Result<T> {
    text.parse().map_err(|_| IllegalArgument::not_a_number(text).into())
}

/// Parses a number with a binary prefix: `10m`. Source: StringUtils.java, `TraditionalBinaryPrefix.string2long`.
pub fn binary_number(text: &str) -> anyhow::Result<i64> {
    let text = text.trim();
    let Some(last) = text.chars().last() else { return Err(IllegalArgument::not_a_number(text).into()) };
    if last.is_ascii_digit() {
        return number(text);
    }
    let Some(power) = ['k', 'm', 'g', 't', 'p', 'e'].iter().position(|prefix| *prefix == last.to_ascii_lowercase())
    else {
        let message = format!(
            "Invalid size prefix '{last}' in '{text}'. Allowed prefixes are k, m, g, t, p, e(case insensitive)"
        );
        return Err(IllegalArgument::new(message).into());
    };
    let value: i64 = number(&text[..text.len() - 1])?;
    let scaled = value.checked_mul(1 << (10 * (power + 1)));
    scaled.ok_or_else(|| IllegalArgument::new(format!("{text} does not fit in a Long")).into())
}

/// Returns `24 KB`, `4.02 KB`, `6 B`. Source: StringUtils.java, `byteDesc`.
pub fn byte_description(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KB", "MB", "GB", "TB", "PB", "EB"];
    let mut unit = (bytes.max(1).ilog2() / 10) as usize;
    let size = |unit: usize| 1_u64 << (10 * unit);
    if bytes.is_multiple_of(size(unit)) {
        return format!("{} {}", bytes / size(unit), UNITS[unit]);
    }
    let text = |unit: usize| format!("{:.2}", bytes as f64 / size(unit) as f64);
    if text(unit).starts_with("1024") && unit + 1 < UNITS.len() {
        unit += 1;
    }
    format!("{} {}", text(unit), UNITS[unit])
}

/// Returns a duration as `DAYS:HH:MM:SS.mmm`. Source: DFSUtilClient.java, `durationToString`.
pub fn duration_text(ms: i64) -> String {
    let sign = if ms < 0 { "-" } else { "" };
    let ms = ms.unsigned_abs();
    let seconds = ms / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!("{sign}{days:03}:{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, ms % 1000)
}

/// Parses a duration of whole seconds, minutes, hours or days: `30m`. Returns milliseconds. Source: DFSUtil.java,
/// `parseRelativeTime`.
pub fn duration_ms(text: &str) -> Result<i64, String> {
    let wrong = |why: String| format!("Unable to parse relative time value of {text}: {why}");
    let Some((at, unit)) = text.char_indices().last().filter(|(at, _)| *at > 0) else {
        return Err(wrong("too short".to_owned()));
    };
    let digits = &text[..at];
    let count: i64 = digits.parse().map_err(|_| wrong(format!("{digits} is not a number")))?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        unit => return Err(wrong(format!("unknown time unit {unit}"))),
    };
    Ok(count.wrapping_mul(seconds).wrapping_mul(1000))
}

/// Alignment of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Returns rows with padded columns, separated by one space. Every cell is padded, also the last one. Source:
/// TableListing.java.
pub fn table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([columns[column].0.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells =
            cells.iter().zip(columns).zip(widths.iter().copied()).map(|((cell, (_, align)), width)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
        cells.collect::<Vec<_>>().join(" ") + "\n"
    };
    let header = line(columns.iter().map(|(name, _)| *name).collect());
    header + &rows.iter().map(|row| line(row.iter().map(String::as_str).collect())).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn path_may_include_its_file_system() {
        assert_eq!(split("/a"), (None, "/a"));
        assert_eq!(split("hdfs://h:1/a/b"), (Some("hdfs://h:1".to_owned()), "/a/b"));
        assert_eq!(split("hdfs://h:1"), (Some("hdfs://h:1".to_owned()), "/"));
        assert_eq!(split("hdfs:///a"), (None, "/a"));
    }

    #[test]
    fn options_are_taken_out_of_the_words() {
        let mut line = words("-stats -path /a b -- -pool c");
        assert!(pop_option("-stats", &mut line) && !pop_option("-stats", &mut line));
        assert_eq!(pop_value("-path", &mut line).unwrap().as_deref(), Some("/a"));
        assert_eq!(pop_value("-pool", &mut line).unwrap(), None);
        assert_eq!(pop_word(&mut line).as_deref(), Some("b"));
        assert_eq!(pop_word(&mut line).as_deref(), Some("-pool"));
        let error = pop_value("-path", &mut words("-path")).unwrap_err();
        assert_eq!(prettified(&error, Rebuilt::All), "IllegalArgumentException: option -path requires 1 argument.");
    }

    #[test]
    fn sizes_match_dfsadmin() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1, "1 B"),
            (4113, "4.02 KB"),
            (24_576, "24 KB"),
            (1536, "1.50 KB"),
            ((1 << 20) - 1, "1.00 MB"),
            (25_276_514_304, "23.54 GB"),
        ] {
            assert_eq!(byte_description(bytes), shown);
        }
    }

    #[test]
    fn numbers_are_parsed_as_javas() {
        assert_eq!(binary_number("10m").unwrap(), 10 << 20);
        assert_eq!(binary_number(" -3 ").unwrap(), -3);
        assert_eq!(binary_number("1xk").unwrap_err().to_string(), "For input string: \"1x\"");
        assert!(binary_number("x").unwrap_err().to_string().starts_with("Invalid size prefix 'x' in 'x'."));
        assert_eq!(binary_number("9e9").unwrap_err().to_string(), "For input string: \"9e9\"");
        assert_eq!(binary_number("9E").unwrap_err().to_string(), "9E does not fit in a Long");
    }

    #[test]
    fn durations_are_shown_and_parsed_as_javas() {
        assert_eq!(duration_text(90_061_007), "001:01:01:01.007");
        assert_eq!(duration_text(-1000), "-000:00:00:01.000");
        assert_eq!(duration_ms("30m"), Ok(1_800_000));
        assert_eq!(duration_ms("m").unwrap_err(), "Unable to parse relative time value of m: too short");
        assert_eq!(duration_ms("xm").unwrap_err(), "Unable to parse relative time value of xm: x is not a number");
        assert_eq!(duration_ms("3w").unwrap_err(), "Unable to parse relative time value of 3w: unknown time unit w");
    }

    #[test]
    fn tables_pad_every_cell() {
        let rows = [vec!["1".to_owned(), "ab".to_owned()], vec!["10".to_owned(), "c".to_owned()]];
        assert_eq!(table(&[("ID", Align::Right), ("POOL", Align::Left)], &rows), "ID POOL\n 1 ab  \n10 c   \n");
    }

    #[test]
    fn exceptions_are_shown_as_javas_client_shows_them() {
        let refused = |class: &str| anyhow::Error::from(Error::from_exception(class, "no\nmore"));
        let denied = refused("org.apache.hadoop.security.AccessControlException");
        assert_eq!(prettified(&denied, Rebuilt::All), "AccessControlException: no");
        assert_eq!(prettified(&denied, Rebuilt::Only(&["FileNotFoundException"])), "RemoteException: no");
        let wrong = refused("org.apache.hadoop.HadoopIllegalArgumentException");
        assert_eq!(prettified(&wrong, Rebuilt::All), "RemoteException: no");
        let text = "org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.HadoopIllegalArgumentException): no";
        assert_eq!(java_text(&wrong), text);
    }
}
