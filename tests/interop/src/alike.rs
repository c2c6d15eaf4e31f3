//! Output of command lines, made comparable.

use std::process::Output;

use anyhow::Result;
use hearth_testkit::Driver;
use serde_json::{Value, json};

/// Runs one of Apache's tools in a Java driver. Returns its exit code, its output by lines, and its error output.
/// `local`: a directory of this machine whose name is masked.
pub fn tool_said(java: &mut Driver, class: &str, arguments: &[String], local: &str) -> Result<Value> {
    let answer = java.call("tool", json!({"class": class, "arguments": arguments}))?;
    let said = |part: &str| alike(&answer[part], local);
    // Error messages of Apache's server may contain a stack trace, after a line end.
    Ok(json!([answer["code"], said("out"), said("err").concat()]))
}

/// Returns the output of a Hearth program in the form of `tool_said`.
pub fn program_said(output: &Output, local: &str) -> Value {
    let said = |bytes: &[u8]| alike(&Value::from(String::from_utf8_lossy(bytes)), local);
    json!([output.status.code(), said(&output.stdout), said(&output.stderr).concat()])
}

/// Returns the lines without parts that differ between runs: log lines, times, durations, ports, names of local files.
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
    // `hdfs://127.0.0.1:4711/c`, `127.0.0.1:4711`, `localhost/127.0.0.1:4711`: the port differs between runs.
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find("127.0.0.1:") {
        let (before, after) = rest.split_at(at + "127.0.0.1:".len());
        out.push_str(before);
        out.push_str("PORT");
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    let out = out + rest;
    // `BP-1732300000-127.0.0.1-1732300000000:blk_1073741825_1001`: the ids depend on the number of earlier blocks.
    match (out.find("BP-"), out.find(":blk_")) {
        (Some(start), Some(end)) if start < end => {
            let behind = out[end + ":blk_".len()..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '_');
            format!("{}BLOCK{behind}", &out[..start])
        }
        _ => out,
    }
}
