//! The command line of fsck, as DFSck.java parses it.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::configuration::Identity;

/// Details that the report made here prints for each file.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportOptions {
    pub files: bool,
    pub blocks: bool,
    pub locations: bool,
    pub racks: bool,
    pub open_files: bool,
}

#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub shown: ReportOptions,
    pub list_corrupt: bool,
    /// `blk_...` names to look up instead of a path.
    pub block_ids: Vec<String>,
    /// All flags, by their names in the NameNode's query.
    flags: Vec<&'static str>,
    /// First option that only the NameNode can carry out.
    needs_namenode: Option<&'static str>,
}

/// Reason why the command line gives no request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestError {
    Help,
    Usage(String),
}

pub const USAGE: &str = "Usage: hearth fsck <path> [-list-corruptfileblocks | [-move | -delete | -openforwrite] \
[-files [-blocks [-locations | -racks | -replicaDetails | -upgradedomains]]]] [-includeSnapshots] [-showprogress] \
[-storagepolicies] [-maintenance] [-blockId <blk_Id>] [-replicate]
\t<path>\tstart checking from this path; default: /
\t-files\tprint the files that are checked
\t-blocks\tprint the blocks of each file, with -files
\t-locations\tprint where the replicas of each block are, with -files -blocks
\t-racks\tthe same with racks
\t-replicaDetails\tthe same with the state of each replica
\t-upgradedomains\tthe same with upgrade domains
\t-openforwrite\talso check and print files that are being written
\t-includeSnapshots\talso check files that only snapshots contain
\t-list-corruptfileblocks\tprint blocks without a good replica and the files that they belong to
\t-move\tcopy the readable blocks of files with blocks that have no good replica to /lost+found
\t-delete\tdelete files with blocks that have no good replica; with -move, those whose other blocks were copied
\t-storagepolicies\tprint how many blocks satisfy their storage policy
\t-maintenance\tprint replicas in maintenance
\t-blockId <blk_Id> ...\tprint the file and the replicas of blocks
\t-replicate\tre-replicate blocks whose replicas are on too few racks
\t-showprogress\tno effect: progress is always shown
Exit code: 0 healthy, 1 corrupt, 255 wrong command line, permission denied, or corrupt blocks in their list; with -blockId 2 to 6 by
the state of the last replica.
";

/// Options and their names in the NameNode's query.
const FLAGS: &[(&str, &str)] = &[
    ("-files", "files"),
    ("-blocks", "blocks"),
    ("-locations", "locations"),
    ("-racks", "racks"),
    ("-replicaDetails", "replicadetails"),
    ("-upgradedomains", "upgradedomains"),
    ("-openforwrite", "openforwrite"),
    ("-includeSnapshots", "includeSnapshots"),
    ("-list-corruptfileblocks", "listcorruptfileblocks"),
    ("-move", "move"),
    ("-delete", "delete"),
    ("-storagepolicies", "storagepolicies"),
    ("-maintenance", "maintenance"),
    ("-replicate", "replicate"),
    ("-showprogress", "showprogress"),
];

/// Options that the report made here supports, too.
const PLAIN: &[&str] =
    &["files", "blocks", "locations", "racks", "openforwrite", "listcorruptfileblocks", "showprogress"];

