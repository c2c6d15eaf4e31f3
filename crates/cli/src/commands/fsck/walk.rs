//! The report without the NameNode's `/fsck`: a walk over the files and the located blocks of each.

use hearth_client::{Error, ErrorKind, FileSystem};
use hearth_types::{FileKind, FileStatus, LocatedBlock};

use super::replicas::Replicas;
use super::report::Report;
use super::request::ReportOptions;
use crate::commands::fs::shown_name;

/// Checks everything below `path`, depth first.
pub async fn walk(fs: &FileSystem, path: &str, shown: &ReportOptions, report: &mut Report) -> Result<(), Error> {
    let status = fs.status(path).await?;
    visit(fs, path.to_owned(), &status, shown, report).await
}

async fn visit(
    fs: &FileSystem,
    path: String,
    status: &FileStatus,
    shown: &ReportOptions,
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
                // Removed during the walk.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    report.skip(&path, &error);
                    return Ok(());
                }
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
    shown: &ReportOptions,
    report: &mut Report,
) -> Result<(), Error> {
    let located = match fs.locations(path, 0, u64::MAX >> 1).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            report.skip(path, &error);
            return Ok(());
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            eprintln!("{path}: skipped: erasure-coded or encrypted");
            return Ok(());
        }
        located => located?,
    };
    if located.under_construction && !shown.open_files {
        report.open_files += 1;
        return Ok(());
    }
    // A block that is being written does not yet count as a problem.
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
    let findings = report.count_file(path, status.length, status.replication, &blocks);
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

fn block_line(index: usize, located: &LocatedBlock, shown: &ReportOptions) -> String {
    let block = &located.block;
    let mut line = format!("{index}. {block} len={}", block.length());
    let replicas = Replicas::of(located);
    if replicas.total() == 0 && !located.corrupt {
        line.push_str(" MISSING!");
        return line;
    }
    line.push_str(&format!(" Live_repl={}", replicas.live));
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

#[cfg(test)]
mod tests {
    use super::super::report::tests::{block, located};
    use super::*;

    #[test]
    fn block_line_shows_live_replicas() {
        use hearth_types::DatanodeAdminState::*;
        let of = |located: &LocatedBlock, shown: ReportOptions| block_line(0, located, &shown);
        let name = block(7);
        let leaving = located(7, &[Normal, Decommissioned, EnteringMaintenance], false);
        assert_eq!(of(&leaving, ReportOptions::default()), format!("0. {name} len=100 Live_repl=1"));
        assert_eq!(of(&located(7, &[], false), ReportOptions::default()), format!("0. {name} len=100 MISSING!"));
        // Like Apache's report, with the locations of the corrupt replicas.
        let corrupt = located(7, &[Normal], true);
        let shown = ReportOptions { locations: true, racks: true, ..ReportOptions::default() };
        assert_eq!(of(&corrupt, shown), format!("0. {name} len=100 Live_repl=0  [/default-rack/127.0.0.1:9866]"));
    }
}
