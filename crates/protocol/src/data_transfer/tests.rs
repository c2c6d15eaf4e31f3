use std::time::Duration;

use hearth_fabric::tcp::{Listener, SocketOptions};
use hearth_types::{Block, BlockId, BlockPoolId, ChecksumSpec, ExtendedBlock, GenerationStamp, Token};
use hearth_wire::data_transfer::*;

use super::*;

const WAIT: Duration = Duration::from_secs(60);

type Halves = (DataSender, DataReceiver);

async fn pair(buffer_bytes: usize) -> (Halves, Halves) {
    let timeouts = Timeouts { connect: WAIT, read: WAIT, write: WAIT };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), SocketOptions::default(), 16).unwrap();
    let (client, server) = tokio::join!(
        connect(listener.address(), None, SocketOptions::default(), buffer_bytes, timeouts),
        listener.accept()
    );
    (client.unwrap(), halves(server.unwrap(), buffer_bytes, timeouts))
}

fn read_request(length: u64) -> Operation {
    Operation::ReadBlock(ReadBlock {
        block: ExtendedBlock {
            pool: BlockPoolId::new("BP-1"),
            block: Block { id: BlockId(1), stamp: GenerationStamp(1001), length },
        },
        token: Token::default(),
        client_name: "test".into(),
        offset: 0,
        length: Some(length),
        send_checksums: true,
        caching: CachingStrategy::default(),
    })
}

#[tokio::test]
async fn a_read_from_request_to_status_and_again() {
    let ((client_out, mut client_in), (server_out, mut server_in)) = pair(20_000).await;
    let data: Vec<u8> = (0..300_000u32).map(|i| ((i * 13) >> 2) as u8).collect();
    let spec = ChecksumSpec::DEFAULT;
    let serve = async {
        let mut served = 0;
        while let Some(operation) = server_in.receive_operation(WAIT).await.unwrap() {
            assert_eq!(operation, read_request(data.len() as u64));
            server_out.send_response(&BlockOpResponse::read(spec, 0)).await.unwrap();
            let mut seqno = 0;
            for piece in data.chunks(65_536) {
                let mut checksums = Vec::new();
                spec.compute(piece, &mut checksums);
                let offset = seqno as u64 * 65_536;
                let header = PacketHeader { offset, seqno, last: false, data_bytes: piece.len() as u32, sync: false };
                if seqno % 2 == 0 {
                    server_out.send_packet(&header, &checksums, piece).await.unwrap();
                } else {
                    server_out.send_packet_head(&header, &checksums).await.unwrap();
                    server_out.send(piece).await.unwrap();
                }
                seqno += 1;
            }
            let end = PacketHeader { offset: data.len() as u64, seqno, last: true, data_bytes: 0, sync: false };
            server_out.send_packet(&end, &[], &[]).await.unwrap();
            assert_eq!(server_in.receive_read_status().await.unwrap(), Status::ChecksumOk);
            served += 1;
        }
        served
    };
    let read = async {
        for _ in 0..3 {
            client_out.send_operation(&read_request(data.len() as u64)).await.unwrap();
            let response = client_in.receive_response().await.unwrap();
            assert_eq!(response.read_checksum.unwrap().spec, spec);
            let mut received = Vec::new();
            loop {
                let packet = client_in.receive_packet().await.unwrap();
                if packet.header.last {
                    break;
                }
                assert_eq!(packet.header.offset, received.len() as u64);
                spec.verify(packet.data, packet.checksums).unwrap();
                assert!(packet.raw.ends_with(packet.data));
                received.extend_from_slice(packet.data);
            }
            assert!(received == data);
            client_out.send_read_status(Status::ChecksumOk).await.unwrap();
        }
        client_out.connection().shutdown();
    };
    assert_eq!(tokio::join!(serve, read).0, 3);
}

#[tokio::test]
async fn packets_longer_than_the_buffer_and_acks_the_other_way() {
    let ((client_out, mut client_in), (server_out, mut server_in)) = pair(1000).await;
    let data: Vec<u8> = (0..5_000_000u32).map(|i| (i >> 7) as u8).collect();
    let write = async {
        for seqno in 0..4 {
            let header = PacketHeader { offset: 0, seqno, last: false, data_bytes: data.len() as u32, sync: true };
            client_out.send_packet(&header, &[7; 40], &data).await.unwrap();
        }
    };
    let acks = async {
        for seqno in 0..4 {
            let ack = client_in.receive_ack().await.unwrap();
            assert_eq!((ack.seqno, ack.is_success()), (seqno, true));
        }
    };
    let receive = async {
        for seqno in 0..4 {
            let packet = server_in.receive_packet().await.unwrap();
            assert!(packet.data == data && packet.checksums == [7; 40] && packet.header.sync);
            assert_eq!(packet.header.seqno, seqno);
            server_out.send_ack(&PipelineAck::last(seqno, Status::Success)).await.unwrap();
        }
        assert!(!server_in.wait_closed(Duration::from_millis(10)).await);
    };
    tokio::join!(write, acks, receive);
}

#[tokio::test]
async fn what_breaks_the_protocol_is_named() {
    let ((client_out, _client_in), (_server_out, mut server_in)) = pair(1000).await;
    client_out.send(b"GET / HTTP/1.0\r\n").await.unwrap();
    let error = server_in.receive_operation(WAIT).await.unwrap_err();
    assert!(matches!(error, TransferError::Operation { source: OpError::Version { found: 0x4745 }, .. }), "{error}");

    let ((client_out, _client_in), (_server_out, mut server_in)) = pair(1000).await;
    client_out.send(&[0x7f, 0xff, 0xff, 0xff, 0, 25]).await.unwrap();
    let error = server_in.receive_packet().await.unwrap_err();
    assert!(matches!(error, TransferError::Packet { source: PacketError::TooLong { .. }, .. }), "{error}");

    // A packet that never ends: the reader's time-out does.
    let ((client_out, _client_in), (_server_out, mut server_in)) = pair(1000).await;
    let header = PacketHeader { offset: 0, seqno: 0, last: false, data_bytes: 8_000_000, sync: false };
    client_out.send_packet_head(&header, &[]).await.unwrap();
    server_in.set_timeout(Duration::from_millis(20));
    let error = server_in.receive_packet().await.unwrap_err();
    assert!(error.is_disconnect(), "{error}");
    drop(client_out);
}
