//! Refused requests, and their error answers.

use anyhow::Result;
use hearth_interop::Session;

use crate::transcript::Transcript;

const OPERATIONS: &[&str] = &[
    "!~ GET /refusals",
    "!~ PUT /refusals",
    "!~ POST /refusals",
    "!~ DELETE /refusals",
    "! GET /refusals?op=NOTHING",
    "! PUT /refusals?op=NOTHING",
    "! POST /refusals?op=NOTHING",
    "! DELETE /refusals?op=NOTHING",
    "!~ GET /refusals?op=",
    "! GET /refusals/x?op=MKDIRS",
    "! PUT /refusals?op=LISTSTATUS",
    "! POST /refusals?op=DELETE",
    "! DELETE /refusals?op=CREATE",
    "! PUT /refusals/link?op=CREATESYMLINK&destination=/refusals/f",
];

const VALUES: &[&str] = &[
    "! PUT /refusals/x?op=MKDIRS&permission=999",
    "! PUT /refusals/x?op=MKDIRS&permission=rwx",
    "! PUT /refusals/x?op=MKDIRS&permission=-1",
    "! PUT /refusals/x?op=CREATE&overwrite=maybe",
    "! PUT /refusals/x?op=CREATE&replication=0",
    "! PUT /refusals/x?op=CREATE&replication=many",
    "! PUT /refusals/x?op=CREATE&blocksize=0",
    "! PUT /refusals/x?op=CREATE&blocksize=1m",
    "! PUT /refusals/x?op=CREATE&buffersize=0",
    "! PUT /refusals/x?op=CREATE&noredirect=perhaps",
    "! GET /refusals/f?op=OPEN&offset=-1",
    "! GET /refusals/f?op=OPEN&length=x",
    "! GET /refusals/f?op=OPEN&length=99999999999999999999",
    "! GET /refusals/f?op=GETFILEBLOCKLOCATIONS&offset=-5",
    "! DELETE /refusals/f?op=DELETE&recursive=perhaps",
    "! PUT /refusals/f?op=SETTIMES&modificationtime=yesterday",
    "! PUT /refusals/f?op=SETREPLICATION&replication=0",
    "!~ PUT /refusals/f?op=SETREPLICATION&replication=99999",
    "! PUT /refusals/f?op=SETPERMISSION&permission=8",
    "! PUT /refusals/f?op=RENAME&destination=relative",
    "! PUT /refusals/f?op=RENAME&destination=/refusals/x&renameoptions=GENTLY",
    "! GET /refusals/f?op=CHECKACCESS&fsaction=xyz",
    "! POST /refusals/f?op=TRUNCATE&newlength=-1",
    "! POST /refusals/f?op=TRUNCATE&newlength=x",
    // Parameters of other operations.
    "! GET /refusals/f?op=GETFILESTATUS&offset=x",
    "! GET /refusals/f?op=GETFILESTATUS&fsaction=xyz",
    "! GET /refusals/f?op=CHECKACCESS&fsaction=",
    "! GET /refusals/f?op=LISTSTATUS&encoding=none",
    "! PUT /refusals/x?op=MKDIRS&replication=0",
    "! PUT /refusals/x?op=MKDIRS&destination=relative",
    "! PUT /refusals/x?op=MKDIRS&aclspec=x",
    "! PUT /refusals/x?op=MKDIRS&createflag=GENTLY",
    "! POST /refusals/f?op=UNSETSTORAGEPOLICY&newlength=x",
    "! DELETE /refusals/f?op=DELETESNAPSHOT&recursive=perhaps&snapshotname=x",
    // Missing parameters.
    "!~ PUT /refusals/f?op=RENAME",
    "!~ PUT /refusals/f?op=SETOWNER",
    "!~ POST /refusals/f?op=CONCAT",
    "!~ POST /refusals/f?op=TRUNCATE",
    "!~ GET /refusals/f?op=CHECKACCESS",
    "!~ PUT /refusals/f?op=SETXATTR&flag=CREATE",
];

const USERS: &[&str] = &[
    "? a/b GET /refusals?op=GETHOMEDIRECTORY",
    "! GET /refusals?op=GETHOMEDIRECTORY&doas=ann",
    "! mallory GET /refusals/closed?op=LISTSTATUS",
    "! mallory GET /refusals/closed?op=LISTSTATUS_BATCH",
    "! mallory GET /refusals/closed/f?op=GETFILESTATUS",
    "! mallory GET /refusals/closed/none?op=GETFILESTATUS",
    "! mallory GET /refusals/closed?op=GETCONTENTSUMMARY",
    "! mallory GET /refusals/closed?op=GETQUOTAUSAGE",
    "! mallory GET /refusals/closed/f?op=GETACLSTATUS",
    "! mallory GET /refusals/closed/f?op=GETXATTRS&encoding=text",
    "! mallory GET /refusals/closed/f?op=GETSTORAGEPOLICY",
    "! mallory PUT /refusals/closed/x?op=MKDIRS",
    "! mallory PUT /refusals/x?op=MKDIRS",
    "! mallory DELETE /refusals/closed/f?op=DELETE",
    "! mallory PUT /refusals/closed/f?op=RENAME&destination=/refusals/closed/x&renameoptions=NONE",
    "! - PUT /refusals/x?op=MKDIRS",
    // Parameters of another method are ignored.
    "GET /refusals/f?op=GETFILESTATUS&permission=9",
];

const PATHS: &[&str] = &[
    "! PUT /refusals/f/below?op=MKDIRS",
    "! GET /refusals/f/below?op=GETFILESTATUS",
    "! PUT /refusals/a:b?op=MKDIRS",
    "! PUT /refusals/.snapshot?op=MKDIRS",
    "! PUT /refusals/x?op=RENAME&destination=/refusals/.snapshot&renameoptions=NONE",
];

pub fn refusals(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "refusals", |transcript| {
        transcript.ask("PUT /refusals/closed?op=MKDIRS&permission=700")?;
        transcript.create("/refusals/f", b"bytes")?;
        transcript.create("/refusals/closed/f", b"bytes")?;
        for lines in [OPERATIONS, VALUES, USERS, PATHS] {
            transcript.ask_all(lines)?;
        }
        transcript.ask(&format!("! PUT /refusals/{}?op=MKDIRS", "x".repeat(300)))?;
        for target in
            ["/webhdfs/v2/refusals?op=LISTSTATUS", "/webhdfs/refusals?op=LISTSTATUS", "/webhdfs/v1x?op=LISTSTATUS"]
        {
            transcript.ask_outside("GET", target)?;
        }
        // None of these requests has changed anything.
        transcript.ask("GET /refusals?op=LISTSTATUS").map(drop)
    })
}
