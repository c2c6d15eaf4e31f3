//! Cache pools and directives over RPC: commands to DataNodes, cached locations for readers, and the state after a
//! restart.

mod support;

use hearth_wire::proto::hdfs::*;
use support::*;

const MISSING: &str = "org.apache.hadoop.fs.InvalidRequestException";
const DENIED: &str = "org.apache.hadoop.security.AccessControlException";

fn pool(name: &str) -> CachePoolInfoProto {
    CachePoolInfoProto { pool_name: Some(name.into()), ..Default::default() }
}

fn directive(path: &str, pool: &str) -> CacheDirectiveInfoProto {
    CacheDirectiveInfoProto { path: Some(path.into()), pool: Some(pool.into()), ..Default::default() }
}

async fn add(n: &TestNamenode, user: &str, info: CacheDirectiveInfoProto) -> Answer<i64> {
    let request = AddCacheDirectiveRequestProto { info, cache_flags: None };
    n.call_as::<AddCacheDirectiveResponseProto>(user, "addCacheDirective", &request).await.map(|answer| answer.id)
}

async fn list(n: &TestNamenode, prev_id: i64) -> ListCacheDirectivesResponseProto {
    let request = ListCacheDirectivesRequestProto { prev_id, filter: Default::default() };
    n.call("listCacheDirectives", &request).await.unwrap()
}

async fn pools(n: &TestNamenode, user: &str, after: &str) -> ListCachePoolsResponseProto {
    let request = ListCachePoolsRequestProto { prev_pool_name: after.into() };
    n.call_as(user, "listCachePools", &request).await.unwrap()
}

fn told(commands: &[DatanodeCommandProto], action: block_id_command_proto::Action) -> Vec<u64> {
    let ids = commands.iter().filter_map(|command| command.blk_id_cmd.as_ref());
    ids.filter(|command| command.action() == action).flat_map(|command| command.block_ids.clone()).collect()
}

#[tokio::test]
async fn datanode_caches_and_uncaches_on_command() {
    use block_id_command_proto::Action::{Cache, Uncache};
    let n = TestNamenode::start().await;
    let datanodes = vec![TestDatanode::join(&n, 1).await];
    n.write(&datanodes, "/d/f", 100).await;
    let block = n.locations("/d/f", 0, 1).await.unwrap().blocks[0].b.block_id;
    let request = AddCachePoolRequestProto { info: pool("p") };
    n.call::<AddCachePoolResponseProto>("addCachePool", &request).await.unwrap();
    // Without capacity in memory no command is sent.
    let id = add(&n, "root", directive("/d", "p")).await.unwrap();
    list(&n, 0).await;
    assert!(told(&datanodes[0].heartbeat(&n).await, Cache).is_empty());
    datanodes[0].heartbeat_with_cache(&n, 1000, 0).await;
    let refreshed = ModifyCacheDirectiveRequestProto {
        info: CacheDirectiveInfoProto { id: Some(id), replication: Some(2), ..Default::default() },
        cache_flags: None,
    };
    n.call::<ModifyCacheDirectiveResponseProto>("modifyCacheDirective", &refreshed).await.unwrap();
    let stats = list(&n, 0).await.elements[0].stats;
    assert_eq!((stats.bytes_needed, stats.bytes_cached, stats.files_needed, stats.files_cached), (200, 0, 1, 0));
    assert_eq!(told(&datanodes[0].heartbeat_with_cache(&n, 1000, 0).await, Cache), [block]);
    datanodes[0].cache_report(&n, &[block]).await;
    assert_eq!(n.locations("/d/f", 0, 1).await.unwrap().blocks[0].is_cached, [true]);
    let back = CacheDirectiveInfoProto { id: Some(id), replication: Some(1), ..Default::default() };
    let request = ModifyCacheDirectiveRequestProto { info: back, cache_flags: None };
    n.call::<ModifyCacheDirectiveResponseProto>("modifyCacheDirective", &request).await.unwrap();
    let stats = list(&n, 0).await.elements[0].stats;
    assert_eq!((stats.bytes_needed, stats.bytes_cached, stats.files_cached), (100, 100, 1));
    let request = RemoveCacheDirectiveRequestProto { id };
    n.call::<RemoveCacheDirectiveResponseProto>("removeCacheDirective", &request).await.unwrap();
    assert!(list(&n, 0).await.elements.is_empty());
    assert_eq!(told(&datanodes[0].heartbeat_with_cache(&n, 1000, 100).await, Uncache), [block]);
    datanodes[0].cache_report(&n, &[]).await;
    assert_eq!(n.locations("/d/f", 0, 1).await.unwrap().blocks[0].is_cached, [false]);
}

#[tokio::test]
async fn pools_and_directives_survive_restart() {
    let mut n = TestNamenode::start().await;
    for name in ["b", "a"] {
        let info = CachePoolInfoProto { mode: Some(0o700), limit: Some(500), ..pool(name) };
        n.call::<AddCachePoolResponseProto>("addCachePool", &AddCachePoolRequestProto { info }).await.unwrap();
    }
    for number in 1..=101 {
        assert_eq!(add(&n, "root", directive(&format!("/{number}"), "a")).await.unwrap(), number);
    }
    refused(add(&n, "root", directive("/x", "c")).await, MISSING, "Unknown pool c");
    let denied = "Permission denied while accessing pool a: user alice does not have WRITE permissions.";
    refused(add(&n, "alice", directive("/x", "a")).await, DENIED, denied);
    let before = (list(&n, 0).await, pools(&n, "root", "").await);
    assert_eq!((before.0.elements.len(), before.0.has_more), (100, true));
    let rest = list(&n, 100).await;
    assert_eq!((rest.elements.len(), rest.has_more), (1, false));

    n.restart().await;
    let after = (list(&n, 0).await, pools(&n, "root", "").await);
    assert_eq!(after, before);
    let names = |pools: &ListCachePoolsResponseProto| -> Vec<String> {
        pools.entries.iter().filter_map(|entry| entry.info.pool_name.clone()).collect()
    };
    assert_eq!(names(&after.1), ["a", "b"]);
    assert_eq!(names(&pools(&n, "root", "a").await), ["b"]);
    // A user without read permission on a pool sees only its name.
    let seen = pools(&n, "alice", "a").await;
    assert_eq!(seen.entries[0].info, pool("b"));
    let request = RemoveCachePoolRequestProto { pool_name: "a".into() };
    n.call::<RemoveCachePoolResponseProto>("removeCachePool", &request).await.unwrap();
    n.restart().await;
    assert!(list(&n, 0).await.elements.is_empty());
    assert_eq!(names(&pools(&n, "root", "").await), ["b"]);
    assert_eq!(add(&n, "root", directive("/x", "b")).await.unwrap(), 102, "numbers are not assigned again");
}
