//! The namespace: queries, and creating, renaming and deleting names.

use anyhow::Result;
use hearth_interop::Session;
use hearth_testkit::Content;

use crate::BLOCK;
use crate::transcript::Transcript;

const LONG: usize = 2 * BLOCK + 1000;

/// Returns file content that is unique to the seed.
fn content(seed: u64, length: usize) -> Vec<u8> {
    Content::new(seed).bytes(0, length)
}

const MADE: &[&str] = &[
    "PUT /names?op=MKDIRS",
    "PUT /names/a/b?op=MKDIRS",
    "PUT /names/a/b?op=mkdirs",
    "PUT /names/a/open?Op=MKDIRS&Permission=777",
    "PUT /names/a/sticky?op=MKDIRS&permission=1777",
    "PUT /names/a/unmasked?op=MKDIRS&permission=750&unmaskedpermission=777",
    "PUT /names/closed?op=MKDIRS&permission=700",
    "mallory PUT /names/a/open/hers?op=MKDIRS",
];

const TOLD: &[&str] = &[
    "GET /names?op=GETFILESTATUS",
    "GET /names/f?op=GETFILESTATUS",
    "mallory GET /names/f?op=GETFILESTATUS",
    "- GET /names/f?op=GETFILESTATUS",
    "GET /names/f?op=GETFILELINKSTATUS",
    "! GET /names/none?op=GETFILESTATUS",
    "! GET /names/none?op=GETFILELINKSTATUS",
    "GET /names?op=LISTSTATUS",
    "GET /names/?op=LISTSTATUS",
    "GET /names?OP=liststatus",
    "GET /names/f?op=LISTSTATUS",
    "GET /names/a/b?op=LISTSTATUS",
    "! GET /names/none?op=LISTSTATUS",
    "GET /names?op=LISTSTATUS_BATCH",
    "GET /names?op=LISTSTATUS_BATCH&startAfter=g",
    "GET /names?op=LISTSTATUS_BATCH&startafter=two",
    "GET /names/a/b?op=LISTSTATUS_BATCH",
    "GET /names/f?op=LISTSTATUS_BATCH",
    "! GET /names/none?op=LISTSTATUS_BATCH",
    "GET /names?op=GETCONTENTSUMMARY",
    "GET /names/f?op=GETCONTENTSUMMARY",
    "! GET /names/none?op=GETCONTENTSUMMARY",
    "GET /names?op=GETQUOTAUSAGE",
    "GET /names/f?op=GETQUOTAUSAGE",
    "! GET /names/none?op=GETQUOTAUSAGE",
    "GET /?op=GETHOMEDIRECTORY",
    "ann GET /names?op=GETHOMEDIRECTORY",
    "- GET /?op=GETHOMEDIRECTORY",
    "GET /?op=GETTRASHROOT",
    "ann GET /names/f?op=GETTRASHROOT",
    "GET /?op=GETTRASHROOTS",
    "GET /?op=GETTRASHROOTS&allusers=true",
    "GET /?op=GETSERVERDEFAULTS",
    "GET /?op=GETSTATUS",
    "GET /?op=GETDELEGATIONTOKEN&renewer=ann",
    "GET /names/long?op=GETFILEBLOCKLOCATIONS",
    "GET /names/long?op=GETFILEBLOCKLOCATIONS&offset=1048576&length=1",
    "GET /names/empty?op=GETFILEBLOCKLOCATIONS",
    "! GET /names/none?op=GETFILEBLOCKLOCATIONS",
    "GET /names/long?op=GET_BLOCK_LOCATIONS",
    "GET /names/long?op=GET_BLOCK_LOCATIONS&offset=10&length=1048576",
    "GET /names/empty?op=GET_BLOCK_LOCATIONS",
    "! GET /names/none?op=GET_BLOCK_LOCATIONS",
    "! GET /names/a?op=GET_BLOCK_LOCATIONS",
    "GET /names/f?op=CHECKACCESS&fsaction=rw-",
    "mallory GET /names/f?op=CHECKACCESS&fsaction=r--",
    "! mallory GET /names/f?op=CHECKACCESS&fsaction=rw-",
    "! GET /names/none?op=CHECKACCESS&fsaction=r--",
    "! GET /names/f?op=GETLINKTARGET",
];

const CHANGED: &[&str] = &[
    "PUT /names/f?op=SETREPLICATION&replication=2",
    "PUT /names/a?op=SETREPLICATION&replication=2",
    "? PUT /names/none?op=SETREPLICATION&replication=2",
    "PUT /names/f?op=SETOWNER&owner=ann&group=staff",
    "PUT /names/g?op=SETOWNER&group=crew",
    "ann PUT /names/f?op=SETPERMISSION&permission=640",
    "PUT /names/g?op=SETPERMISSION",
    "PUT /names/a/b?op=SETPERMISSION&permission=1770",
    "PUT /names/f?op=SETTIMES&modificationtime=1000&accesstime=2000",
    "PUT /names/g?op=SETTIMES&modificationtime=3000",
    "PUT /names/one?op=SETTIMES&accesstime=4000",
    "PUT /names/a/b?op=SETTIMES&modificationtime=5000",
    "GET /names/f?op=GETFILESTATUS",
    "GET /names/g?op=GETFILESTATUS",
    "GET /names/one?op=GETFILESTATUS",
    "GET /names/a?op=LISTSTATUS",
    "! PUT /names/none?op=SETOWNER&owner=ann",
    "! PUT /names/none?op=SETPERMISSION&permission=640",
    "! PUT /names/none?op=SETTIMES&modificationtime=1000",
    "! mallory PUT /names/f?op=SETREPLICATION&replication=1",
    "! mallory PUT /names/f?op=SETOWNER&owner=mallory",
    "! mallory PUT /names/f?op=SETPERMISSION&permission=777",
    "! mallory PUT /names/g?op=SETTIMES&modificationtime=1",
    "! mallory GET /names/f?op=GETFILEBLOCKLOCATIONS",
];

