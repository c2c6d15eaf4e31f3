//! `hearth fsck PATH`: the report of `hdfs fsck`, computed here from the located blocks of every file below the path.

mod replicas;
mod report;
mod walk;

use std::process::ExitCode;

use hearth_client::ErrorKind;

use super::generic_options::with_generic_options;
use report::Report;
use walk::{Shown, walk};

const USAGE_ERROR: u8 = 255;

const USAGE: &str =
    "Usage: hearth fsck <path> [-list-corruptfileblocks | [-openforwrite] [-files [-blocks [-locations | -racks]]]]
\t<path>\tstart checking from this path
\t-files\tprint out files being checked
\t-blocks\tprint out block report
\t-locations\tprint out locations for every block
\t-racks\tprint out network topology for data-node locations
\t-openforwrite\tprint out files opened for write
\t-list-corruptfileblocks\tprint out list of missing blocks and files they belong to
";

#[derive(clap::Args)]
pub struct FsckArguments {
    /// Generic options (-fs URI, -D key=value, -conf FILE), the path, and options of `hdfs fsck`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

pub fn run(arguments: FsckArguments) -> anyhow::Result<ExitCode> {
    crate::logging::start("error");
    super::end_with_closed_output();
    let (configuration, words) = with_generic_options(arguments.arguments)?;
    let mut shown = Shown::default();
    let mut path = None;
    let mut list_corrupt = false;
    for word in &words {
        match word.as_str() {
            "-files" => shown.files = true,
            "-blocks" => shown.blocks = true,
            "-locations" => shown.locations = true,
            "-racks" => (shown.locations, shown.racks) = (true, true),
            "-openforwrite" => shown.open_files = true,
            "-list-corruptfileblocks" => list_corrupt = true,
            // What they would add is there already.
            "-showprogress" | "-includeSnapshots" => {}
            option if option.starts_with('-') => {
                eprintln!("fsck: Illegal option '{option}'");
                eprint!("{USAGE}");
                return Ok(ExitCode::from(USAGE_ERROR));
            }
            word if path.is_none() => path = Some(word.to_owned()),
            word => {
                eprintln!("fsck: can only operate on one path at a time '{word}'");
                eprint!("{USAGE}");
                return Ok(ExitCode::from(USAGE_ERROR));
            }
        }
    }
    let path = path.unwrap_or_else(|| "/".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(async {
        let fs = crate::configuration::connect(&configuration, None)?;
        let path = fs.absolute(&path)?;
        match fs.status(&path).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!(
                    "FileSystem is inaccessible due to:\njava.io.FileNotFoundException: File does not exist: {path}"
                );
                println!("DFSck exiting.");
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        }
        let mut report = Report::start(&fs, path.clone(), !list_corrupt);
        walk(&fs, &path, &shown, &mut report).await?;
        anyhow::Ok(if list_corrupt { report.list_corrupt() } else { report.print(&fs).await? })
    });
    runtime.shutdown_background();
    Ok(ExitCode::from(code?))
}
