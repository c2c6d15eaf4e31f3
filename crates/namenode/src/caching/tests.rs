//! Pools and directives over a small namespace, without datanodes.

use hearth_types::{BlockPoolId, FsPermission};

use super::*;
use crate::blocks::{BlockMap, BlockSettings};
use crate::changes::Changes;
use crate::namespace::Caller;
use crate::namespace::tests::make_file;

const NOW: Now = Now { wall_ms: 1_000_000, monotonic: Duration::from_secs(1) };

fn caller(user: &str, superuser: bool) -> Caller {
    Caller { user: user.into(), groups: [user.into()].into(), superuser, machine: "127.0.0.1".into() }
}

fn root() -> Caller {
    caller("root", true)
}

fn pool(name: &str) -> PoolChange {
    PoolChange { name: name.into(), ..PoolChange::default() }
}

fn directive(path: &str, pool: &str) -> DirectiveChange {
    DirectiveChange { path: Some(path.into()), pool: Some(pool.into()), ..DirectiveChange::default() }
}

/// `/d` with two files of 100 and 50 bytes, and one more in `/d/below`, which is not covered by a directive on `/d`.
fn namespace() -> Namespace {
    let mut namespace = Namespace::format(Default::default(), "root", "supergroup", 0);
    for (path, length) in [("/d/a", 100), ("/d/b", 50), ("/d/below/c", 1000)] {
        assert!(make_file(&mut namespace, path, length));
    }
    namespace
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn pool_limit_counts_pending_directives() {
    let (namespace, mut caching) = (namespace(), Caching::default());
    caching.add_pool(&root(), PoolChange { limit: Some(400), ..pool("p") }).unwrap();
    let two = DirectiveChange { replication: Some(2), ..directive("/d", "p") };
    assert_eq!(caching.add_directive(&root(), &namespace, two.clone(), false, 0).unwrap(), 1);
    assert_eq!(
        refused(caching.add_directive(&root(), &namespace, two.clone(), false, 0)),
        "Caching path /d of size 150 bytes at replication 2 would exceed pool p's remaining capacity of 100 bytes."
    );
    assert_eq!(caching.add_directive(&root(), &namespace, two, true, 0).unwrap(), 2, "by force");
    let (.., figures) = caching.pools_after("").next().unwrap();
    assert_eq!(figures.bytes_needed, 600);
    // A path that does not exist needs no bytes.
    caching.add_directive(&root(), &namespace, directive("/later", "p"), true, 0).unwrap();
}

#[test]
fn invalid_requests_get_apaches_errors() {
    let (namespace, mut caching) = (namespace(), Caching::default());
    caching.add_pool(&root(), PoolChange { max_expiry_ms: Some(5000), ..pool("p") }).unwrap();
    assert_eq!(refused(caching.add_pool(&root(), pool("p"))), "Cache pool p already exists.");
    assert_eq!(refused(caching.add_pool(&root(), pool(""))), "invalid empty cache pool name");
    assert_eq!(refused(caching.modify_pool(pool("q"))), "Cache pool q does not exist.");
    assert_eq!(refused(caching.remove_pool("q")), "Cannot remove non-existent cache pool q");
    let negative = PoolChange { limit: Some(-1), ..pool("n") };
    assert_eq!(refused(caching.add_pool(&root(), negative)), "Limit is negative.");
    let mut add = |change| refused(caching.add_directive(&root(), &namespace, change, false, 0));
    assert_eq!(add(directive("/d", "q")), "Unknown pool q");
    assert_eq!(add(directive("d", "p")), "Invalid path 'd'.");
    assert_eq!(add(DirectiveChange { pool: None, ..directive("/d", "p") }), "No pool specified.");
    assert_eq!(add(DirectiveChange { path: None, ..directive("/d", "p") }), "No path specified.");
    let none = DirectiveChange { replication: Some(0), ..directive("/d", "p") };
    assert_eq!(add(none), "Invalid replication factor 0 <= 0");
    let long = Expiry { ms: 90_061_001, is_relative: true };
    assert_eq!(
        add(DirectiveChange { expiry: Some(long), ..directive("/d", "p") }),
        "Expiration 001:01:01:01.001 exceeds the max relative expiration time of 5000 ms."
    );
    assert_eq!(refused(caching.remove_directive(&root(), 7)), "No directive with ID 7 found.");
    assert_eq!(refused(caching.remove_directive(&root(), -7)), "Invalid negative ID.");
}

#[test]
fn pool_permissions_control_access() {
    let (namespace, mut caching) = (namespace(), Caching::default());
    let alice = caller("alice", false);
    let bob = caller("bob", false);
    let change = PoolChange {
        owner: Some("alice".into()),
        group: Some("staff".into()),
        permission: Some(FsPermission(0o700)),
        ..pool("p")
    };
    caching.add_pool(&root(), change).unwrap();
    let id = caching.add_directive(&alice, &namespace, directive("/d", "p"), false, 0).unwrap();
    let denied = "Permission denied while accessing pool p: user bob does not have WRITE permissions.";
    assert_eq!(refused(caching.add_directive(&bob, &namespace, directive("/d", "p"), false, 0)), denied);
    assert_eq!(refused(caching.remove_directive(&bob, id as i64)), denied);
    let seen =
        |caching: &Caching, caller: &Caller| caching.directives_after(caller, 0, &Filter::default()).unwrap().count();
    assert_eq!((seen(&caching, &alice), seen(&caching, &bob), seen(&caching, &root())), (1, 0, 1));
    caching.modify_pool(PoolChange { permission: Some(FsPermission(0o704)), ..pool("p") }).unwrap();
    assert_eq!(seen(&caching, &bob), 1);
}

#[test]
fn stored_pools_and_directives_are_restored() {
    let (namespace, mut caching) = (namespace(), Caching::default());
    caching.add_pool(&root(), pool("p")).unwrap();
    caching.add_pool(&root(), pool("gone")).unwrap();
    for path in ["/d", "/d/a", "/d/b"] {
        caching.add_directive(&root(), &namespace, directive(path, "p"), false, 5).unwrap();
    }
    caching.add_directive(&root(), &namespace, directive("/d", "gone"), false, 5).unwrap();
    caching.remove_directive(&root(), 2).unwrap();
    let other = DirectiveChange { id: Some(3), replication: Some(4), ..DirectiveChange::default() };
    caching.modify_directive(&root(), &namespace, other, false, 6).unwrap();
    caching.remove_pool("gone").unwrap();
    let mut changes = Changes::default();
    caching.take_changes(&mut changes);
    // Applied like the store does: one after the other.
    let mut stored = StoredCaching { last_directive: changes.last_directive.unwrap(), ..StoredCaching::default() };
    for (name, pool) in changes.cache_pools {
        stored.pools.retain(|(known, _)| *known != name);
        stored.pools.extend(pool.map(|pool| (name, pool)));
    }
    for (id, terms) in changes.cache_directives {
        stored.directives.retain(|(known, _)| *known != id);
        stored.directives.extend(terms.map(|terms| (id, terms)));
    }
    let mut restored = Caching::restore(stored);
    assert_eq!(restored.pools, caching.pools);
    let terms = |caching: &Caching| -> Vec<(u64, Terms)> {
        caching.directives.iter().map(|(id, directive)| (*id, directive.terms.clone())).collect()
    };
    assert_eq!(terms(&restored), terms(&caching));
    assert_eq!(restored.directives[&3].terms.replication, 4);
    assert_eq!(restored.directives[&3].terms.expires_ms, 5 + EXPIRY_MAX_MS, "the expiry was not changed");
    let next = restored.add_directive(&root(), &namespace, directive("/d", "p"), false, 0).unwrap();
    assert_eq!(next, 5, "numbers of removed directives are not issued again");
}

#[test]
fn scan_counts_files_of_live_directives() {
    let (namespace, mut caching) = (namespace(), Caching::default());
    let mut blocks = BlockMap::new(BlockPoolId::new("BP-1"), BlockSettings::default(), 1);
    for file in namespace.iter().filter_map(|inode| inode.as_file()) {
        for block in file.blocks().iter() {
            blocks.restore(block.block(), 1, 1, 0, true);
        }
    }
    caching.add_pool(&root(), pool("p")).unwrap();
    let soon = Expiry { ms: 10, is_relative: true };
    let change = DirectiveChange { expiry: Some(soon), ..directive("/d/a", "p") };
    caching.add_directive(&root(), &namespace, change, false, NOW.wall_ms).unwrap();
    caching.add_directive(&root(), &namespace, directive("/d", "p"), false, NOW.wall_ms).unwrap();
    assert!(caching.has_changed());
    caching.scan(&namespace, &mut blocks, NOW);
    assert!(!caching.has_changed());
    let needed = |caching: &Caching| {
        caching.directives.values().map(|one| (one.figures.files_needed, one.figures.bytes_needed)).collect::<Vec<_>>()
    };
    assert_eq!(needed(&caching), [(1, 100), (2, 150)]);
    let later = Now { wall_ms: NOW.wall_ms + 10, ..NOW };
    caching.scan(&namespace, &mut blocks, later);
    assert_eq!(needed(&caching), [(0, 0), (2, 150)]);
    let (.., figures) = caching.pools_after("").next().unwrap();
    assert_eq!((figures.files_needed, figures.bytes_needed, figures.bytes_cached), (2, 150, 0));
}
