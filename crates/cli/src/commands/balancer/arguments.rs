//! The command line. Source: Balancer.java of Hadoop 3.4, `parse`.

use std::collections::HashSet;

use hearth_client::DatanodeInfo;

use super::super::tool::IllegalArgument;

pub const USAGE: &str = "Usage: hdfs balancer
\t[-policy <policy>]\tthe balancing policy: datanode or blockpool
\t[-threshold <threshold>]\tPercentage of disk capacity
\t[-exclude [-f <hosts-file> | <comma-separated list of hosts>]]\tExcludes the specified datanodes.
\t[-include [-f <hosts-file> | <comma-separated list of hosts>]]\tIncludes only the specified datanodes.
\t[-source [-f <hosts-file> | <comma-separated list of hosts>]]\tPick only the specified datanodes as source nodes.
\t[-idleiterations <idleiterations>]\tNumber of consecutive idle iterations (-1 for Infinite) before exit.
\t[-runDuringUpgrade]\tWhether to run the balancer during an ongoing HDFS upgrade.\
This is usually not desired since it will not affect used space on over-utilized machines.

";

/// Options of Apache's balancer that are refused.
const REFUSED: [&str; 5] =
    ["-asService", "-blockpools", "-hotBlockTimeInterval", "-sortTopNodes", "-limitOverUtilizedNum"];

/// Bytes that count as used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Those of all block pools.
    Datanode,
    /// Those of this block pool.
    BlockPool,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    pub policy: Policy,
    /// Allowed distance from the average, in per cent of a storage group's capacity.
    pub threshold: f64,
    /// DataNodes that take no part, as `host` or `host:port`.
    pub excluded: HashSet<String>,
    /// The only DataNodes that take part. Empty: all.
    pub included: HashSet<String>,
    /// The only DataNodes that replicas are moved away from. Empty: all.
    pub sources: HashSet<String>,
    /// Number of iterations without a move before the end. `None`: no end.
    pub idle_iterations: Option<u32>,
    pub run_during_upgrade: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::Datanode,
            threshold: 10.0,
            excluded: HashSet::new(),
            included: HashSet::new(),
            sources: HashSet::new(),
            idle_iterations: Some(5),
            run_during_upgrade: false,
        }
    }
}

impl Options {
    /// Errors: an [`IllegalArgument`]. A hint for the user may have been printed.
    pub fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut options = Self::default();
        let all = format!("[{}]", words.join(", "));
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut value = |missing: &str| {
                rest.next().ok_or_else(|| IllegalArgument::new(format!("{missing} is missing: args = {all}")))
            };
            match word.to_ascii_lowercase().as_str() {
                "-threshold" => options.threshold = threshold(value("Threshold value")?)?,
                "-policy" => options.policy = policy(value("Policy value")?)?,
                "-exclude" => options.excluded.extend(hosts("exclude", &mut rest, &all)?),
                "-include" => options.included.extend(hosts("include", &mut rest, &all)?),
                "-source" => options.sources.extend(hosts("source", &mut rest, &all)?),
                "-idleiterations" => {
                    let text = value("idleiterations value")?;
                    let count: i32 = text.parse().map_err(|_| IllegalArgument::not_a_number(text))?;
                    options.idle_iterations = u32::try_from(count).ok();
                }
                "-runduringupgrade" => options.run_during_upgrade = true,
                _ => {
                    let message = match REFUSED.iter().find(|refused| refused.eq_ignore_ascii_case(word)) {
                        Some(refused) => format!("{refused} is not supported by hearth balancer"),
                        None => format!("args = {all}"),
                    };
                    return Err(IllegalArgument::new(message).into());
                }
            }
        }
        if !options.excluded.is_empty() && !options.included.is_empty() {
            let message = "-exclude and -include options cannot be specified together.";
            return Err(IllegalArgument::new(message).into());
        }
        Ok(options)
    }

    /// Returns whether a DataNode takes part, as far as the command line says.
    pub fn takes_part(&self, datanode: &DatanodeInfo) -> bool {
        !names(&self.excluded, datanode) && (self.included.is_empty() || names(&self.included, datanode))
    }

    /// Returns whether replicas may be moved away from a DataNode.
    pub fn is_source(&self, datanode: &DatanodeInfo) -> bool {
        self.sources.is_empty() || names(&self.sources, datanode)
    }
}

/// Returns whether one of `hosts` is this DataNode.
fn names(hosts: &HashSet<String>, datanode: &DatanodeInfo) -> bool {
    let id = &datanode.id;
    [&id.host_name, &id.ip]
        .into_iter()
        .any(|host| hosts.contains(host) || hosts.contains(&format!("{host}:{}", id.transfer_port)))
}

