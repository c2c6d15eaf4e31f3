use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Writer, block, content, read, write, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};
use hearth_wire::data_transfer::{Operation, Stage};

/// Sends `bytes`, shuts down the sending side, and waits for the end of the connection.
async fn send_and_wait_for_end(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The DataNode may close the connection during the write.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "the connection hangs after {:02x?}", &bytes[..bytes.len().min(16)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_never_hang_or_stop_port() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    let good = block(1, 1001, 0);
    let data = content(100_000, 1);
    write(&datanode, &[], &good, &data).await;
    let addresses = datanode.addresses();

    let valid =
        Operation::WriteBlock(Box::new(write_request(&block(2, 1001, 0), Stage::PipelineSetupCreate, Vec::new())))
            .encode();
    let mut inputs: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        b"hrpc\x08\x00\x00".to_vec(),
        b"hrpc\x09\x00\x55".to_vec(),
        // Wrong version, an unknown operation, a message of 4 GiB.
        vec![0, 27, 81, 0],
        vec![0, 28, 1, 0],
        vec![0, 28, 127, 0],
        vec![0, 28, 81, 0xff, 0xff, 0xff, 0xff, 0x0f],
        vec![0, 28, 81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        // A frame of 2 GiB.
        [b"hrpc\x09\x00\x00".as_slice(), &[0x7f, 0xff, 0xff, 0xff]].concat(),
    ];
    for cut in 0..valid.len() {
        inputs.push(valid[..cut].to_vec());
    }
    for seed in 0..60 {
        let noise = content(1 + (seed as usize * 37) % 3000, seed + 100);
        inputs.push(noise.clone());
        // Random bytes in place of packets, and in place of a message.
        let mut request = write_request(&block(100 + seed as i64, 1001, 0), Stage::PipelineSetupCreate, Vec::new());
        request.pipeline_size = 1;
        inputs.push([Operation::WriteBlock(Box::new(request)).encode(), noise.clone()].concat());
        inputs.push([&[0, 28, 80 + (seed % 11) as u8, 0x40], noise.as_slice()].concat());
    }
    for address in [addresses.transfer, addresses.ipc, addresses.http] {
        for input in &inputs {
            send_and_wait_for_end(address, input).await;
        }
    }
    assert!(read(&datanode, &good, 0, None).await.unwrap() == data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_packets_close_connection() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[]).await;
    let data = content(2000, 1);
    for (id, (offset, checksums)) in
        [(5u64, 16usize), (600, 16), (0, 4), (0, 400), (1 << 40, 16)].into_iter().enumerate()
    {
        let block = block(10 + id as i64, 1001, 128 << 20);
        let mut writer =
            Writer::new(datanode.addresses().transfer, write_request(&block, Stage::PipelineSetupCreate, Vec::new()))
                .await;
        writer.offset = offset;
        writer.send_with(&data, &vec![0; checksums], false).await;
        let answer = tokio::time::timeout(Duration::from_secs(60), writer.receiver.receive_ack()).await.unwrap();
        assert!(answer.is_err() || !answer.unwrap().is_success());
    }
}
