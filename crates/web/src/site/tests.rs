use std::net::SocketAddr;

use hearth_testkit::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use super::data::DATA_MAX;
use super::pages::RENDERING_MAX;
use super::routes::REQUESTS_MAX;
use super::*;

const WAIT: Duration = Duration::from_secs(60);

async fn fetch(address: SocketAddr, path: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_site_answers_its_pages() {
    let entry = ConfEntry {
        key: "fs.defaultFS".into(),
        value: "hdfs://a&b".into(),
        is_final: false,
        source: "core-site.xml".into(),
    };
    let site = Site::new(
        || "<h1>front</h1>".to_string(),
        || vec![Bean::new("Hadoop:service=NameNode,name=FSNamesystemState").with("FSState", "Operational")],
        move || vec![entry.clone()],
        || vec![Metric::counter("hearth_reads", "Reads", 7), Metric::gauge("hearth_files", "Files", 5)],
    )
    .page("/fsck", |query: Query, peer, telling: TextSender| async move {
        telling.send(format!("path {} from {peer}", query["path"])).await
    });
    let server = site.serve("127.0.0.1:0").await.unwrap();
    assert!(fetch(server.address(), "/").await.contains("<h1>front</h1>"));
    assert!(fetch(server.address(), "/jmx?qry=*:*").await.contains("Operational"));
    assert!(!fetch(server.address(), "/jmx?qry=none:*").await.contains("Operational"));
    assert!(fetch(server.address(), "/jmx?qry=none").await.starts_with("HTTP/1.1 400"));
    let get = "/jmx?get=Hadoop:name=FSNamesystemState,service=NameNode::";
    assert!(fetch(server.address(), &format!("{get}FSState")).await.contains("Operational"));
    assert!(fetch(server.address(), &format!("{get}None")).await.starts_with("HTTP/1.1 404"));
    assert!(fetch(server.address(), "/conf").await.contains("hdfs://a&amp;b"));
    assert!(fetch(server.address(), "/conf?name=none").await.starts_with("HTTP/1.1 404"));
    let stacks = fetch(server.address(), "/stacks").await;
    assert!(stacks.contains("content-type: text/plain; charset=utf-8") && stacks.contains(" threads:\n"), "{stacks}");
    assert!(fetch(server.address(), "/fsck?path=%2Fa+b").await.contains("path /a b from 127.0.0.1"));
    for wrong in ["%zz", "%2", "%+f", "%ff"] {
        let answer = fetch(server.address(), &format!("/fsck?path={wrong}")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{wrong}: {answer}");
    }
    assert!(fetch(server.address(), &format!("/jmx?qry={}", "a".repeat(9000))).await.starts_with("HTTP/1.1 414"));
    let metrics = fetch(server.address(), "/metrics").await;
    assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{metrics}");
    for line in ["hearth_reads_total 7", "# TYPE hearth_files gauge", "hearth_files 5", "hearth_build_info{version="] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(fetch(server.address(), "/prom").await.contains("\nhearth_reads_total 7\n"));
    assert!(fetch(server.address(), "/none").await.starts_with("HTTP/1.1 404"));
}

/// Sends a request with these lines in its head, and returns the answer.
async fn send(address: SocketAddr, head: &str) -> String {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    socket.write_all(format!("{head}\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn site_with_interface_serves_its_files_and_redirects() {
    let protection = Protection::read(&hearth_config::Configuration::empty(), "x", Server::Namenode).unwrap();
    let site = Site::new(|| "<h1>front</h1>".to_string(), Vec::new, Vec::new, Vec::new)
        .interface(Server::Namenode)
        .protection(protection)
        .data("/ui/told", |query: Query, peer| async move {
            match query.get("fails") {
                None => Ok(serde_json::json!({ "a": query["a"], "peer": peer.to_string() })),
                Some(why) => Err(webhdfs::Exception::new("java.io.FileNotFoundException", why.as_str())),
            }
        })
        .put("/ui/told", |query: Query, _| async move { Ok(serde_json::json!({ "put": query["a"] })) })
        .delete("/ui/told", |_, _| async { Ok(serde_json::json!("deleted")) })
        .public_data("/ui/public", |_, _| async { Ok(Value::Null) })
        .document("/topology", |headers| match headers.get("accept") {
            Some(_) => Document::json(&Value::Null),
            None => Document::text("Rack: /a\n"),
        });
    let server = site.serve("127.0.0.1:0").await.unwrap();
    let address = server.address();
    let page = fetch(address, "/").await;
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<script type=\"module\" src=\"/ui/namenode.js\">"));
    for header in [
        "content-type: text/html; charset=utf-8\r\n",
        "content-security-policy: default-src 'none'; script-src 'self'; ",
        "x-frame-options: SAMEORIGIN\r\n",
        "x-content-type-options: nosniff\r\n",
        "cache-control: no-cache\r\n",
    ] {
        assert!(page.contains(header), "{header} in {page}");
    }
    assert!(fetch(address, "/ui/style.css").await.contains("\r\ncontent-type: text/css; charset=utf-8\r\n"));
    assert!(fetch(address, "/ui/datanode.js").await.starts_with("HTTP/1.1 404"));
    assert!(fetch(address, "/plain").await.contains("<h1>front</h1>"));
    for (from, to) in [("/dfshealth.html", "/"), ("/explorer.html", "/?page=files"), ("/index.html", "/")] {
        let answer = fetch(address, from).await;
        assert!(answer.starts_with("HTTP/1.1 302") && answer.contains(&format!("\r\nlocation: {to}\r\n")), "{answer}");
    }

    let told = fetch(address, "/ui/told?a=%3Cb%3E").await;
    assert!(told.contains("\r\ncache-control: no-store\r\n") && !told.contains("access-control"), "{told}");
    assert!(told.ends_with("{\"a\":\"<b>\",\"peer\":\"127.0.0.1\"}"), "{told}");
    let refused = fetch(address, "/ui/told?fails=gone").await;
    assert!(refused.starts_with("HTTP/1.1 404") && refused.contains("\"message\":\"gone\""), "{refused}");
    let public = fetch(address, "/ui/public").await;
    assert!(public.contains("\r\naccess-control-allow-origin: *\r\n") && public.ends_with("null"), "{public}");
    assert!(fetch(address, "/topology").await.ends_with("\r\n\r\nRack: /a\n"));
    assert!(send(address, "GET /topology HTTP/1.1\r\nAccept: application/json").await.ends_with("\r\n\r\nnull"));

    // Changes have the path of the page, and are guarded.
    assert!(send(address, "PUT /ui/told?a=1 HTTP/1.1").await.ends_with("{\"put\":\"1\"}"));
    assert!(send(address, "DELETE /ui/told HTTP/1.1\r\nOrigin: http://x").await.ends_with("\"deleted\""));
    for method in ["PUT", "DELETE"] {
        let refused = send(address, &format!("{method} /ui/told?a=1 HTTP/1.1\r\nOrigin: http://evil.example")).await;
        assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("AccessControlException"), "{refused}");
    }
    assert!(send(address, "POST /ui/told HTTP/1.1").await.starts_with("HTTP/1.1 405"));

    // WebHDFS is guarded, too, and answers to unknown paths have the headers.
    let request = "DELETE /webhdfs/v1/a?op=DELETE HTTP/1.1\r\nOrigin: ";
    let refused = send(address, &format!("{request}http://evil.example")).await;
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("AccessControlException"), "{refused}");
    let passed = send(address, &format!("{request}http://x")).await;
    assert!(passed.contains("UnsupportedOperationException"), "{passed}");
    assert!(fetch(address, "/none").await.contains("\r\nx-content-type-options: nosniff\r\n"));
}

