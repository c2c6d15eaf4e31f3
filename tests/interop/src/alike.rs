//! What command lines say, made comparable.

use std::process::Output;

use anyhow::Result;
use hearth_testkit::Driver;
use serde_json::{Value, json};

/// Runs a tool of Apache's in a driver of Java's: its exit code, what it said line by line, and what it complained of. `local`: a
/// directory of this machine whose name is not to be told.
pub fn tool_said(java: &mut Driver, class: &str, arguments: &[String], local: &str) -> Result<Value> {
    let answer = java.call("tool", json!({"class": class, "arguments": arguments}))?;
    let said = |part: &str| alike(&answer[part], local);
    // In what Apache's server complains of there may be a stack trace, with an end of a line before it.
    Ok(json!([answer["code"], said("out"), said("err").concat()]))
}

/// What a program of ours said, as `tool_said` tells it of Apache's.
pub fn program_said(output: &Output, local: &str) -> Value {
    let said = |bytes: &[u8]| alike(&Value::from(String::from_utf8_lossy(bytes)), local);
    json!([output.status.code(), said(&output.stdout), said(&output.stderr).concat()])
}

/// Line by line, without what differs from one run to the next: log lines, moments, durations, ports, names of this machine's files.
fn alike(text: &Value, local: &str) -> Vec<String> {
    let is_said = |line: &&str| {
        let line = line.trim_start();
        !line.is_empty()
            && !line.starts_with("at ")
            && !["INFO ", "WARN ", "DEBUG "].iter().any(|level| line.contains(level))
    };
    text.as_str()
        .unwrap_or_default()
        .replace(local, "LOCAL")
        .lines()
        .filter(is_said)
        .map(|line| match line.split_once(" at ") {
            Some((before, _)) if line.starts_with("FSCK ") => before.to_owned(),
            _ => line.split_whitespace().map(word_alike).collect::<Vec<_>>().join(" "),
        })
        .collect()
}

fn word_alike(word: &str) -> String {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    match shape.as_str() {
        "0000-00-00" => return "DAY".to_owned(),
        "00:00" => return "TIME".to_owned(),
        _ => {}
    }
    // `hdfs://127.0.0.1:4711/c`, `127.0.0.1:4711`, `localhost/127.0.0.1:4711`: the port is this run's.
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find("127.0.0.1:") {
        let (before, after) = rest.split_at(at + "127.0.0.1:".len());
        out.push_str(before);
        out.push_str("PORT");
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    let out = out + rest;
    // `BP-1732300000-127.0.0.1-1732300000000:blk_1073741825_1001`: how many were given up before is nobody's business.
    match (out.find("BP-"), out.find(":blk_")) {
        (Some(start), Some(end)) if start < end => {
            let behind = out[end + ":blk_".len()..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
            format!("{}BLOCK{behind}", &out[..start])
        }
        _ => out,
    }
}