const MOVED: &[&str] = &[
    "PUT /names/a?op=RENAME&destination=/names/c",
    "PUT /names/none?op=RENAME&destination=/names/x",
    // Into a directory, and out of it.
    "PUT /names/f?op=RENAME&destination=/names/c",
    "PUT /names/c/f?op=RENAME&destination=/names/f",
    // Onto an existing file: refused, and with overwrite.
    "PUT /names/f?op=RENAME&destination=/names/g",
    "! PUT /names/f?op=RENAME&destination=/names/g&renameoptions=NONE",
    "PUT /names/f?op=RENAME&destination=/names/g&renameoptions=OVERWRITE",
    "PUT /names/g?op=RENAME&destination=/names/f&renameoptions=NONE",
    "! PUT /names/none?op=RENAME&destination=/names/x&renameoptions=NONE",
    "! PUT /names/f?op=RENAME&destination=/names/c&renameoptions=OVERWRITE",
    "! PUT /names/f?op=RENAME&destination=/names/none/f&renameoptions=NONE",
    "? PUT /names/f?op=RENAME&destination=/names/none/f",
    "? PUT /names/c?op=RENAME&destination=/names/c/b/below",
    "! mallory PUT /names/f?op=RENAME&destination=/names/hers",
    "GET /names?op=LISTSTATUS",
    "GET /names/c?op=LISTSTATUS",
];

const REMOVED: &[&str] = &[
    "! DELETE /names/c?op=DELETE",
    "! DELETE /names/c?op=DELETE&recursive=false",
    "! mallory DELETE /names/c?op=DELETE&recursive=true",
    "! mallory DELETE /names/f?op=DELETE",
    "DELETE /names/c?op=DELETE&recursive=true",
    "DELETE /names/c?op=DELETE&recursive=true",
    "DELETE /names/f?op=DELETE",
    "DELETE /names/none?op=DELETE",
    "DELETE /?op=DELETE&recursive=true",
    "GET /names?op=LISTSTATUS",
    "GET /names?op=GETCONTENTSUMMARY",
    "DELETE /names?op=DELETE&recursive=true",
    "! GET /names?op=LISTSTATUS",
];

pub fn names(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "names", |transcript| {
        transcript.ask_all(MADE)?;
        for (name, content) in [
            ("f", content(0, 3000)),
            ("g", content(0, 10)),
            ("empty", Vec::new()),
            ("long", content(4, LONG)),
            ("one", content(1, BLOCK)),
            ("two", content(2, BLOCK)),
            ("three", content(3, 700)),
        ] {
            transcript.create(&format!("/names/{name}"), &content)?;
        }
        transcript.ask_all(TOLD)?;
        transcript.ask_all(CHANGED)?;
        transcript.ask_all(MOVED)?;
        put_together(transcript)?;
        cut(transcript)?;
        transcript.ask_all(REMOVED)
    })
}

fn put_together(transcript: &mut Transcript) -> Result<()> {
    transcript.ask_all(&[
        "! POST /names/one?op=CONCAT&sources=/names/none",
        "! POST /names/none?op=CONCAT&sources=/names/two",
        "! POST /names/one?op=CONCAT&sources=/names/one",
        "! mallory POST /names/one?op=CONCAT&sources=/names/two",
        "POST /names/one?op=CONCAT&sources=/names/two,/names/three",
        "GET /names/one?op=GETFILESTATUS",
        "GET /names?op=LISTSTATUS",
    ])?;
    let together = [content(1, BLOCK), content(2, BLOCK), content(3, 700)].concat();
    transcript.read("GET /names/one?op=OPEN", &together)
}

fn cut(transcript: &mut Transcript) -> Result<()> {
    let long = content(4, LONG);
    transcript.ask_all(&[
        "! POST /names/long?op=TRUNCATE&newlength=99999999",
        "! POST /names/none?op=TRUNCATE&newlength=1",
        "! POST /names/c?op=TRUNCATE&newlength=1",
        "! mallory POST /names/long?op=TRUNCATE&newlength=1",
        // At a block boundary it is done at once; elsewhere the last block must be recovered.
        "POST /names/long?op=TRUNCATE&newlength=1048576",
        "GET /names/long?op=GETFILESTATUS",
    ])?;
    transcript.read("GET /names/long?op=OPEN", &long[..BLOCK])?;
    transcript.ask("POST /names/long?op=TRUNCATE&newlength=1001")?;
    transcript.wait_closed("/names/long")?;
    transcript.ask("GET /names/long?op=GETFILESTATUS")?;
    transcript.read("GET /names/long?op=OPEN", &long[..1001])
}
