//! File contents: requests that go first to the NameNode and then to a DataNode.

use anyhow::Result;
use hearth_interop::Session;
use hearth_testkit::{Content, HttpBody};

use crate::BLOCK;
use crate::transcript::Transcript;

pub fn in_two_steps(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "files", two_steps)
}

fn two_steps(transcript: &mut Transcript) -> Result<()> {
    let mut content = Content::new(40).bytes(0, 2 * BLOCK + 1000);
    transcript.ask("PUT /files?op=MKDIRS")?;
    created(transcript, &content)?;
    opened(transcript, &content)?;
    appended(transcript, &mut content)?;
    summed_up(transcript)?;
    oddly_named(transcript)?;
    transcript.ask("GET /files?op=LISTSTATUS").map(drop)
}

fn created(transcript: &mut Transcript, content: &[u8]) -> Result<()> {
    let none = HttpBody::Whole(&[]);
    transcript.ask_both("PUT /files/whole?op=CREATE", HttpBody::Whole(content), false)?;
    transcript.ask_both("PUT /files/chunks?op=CREATE&overwrite=true", HttpBody::Chunked(content, 10_000), false)?;
    // As curl sends large bodies.
    let small_blocks = "PUT /files/asked?op=CREATE&permission=640&replication=1&blocksize=262144";
    transcript.ask_both(small_blocks, HttpBody::Whole(&content[..600_001]), true)?;
    let asked_chunks = "PUT /files/asked-chunks?op=CREATE&buffersize=1000";
    transcript.ask_both(asked_chunks, HttpBody::Chunked(&content[..200_000], 70_000), true)?;
    transcript.ask_both("PUT /files/empty?op=CREATE", none, false)?;
    transcript.ask_both("PUT /files/deep/deeper/file?op=CREATE", HttpBody::Whole(b"first"), false)?;
    transcript.ask_both("PUT /files/deep/deeper/file?op=CREATE&overwrite=true", HttpBody::Whole(b"second"), false)?;
    transcript.ask_both("PUT /files/unmasked?op=CREATE&permission=600&unmaskedpermission=666", none, false)?;
    // `noredirect`: for scripts in a browser, which must not follow redirects automatically.
    transcript.ask_both("PUT /files/told?op=CREATE&noredirect=true", HttpBody::Whole(b"told"), false)?;
    transcript.ask_both("PUT /files/flagged?op=CREATE&createflag=CREATE&createparent=false", none, false)?;

    transcript.ask_both("! PUT /files/whole?op=CREATE", none, false)?;
    transcript.ask_both("! PUT /files/whole?op=CREATE&overwrite=false", none, false)?;
    transcript.ask_both("! PUT /files?op=CREATE&overwrite=true", none, false)?;
    transcript.ask_both("! PUT /files/whole/below?op=CREATE", none, false)?;
    transcript.ask_both("! PUT /files/none/file?op=CREATE&createparent=false", none, false)?;
    transcript.ask_both("! mallory PUT /files/hers?op=CREATE", none, false)?;
    transcript.ask_both("! mallory PUT /files/whole?op=CREATE&overwrite=true", none, false)?;
    transcript.ask_both("! - PUT /files/nobodys?op=CREATE", none, false)?;
    for path in ["whole", "chunks", "asked", "asked-chunks", "empty", "deep/deeper/file", "unmasked", "told", "flagged"]
    {
        transcript.ask(&format!("GET /files/{path}?op=GETFILESTATUS"))?;
    }
    Ok(())
}

