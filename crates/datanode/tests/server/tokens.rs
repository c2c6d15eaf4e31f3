use hearth_protocol::block_token::AccessMode;
use hearth_wire::data_transfer::{Stage, Status};

use super::client::{Writer, block, content, open, read, read_on, read_request, target, write_request};
use super::namenode::FakeNamenode;
use super::{scratch, start_datanode};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_writes_require_token() {
    let (namenode, minter) = FakeNamenode::with_tokens().await;
    let dirs = [scratch(), scratch()];
    let first = start_datanode(&namenode, dirs[0].path(), &[]).await;
    let second = start_datanode(&namenode, dirs[1].path(), &[]).await;
    let block = block(1, 1001, 128 << 20);
    let data = content(5_000, 1);
    let token = |mode| minter.token(&block, mode);

    let without = write_request(&block, Stage::PipelineSetupCreate, vec![target(&second)]);
    let (_, answer) = Writer::ask(first.addresses().transfer, without.clone()).await;
    assert_eq!(answer.status, Status::ErrorAccessToken);
    let own = target(&first).datanode.id.transfer_address();
    assert_eq!(answer.first_bad_link.as_deref(), Some(own.as_str()));

    let mut with = without;
    with.token = token(AccessMode::Write);
    Writer::new(first.addresses().transfer, with).await.finish(&data, 2).await;

    assert_eq!(read(&second, &block, 0, None).await.unwrap_err().status, Status::ErrorAccessToken);
    let mut wrong_mode = read_request(&block, 0, None);
    wrong_mode.token = token(AccessMode::Write);
    let mut connection = open(second.addresses().transfer).await;
    assert_eq!(read_on(&mut connection, wrong_mode).await.unwrap_err().status, Status::ErrorAccessToken);
    let mut right = read_request(&block, 0, None);
    right.token = token(AccessMode::Read);
    let mut connection = open(second.addresses().transfer).await;
    assert!(read_on(&mut connection, right).await.unwrap() == data);
}
