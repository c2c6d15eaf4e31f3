//! Stores, lists and reads objects below a directory of HDFS:
//! `cargo run --example object_store --features object_store -- /directory`. Finds the cluster by HADOOP_CONF_DIR.

use hearth_client::FileSystem;
use hearth_client::object_store::path::Path;
use hearth_client::object_store::{HdfsObjectStore, ObjectStore, ObjectStoreExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args().nth(1).ok_or("usage: object_store DIRECTORY")?;
    let fs = FileSystem::builder().from_env().build()?;
    let store = HdfsObjectStore::new(fs).with_root(&root);
    let location = Path::from("numbers/one");
    store.put(&location, "1".into()).await?;
    for object in store.list_with_delimiter(Some(&Path::from("numbers"))).await?.objects {
        println!("{} bytes {}", object.size, object.location);
    }
    let bytes = store.get(&location).await?.bytes().await?;
    println!("{location}: {}", String::from_utf8_lossy(&bytes));
    store.delete(&location).await?;
    Ok(())
}