fn opened(transcript: &mut Transcript, content: &[u8]) -> Result<()> {
    transcript.read("GET /files/whole?op=OPEN", content)?;
    transcript.read("GET /files/chunks?op=OPEN", content)?;
    transcript.read("GET /files/asked?op=OPEN", &content[..600_001])?;
    transcript.read("GET /files/asked-chunks?op=OPEN&buffersize=1000", &content[..200_000])?;
    transcript.read("GET /files/empty?op=OPEN", b"")?;
    transcript.read("GET /files/deep/deeper/file?op=OPEN", b"second")?;
    transcript.read("mallory GET /files/whole?op=OPEN&length=20", &content[..20])?;
    transcript.read("- GET /files/whole?op=OPEN&length=20", &content[..20])?;
    transcript.read("GET /files/whole?op=OPEN&noredirect=true&length=100", &content[..100])?;

    let end = content.len();
    let edges = [(0, 1), (1, 10), (511, 2), (BLOCK - 5, 10), (BLOCK, 513), (end - 1, 1), (end - 10, 1000)];
    for (offset, length) in edges {
        let line = format!("GET /files/whole?op=OPEN&offset={offset}&length={length}");
        transcript.read(&line, &content[offset..end.min(offset + length)])?;
    }
    transcript.read(&format!("GET /files/whole?op=OPEN&offset={}", 2 * BLOCK), &content[2 * BLOCK..])?;
    transcript.read("GET /files/asked?op=OPEN&offset=262143&length=262146", &content[262_143..262_143 + 262_146])?;
    transcript.ask_both("? GET /files/whole?op=OPEN&length=0", HttpBody::Absent, false)?;
    transcript.ask_both(&format!("? GET /files/whole?op=OPEN&offset={end}"), HttpBody::Absent, false)?;

    transcript.ask_both("! GET /files/whole?op=OPEN&offset=99999999", HttpBody::Absent, false)?;
    transcript.ask_both("! GET /files/none?op=OPEN", HttpBody::Absent, false)?;
    transcript.ask_both("! GET /files?op=OPEN", HttpBody::Absent, false)?;
    transcript.ask_both("! GET /files/whole/below?op=OPEN", HttpBody::Absent, false)?;
    transcript.ask_both("! mallory GET /files/asked?op=OPEN", HttpBody::Absent, false)?;
    Ok(())
}

fn appended(transcript: &mut Transcript, content: &mut Vec<u8>) -> Result<()> {
    let (none, more) = (HttpBody::Whole(&[]), Content::new(41).bytes(0, BLOCK));
    transcript.ask_both("POST /files/whole?op=APPEND", HttpBody::Whole(&more), false)?;
    transcript.ask_both("POST /files/whole?op=APPEND&buffersize=1000", HttpBody::Chunked(&more[..700], 512), true)?;
    transcript.ask_both("POST /files/whole?op=APPEND&noredirect=true", HttpBody::Whole(&more[..1]), false)?;
    transcript.ask_both("POST /files/whole?op=APPEND", none, false)?;
    transcript.ask_both("POST /files/empty?op=APPEND", HttpBody::Whole(b"no more"), false)?;
    for part in [&more[..], &more[..700], &more[..1]] {
        content.extend(part);
    }
    transcript.read("GET /files/whole?op=OPEN", content)?;
    transcript.read("GET /files/empty?op=OPEN", b"no more")?;
    transcript.ask("GET /files/whole?op=GETFILESTATUS")?;

    transcript.ask_both("! POST /files/none?op=APPEND", none, false)?;
    transcript.ask_both("! POST /files?op=APPEND", none, false)?;
    transcript.ask_both("! mallory POST /files/whole?op=APPEND", none, false)?;
    Ok(())
}

fn summed_up(transcript: &mut Transcript) -> Result<()> {
    transcript.ask_both("PUT /files/nothing?op=CREATE", HttpBody::Whole(&[]), false)?;
    for path in ["whole", "chunks", "asked", "asked-chunks", "deep/deeper/file", "nothing"] {
        transcript.ask_both(&format!("GET /files/{path}?op=GETFILECHECKSUM"), HttpBody::Absent, false)?;
    }
    transcript.ask_both("GET /files/chunks?op=GETFILECHECKSUM&noredirect=true", HttpBody::Absent, false)?;
    transcript.ask_both("! GET /files/none?op=GETFILECHECKSUM", HttpBody::Absent, false)?;
    transcript.ask_both("! GET /files?op=GETFILECHECKSUM", HttpBody::Absent, false)?;
    transcript.ask_both("! mallory GET /files/asked?op=GETFILECHECKSUM", HttpBody::Absent, false)?;
    Ok(())
}

