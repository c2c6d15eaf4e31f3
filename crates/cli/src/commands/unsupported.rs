//! Subcommands of `hdfs` that Hearth does not have. Each is refused by a line that names what to use instead. The exit
//! code is that of `hdfs` for an unknown subcommand.
//!
//! The names are not subcommands, so help, manual pages and completions do not list them.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

const APACHES_SERVICE: &str = "Hearth's NameNode does not use it; with Apache's NameNode, run Apache's hdfs";

/// Names, and what to use instead.
const INSTEAD: &[(&str, &str)] = &[
    ("classpath", "Hearth needs no Java classes; for Java programs that use Hearth's jar, run `hadoop classpath`"),
    ("crypto", "encryption zones are not supported; with Apache's NameNode, run Apache's hdfs crypto"),
    ("dfsrouter", "run Apache's hdfs dfsrouter: it works in front of Hearth's NameNode"),
    ("dfsrouteradmin", "run Apache's hdfs dfsrouteradmin, which administers Apache's router"),
    ("diskbalancer", "plans for disks are refused by Hearth's DataNodes; with Apache's DataNodes, run Apache's hdfs"),
    ("ec", "erasure coding is not supported; with Apache's NameNode, run Apache's hdfs ec"),
    ("envvars", "Hearth has no shell environment of Hadoop; `hearth config` shows the configuration and its files"),
    ("fedbalance", "Hearth's NameNode has no federation; with Apache's router, run Apache's hdfs fedbalance"),
    ("fetchdt", "Hearth's tools need no delegation tokens; with Apache's servers, run Apache's hdfs fetchdt"),
    ("httpfs", "Hearth's NameNode and DataNodes serve WebHDFS themselves: use webhdfs:// and their HTTP ports"),
    ("jmxget", "read http://HOST:HTTP-PORT/jmx or /metrics of the NameNode or DataNode"),
    ("journalnode", APACHES_SERVICE),
    ("mover", "run Apache's hdfs mover"),
    ("nfs3", "there is no NFS gateway of Hearth; run Apache's hdfs nfs3"),
    ("oev", "Hearth's NameNode writes no edit log; for that of Apache's NameNode, run Apache's hdfs oev"),
    ("oiv", "run Apache's hdfs oiv on an image that `hearth dfsadmin -fetchImage` has fetched"),
    ("oiv_legacy", "run Apache's hdfs oiv_legacy"),
    ("portmap", "there is no NFS gateway of Hearth; run Apache's hdfs portmap"),
    ("secondarynamenode", APACHES_SERVICE),
    ("sps", "the storage policy satisfier is not supported; with Apache's NameNode, run Apache's hdfs sps"),
    ("zkfc", APACHES_SERVICE),
];

/// Ends with the error of the command line. Replaces clap's error for the subcommands above. Returns for these only.
pub fn refuse(error: &Error) -> ExitCode {
    match subcommand_of(error).and_then(|name| INSTEAD.iter().find(|(known, _)| *known == name)) {
        Some((name, instead)) => {
            eprintln!("hearth: there is no `hearth {name}`: {instead}");
            ExitCode::FAILURE
        }
        None => error.exit(),
    }
}

/// Returns the subcommand that is unknown, if that is the error.
fn subcommand_of(error: &Error) -> Option<&str> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name))) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{INSTEAD, subcommand_of};
    use crate::commands::Arguments;

    #[test]
    fn refused_subcommands_are_unknown_to_the_parser() {
        for (name, _) in INSTEAD {
            assert!(Arguments::command().find_subcommand(name).is_none(), "{name} is a subcommand");
            for words in [vec!["hearth", *name], vec!["hearth", "--config", "conf", *name, "-p", "/path", "--help"]] {
                let error = Arguments::try_parse_from(&words).err().expect("the subcommand is unknown");
                assert_eq!(subcommand_of(&error), Some(*name), "{words:?}: {error}");
            }
        }
        let error = Arguments::try_parse_from(["hearth", "--help"]).err().expect("help is printed");
        assert_eq!(subcommand_of(&error), None);
    }

    #[test]
    fn page_lists_every_refused_subcommand() {
        let page = include_str!("../../../../docs/compatibility/administration.md");
        for (name, _) in INSTEAD {
            assert!(page.contains(&format!("| `{name}` | 1 |")), "{name} has no row");
        }
    }
}