fn threshold(text: &str) -> anyhow::Result<f64> {
    let outside = |threshold: f64| !(1.0..=100.0).contains(&threshold);
    let wrong = match text.trim().parse() {
        Ok(threshold) if outside(threshold) => {
            IllegalArgument::new(format!("Number out of range: threshold = {threshold:?}"))
        }
        Ok(threshold) => return Ok(threshold),
        Err(_) => IllegalArgument::not_a_number(text),
    };
    eprintln!("Expecting a number in the range of [1.0, 100.0]: {text}");
    Err(wrong.into())
}

fn policy(text: &str) -> anyhow::Result<Policy> {
    match text.to_ascii_lowercase().as_str() {
        "datanode" => Ok(Policy::Datanode),
        "blockpool" => Ok(Policy::BlockPool),
        _ => {
            eprintln!("Illegal policy name: {text}");
            Err(IllegalArgument::new(format!("Cannot parse string \"{text}\"")).into())
        }
    }
}

/// Takes a list of hosts, or `-f` and a file of them. In the file, `#` begins a comment.
fn hosts(kind: &str, rest: &mut std::slice::Iter<'_, String>, all: &str) -> anyhow::Result<Vec<String>> {
    let missing = || IllegalArgument::new(format!("List of {kind} nodes | -f <filename> is missing: args={all}"));
    let first = rest.next().ok_or_else(missing)?;
    if !first.eq_ignore_ascii_case("-f") {
        return Ok(first.split(',').map(str::trim).filter(|host| !host.is_empty()).map(str::to_owned).collect());
    }
    let missing = || IllegalArgument::new(format!("File containing {kind} nodes is not specified: args={all}"));
    let file = rest.next().ok_or_else(missing)?;
    let text = std::fs::read_to_string(file)
        .map_err(|error| IllegalArgument::new(format!("Failed to read {kind} node list from file: {file}: {error}")))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    Ok(lines.flat_map(str::split_whitespace).map(str::to_owned).collect())
}

#[cfg(test)]
pub mod tests {
    use std::io::Write;

    use hearth_client::{DatanodeId, DatanodeUuid};

    use super::*;

    fn parse(line: &str) -> anyhow::Result<Options> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    pub fn datanode(host: &str) -> DatanodeInfo {
        DatanodeInfo::of(DatanodeId {
            ip: "10.0.0.1".to_owned(),
            host_name: host.to_owned(),
            uuid: DatanodeUuid(host.into()),
            transfer_port: 9866,
            info_port: 9864,
            ipc_port: 9867,
            info_secure_port: 0,
        })
    }

    #[test]
    fn options_are_those_of_hadoop() {
        assert_eq!(parse("").unwrap(), Options::default());
        let options =
            parse("-Threshold 1 -policy BLOCKPOOL -idleiterations -1 -runDuringUpgrade -source a,b:9866").unwrap();
        assert_eq!((options.threshold, options.policy, options.idle_iterations), (1.0, Policy::BlockPool, None));
        assert!(options.run_during_upgrade);
        assert!(!options.is_source(&datanode("c")) && options.is_source(&datanode("a")));
        assert!(options.is_source(&datanode("b")));
    }

    #[test]
    fn wrong_options_are_refused_with_the_reason() {
        for (line, said) in [
            ("-threshold", "Threshold value is missing: args = [-threshold]"),
            ("-threshold 0.5", "Number out of range: threshold = 0.5"),
            ("-threshold NaN", "Number out of range: threshold = NaN"),
            ("-threshold much", "For input string: \"much\""),
            ("-policy none", "Cannot parse string \"none\""),
            ("-exclude", "List of exclude nodes | -f <filename> is missing: args=[-exclude]"),
            ("-include -f", "File containing include nodes is not specified: args=[-include, -f]"),
            ("-exclude a -include b", "-exclude and -include options cannot be specified together."),
            ("-asservice", "-asService is not supported by hearth balancer"),
            ("-fast", "args = [-fast]"),
        ] {
            assert_eq!(parse(line).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn hosts_can_be_in_a_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "a b # c\n# d\n10.0.0.9").unwrap();
        let options = parse(&format!("-exclude -f {}", file.path().display())).unwrap();
        let mut hosts: Vec<_> = options.excluded.iter().collect();
        hosts.sort();
        assert_eq!(hosts, ["10.0.0.9", "a", "b"]);
        assert!(!options.takes_part(&datanode("a")) && options.takes_part(&datanode("c")));
        let only = parse("-include 10.0.0.1:9866").unwrap();
        assert!(only.takes_part(&datanode("a")));
    }
}
