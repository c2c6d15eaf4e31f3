//! Every operation without parameters, and every parameter with invalid values: answers must be those of Apache's
//! NameNode. See docs/compatibility/webhdfs.md.

use anyhow::Result;
use hearth_interop::Session;
use hearth_testkit::HttpBody;

use crate::transcript::Transcript;

/// Omitted: GETDELEGATIONTOKEN, whose answer differs each time, and GETECPOLICIES, because Hearth has no erasure
/// coding.
const QUESTIONS: &[&str] = &[
    "OPEN",
    "GETFILECHECKSUM",
    "GETFILESTATUS",
    "GETFILELINKSTATUS",
    "GETLINKTARGET",
    "LISTSTATUS",
    "LISTSTATUS_BATCH",
    "GETCONTENTSUMMARY",
    "GETQUOTAUSAGE",
    "GETSTATUS",
    "GETHOMEDIRECTORY",
    "GETTRASHROOT",
    "GET_BLOCK_LOCATIONS",
    "GETFILEBLOCKLOCATIONS",
    "GETACLSTATUS",
    "CHECKACCESS",
    "GETXATTRS",
    "LISTXATTRS",
    "GETALLSTORAGEPOLICY",
    "GETSTORAGEPOLICY",
    "GETECPOLICY",
    "GETECCODECS",
    "GETSNAPSHOTDIFF",
    "GETSNAPSHOTDIFFLISTING",
    "GETSNAPSHOTTABLEDIRECTORYLIST",
    "GETSNAPSHOTLIST",
];

/// Omitted: operations of erasure coding, and REMOVEACL, REMOVEDEFAULTACL and CREATESNAPSHOT, whose exceptions have
/// other texts.
const CHANGES: &[(&str, &[&str])] = &[
    (
        "PUT",
        &[
            "CREATE",
            "CREATESYMLINK",
            "RENAME",
            "SETREPLICATION",
            "SETOWNER",
            "SETPERMISSION",
            "SETTIMES",
            "RENEWDELEGATIONTOKEN",
            "CANCELDELEGATIONTOKEN",
            "MODIFYACLENTRIES",
            "REMOVEACLENTRIES",
            "SETACL",
            "SETXATTR",
            "REMOVEXATTR",
            "DISALLOWSNAPSHOT",
            "RENAMESNAPSHOT",
            "SETSTORAGEPOLICY",
            "SETQUOTA",
            "SETQUOTABYSTORAGETYPE",
        ],
    ),
    ("POST", &["APPEND", "CONCAT", "TRUNCATE", "UNSETSTORAGEPOLICY"]),
    ("DELETE", &["DELETE", "DELETESNAPSHOT"]),
];

/// Parameters by method, with an operation that ignores them.
const PARAMETERS: &[(&str, &str, &[&str])] = &[
    (
        "GET",
        "GETFILESTATUS",
        &[
            "offset",
            "length",
            "buffersize",
            "renewer",
            "xattr.name",
            "encoding",
            "excludedatanodes",
            "fsaction",
            "snapshotname",
            "oldsnapshotname",
            "snapshotdiffstartpath",
            "snapshotdiffindex",
            "kind",
            "service",
            "noredirect",
            "startafter",
            "allusers",
        ],
    ),
    (
        "PUT",
        "REMOVEACL",
        &[
            "destination",
            "owner",
            "group",
            "permission",
            "unmaskedpermission",
            "overwrite",
            "buffersize",
            "replication",
            "blocksize",
            "modificationtime",
            "accesstime",
            "renameoptions",
            "createparent",
            "token",
            "aclspec",
            "xattr.name",
            "xattr.value",
            "flag",
            "snapshotname",
            "oldsnapshotname",
            "excludedatanodes",
            "createflag",
            "noredirect",
            "storagepolicy",
            "ecpolicy",
            "namespacequota",
            "storagespacequota",
            "storagetype",
        ],
    ),
    ("POST", "UNSETSTORAGEPOLICY", &["sources", "buffersize", "excludedatanodes", "newlength", "noredirect"]),
    ("DELETE", "DELETE", &["recursive", "snapshotname"]),
];

const VALUES: &[&str] = &["", "null", "-2", "x", "true"];

pub fn matrix(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "matrix", |transcript| {
        transcript.ask("PUT /m/d?op=MKDIRS")?;
        transcript.create("/m/f", b"bytes")?;
        for operation in QUESTIONS {
            for path in ["/m/f", "/m/d", "/m/none"] {
                transcript.ask(&format!("? GET {path}?op={operation}"))?;
            }
        }
        for (method, operations) in CHANGES {
            for operation in *operations {
                transcript.ask(&format!("? {method} /m/none?op={operation}"))?;
            }
        }
        for (method, operation, parameters) in PARAMETERS {
            let path = if *method == "DELETE" { "/m/none" } else { "/m/f" };
            for parameter in *parameters {
                for value in VALUES {
                    transcript.ask(&format!("? {method} {path}?op={operation}&{parameter}={value}"))?;
                }
            }
        }
        transcript.ask("GET /m?op=LISTSTATUS").map(drop)
    })
}

