//! Lists a directory of HDFS: `cargo run --example list -- hdfs://host:port /path`. Reads nothing of the environment.

use hearth_client::{ErrorKind, FileKind, FileSystem, os_user_name};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, path] = &arguments[..] else { return Err("usage: list URL PATH".into()) };
    let fs = FileSystem::builder().url(url).user(os_user_name()).build()?;
    let mut listing = match fs.list(path).await {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(format!("{path} does not exist").into()),
        Err(error) => return Err(error.into()),
    };
    while let Some(entry) = listing.next().await? {
        let name = String::from_utf8_lossy(&entry.local_name);
        let mark = if entry.kind == FileKind::Directory { "/" } else { "" };
        println!("{:>14} {} {name}{mark}", entry.length, entry.owner);
    }
    Ok(())
}
