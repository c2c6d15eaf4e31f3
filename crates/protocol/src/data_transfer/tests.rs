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
    (client.unwrap(), split(server.unwrap(), buffer_bytes, timeouts))
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
async fn connection_serves_consecutive_reads() {
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
async fn long_packets_and_acks_flow_concurrently() {
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
async fn protocol_violations_return_specific_errors() {
    let ((client_out, _client_in), (_server_out, mut server_in)) = pair(1000).await;
    client_out.send(b"GET / HTTP/1.0\r\n").await.unwrap();
    let error = server_in.receive_operation(WAIT).await.unwrap_err();
    assert!(matches!(error, TransferError::Operation { source: OpError::Version { found: 0x4745 }, .. }), "{error}");

    let ((client_out, _client_in), (_server_out, mut server_in)) = pair(1000).await;
    client_out.send(&[0x7f, 0xff, 0xff, 0xff, 0, 25]).await.unwrap();
    let error = server_in.receive_packet().await.unwrap_err();
    assert!(matches!(error, TransferError::Packet { source: PacketError::TooLong { .. }, .. }), "{error}");

    // A packet that never ends: the reader's timeout ends the wait.
    let ((client_out, _client_in), (_server_out, mut server_in)) = pair(1000).await;
    let header = PacketHeader { offset: 0, seqno: 0, last: false, data_bytes: 8_000_000, sync: false };
    client_out.send_packet_head(&header, &[]).await.unwrap();
    server_in.set_timeout(Duration::from_millis(20));
    let error = server_in.receive_packet().await.unwrap_err();
    assert!(error.is_disconnect(), "{error}");
    drop(client_out);
}

/// Sends packets of many lengths in pieces that do not match their structure. Reads them in place, whole, or
/// alternating, and cancels some reads.
#[tokio::test]
async fn in_place_data_matches_packet_data() {
    let spec = ChecksumSpec::DEFAULT;
    let lengths = [300_000, 65_536, 100, 512, 70_001, 131_072, 1, 200_000];
    let data: Vec<u8> = (0..3 * lengths.iter().sum::<u32>()).map(|i| ((i * 13) >> 2) as u8).collect();
    let mut stream = Vec::new();
    let (mut offset, mut seqno) = (0, 0);
    for length in lengths.iter().cycle().take(3 * lengths.len()) {
        let piece = &data[offset..offset + *length as usize];
        let header = PacketHeader { offset: offset as u64, seqno, last: false, data_bytes: *length, sync: false };
        let mut checksums = Vec::new();
        spec.compute(piece, &mut checksums);
        let mut head = [0; PACKET_HEADER_BYTES_MAX];
        let head_bytes = header.encode(checksums.len(), &mut head);
        stream.extend_from_slice(&head[..head_bytes]);
        stream.extend_from_slice(&checksums);
        stream.extend_from_slice(piece);
        (offset, seqno) = (offset + piece.len(), seqno + 1);
    }
    for seed in 0..12u64 {
        let ((client_out, _client_in), (_server_out, mut server_in)) = pair(20_000).await;
        let send = async {
            let mut rest = &stream[..];
            for length in [1, 37, 511, 9000, 70_000, 4096].iter().cycle() {
                let (piece, behind) = rest.split_at(rest.len().min(*length));
                client_out.send(piece).await.unwrap();
                rest = behind;
                if rest.is_empty() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let receive = async {
            let (mut random, mut into, mut at, mut next) = (seed * 2 + 1, vec![0; 400_000], 0, 0);
            let mut below = |limit: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % limit
            };
            let (mut in_place, mut rests) = (0, 0);
            while at < data.len() {
                let (head, taken) = server_in.receive_head().await.unwrap();
                assert_eq!((head.header.offset + taken as u64, head.header.seqno), (at as u64, next));
                let arrival = if seed > 0 && below(4) > 0 {
                    let length = [40, 600, 5000, 66_000, 400_000][below(5) as usize];
                    let receiving = server_in.receive_data(&head, spec, &mut into[..length]);
                    let patience = Duration::from_micros(below(3) * 50);
                    match tokio::time::timeout(patience, receiving).await {
                        Ok(arrival) => arrival.unwrap(),
                        Err(_) => continue,
                    }
                } else {
                    None
                };
                let left = head.data_bytes - taken;
                match arrival {
                    Some(arrival) => {
                        spec.verify(&into[..arrival.bytes], arrival.checksums).unwrap();
                        assert!(into[..arrival.bytes] == data[at..at + arrival.bytes]);
                        (at, in_place) = (at + arrival.bytes, in_place + 1);
                        next += i64::from(arrival.bytes == left);
                    }
                    None => {
                        let packet = server_in.receive_packet().await.unwrap();
                        assert_eq!((packet.header, packet.taken, packet.data.len()), (head.header, taken, left));
                        spec.verify(packet.data, packet.checksums).unwrap();
                        assert!(*packet.data == data[at..at + left]);
                        (at, next, rests) = (at + left, next + 1, rests + usize::from(taken > 0));
                    }
                }
            }
            assert!(seed == 0 || in_place > 0 && rests > 0, "{in_place} in place, {rests} rests");
        };
        tokio::join!(send, receive);
    }
}
