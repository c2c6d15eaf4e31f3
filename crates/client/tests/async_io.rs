//! Tokio's I/O traits, streams and whole files, over every path to the servers of one machine.

use std::io::{ErrorKind, SeekFrom};
use std::time::Duration;

use futures_util::{FutureExt, TryStreamExt};
use hearth_client::{Bytes, CreateOptions, FileSystem};
use hearth_config::{Configuration, Environment};
use hearth_testkit::{Cluster, ClusterSpec, Content, Implementation, unshared_directory};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

type Outcome = anyhow::Result<()>;

const BLOCK: usize = 1 << 20;
/// Three blocks and a part of a packet.
const LENGTH: usize = 3 * BLOCK + 70_007;

fn cluster() -> (tempfile::TempDir, Cluster) {
    let directory = tempfile::Builder::new().prefix("hearth-io-").tempdir_in(unshared_directory()).unwrap();
    let spec = ClusterSpec::new(Implementation::Hearth, Implementation::Hearth).set("dfs.replication", 1);
    let cluster = spec.set("dfs.domain.socket.path", directory.path().join("dn_PORT").display()).start().unwrap();
    (directory, cluster)
}

fn client(cluster: &Cluster, paths: &str) -> FileSystem {
    let configuration = Configuration::load_dir(cluster.conf(), Environment::empty()).unwrap();
    FileSystem::builder()
        .configuration(configuration)
        .user(hearth_client::os_user_name())
        .block_size(BLOCK as u64)
        .set("hearth.client.paths", paths)
        // A small window, so that writes wait.
        .set("dfs.client.write.max-packets-in-flight", "4")
        .build()
        .unwrap()
}

fn content(length: usize) -> Vec<u8> {
    Content::new(5).bytes(0, length)
}

/// Runs `test` with a client of each path.
fn on_paths<F: Future<Output = Outcome>>(test: impl Fn(FileSystem) -> F) {
    let (_directory, cluster) = cluster();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for paths in ["packets", "local,packets"] {
        let outcome = runtime.block_on(test(client(&cluster, paths)));
        outcome.unwrap_or_else(|error| panic!("{paths}: {error:?}"));
    }
}

#[test]
fn files_are_copied_with_tokio() {
    on_paths(|fs| async move {
        let data = content(LENGTH);
        for (path, buffered) in [("/copy", false), ("/copy-buffered", true)] {
            let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
            let mut target = fs.create(path, options).await?.into_async_write();
            let copied = tokio::io::copy(&mut &data[..], &mut target).await?;
            anyhow::ensure!(copied == LENGTH as u64);
            target.shutdown().await?;
            // A second shutdown changes nothing, and a write is refused.
            target.shutdown().await?;
            target.flush().await?;
            anyhow::ensure!(target.write(b"more").await.is_err());
            anyhow::ensure!(fs.is_file_closed(path).await?);

            let mut source = fs.open(path).await?.into_async_read();
            let mut read = Vec::new();
            if buffered {
                tokio::io::copy_buf(&mut source, &mut read).await?;
            } else {
                source.read_to_end(&mut read).await?;
            }
            anyhow::ensure!(read == data, "{path}");
            anyhow::ensure!(source.read(&mut [0; 8]).await? == 0);
        }
        Ok(())
    });
}

#[test]
fn seeks_move_the_position() {
    on_paths(|fs| async move {
        let data = content(LENGTH);
        fs.write_all("/seek", &data).await?;
        let mut reader = fs.open("/seek").await?.into_async_read();
        for (to, at) in [
            (SeekFrom::Start(2_000_000), 2_000_000),
            (SeekFrom::Current(-10), 2_000_090),
            (SeekFrom::Current(1000), 2_001_190),
            (SeekFrom::End(-100), LENGTH - 100),
            (SeekFrom::Start(7), 7),
        ] {
            anyhow::ensure!(reader.seek(to).await? == at as u64, "{to:?}");
            let mut bytes = [0; 100];
            reader.read_exact(&mut bytes).await?;
            anyhow::ensure!(bytes[..] == data[at..at + 100], "{to:?}");
            anyhow::ensure!(reader.position() == at as u64 + 100);
        }
        for wrong in [SeekFrom::Start(LENGTH as u64 + 1), SeekFrom::End(1), SeekFrom::Current(-1000)] {
            let error = reader.seek(wrong).await.unwrap_err();
            anyhow::ensure!(error.kind() == ErrorKind::InvalidInput, "{error}");
        }
        // A refused seek has moved nothing.
        anyhow::ensure!(reader.read_u8().await? == data[107]);
        anyhow::ensure!(reader.seek(SeekFrom::End(0)).await? == LENGTH as u64);
        anyhow::ensure!(reader.read(&mut [0; 8]).await? == 0);
        let reader = reader.into_inner().await?;
        anyhow::ensure!(reader.position() == LENGTH as u64);
        Ok(())
    });
}

