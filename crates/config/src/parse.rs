//! Parsers from the text of a value to its type. Each parser gets trimmed, non-empty text.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hearth_types::{FsPermission, StorageType};

pub fn text(value: &str) -> Result<String, String> {
    Ok(value.to_owned())
}

/// Parses `true` or `false`, ignoring case.
pub fn boolean(value: &str) -> Result<bool, String> {
    if value.eq_ignore_ascii_case("true") {
        Ok(true)
    } else if value.eq_ignore_ascii_case("false") {
        Ok(false)
    } else {
        Err("wanted true or false".to_owned())
    }
}

/// Parses a whole number, decimal or `0x` hexadecimal, that fits `T`.
fn integer<T: TryFrom<i128>>(value: &str) -> Result<T, String> {
    let wrong = || "wanted a whole number".to_owned();
    let (negative, digits) = match value.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let magnitude = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
        None => digits.parse::<u64>(),
    };
    let magnitude = i128::from(magnitude.map_err(|_| wrong())?);
    T::try_from(if negative { -magnitude } else { magnitude })
        .map_err(|_| format!("the number is out of range for {}", std::any::type_name::<T>()))
}

pub fn int_u16(value: &str) -> Result<u16, String> {
    integer(value)
}

pub fn int_u32(value: &str) -> Result<u32, String> {
    integer(value)
}

/// Parses a whole number from 0 to 2^63 - 1, because Hadoop's numbers are signed, in files and in messages.
pub fn int_u64(value: &str) -> Result<u64, String> {
    let number: u64 = integer(value)?;
    if i64::try_from(number).is_ok() { Ok(number) } else { Err("the number is out of range".to_owned()) }
}

/// Parses a percentage from 0 to 100.
pub fn percent(value: &str) -> Result<u64, String> {
    integer(value)
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| "wanted a whole number from 0 to 100".to_owned())
}

pub fn int_i32(value: &str) -> Result<i32, String> {
    integer(value)
}

pub fn int_i64(value: &str) -> Result<i64, String> {
    integer(value)
}

/// Parses a finite number. Java's suffix `f` or `d` is accepted (`0.999f`).
pub fn float(value: &str) -> Result<f64, String> {
    let digits = value.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(value);
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err("wanted a number".to_owned()),
    }
}

/// Address of a collector of traces: OTLP over HTTP, without TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CollectorUrl {
    pub host: String,
    pub port: u16,
    /// Path before `/v1/traces`, without a slash at its end; empty for most collectors.
    pub base: String,
}

/// Port of OTLP over HTTP.
const OTLP_PORT: u16 = 4318;

/// Parses `http://host`, `http://host:port` or `http://host:port/base`.
pub fn collector_url(value: &str) -> Result<CollectorUrl, String> {
    let wanted = "wanted http://host:port of a collector that takes OTLP over HTTP; https is not supported";
    let rest = value.strip_prefix("http://").ok_or(wanted)?;
    let (authority, base) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let base = base.trim_end_matches('/');
    let has_port = authority.rsplit(']').next().unwrap_or(authority).contains(':');
    let authority = if has_port { authority.to_owned() } else { format!("{authority}:{OTLP_PORT}") };
    let HostPort { host, port } = address(&authority).map_err(|_| wanted)?;
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#@".contains(&byte));
    if port == 0 || !is_plain(&host) || !is_plain(base) {
        return Err(wanted.to_owned());
    }
    Ok(CollectorUrl { host, port, base: base.to_owned() })
}

/// Parses a number of bytes: a whole number with an optional binary suffix k, m, g, t, p, e in either case. At most
/// 2^63 - 1, because Hadoop's numbers are signed, in files and in messages.
pub fn bytes(value: &str) -> Result<u64, String> {
    let wrong = "wanted a number of bytes such as 65536, 64k, 128m, 1g";
    let (digits, shift) = match value.char_indices().last() {
        Some((at, last)) if last.is_ascii_alphabetic() => {
            let shift = match last.to_ascii_lowercase() {
                'k' => 10,
                'm' => 20,
                'g' => 30,
                't' => 40,
                'p' => 50,
                'e' => 60,
                _ => return Err(wrong.to_owned()),
            };
            (value[..at].trim_end(), shift)
        }
        _ => (value, 0),
    };
    let number: u64 = integer(digits).map_err(|_| wrong.to_owned())?;
    let bytes = number.checked_mul(1 << shift).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| "the number of bytes is out of range".to_owned())
}

const NANOS: u64 = 1;
const MICROS: u64 = 1_000;
const MILLIS: u64 = 1_000_000;
const SECONDS: u64 = 1_000_000_000;
const MINUTES: u64 = 60 * SECONDS;
const HOURS: u64 = 60 * MINUTES;
const DAYS: u64 = 24 * HOURS;

