//! The data port with peers that send nothing, or do not finish their messages.

use std::time::Duration;

use hearth_wire::data_transfer::{Operation, PACKET_HEADER_BYTES_MAX, PacketHeader, Stage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{WAIT, Writer, block, content, open, read, read_on, read_request, write, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_dropped_at_limit() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let datanode = start_datanode(&namenode, dir.path(), &[("dfs.datanode.max.transfer.threads", "8")]).await;
    let good = block(1, 1001, 0);
    let data = content(100_000, 1);
    write(&datanode, &[], &good, &data).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(TcpStream::connect(datanode.addresses().transfer).await.unwrap());
    }
    assert_eq!(read(&datanode, &good, 0, None).await.unwrap(), data);
    let ended = tokio::time::timeout(WAIT, silent[0].read(&mut [0; 1])).await.expect("the idle connection is closed");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    // Connections that were served once stay open for the next operation, until other connections need their places.
    let mut quiet = Vec::new();
    for _ in 0..20 {
        let mut connection = open(datanode.addresses().transfer).await;
        assert_eq!(read_on(&mut connection, read_request(&good, 0, None)).await.unwrap(), data);
        quiet.push(connection);
    }
}

/// Begins to write a block in packets of 15 MiB, and sends half of the first.
async fn begin_long_packet(address: std::net::SocketAddr, id: i64) -> TcpStream {
    const DATA_BYTES: usize = 15 << 20;
    let request = write_request(&block(id, 1001, 0), Stage::PipelineSetupCreate, Vec::new());
    let header = PacketHeader { offset: 0, seqno: 0, last: false, data_bytes: DATA_BYTES as u32, sync: false };
    let mut head = [0; PACKET_HEADER_BYTES_MAX];
    let bytes = header.encode(DATA_BYTES / 512 * 4, &mut head);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&Operation::WriteBlock(Box::new(request)).encode()).await.unwrap();
    stream.write_all(&head[..bytes]).await.unwrap();
    // Sends the part that the DataNode accepts.
    let zeros = vec![0; DATA_BYTES / 2];
    let sent = stream.write_all(&zeros);
    let _ = tokio::time::timeout(Duration::from_secs(2), sent).await;
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_packets_share_limited_memory() {
    let namenode = FakeNamenode::start().await;
    let dir = scratch();
    let settings = [("hearth.datanode.packet.memory", "32m"), ("hearth.memory.limit", "256m")];
    let datanode = start_datanode(&namenode, dir.path(), &settings).await;
    let address = datanode.addresses().transfer;
    let mut hostile = Vec::new();
    for id in 0..4 {
        hostile.push(tokio::spawn(begin_long_packet(address, 10 + id)));
    }
    let mut held = Vec::new();
    for peer in hostile {
        held.push(peer.await.unwrap());
    }
    // Packets of the usual size need no memory of their own.
    let data = content(500_000, 2);
    let usual = block(1, 1001, 0);
    tokio::time::timeout(WAIT, write(&datanode, &[], &usual, &data)).await.expect("it is written");
    assert_eq!(read(&datanode, &usual, 0, None).await.unwrap(), data);
    // A long packet waits until the others have exceeded their time limit.
    let long = block(2, 1001, 0);
    let request = write_request(&long, Stage::PipelineSetupCreate, Vec::new());
    let first = content(4 << 20, 3);
    let writing = async {
        let mut writer = Writer::new(address, request).await;
        writer.send(&first, false).await;
        let ack = writer.ack().await;
        assert!(ack.is_success(), "{ack:?}");
        writer.finish(&[], 1).await;
    };
    tokio::time::timeout(WAIT, writing).await.expect("it is written");
    assert_eq!(read(&datanode, &long, 0, None).await.unwrap(), first);
}
