//! The adapter to the crate object_store: that crate's own suite, and what is special about HDFS.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use hearth_client::object_store::path::Path;
use hearth_client::object_store::{
    Error, GetOptions, GetRange, HdfsObjectStore, ObjectStore, ObjectStoreExt, PutMode, PutPayload, integration,
};
use hearth_client::{CreateOptions, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, eventually, skip_or_fail};

type Outcome = anyhow::Result<()>;

const BLOCK: usize = 1 << 20;

fn client(cluster: &Cluster) -> FileSystem {
    let configuration = Configuration::load_dir(cluster.conf(), Environment::empty()).unwrap();
    let builder = FileSystem::builder().configuration(configuration).user(hearth_client::os_user_name());
    builder.block_size(BLOCK as u64).build().unwrap()
}

/// Returns the cluster that the tests of this program share, because the start of two JVMs takes ten seconds of CPU time.
/// Its processes and directories end with this program.
fn shared(make: Implementation) -> Result<&'static Cluster, &'static anyhow::Error> {
    static APACHES: OnceLock<anyhow::Result<Cluster>> = OnceLock::new();
    static HEARTHS: OnceLock<anyhow::Result<Cluster>> = OnceLock::new();
    let started = match make {
        Implementation::Apache => &APACHES,
        Implementation::Hearth => &HEARTHS,
    };
    started.get_or_init(|| ClusterSpec::new(make, make).set("dfs.replication", 1).start()).as_ref()
}

