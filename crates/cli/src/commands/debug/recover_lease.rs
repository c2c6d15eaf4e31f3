//! `recoverLease`, `verifyEC`

use std::time::Duration;

use hearth_client::ErrorKind;
use hearth_types::FileKind;

use crate::commands::tool::{Tool, first_line, pop_value};

/// Pause between tries.
const PAUSE: Duration = Duration::from_secs(5);

pub async fn recover(tool: &Tool, mut words: Vec<String>) -> anyhow::Result<u8> {
    let path = pop_value("-path", &mut words)?;
    let retries = pop_value("-retries", &mut words)?;
    let Some(path) = path else {
        eprintln!("You must supply a -path argument to recoverLease.");
        return Ok(1);
    };
    let tries_max: u32 = match retries {
        None => 1,
        Some(text) => match text.parse() {
            Ok(tries) => tries,
            Err(_) => {
                let why = format!("java.lang.NumberFormatException: For input string: \"{text}\"");
                eprintln!("Failed to parse the argument to -retries: {why}");
                return Ok(1);
            }
        },
    };
    let (fs, there) = tool.fs_of(&path)?;
    let mut tries = 0;
    loop {
        tries += 1;
        match fs.recover_lease(there).await {
            Ok(true) => {
                println!("recoverLease SUCCEEDED on {path}");
                return Ok(0);
            }
            Ok(false) => eprintln!("recoverLease returned false."),
            Err(error) => {
                let is_missing = error.kind() == ErrorKind::NotFound;
                eprintln!("recoverLease got exception: {}", first_line(&error.into()));
                if is_missing {
                    eprintln!("Giving up on recoverLease for {path} after 1 try");
                    return Ok(1);
                }
            }
        }
        if tries >= tries_max {
            let word = if tries_max == 1 { "try" } else { "tries" };
            eprintln!("Giving up on recoverLease for {path} after {tries_max} {word}.");
            return Ok(1);
        }
        eprintln!("Retrying in {} ms...", PAUSE.as_millis());
        tokio::time::sleep(PAUSE).await;
        eprintln!("Retry #{tries}");
    }
}

pub async fn verify_erasure_coding(tool: &Tool, mut words: Vec<String>) -> anyhow::Result<u8> {
    let file = pop_value("-file", &mut words)?;
    let file = file.ok_or_else(|| anyhow::anyhow!("-file is missing"))?;
    let (fs, there) = tool.fs_of(&file)?;
    let status = match fs.status(there).await {
        Ok(status) => status,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("File {file} does not exist.");
            return Ok(1);
        }
        Err(error) => return Err(error.into()),
    };
    if status.kind != FileKind::File {
        eprintln!("File {file} is not a regular file.");
    } else if !fs.is_file_closed(there).await? {
        eprintln!("File {file} is not closed.");
    } else if status.erasure_coding_policy.is_none() {
        eprintln!("File {file} is not erasure coded.");
    } else {
        eprintln!("File {file} is erasure coded: this client cannot read it, use Apache's hdfs debug verifyEC.");
    }
    Ok(1)
}