/// DataNodes that a client excludes, by the names that clients use for them.
pub fn excluded(session: &mut Session) -> Result<()> {
    const WANTED: &[&str] =
        &["127.0.0.1:HTTP-PORT", "localhost:HTTP-PORT", "localhost", "10.255.0.1", "10.255.0.1:9866", "a,b:1", ""];
    const UNWANTED: &[&str] = &["127.0.0.1:DATA-PORT", "127.0.0.1", "x, 127.0.0.1:DATA-PORT", "127.0.0.1,x"];
    const NO_PORT: &[&str] = &["127.0.0.1:x", "localhost:", "a:1:2"];
    Transcript::compared(session, "excluded", |transcript| {
        transcript.create("/excluded/f", b"0123456789")?;
        transcript.create("/excluded/empty", b"")?;
        for (nth, names) in WANTED.iter().enumerate() {
            let names = format!("excludedatanodes={names}").replace(' ', "%20");
            transcript.read(&format!("GET /excluded/f?op=OPEN&length=5&{names}"), b"01234")?;
            let create = format!("PUT /excluded/made-{nth}?op=CREATE&{names}");
            transcript.ask_both(&create, HttpBody::Whole(b"made"), false)?;
            let append = format!("POST /excluded/empty?op=APPEND&{names}");
            transcript.ask_both(&append, HttpBody::Whole(b"more"), false)?;
        }
        for names in UNWANTED.iter().chain(NO_PORT) {
            let names = format!("excludedatanodes={names}").replace(' ', "%20");
            for line in [
                format!("! GET /excluded/f?op=OPEN&{names}"),
                format!("! GET /excluded/none?op=OPEN&{names}"),
                format!("! PUT /excluded/never?op=CREATE&{names}"),
                format!("! POST /excluded/f?op=APPEND&{names}"),
                // This operation ignores them.
                format!("GET /excluded/f?op=GETFILECHECKSUM&{names}"),
            ] {
                transcript.ask(&line)?;
            }
        }
        transcript.ask("GET /excluded?op=LISTSTATUS").map(drop)
    })
}

/// An append to a block with one replica of three needs a pipeline of at least two, and there are not enough DataNodes.
pub fn too_few(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "too-few", |transcript| {
        for replication in [2, 3] {
            let create = format!("PUT /few/{replication}?op=CREATE&replication={replication}");
            transcript.ask_both(&create, HttpBody::Whole(b"0123456789"), false)?;
        }
        transcript.ask_both("POST /few/2?op=APPEND", HttpBody::Whole(b"+"), false)?;
        transcript.read("GET /few/2?op=OPEN", b"0123456789+")?;
        transcript.ask_both("!~ POST /few/3?op=APPEND", HttpBody::Whole(b"+"), false)?;
        transcript.read("GET /few/3?op=OPEN", b"0123456789")
    })
}

/// Paths with redundant slashes.
pub fn slashes(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "slashes", |transcript| {
        transcript.ask("PUT /slashes/d?op=MKDIRS")?;
        transcript.create("/slashes/d/f", b"0123456789")?;
        for path in ["/slashes//d/f", "//slashes/d/f", "///slashes///d//f", "/slashes/d/f/", "/slashes/d/f//"] {
            for operation in
                ["GETFILESTATUS", "GETCONTENTSUMMARY", "LISTSTATUS", "GETACLSTATUS", "CHECKACCESS&fsaction=r--"]
            {
                transcript.ask(&format!("? GET {path}?op={operation}"))?;
            }
            transcript.ask_both(&format!("? GET {path}?op=OPEN&length=5"), HttpBody::Absent, false)?;
            transcript.ask_both(&format!("? GET {path}?op=GETFILECHECKSUM"), HttpBody::Absent, false)?;
            transcript.ask_both(&format!("? POST {path}?op=APPEND"), HttpBody::Whole(b"+"), false)?;
            transcript.ask_both(&format!("? PUT {path}-made?op=CREATE"), HttpBody::Whole(b"made"), false)?;
            transcript.ask(&format!("? PUT {path}-dir//below?op=MKDIRS"))?;
            transcript.ask(&format!("? PUT {path}?op=SETPERMISSION&permission=640"))?;
            // For Apache's NameNode a destination that begins with two slashes is another path.
            if !path.starts_with("//") {
                transcript.ask(&format!("? PUT /slashes/d/f?op=RENAME&destination={path}-moved"))?;
                transcript.ask(&format!("? PUT {path}-moved?op=RENAME&destination=/slashes/d/f"))?;
            }
            transcript.ask(&format!("? DELETE {path}-dir?op=DELETE&recursive=true"))?;
        }
        transcript.ask_datanode("? GET /slashes//d/f?op=OPEN&namenoderpcaddress=NAMENODE")?;
        transcript.ask("GET /slashes?op=LISTSTATUS")?;
        transcript.ask("GET /slashes/d?op=LISTSTATUS").map(drop)
    })
}