/// Longest duration, 100 years. Longer ones, such as Java's `Long.MAX_VALUE` for "never", are taken for it: the end of a
/// wait that begins now can then always be computed.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Parses a duration with the suffix ns, us, ms, s, m, h or d. A bare number is in units of `unit_ns` nanoseconds.
fn duration(value: &str, unit_ns: u64) -> Result<Duration, String> {
    let lower = value.to_ascii_lowercase();
    // Longer suffixes first: "ms" ends in "s".
    let suffixes =
        [("ns", NANOS), ("us", MICROS), ("ms", MILLIS), ("s", SECONDS), ("m", MINUTES), ("h", HOURS), ("d", DAYS)];
    let (digits, unit_ns) = suffixes
        .iter()
        .find_map(|(suffix, unit)| lower.strip_suffix(suffix).map(|digits| (digits.trim_end(), *unit)))
        .unwrap_or((lower.as_str(), unit_ns));
    let number: u64 =
        integer(digits).map_err(|_| "wanted a duration such as 500ms, 30s, 10m, not negative".to_owned())?;
    let nanoseconds = u128::from(number) * u128::from(unit_ns);
    let nanoseconds = nanoseconds.min(DURATION_MAX.as_nanos());
    Ok(Duration::new((nanoseconds / u128::from(SECONDS)) as u64, (nanoseconds % u128::from(SECONDS)) as u32))
}

/// Parses a duration. A bare number is in milliseconds.
pub fn duration_ms(value: &str) -> Result<Duration, String> {
    duration(value, MILLIS)
}

/// Parses a duration. A bare number is in seconds.
pub fn duration_s(value: &str) -> Result<Duration, String> {
    duration(value, SECONDS)
}

/// Parses a duration. A bare number is in minutes.
pub fn duration_minutes(value: &str) -> Result<Duration, String> {
    duration(value, MINUTES)
}

/// Parses a number of hours. Zero and negative values, by which Hadoop requests the default or disables a feature, are
/// kept.
pub fn signed_hours(value: &str) -> Result<i64, String> {
    integer(value)
}

/// Parses a path, which must not be empty.
pub fn path(value: &str) -> Result<PathBuf, String> {
    if value.is_empty() { Err("is empty".into()) } else { Ok(value.into()) }
}

/// Parses a comma-separated list. Entries are trimmed; empty ones are dropped.
pub fn list(value: &str) -> Result<Vec<String>, String> {
    Ok(value.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect())
}

/// Parses a umask: octal (`022`) or symbolic (`u=rwx,g=rx,o=`). Returns the permission bits to remove. The symbolic
/// form lists the permissions to keep; a class that it does not name keeps none.
///
/// If several clauses name the same class, the last one counts, and `-` keeps nothing. Source: hadoop-common
/// `UmaskParser`, `PermissionParser.combineModes` over a mode of 0.
pub fn umask(value: &str) -> Result<u16, String> {
    let wrong = || "wanted an octal umask such as 022, or a symbolic one such as u=rwx,g=rx,o=rx".to_owned();
    if value.bytes().all(|byte| byte.is_ascii_digit()) {
        return u16::from_str_radix(value, 8).ok().filter(|bits| *bits <= FsPermission::MASK).ok_or_else(wrong);
    }
    let mut kept = 0u16;
    for clause in value.split(',') {
        let at = clause.find(['=', '+', '-']).ok_or_else(wrong)?;
        let (who, rest) = clause.split_at(at);
        let (operator, letters) = rest.split_at(1);
        let mut bits = 0u16;
        for letter in letters.chars() {
            bits |= match letter {
                'r' => 4,
                'w' => 2,
                'x' => 1,
                _ => return Err(wrong()),
            };
        }
        let who = if who.is_empty() { "a" } else { who };
        for group in who.chars() {
            let shifts: &[u16] = match group {
                'u' => &[6],
                'g' => &[3],
                'o' => &[0],
                'a' => &[6, 3, 0],
                _ => return Err(wrong()),
            };
            for shift in shifts {
                let bits = if operator == "-" { 0 } else { bits };
                kept = kept & !(7 << shift) | bits << shift;
            }
        }
    }
    Ok(0o777 & !kept)
}

/// A host name or address, and a port. In text, an IPv6 address is in brackets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HostPort {
    /// Host without brackets.
    pub host: String,
    pub port: u16,
}