#[test]
fn dropped_calls_lose_no_bytes() {
    on_paths(|fs| async move {
        let data = content(LENGTH);
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        let mut writer = fs.create("/dropped", options).await?.into_async_write();
        let (mut written, mut dropped) = (0, 0);
        while written < LENGTH {
            let end = LENGTH.min(written + 50_000);
            // Polled once. A pending write is dropped, and takes no bytes.
            match writer.write(&data[written..end]).now_or_never() {
                Some(count) => written += count?,
                None => {
                    dropped += 1;
                    // Time for the cluster to take some.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }
        anyhow::ensure!(dropped > 0);
        while writer.shutdown().now_or_never().transpose()?.is_none() {
            // Time for the cluster to acknowledge some.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        let mut reader = fs.open("/dropped").await?.into_async_read();
        let mut read = Vec::new();
        let mut bytes = [0; 30_000];
        loop {
            match reader.read(&mut bytes).now_or_never() {
                Some(count) => match count? {
                    0 => break,
                    count => read.extend_from_slice(&bytes[..count]),
                },
                // Time for the cluster to send some.
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        anyhow::ensure!(read == data);

        // A dropped seek is completed by the next read, also if a read was dropped before it.
        let mut reader = fs.open("/dropped").await?.into_async_read();
        for start in [2_500_000, 10] {
            let _ = futures_util::poll!(std::pin::pin!(reader.seek(SeekFrom::Start(start))));
            let mut bytes = [0; 100];
            reader.read_exact(&mut bytes).await?;
            anyhow::ensure!(bytes[..] == data[start as usize..start as usize + 100], "{start}");
        }
        reader.seek(SeekFrom::Start(BLOCK as u64)).await?;
        let _ = reader.read_u8().now_or_never();
        anyhow::ensure!(reader.seek(SeekFrom::Start(50)).await? == 50);
        anyhow::ensure!(reader.read_u8().await? == data[50]);
        Ok(())
    });
}

#[test]
fn flushed_bytes_are_visible_to_readers() {
    on_paths(|fs| async move {
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        let mut writer = fs.create("/flushed", options).await?.into_async_write();
        writer.write_all(b"one\ntwo\n").await?;
        writer.flush().await?;
        writer.hflush().await?;
        let mut lines = fs.open("/flushed").await?.into_async_read().lines();
        anyhow::ensure!(lines.next_line().await?.as_deref() == Some("one"));
        anyhow::ensure!(lines.next_line().await?.as_deref() == Some("two"));
        anyhow::ensure!(lines.next_line().await?.is_none());
        writer.write_all(b"three\n").await?;
        writer.hsync().await?;
        anyhow::ensure!(fs.read_bytes("/flushed").await? == "one\ntwo\nthree\n");
        let writer = writer.into_inner().await?;
        anyhow::ensure!(writer.position() == 14);
        writer.close().await?;
        Ok(())
    });
}

#[test]
fn streams_and_ranges_are_bytes() {
    on_paths(|fs| async move {
        let data = content(LENGTH);
        fs.write_all("/bytes", &data).await?;
        fs.write_all("/empty", b"").await?;
        let mut reader = fs.open("/bytes").await?;
        reader.seek(10).await?;
        let pieces: Vec<Bytes> = reader.into_stream().try_collect().await?;
        anyhow::ensure!(pieces.concat() == data[10..]);
        anyhow::ensure!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= 1 << 20));
        anyhow::ensure!(fs.open("/empty").await?.into_stream().try_next().await?.is_none());

        anyhow::ensure!(fs.read_bytes("/bytes").await? == data);
        anyhow::ensure!(fs.read_bytes("/empty").await?.is_empty());
        for (start, end) in
            [(0, 10), (BLOCK - 5, BLOCK + 5), (LENGTH - 5, LENGTH + 5), (LENGTH + 1, LENGTH + 5), (9, 9)]
        {
            let bytes = fs.read_range("/bytes", start as u64..end as u64).await?;
            anyhow::ensure!(bytes == data[start.min(LENGTH)..end.min(LENGTH)], "{start}..{end}");
        }
        let missing = fs.read_bytes("/missing").await.unwrap_err();
        anyhow::ensure!(std::io::Error::from(missing).kind() == ErrorKind::NotFound);

        let view = fs.open("/bytes").await?.view(100, 1000).await?;
        let length = view.len();
        anyhow::ensure!(Bytes::from(view) == data[100..100 + length]);
        Ok(())
    });
}