/// Runs `test` on a store of each kind of cluster. Each test has paths of its own.
fn on_clusters<F: Future<Output = Outcome>>(test: impl Fn(HdfsObjectStore) -> F) {
    for make in [Implementation::Hearth, Implementation::Apache] {
        let cluster = match shared(make) {
            Ok(cluster) => cluster,
            Err(error) if make == Implementation::Apache => {
                skip_or_fail("object stores on Apache's servers", error);
                continue;
            }
            Err(error) => panic!("{error:#}"),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let outcome = runtime.block_on(test(HdfsObjectStore::new(client(cluster))));
        // A cluster prints its logs when it is dropped, which a shared one is not.
        outcome.unwrap_or_else(|error| panic!("{make:?}: {error:?}\n{}", cluster.log_tails()));
    }
}

#[test]
fn object_stores_own_suite_passes() {
    on_clusters(|store| async move {
        let of = |name: &str| store.clone().with_root(&format!("/suite/{name}"));
        integration::put_get_delete_list(&of("objects")).await;
        integration::list_with_offset_exclusivity(&of("offsets")).await;
        integration::get_opts(&of("conditions")).await;
        integration::put_opts(&of("puts"), false).await;
        integration::list_uses_directories_correctly(&of("directories")).await;
        integration::list_with_delimiter(&of("delimiters")).await;
        integration::rename_and_copy(&of("renames")).await;
        integration::copy_if_not_exists(&of("copies")).await;
        integration::copy_rename_nonexistent_object(&of("nothing")).await;
        integration::stream_get(&of("streams")).await;
        integration::multipart_out_of_order(&of("order")).await;
        integration::multipart_race_condition(&of("races"), true).await;
        let missing = integration::get_nonexistent_object(&of("missing"), None).await.unwrap_err();
        anyhow::ensure!(matches!(missing, Error::NotFound { .. }), "{missing}");
        Ok(())
    });
}

/// Names in a directory of HDFS, including temporary files.
async fn names(fs: &FileSystem, directory: &str) -> anyhow::Result<Vec<String>> {
    let entries = fs.list_all(directory).await?;
    Ok(entries.into_iter().map(|entry| String::from_utf8(entry.local_name).unwrap()).collect())
}

#[test]
fn objects_are_files_of_hdfs() {
    on_clusters(|store| async move {
        let (store, fs) = (store.clone().with_root("/warehouse"), store.file_system().clone());
        let data = Content::new(3).bytes(0, 9 * BLOCK + 1234);
        let location = Path::from("t/large");
        let put = store.put(&location, data.clone().into()).await?;
        anyhow::ensure!(fs.read_bytes("/warehouse/t/large").await? == data);

        // Files of others are objects, too.
        fs.write_all("/warehouse/t/other", b"other").await?;
        let listed: Vec<_> = store.list(None).try_collect().await?;
        let found: Vec<_> = listed.iter().map(|meta| (meta.location.as_ref(), meta.size)).collect();
        anyhow::ensure!(found == [("t/large", data.len() as u64), ("t/other", 5)], "{found:?}");
        let head = store.head(&location).await?;
        anyhow::ensure!(listed[0] == head && head.e_tag == put.e_tag);

        // Longer than one piece, so it comes as a stream.
        let options = GetOptions::new().with_range(Some(GetRange::Offset(1000)));
        let bytes = store.get_opts(&location, options).await?.bytes().await?;
        anyhow::ensure!(bytes == data[1000..]);
        let ranges = [0..10, 5..BLOCK as u64 + 5, data.len() as u64 - 7..data.len() as u64 + 100];
        let parts = store.get_ranges(&location, &ranges).await?;
        for (range, part) in ranges.iter().zip(parts) {
            anyhow::ensure!(part == data[range.start as usize..data.len().min(range.end as usize)], "{range:?}");
        }

        // Renames move directories, and make missing parents.
        store.rename_if_not_exists(&Path::from("t/other"), &Path::from("u/v/other")).await?;
        anyhow::ensure!(fs.read_bytes("/warehouse/u/v/other").await? == "other");
        let taken = store.rename_if_not_exists(&location, &Path::from("u/v/other")).await.unwrap_err();
        anyhow::ensure!(matches!(taken, Error::AlreadyExists { .. }), "{taken}");

        // Directories are not objects.
        let directory = Path::from("u/v");
        for error in [store.head(&directory).await.unwrap_err(), store.delete(&directory).await.unwrap_err()] {
            anyhow::ensure!(matches!(error, Error::NotFound { .. }), "{error}");
        }
        let below = store.get(&Path::from("t/large/x")).await.unwrap_err();
        anyhow::ensure!(matches!(below, Error::NotFound { .. }), "{below}");
        // Only puts leave something else than they began with: no temporary files.
        anyhow::ensure!(names(&fs, "/warehouse/t").await? == ["large"]);
        Ok(())
    });
}

#[test]
fn readers_see_whole_objects_only() {
    on_clusters(|store| async move {
        let (store, fs) = (store.clone().with_root("/readers"), store.file_system().clone());
        let location = Path::from("atomic/object");
        store.put(&location, "old".into()).await?;
        let mut upload = store.put_multipart(&location).await?;
        upload.put_part(PutPayload::from(vec![b'n'; 2 * BLOCK])).await?;
        anyhow::ensure!(store.get(&location).await?.bytes().await? == "old");
        anyhow::ensure!(names(&fs, "/readers/atomic").await?.len() == 2);
        anyhow::ensure!(store.list(None).try_collect::<Vec<_>>().await?.len() == 1);
        // A reader keeps the bytes of the object that it opened.
        let open = store.get(&location).await?;
        upload.complete().await?;
        anyhow::ensure!(store.get(&location).await?.bytes().await? == vec![b'n'; 2 * BLOCK]);
        drop(open);
        anyhow::ensure!(upload.complete().await.is_err());

        // An upload that is dropped leaves nothing behind.
        let mut upload = store.put_multipart(&location).await?;
        upload.put_part("lost".into()).await?;
        drop(upload);
        // Nor does a put that is dropped.
        let large = Bytes::from(vec![0; 8 * BLOCK]);
        let dropped = Path::from("atomic/dropped");
        let put = store.put(&dropped, large.into());
        let _ = tokio::time::timeout(Duration::from_millis(5), put).await;
        let is_clean = async || match names(&fs, "/readers/atomic").await {
            Ok(left) if left.iter().any(|name| name.starts_with('.')) => None,
            outcome => Some(outcome),
        };
        eventually("the end of temporary files", is_clean).await?;
        anyhow::ensure!(store.get(&location).await?.bytes().await?.len() == 2 * BLOCK);
        Ok(())
    });
}

#[test]
fn one_of_many_creators_wins() {
    on_clusters(|store| async move {
        let location = Path::from("log/00000000000000000001.json");
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..8u8 {
            let (store, location) = (store.clone(), location.clone());
            writers.spawn(async move {
                let outcome = store.put_opts(&location, vec![writer; 10].into(), PutMode::Create.into()).await;
                (writer, outcome)
            });
        }
        let mut winners = Vec::new();
        while let Some(joined) = writers.join_next().await {
            match joined? {
                (writer, Ok(_)) => winners.push(writer),
                (_, Err(Error::AlreadyExists { .. })) => {}
                (writer, Err(error)) => anyhow::bail!("writer {writer}: {error}"),
            }
        }
        anyhow::ensure!(winners.len() == 1, "{winners:?}");
        anyhow::ensure!(store.get(&location).await?.bytes().await? == vec![winners[0]; 10]);
        Ok(())
    });
}

#[test]
fn open_files_are_objects_of_their_visible_length() {
    on_clusters(|store| async move {
        let fs = store.file_system();
        let mut writer = fs.create("/open", CreateOptions::default()).await?;
        writer.write(&[7; 1000]).await?;
        writer.hflush().await?;
        let got = store.get(&Path::from("open")).await?;
        anyhow::ensure!(got.meta.size == 1000, "{:?}", got.meta);
        anyhow::ensure!(got.bytes().await? == vec![7; 1000]);
        writer.close().await?;
        Ok(())
    });
}