impl HostPort {
    /// Parses `host`, `host:port` or a URI such as `hdfs://host:port/path`.
    pub fn parse(value: &str, default_port: Option<u16>) -> Result<Self, String> {
        let wrong = || "wanted host:port".to_owned();
        let value = value.split_once("://").map_or(value, |(_, rest)| rest);
        let authority = value.split_once('/').map_or(value, |(authority, _)| authority).trim();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = if let Some(bracketed) = authority.strip_prefix('[') {
            let (host, rest) = bracketed.split_once(']').ok_or_else(wrong)?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(wrong)?) })
        } else if authority.matches(':').count() > 1 {
            return Err("wanted host:port with an IPv6 address in brackets".to_owned());
        } else {
            authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))
        };
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(wrong());
        }
        let port = match port {
            Some(port) => port.parse::<u16>().map_err(|_| format!("port {port:?} is not a number up to 65535"))?,
            None => default_port.ok_or_else(|| "wanted host:port: the port is missing".to_owned())?,
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

pub fn address(value: &str) -> Result<HostPort, String> {
    HostPort::parse(value, None)
}

/// Parses an address. If the port is missing, it is a namenode's default, 8020.
pub fn rpc_address(value: &str) -> Result<HostPort, String> {
    HostPort::parse(value, Some(crate::DEFAULT_RPC_PORT))
}

/// Storage engine of a directory of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Engine {
    /// Files on a tmpfs, copied to the directory in the background after the write.
    Memory,
    /// Memory-mapped files in the directory.
    Mmap,
    /// pread and pwrite on files in the directory.
    File,
}

pub fn engine(value: &str) -> Result<Engine, String> {
    match value.to_ascii_lowercase().as_str() {
        "memory" => Ok(Engine::Memory),
        "mmap" => Ok(Engine::Mmap),
        "file" => Ok(Engine::File),
        _ => Err("wanted memory, mmap or file".to_owned()),
    }
}

/// One entry of `dfs.datanode.data.dir`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageDirectory {
    pub storage_type: StorageType,
    /// `None`: the engine of `hearth.storage.engine`.
    pub engine: Option<Engine>,
    pub path: PathBuf,
}

/// Parses storage directories: `[SSD]file:///data/1, [DISK]/data/2, mmap:/data/3`. The schemes `memory:`, `mmap:` and
/// `fileio:` select an engine. Hadoop's `file:`, or no scheme, uses that of `hearth.storage.engine`.
pub fn storage_directories(value: &str) -> Result<Vec<StorageDirectory>, String> {
    let entries = list(value)?;
    entries.iter().map(|entry| storage_directory(entry)).collect()
}

/// Like `storage_directories`, for directories without types or engines.
pub fn directories(value: &str) -> Result<Vec<PathBuf>, String> {
    Ok(storage_directories(value)?.into_iter().map(|directory| directory.path).collect())
}

fn storage_directory(entry: &str) -> Result<StorageDirectory, String> {
    let (storage_type, location) = match entry.strip_prefix('[') {
        None => (StorageType::Disk, entry),
        Some(rest) => {
            let (name, location) = rest.split_once(']').ok_or_else(|| format!("{entry:?} lacks the closing ]"))?;
            (storage_type(name.trim()).ok_or_else(|| format!("{name:?} is not a storage type"))?, location.trim())
        }
    };
    let schemes = [
        ("memory:", Some(Engine::Memory)),
        ("mmap:", Some(Engine::Mmap)),
        ("fileio:", Some(Engine::File)),
        ("file:", None),
    ];
    let (engine, location) = schemes
        .iter()
        .find_map(|(scheme, engine)| location.strip_prefix(scheme).map(|rest| (*engine, rest)))
        .unwrap_or((None, location));
    // `file:///data`, `file:/data` and `file://localhost/data` are the same (RFC 8089). Apache's DataNode ignores any
    // other host: there, `file://data/1` is the directory `/1`. Here it is refused.
    let path = match location.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => percent_decode(rest)?,
        Some(rest) => match rest.split_once('/') {
            Some((host, path)) if host.eq_ignore_ascii_case("localhost") => percent_decode(&format!("/{path}"))?,
            _ => {
                return Err(format!(
                    "{entry:?} names a host other than localhost; write file:///directory for a directory of this machine"
                ));
            }
        },
        None => location.to_owned(),
    };
    if !path.starts_with('/') {
        return Err(format!("{entry:?} is not an absolute directory"));
    }
    Ok(StorageDirectory { storage_type, engine, path: PathBuf::from(path) })
}

/// Decodes the `%41` of URIs. Errors: a `%` without two hexadecimal digits, or bytes that are not UTF-8.
fn percent_decode(text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(decoded.ok_or_else(|| format!("{text:?} holds a % without two hexadecimal digits"))?);
        rest = &rest[2..];
    }
    String::from_utf8(out).map_err(|_| format!("{text:?} is not UTF-8"))
}

