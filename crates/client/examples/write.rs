//! Copies a local file to a new file of HDFS: `cargo run --example write -- FILE /path`. Finds the cluster by
//! HADOOP_CONF_DIR.

use hearth_client::{CreateOptions, FileSystem};
use tokio::io::AsyncWriteExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, path] = &arguments[..] else { return Err("usage: write FILE PATH".into()) };
    let mut source = tokio::fs::File::open(from).await?;
    let fs = FileSystem::builder().from_env().build()?;
    let options = CreateOptions { replication: Some(2), ..CreateOptions::default() };
    let mut writer = fs.create(path, options).await?.into_async_write();
    let bytes = tokio::io::copy(&mut source, &mut writer).await?;
    // The file is complete once it is shut down.
    writer.shutdown().await?;
    println!("{path}: {bytes} bytes");
    Ok(())
}
