//! What a program hears of calls that are tried again. In a process of its own, which has one listener.

use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::time::Duration;

use hearth_client::process::on_retry;
use hearth_client::{Configuration, ErrorKind, FileSystem};
use hearth_testkit::free_port;

const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn waiting_user_hears_what_is_tried_again() {
    let (sender, notices) = channel();
    let sender = std::sync::Mutex::new(sender);
    assert!(on_retry(move |sentence| sender.lock().unwrap().send(sentence.to_owned()).unwrap()));
    assert!(!on_retry(|_| panic!("the first one stays")));

    // A port on which nothing listens.
    let free = format!("127.0.0.1:{}", free_port());
    let configuration = Configuration::empty()
        .with("fs.defaultFS", format!("hdfs://{free}"))
        .with("ipc.client.connect.max.retries", "2")
        .with("ipc.client.connect.retry.interval", "10");
    let fs = FileSystem::connect(&configuration, None, "ada").unwrap();
    let error = fs.status("/").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let said: Vec<String> = notices.try_iter().collect();
    let expected =
        format!("the NameNode at {free} does not answer (connection refused): trying again every 10ms, 2 times");
    assert_eq!(said, [expected.clone(), expected]);

    // A server that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let configuration = Configuration::empty().with("fs.defaultFS", format!("hdfs://{address}"));
    let fs = FileSystem::connect(&configuration, None, "ada").unwrap();
    let call = tokio::spawn(async move { fs.status("/").await });
    let said = tokio::task::spawn_blocking(move || notices.recv_timeout(PATIENCE)).await.unwrap().unwrap();
    assert_eq!(said, format!("the NameNode at {address} has not answered getFileInfo for 5s: still waiting"));
    call.abort();
}