/// Parses a storage type (`ssd`, `RAM_DISK`, ...), ignoring case.
pub fn storage_type(name: &str) -> Option<StorageType> {
    (1..=6).filter_map(StorageType::from_number).find(|kind| kind.name().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("128m"), Ok(128 << 20));
        assert_eq!(bytes("64 K"), Ok(65536));
        assert_eq!(bytes("0x10"), Ok(16));
        assert!(bytes("12q").is_err());
        assert!(bytes("-1").is_err());
        assert!(bytes("18446744073709551615k").is_err());
        assert_eq!(bytes("9223372036854775807"), Ok(i64::MAX as u64));
        assert!(bytes("8e").is_err());
    }

    #[test]
    fn durations() {
        assert_eq!(duration_s("3"), Ok(Duration::from_secs(3)));
        assert_eq!(duration_ms("3"), Ok(Duration::from_millis(3)));
        assert_eq!(duration_ms("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(duration_s("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration_s("2 h"), Ok(Duration::from_secs(7200)));
        assert_eq!(duration_minutes("600"), Ok(Duration::from_secs(36000)));
        assert!(duration_s("soon").is_err());
        assert!(duration_s("-1").is_err());
        for never in ["9223372036854775807", "18446744073709551615d"] {
            assert_eq!(duration_s(never), Ok(DURATION_MAX));
        }
        assert!(duration_s("18446744073709551616").is_err());
    }

    #[test]
    fn numbers() {
        assert_eq!(int_i32("-5"), Ok(-5));
        assert!(int_u16("65536").is_err());
        assert_eq!(int_u64("9223372036854775807"), Ok(i64::MAX as u64));
        assert!(int_u64("9223372036854775808").is_err());
        assert_eq!(float("0.999f"), Ok(0.999));
        assert!(float("NaN").is_err());
        assert_eq!(boolean("TRUE"), Ok(true));
        assert!(boolean("yes").is_err());
    }

    #[test]
    fn collectors() {
        let url =
            |host: &str, port, base: &str| Ok(CollectorUrl { host: host.to_owned(), port, base: base.to_owned() });
        assert_eq!(collector_url("http://otel"), url("otel", 4318, ""));
        assert_eq!(collector_url("http://otel:80/"), url("otel", 80, ""));
        assert_eq!(collector_url("http://[::1]:80/a/b/"), url("::1", 80, "/a/b"));
        assert_eq!(collector_url("http://[::1]"), url("::1", 4318, ""));
        let wrong =
            ["otel:4318", "https://otel", "http://", "http://otel:0", "http://otel:x", "http://a b", "http://a/?b"];
        for wrong in wrong {
            assert!(collector_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(address("0.0.0.0:9866").unwrap().to_string(), "0.0.0.0:9866");
        assert_eq!(address("[::1]:80").unwrap(), HostPort { host: "::1".to_owned(), port: 80 });
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(rpc_address("hdfs://nn/").unwrap().port, 8020);
        assert!(address("nn").is_err());
        assert!(address("nn:99999").is_err());
        assert!(address(":80").is_err());
        assert!(address("::1:80").is_err());
    }

    #[test]
    fn storage_directories_with_types_and_engines() {
        let dirs = storage_directories("[ssd]file:///a%20b, /c , [RAM_DISK]mmap:/d").unwrap();
        assert_eq!(dirs.len(), 3);
        assert_eq!(dirs[0].storage_type, StorageType::Ssd);
        assert_eq!(dirs[0].path, PathBuf::from("/a b"));
        assert_eq!(dirs[0].engine, None);
        assert_eq!(dirs[1].storage_type, StorageType::Disk);
        assert_eq!((dirs[2].storage_type, dirs[2].engine), (StorageType::RamDisk, Some(Engine::Mmap)));
        assert!(storage_directories("[TAPE]/a").is_err());
        assert!(storage_directories("relative").is_err());
        for local in ["file://localhost/a%20b", "[SSD]file://LocalHost/a%20b"] {
            assert_eq!(storage_directories(local).unwrap()[0].path, PathBuf::from("/a b"), "{local}");
        }
        for foreign in ["file://host/a", "file://localhost", "file://localhost:9/a", "file://data/1"] {
            let refused = storage_directories(foreign).unwrap_err();
            assert!(refused.contains("file:///directory"), "{refused}");
        }
    }

    #[test]
    fn umasks() {
        assert_eq!(umask("022"), Ok(0o022));
        assert_eq!(umask("u=rwx,g=rx,o="), Ok(0o027));
        assert_eq!(umask("u=rwx,g=rx"), Ok(0o027));
        assert_eq!(umask("u=rwx"), Ok(0o077));
        assert_eq!(umask("a+rx"), Ok(0o222));
        assert_eq!(umask("=rwx,o=r,o=x"), Ok(0o006));
        assert_eq!(umask("u=rwx,g-w"), Ok(0o077));
        assert!(umask("99").is_err());
        assert!(umask("2777").is_err());
    }
}
