//! Prints a file of HDFS: `cargo run --example read -- /path`. Finds the cluster by HADOOP_CONF_DIR.

use std::io::Write;

use hearth_client::FileSystem;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: read PATH")?;
    let fs = FileSystem::builder().from_env().build()?;
    let mut reader = fs.open(&path).await?;
    let mut output = std::io::stdout();
    // The bytes are where they were received: no copy is made before the output.
    loop {
        let bytes = reader.next().await?;
        if bytes.is_empty() {
            break;
        }
        output.write_all(bytes)?;
        let count = bytes.len();
        reader.consume(count);
    }
    output.flush()?;
    Ok(())
}
