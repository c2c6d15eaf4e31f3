//! Images of a running NameNode: over HTTP, and as regular backups.

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use hearth_config::to_xml;
use hearth_namenode::image::{ImageSource, digest};
use hearth_namenode::{FormatPolicy, Namenode, NamenodeOptions, import_directory};
use hearth_testkit::{HttpAnswer, HttpBody, HttpRequest, eventually};
use hearth_types::SystemClock;
use support::{TestNamenode, configuration};

const LATEST: &str = "/imagetransfer?getimage=1&txid=latest";

async fn get(n: &TestNamenode, target: &str) -> HttpAnswer {
    let (port, target) = (n.handle().http_address().port(), target.to_owned());
    let asked = tokio::task::spawn_blocking(move || {
        let request = HttpRequest { method: "GET", target: &target, body: HttpBody::Absent, expect_continue: false };
        request.send(port)
    });
    asked.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn image_has_headers_of_apaches_transfer() {
    let n = TestNamenode::start().await;
    n.mkdirs("/before").await.unwrap();
    let answer = get(&n, LATEST).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    assert!(answer.body.starts_with(b"HDFSIMG1"));
    let name = answer.header("x-image-edits-name").unwrap();
    assert!(name.starts_with("fsimage_"), "{name}");
    assert_eq!(answer.header("content-disposition"), Some(format!("attachment; filename={name}").as_str()));
    // The digest is that of the file.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("image");
    std::fs::write(&path, &answer.body).unwrap();
    let hex: String = digest(&path).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(answer.header("x-md5-digest"), Some(hex.as_str()));
    // The acknowledged directory is in it.
    assert!(answer.body.windows(6).any(|bytes| bytes == b"before"));
    // Nothing is left in the namespace's directory.
    let left: Vec<_> = std::fs::read_dir(n.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_and_malformed_requests_are_refused() {
    let n = TestNamenode::start().await;
    for (target, status) in [
        ("/imagetransfer", 400),
        ("/imagetransfer?getimage=1", 410),
        ("/imagetransfer?getimage=1&txid=5", 410),
        ("/imagetransfer?getedit=1&startTxId=1&endTxId=2", 410),
        ("/imagetransfer?getimage=1&txid=latest&storageInfo=-67:1:2:CID-other", 403),
    ] {
        assert_eq!(get(&n, target).await.status, status, "{target}");
    }
    let identity = n.handle().identity();
    let own = format!("-67:{}:{}:{}", identity.namespace_id, identity.created_ms, identity.cluster_id);
    assert_eq!(get(&n, &format!("{LATEST}&storageInfo={own}")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn regular_backups_begin_and_end_while_the_namenode_runs() {
    let place = tempfile::tempdir().unwrap();
    let (file, directory) = (place.path().join("hdfs-site.xml"), place.path().join("backups"));
    let write = |properties: &[(&str, &str)]| std::fs::write(&file, to_xml(properties.iter().copied())).unwrap();
    write(&[("hearth.namenode.backup.interval", "2h")]);
    let mut conf = configuration();
    conf.add_file(&file).unwrap();
    let n = TestNamenode::start_with(conf, Arc::new(SystemClock::new())).await;
    let reconfigure = async || {
        let namenode = n.handle().namenode().clone();
        tokio::task::spawn_blocking(move || namenode.reconfigure()).await.unwrap().unwrap();
    };
    let own = ("hearth.namenode.backup.dir", directory.to_str().unwrap());
    // The first backup would be due in two hours.
    write(&[own, ("hearth.namenode.backup.interval", "2h")]);
    reconfigure().await;
    write(&[own, ("hearth.namenode.backup.interval", "1"), ("hearth.namenode.backup.keep", "1")]);
    reconfigure().await;
    let finished = |path: &PathBuf| path.extension().is_none_or(|extension| extension != "part");
    let backup = || {
        let entries = std::fs::read_dir(&directory).into_iter().flatten();
        entries.filter_map(|entry| Some(entry.ok()?.path())).find(finished)
    };
    let first = eventually("a backup", async || backup()).await;
    eventually("the next backup", async || (!first.exists()).then_some(())).await;
    write(&[]);
    reconfigure().await;
    assert!(n.handle().namenode().backups.borrow().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn regular_backups_are_kept_and_restored() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("backups");
    let with = configuration()
        .with("hearth.namenode.backup.dir", directory.to_str().unwrap())
        .with("hearth.namenode.backup.interval", "2")
        .with("hearth.namenode.backup.keep", "2");
    let n = TestNamenode::start_with(with, Arc::new(SystemClock::new())).await;
    n.mkdirs("/kept/below").await.unwrap();
    let backups = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&directory).into_iter().flatten();
        let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        found.retain(|path| path.extension().is_none_or(|extension| extension != "part"));
        found.sort();
        found
    };
    let first = eventually("a backup", async || backups().first().cloned()).await;
    eventually("the first backup to be removed", async || (!first.exists()).then_some(())).await;
    eventually("two backups", async || (backups().len() >= 2).then_some(())).await;
    let identity = n.handle().identity().clone();
    let copy = place.path().join("copy");
    // Copied, because it is removed soon, perhaps before it is read here.
    let copied = || -> Option<ImageSource> {
        let newest = backups().pop()?;
        ImageSource::find(&newest).ok()?;
        let _ = std::fs::remove_dir_all(&copy);
        std::fs::create_dir(&copy).unwrap();
        for entry in std::fs::read_dir(newest.join("current")).ok()? {
            let path = entry.ok()?.path();
            std::fs::copy(&path, copy.join(path.file_name()?)).ok()?;
        }
        ImageSource::find(&copy).ok()
    };
    let source = eventually("a backup that stays long enough", async || copied()).await;
    assert_eq!(source.identity, identity);

    let options = NamenodeOptions {
        configuration: configuration(),
        user: "root".into(),
        host_name: "namenode".into(),
        clock: Arc::new(SystemClock::new()),
        format: FormatPolicy::Never,
        directory: Some(place.path().join("restored")),
        rpc_address: Some("127.0.0.1:0".into()),
        http_address: Some("127.0.0.1:0".into()),
        copier: None,
    };
    let imported = import_directory(&options, &copy).unwrap();
    assert_eq!((imported.identity, imported.inodes), (identity.clone(), 3));
    let refused = import_directory(&options, &copy).unwrap_err().to_string();
    assert!(refused.contains("already formatted"), "{refused}");
    let restored = Namenode::start(options).await.unwrap();
    assert_eq!(*restored.identity(), identity);
    assert!(restored.namenode().read().namespace.lookup("/kept/below").is_some());
}
