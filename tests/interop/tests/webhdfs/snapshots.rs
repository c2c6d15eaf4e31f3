//! Snapshots, their differences, and reports about them.

use anyhow::Result;
use hearth_interop::Session;

use crate::transcript::Transcript;

const MADE: &[&str] = &[
    "! PUT /snapshots/d?op=CREATESNAPSHOT&snapshotname=one",
    "! GET /snapshots/d?op=GETSNAPSHOTLIST",
    "GET /?op=GETSNAPSHOTTABLEDIRECTORYLIST",
    "! mallory PUT /snapshots/d?op=ALLOWSNAPSHOT",
    "! PUT /snapshots/none?op=ALLOWSNAPSHOT",
    "! PUT /snapshots/d/file?op=ALLOWSNAPSHOT",
    "PUT /snapshots/d?op=ALLOWSNAPSHOT",
    "GET /snapshots/d?op=GETFILESTATUS",
    "GET /snapshots/d?op=GETSNAPSHOTLIST",
    "PUT /snapshots/d?op=CREATESNAPSHOT&snapshotname=one",
    "! PUT /snapshots/d?op=CREATESNAPSHOT&snapshotname=one",
    "!~ PUT /snapshots/d?op=CREATESNAPSHOT&snapshotname=a/b",
    "! mallory PUT /snapshots/d?op=CREATESNAPSHOT&snapshotname=hers",
    // Changes that appear in a difference.
    "PUT /snapshots/d/gone?op=RENAME&destination=/snapshots/d/moved",
    "DELETE /snapshots/d/sub/deep?op=DELETE&recursive=true",
    "PUT /snapshots/d/new?op=MKDIRS",
    "PUT /snapshots/d/file?op=SETPERMISSION&permission=600",
    "PUT /snapshots/d?op=CREATESNAPSHOT&snapshotname=two",
    "PUT /snapshots/d/later?op=MKDIRS",
];

const TOLD: &[&str] = &[
    "GET /snapshots/d?op=GETSNAPSHOTLIST",
    "GET /?op=GETSNAPSHOTTABLEDIRECTORYLIST",
    "mallory GET /?op=GETSNAPSHOTTABLEDIRECTORYLIST",
    "GET /snapshots/d/.snapshot/one?op=LISTSTATUS",
    "GET /snapshots/d/.snapshot/one/file?op=GETFILESTATUS",
    "GET /snapshots/d?op=GETCONTENTSUMMARY",
    "GET /snapshots/d?op=GETSNAPSHOTDIFF&oldsnapshotname=one&snapshotname=two",
    "GET /snapshots/d?op=GETSNAPSHOTDIFF&oldsnapshotname=two&snapshotname=one",
    "GET /snapshots/d?op=GETSNAPSHOTDIFF&oldsnapshotname=one&snapshotname=",
    "GET /snapshots/d?op=GETSNAPSHOTDIFF&oldsnapshotname=one&snapshotname=one",
    "! GET /snapshots/d?op=GETSNAPSHOTDIFF&oldsnapshotname=one&snapshotname=none",
    "! GET /snapshots?op=GETSNAPSHOTDIFF&oldsnapshotname=one&snapshotname=two",
    "! GET /snapshots/none?op=GETSNAPSHOTDIFF&oldsnapshotname=one&snapshotname=two",
    "! GET /snapshots/d/none?op=GETSNAPSHOTDIFF&oldsnapshotname=one&snapshotname=two",
    "! GET /snapshots/none?op=GETSNAPSHOTLIST",
    "GET /snapshots/d/.snapshot?op=LISTSTATUS",
    "! PUT /snapshots/d/.snapshot/one/x?op=MKDIRS",
    "! DELETE /snapshots/d/.snapshot/one?op=DELETE&recursive=true",
    "! GET /snapshots/d/.snapshot/none?op=LISTSTATUS",
];

const REMOVED: &[&str] = &[
    "PUT /snapshots/d?op=RENAMESNAPSHOT&oldsnapshotname=two&snapshotname=three",
    "! PUT /snapshots/d?op=RENAMESNAPSHOT&oldsnapshotname=two&snapshotname=four",
    "! PUT /snapshots/d?op=RENAMESNAPSHOT&oldsnapshotname=one&snapshotname=three",
    "!~ PUT /snapshots/d?op=RENAMESNAPSHOT&snapshotname=four",
    "! DELETE /snapshots/d?op=DELETE&recursive=true",
    "! PUT /snapshots/d?op=DISALLOWSNAPSHOT",
    "! DELETE /snapshots/d?op=DELETESNAPSHOT&snapshotname=none",
    "!~ DELETE /snapshots/d?op=DELETESNAPSHOT",
    "! mallory DELETE /snapshots/d?op=DELETESNAPSHOT&snapshotname=one",
    "DELETE /snapshots/d?op=DELETESNAPSHOT&snapshotname=one",
    "DELETE /snapshots/d?op=DELETESNAPSHOT&snapshotname=three",
    "GET /snapshots/d?op=GETSNAPSHOTLIST",
    "! mallory PUT /snapshots/d?op=DISALLOWSNAPSHOT",
    "PUT /snapshots/d?op=DISALLOWSNAPSHOT",
    "GET /?op=GETSNAPSHOTTABLEDIRECTORYLIST",
    "DELETE /snapshots?op=DELETE&recursive=true",
];

pub fn snapshots(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "snapshots", |transcript| {
        transcript.ask("PUT /snapshots/d/sub/deep?op=MKDIRS")?;
        transcript.create("/snapshots/d/file", b"in all of them")?;
        transcript.create("/snapshots/d/gone", b"elsewhere in the second")?;
        transcript.ask_all(MADE)?;
        transcript.read("GET /snapshots/d/.snapshot/one/gone?op=OPEN", b"elsewhere in the second")?;
        transcript.ask_all(TOLD)?;
        transcript.ask_all(REMOVED)
    })
}
