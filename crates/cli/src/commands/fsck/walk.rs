use hearth_client::{Error, ErrorKind, FileSystem};
use hearth_types::{FileKind, FileStatus, LocatedBlock};

use super::report::Report;
use crate::commands::fs::shown_name;

/// What is printed of each file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shown {
    pub files: bool,
    pub blocks: bool,
    pub locations: bool,
    pub racks: bool,
    pub open_files: bool,
}

/// Looks at everything below `path`, depth first.
pub async fn walk(fs: &FileSystem, path: &str, shown: &Shown, report: &mut Report) -> Result<(), Error> {
    let status = fs.status(path).await?;
    visit(fs, path.to_owned(), &status, shown, report).await
}

async fn visit(
    fs: &FileSystem,
    path: String,
    status: &FileStatus,
    shown: &Shown,
    report: &mut Report,
) -> Result<(), Error> {
    match status.kind {
        FileKind::Symlink => {
            report.symlinks += 1;
            Ok(())
        }
        FileKind::File => file(fs, &path, status, shown, report).await,
        FileKind::Directory => {
            report.directories += 1;
            if shown.files {
                println!("{path} <dir>");
            }
            let mut listing = match fs.list(&path).await {
                // Removed meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                listing => listing?,
            };
            while let Some(entry) = listing.next().await? {
                let name = shown_name(&entry.local_name);
                let below = if path == "/" { format!("/{name}") } else { format!("{path}/{name}") };
                Box::pin(visit(fs, below, &entry, shown, report)).await?;
            }
            Ok(())
        }
    }
}

async fn file(
    fs: &FileSystem,
    path: &str,
    status: &FileStatus,
    shown: &Shown,
    report: &mut Report,
) -> Result<(), Error> {
    let located = match fs.locations(path, 0, u64::MAX >> 1).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            eprintln!("{path}: erasure-coded or encrypted; passed over");
            return Ok(());
        }
        located => located?,
    };
    if located.under_construction && !shown.open_files {
        report.open_files += 1;
        return Ok(());
    }
    // The block that is being written is nobody's fault yet.
    let blocks: Vec<&LocatedBlock> = located
        .blocks
        .iter()
        .filter(|block| {
            located.last_block_complete
                || located.last_block.as_ref().is_none_or(|last| last.block.id() != block.block.id())
        })
        .collect();
    let open = if located.under_construction { ", OPENFORWRITE" } else { "" };
    if shown.files {
        print!(
            "{path} {} bytes, replicated: replication={}, {} block(s){open}: ",
            status.length,
            status.replication,
            blocks.len()
        );
    } else if located.under_construction {
        println!("{path} {} bytes, {} block(s){open}: ", status.length, blocks.len());
    }
    let findings = report.count_file(path, status, &blocks);
    if shown.files {
        if findings.is_empty() {
            println!(" OK");
        } else {
            println!();
        }
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    if shown.blocks {
        for (index, block) in blocks.iter().enumerate() {
            println!("{}", block_line(index, block, shown));
        }
        println!();
    }
    Ok(())
}

fn block_line(index: usize, located: &LocatedBlock, shown: &Shown) -> String {
    let block = &located.block;
    let mut line = format!("{index}. {block} len={}", block.length());
    if located.locations.is_empty() || located.corrupt {
        line.push_str(if located.corrupt { " CORRUPT!" } else { " MISSING!" });
        return line;
    }
    line.push_str(&format!(" Live_repl={}", located.locations.len()));
    if shown.locations {
        let places: Vec<String> = located
            .locations
            .iter()
            .enumerate()
            .map(|(at, datanode)| {
                if shown.racks {
                    return format!("{}/{}", datanode.location, datanode.id);
                }
                let storage = located.storage_ids.get(at).map(ToString::to_string).unwrap_or_default();
                let kind = located.storage_types.get(at).map_or("DISK", |kind| kind.name());
                format!("DatanodeInfoWithStorage[{},{storage},{kind}]", datanode.id)
            })
            .collect();
        line.push_str(&format!("  [{}]", places.join(", ")));
    }
    line
}