/// `a b`, `ü`, `50%`, `a+b`, `a&b=c`, `#`: names that must be encoded in URLs.
fn oddly_named(transcript: &mut Transcript) -> Result<()> {
    transcript.ask("PUT /files/odd?op=MKDIRS")?;
    for name in ["a%20b", "%C3%BC", "50%25", "a+b", "a%26b%3Dc", "%23"] {
        transcript.create(&format!("/files/odd/{name}"), name.as_bytes())?;
        transcript.read(&format!("GET /files/odd/{name}?op=OPEN"), name.as_bytes())?;
        transcript.ask(&format!("GET /files/odd/{name}?op=GETFILESTATUS"))?;
    }
    transcript.ask_all(&[
        "GET /files/odd?op=LISTSTATUS",
        "PUT /files/odd/%C3%A4%20+?op=MKDIRS",
        "GET /files/odd?op=LISTSTATUS",
    ])
}

pub fn at_the_datanode(session: &mut Session) -> Result<()> {
    Transcript::compared(session, "datanode", |transcript| {
        let content = Content::new(42).bytes(0, 3000);
        transcript.ask("PUT /direct?op=MKDIRS")?;
        transcript.create("/direct/file", &content)?;
        for line in DIRECT {
            transcript.ask_datanode(line)?;
        }
        transcript.ask("GET /direct?op=LISTSTATUS").map(drop)
    })
}

const DIRECT: &[&str] = &[
    "GET /direct/file?op=OPEN&namenoderpcaddress=NAMENODE",
    "GET /direct/file?op=open&namenoderpcaddress=NAMENODE&offset=5&length=7",
    "GET /direct/file?op=GETFILECHECKSUM&namenoderpcaddress=NAMENODE",
    "- GET /direct/file?op=OPEN&namenoderpcaddress=NAMENODE",
    "!~ GET /direct/file?op=OPEN&namenoderpcaddress=NAMENODE&offset=99999999",
    "! GET /direct/none?op=OPEN&namenoderpcaddress=NAMENODE",
    "! GET /direct?op=OPEN&namenoderpcaddress=NAMENODE",
    // Parameters in the NameNode's redirects that are optional.
    "PUT /direct/bare?op=CREATE&namenoderpcaddress=NAMENODE",
    "! PUT /direct/bare?op=CREATE&namenoderpcaddress=NAMENODE",
    "PUT /direct/bare?op=CREATE&namenoderpcaddress=NAMENODE&overwrite=true&permission=600",
    "POST /direct/bare?op=APPEND&namenoderpcaddress=NAMENODE",
    "! mallory GET /direct/bare?op=OPEN&namenoderpcaddress=NAMENODE",
    "! mallory PUT /direct/hers?op=CREATE&namenoderpcaddress=NAMENODE",
    "! mallory POST /direct/file?op=APPEND&namenoderpcaddress=NAMENODE",
    // Parameters in them that are required.
    "!~ GET /direct/file?op=OPEN",
    "!~ PUT /direct/x?op=CREATE",
    // NameNode operations, unknown operations, and operations with another method.
    "!~ GET /direct?op=LISTSTATUS&namenoderpcaddress=NAMENODE",
    "!~ PUT /direct/d?op=MKDIRS&namenoderpcaddress=NAMENODE",
    "!~ GET /direct/file?op=NOTHING&namenoderpcaddress=NAMENODE",
    "!~ GET /direct/file?namenoderpcaddress=NAMENODE",
    "!~ POST /direct/file?op=OPEN&namenoderpcaddress=NAMENODE",
    "!~ GET /direct/file?op=CREATE&namenoderpcaddress=NAMENODE",
    "!~ DELETE /direct/file?op=DELETE&namenoderpcaddress=NAMENODE",
    // Invalid values.
    "!~ GET /direct/file?op=OPEN&namenoderpcaddress=NAMENODE&offset=-1",
    "!~ GET /direct/file?op=OPEN&namenoderpcaddress=NAMENODE&length=x",
    "!~ PUT /direct/x?op=CREATE&namenoderpcaddress=NAMENODE&replication=x",
    "!~ PUT /direct/x?op=CREATE&namenoderpcaddress=NAMENODE&permission=999",
];