impl Request {
    /// Parses the command line. Errors: what is wrong with it. A command line without arguments is an error, as for
    /// Apache's tool.
    pub fn parse(words: Vec<String>) -> Result<Self, RequestError> {
        if words.is_empty() {
            return Err(RequestError::Usage(String::new()));
        }
        let mut path = None;
        let (mut flags, mut block_ids, mut needs_namenode) = (Vec::new(), Vec::new(), None);
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            if let Some((word, flag)) = FLAGS.iter().find(|(known, _)| *known == word) {
                flags.push(*flag);
                if !PLAIN.contains(flag) {
                    needs_namenode = needs_namenode.or(Some(*word));
                }
                continue;
            }
            match word.as_str() {
                "-blockId" => {
                    needs_namenode = needs_namenode.or(Some("-blockId"));
                    while let Some(id) = words.next_if(|word| !word.starts_with('-')) {
                        block_ids.push(id);
                    }
                    if block_ids.is_empty() {
                        return Err(RequestError::Usage(
                            "-blockId needs the name of a block, such as blk_1073741825".to_owned(),
                        ));
                    }
                }
                "-help" | "--help" | "-h" => return Err(RequestError::Help),
                option if option.starts_with('-') => {
                    return Err(RequestError::Usage(format!("Illegal option '{option}'")));
                }
                word if path.is_none() => path = Some(word.to_owned()),
                word => return Err(RequestError::Usage(format!("can only operate on one path at a time '{word}'"))),
            }
        }
        let has = |flag: &str| flags.contains(&flag);
        let shown = ReportOptions {
            files: has("files"),
            blocks: has("blocks"),
            locations: has("locations") || has("racks"),
            racks: has("racks"),
            open_files: has("openforwrite"),
        };
        let list_corrupt = has("listcorruptfileblocks");
        let path = path.unwrap_or_else(|| "/".to_owned());
        Ok(Self { path, shown, list_corrupt, block_ids, flags, needs_namenode })
    }

    /// Returns the option that needs the NameNode's own report, if any.
    pub fn needs_namenode(&self) -> Option<&'static str> {
        self.needs_namenode
    }

    /// Returns path and query of the NameNode's page. `after`: number of entries of the list of corrupt files to skip.
    pub fn query(&self, caller: &Identity, after: u64) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut query = match &caller.real_user {
            None => format!("/fsck?ugi={}", encoded(&caller.user)),
            Some(real_user) => format!("/fsck?ugi={}&doas={}", encoded(real_user), encoded(&caller.user)),
        };
        for flag in &self.flags {
            query.push_str(&format!("&{flag}=1"));
        }
        if !self.block_ids.is_empty() {
            query.push_str(&format!("&blockId={}", encoded(&self.block_ids.join(" "))));
        }
        if after > 0 {
            query.push_str(&format!("&startblockafter={after}"));
        }
        query + &format!("&path={}", encoded(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, RequestError> {
        Request::parse(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn query_contains_the_namenodes_option_names() {
        let request = parse("/a&b -files -blocks -storagepolicies -blockId blk_1 blk_2 -replicate").unwrap();
        assert_eq!(request.needs_namenode(), Some("-storagepolicies"));
        assert!(request.shown.files && request.shown.blocks && !request.list_corrupt);
        let ann = Identity { user: "ann".to_owned(), real_user: None };
        assert_eq!(
            request.query(&ann, 0),
            "/fsck?ugi=ann&files=1&blocks=1&storagepolicies=1&replicate=1&blockId=blk%5F1%20blk%5F2&path=%2Fa%26b"
        );
        let plain = parse("-list-corruptfileblocks").unwrap();
        assert_eq!((plain.path.as_str(), plain.needs_namenode()), ("/", None));
        assert_eq!(plain.query(&ann, 7), "/fsck?ugi=ann&listcorruptfileblocks=1&startblockafter=7&path=%2F");
        let for_bob = Identity { user: "bob".to_owned(), real_user: Some(ann.user) };
        assert!(plain.query(&for_bob, 0).starts_with("/fsck?ugi=ann&doas=bob&"));
    }

    #[test]
    fn usage_errors_name_the_word() {
        assert_eq!(parse("/ -nothing").unwrap_err(), RequestError::Usage("Illegal option '-nothing'".to_owned()));
        assert!(matches!(parse("/a /b"), Err(RequestError::Usage(what)) if what.contains("one path at a time '/b'")));
        assert!(matches!(parse("/ -blockId"), Err(RequestError::Usage(_))));
        assert_eq!(parse("/ -move").unwrap().needs_namenode(), Some("-move"));
        assert!(matches!(parse("-help"), Err(RequestError::Help)));
    }

    #[test]
    fn the_usage_names_every_option() {
        for (word, _) in FLAGS.iter().chain(&[("-blockId", "")]) {
            assert!(USAGE.contains(&format!("\n\t{word}")), "{word}");
        }
    }
}