#[tokio::test]
async fn head_does_not_make_a_file() {
    let site = Site::new(String::new, Vec::new, Vec::new, Vec::new)
        .file("/file", |_| async { Err(Refusal { status: 410, text: "made".to_owned() }) });
    let server = site.serve("127.0.0.1:0").await.unwrap();
    assert!(fetch(server.address(), "/file").await.starts_with("HTTP/1.1 410"));
    let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    socket.write_all(b"HEAD /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
}

#[tokio::test]
async fn late_data_pages_get_503() {
    let mut site = Site::new(String::new, Vec::new, Vec::new, Vec::new);
    site.request_timeout = Duration::from_millis(300);
    let site = site
        .data("/ui/late", |_, _| async { std::future::pending().await })
        .data("/ui/prompt", |_, _| async { Ok(Value::Null) });
    let server = site.serve("127.0.0.1:0").await.unwrap();
    let address = server.address();
    // One request more than run at a time waits. A request for another page does not.
    let late: Vec<_> = (0..=DATA_MAX).map(|_| tokio::spawn(async move { fetch(address, "/ui/late").await })).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(fetch(address, "/ui/prompt").await.starts_with("HTTP/1.1 200"));
    for late in late {
        assert!(late.await.unwrap().starts_with("HTTP/1.1 503"));
    }
}

#[tokio::test]
async fn blocking_page_does_not_delay_other_pages() {
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let beans = move || {
        // Blocks until the sender is dropped.
        let _ = wait.lock().unwrap().recv();
        vec![Bean::new("Hadoop:service=NameNode,name=FSNamesystemState")]
    };
    let mut site = Site::new(String::new, beans, Vec::new, Vec::new);
    site.request_timeout = Duration::from_millis(300);
    let server = site.serve("127.0.0.1:0").await.unwrap();
    // One request more than there are threads.
    for _ in 0..=RENDERING_MAX {
        assert!(fetch(server.address(), "/jmx").await.starts_with("HTTP/1.1 503"));
    }
    // Waiting requests, however many, do not delay other pages either.
    let address = server.address();
    let waiting: Vec<_> =
        (0..=REQUESTS_MAX).map(|_| tokio::spawn(async move { fetch(address, "/jmx").await })).collect();
    assert!(fetch(server.address(), "/conf").await.starts_with("HTTP/1.1 200"));
    for waited in waiting {
        assert!(waited.await.unwrap().starts_with("HTTP/1.1 503"));
    }
    drop(go_on);
    until("the places to be given back", async || fetch(server.address(), "/jmx").await.starts_with("HTTP/1.1 200"))
        .await;
}

#[tokio::test]
async fn disabled_webhdfs_is_refused_with_an_exception() {
    let server = Site::new(String::new, Vec::new, Vec::new, Vec::new).serve("127.0.0.1:0").await.unwrap();
    for asked in [
        "GET /webhdfs/v1/?op=LISTSTATUS",
        "GET /webhdfs/v1?op=LISTSTATUS",
        "PUT /webhdfs/v1/user/ann/a%20b?op=CREATE&overwrite=true",
        "DELETE /webhdfs/v1/tmp?op=DELETE",
    ] {
        let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        // Announce a body and never send it.
        let request = format!("{asked} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let answer = read_until(&mut socket, "}}").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 ") && head.contains("application/json"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        let refused = &body["RemoteException"];
        assert_eq!(refused["exception"], "UnsupportedOperationException");
        assert_eq!(refused["javaClassName"], "java.lang.UnsupportedOperationException");
        assert!(refused["message"].as_str().unwrap().contains("use hdfs://"));
    }
    assert!(fetch(server.address(), "/webhdfs/v2/").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn early_requests_are_answered_once_served() {
    let is_ready = Arc::new(std::sync::OnceLock::<&str>::new());
    let ready = is_ready.clone();
    let front = move || ready.get().copied().unwrap_or("requested too early").to_owned();
    let bound = Site::new(front, Vec::new, Vec::new, Vec::new).bind("127.0.0.1:0").await.unwrap();
    let address = bound.address();
    let asking = tokio::spawn(async move { fetch(address, "/").await });
    // Time for the kernel to deliver the request, and for the site to answer it by mistake.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!asking.is_finished());
    is_ready.set("what the address is needed for").unwrap();
    let server = bound.serve();
    assert_eq!(server.address(), address);
    assert!(asking.await.unwrap().ends_with("what the address is needed for"));
}

#[tokio::test]
async fn other_http_versions_are_refused() {
    let server = Site::new(String::new, Vec::new, Vec::new, Vec::new).serve("127.0.0.1:0").await.unwrap();
    let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    // The start of HTTP/2 without TLS, and an empty frame of settings.
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut answer = Vec::new();
    // A reset of the connection is also a refusal.
    let _ = tokio::time::timeout(WAIT, socket.read_to_end(&mut answer)).await.expect("the connection ends");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
}

#[tokio::test]
async fn slow_request_head_times_out() {
    let mut site = Site::new(String::new, Vec::new, Vec::new, Vec::new);
    site.timeouts.header = Duration::from_millis(300);
    let server = site.serve("127.0.0.1:0").await.unwrap();
    let (mut reading, mut writing) = tokio::net::TcpStream::connect(server.address()).await.unwrap().into_split();
    let asking = tokio::spawn(async move {
        let mut sent = writing.write_all(b"GET / HTTP/1.1\r\nHost: ").await;
        while sent.is_ok() {
            // The pace of a slow client.
            tokio::time::sleep(Duration::from_millis(20)).await;
            sent = writing.write_all(b"x").await;
        }
    });
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(WAIT, reading.read_to_end(&mut answer)).await.expect("the connection ends");
    assert!(answer.is_empty(), "{answer:?}");
    asking.abort();
}

#[tokio::test]
async fn slow_receipt_of_a_complete_page_times_out() {
    const WHOLE: usize = 64 << 20;
    let mut site = Site::new(|| "x".repeat(WHOLE), Vec::new, Vec::new, Vec::new);
    site.timeouts.answer = Duration::from_millis(300);
    let server = site.serve("127.0.0.1:0").await.unwrap();
    // If this process stalls before it begins to answer, no data arrives. Then retry.
    for _ in 0..20 {
        let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        socket.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let (mut taken, mut bytes) = (0, vec![0; 16 << 10]);
        // Read a little at a time, so that there is traffic.
        for _ in 0..60 {
            taken += socket.read(&mut bytes).await.unwrap();
            // The pace of a slow client.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Only the data in the buffers of the two sockets arrives.
        while let Ok(count) = socket.read(&mut bytes).await
            && count > 0
        {
            taken += count;
        }
        assert!(taken < WHOLE, "{taken}");
        if taken > 0 {
            return;
        }
    }
    panic!("no data of the page arrives");
}

/// Starts a site with a single page at `/told` and these time-outs in milliseconds.
async fn told<A>(limits_ms: [u64; 2], page: impl Fn(TextSender) -> A + Send + Sync + 'static) -> WebServer
where
    A: Future<Output = Result<(), Disconnected>> + Send + 'static,
{
    let mut site = Site::new(String::new, Vec::new, Vec::new, Vec::new);
    [site.request_timeout, site.idle_timeout] = limits_ms.map(Duration::from_millis);
    site.page("/told", move |_, _, telling| page(telling)).serve("127.0.0.1:0").await.unwrap()
}

async fn ask(server: &WebServer, version: &str) -> tokio::net::TcpStream {
    let mut socket = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    socket.write_all(format!("GET /told HTTP/{version}\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    socket
}

/// Reads until the text contains `end`.
async fn read_until(socket: &mut tokio::net::TcpStream, end: &str) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.contains(end) {
        let count = socket.read(&mut bytes).await.unwrap();
        assert_ne!(count, 0, "no {end} in {text}");
        text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    text
}

#[tokio::test]
async fn streamed_page_may_outlast_the_request_timeout() {
    // The page continues only after the client has read: the second line is never written before the first has
    // arrived.
    let heard = Arc::new(Semaphore::new(0));
    let lines = heard.clone();
    let server = told([400, 10_000], move |telling| {
        let lines = lines.clone();
        async move {
            for line in 0..8 {
                telling.send(format!("line {line}\n")).await?;
                lines.acquire().await.unwrap().forget();
                // The work for a line: that for all lines exceeds the time-out.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            telling.send("the end".to_owned()).await
        }
    })
    .await;
    let mut socket = ask(&server, "1.0").await;
    for line in 0..8 {
        read_until(&mut socket, &format!("line {line}\n")).await;
        heard.add_permits(1);
    }
    assert!(read_until(&mut socket, "the end").await.ends_with("the end"));
    assert_eq!(socket.read(&mut [0]).await.unwrap(), 0);
}

#[tokio::test]
async fn page_detects_a_disconnected_client() {
    let (sender, mut ended) = tokio::sync::mpsc::channel(1);
    let server = told([60_000, 90_000], move |telling| {
        let sender = sender.clone();
        async move {
            telling.send("first".to_owned()).await?;
            // It has no more text and checks the connection with empty writes.
            while telling.send(String::new()).await.is_ok() {
                // The pace of the checks.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            sender.send(()).await.unwrap();
            Err(Disconnected)
        }
    })
    .await;
    let mut socket = ask(&server, "1.1").await;
    read_until(&mut socket, "first").await;
    assert!(ended.try_recv().is_err());
    drop(socket);
    tokio::time::timeout(WAIT, ended.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn stalled_client_gets_a_truncated_page() {
    const MOST: usize = 256 << 20;
    let (sender, mut said) = tokio::sync::mpsc::channel(1);
    let server = told([300, 60_000], move |telling| {
        let sender = sender.clone();
        async move {
            let mut said = 0;
            while said < MOST && telling.send("x".repeat(64 << 10)).await.is_ok() {
                said += 64 << 10;
            }
            sender.send(said).await.unwrap();
            Err(Disconnected)
        }
    })
    .await;
    let mut socket = ask(&server, "1.1").await;
    // Only the data that fits into the buffers of the two sockets is accepted.
    let said = tokio::time::timeout(WAIT, said.recv()).await.unwrap().unwrap();
    assert!(said < MOST);
    let mut answer = Vec::new();
    // A reset of the connection also shows that the page is incomplete.
    let _ = socket.read_to_end(&mut answer).await;
    assert!(answer.starts_with(b"HTTP/1.1 200") && !answer.ends_with(b"\r\n0\r\n\r\n"));
}

#[tokio::test]
async fn late_pages_get_503_and_failed_pages_500() {
    let late = told([100, 60_000], |telling| async move {
        std::future::pending::<()>().await;
        telling.send("late".to_owned()).await
    });
    read_until(&mut ask(&late.await, "1.0").await, " 503 ").await;
    let broken = told([20_000, 60_000], |_| async { Err(Disconnected) });
    read_until(&mut ask(&broken.await, "1.0").await, " 500 ").await;
    let empty = told([20_000, 60_000], |_| async { Ok(()) });
    read_until(&mut ask(&empty.await, "1.0").await, " 200 ").await;
}
