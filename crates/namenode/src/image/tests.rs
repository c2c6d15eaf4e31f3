//! Images that are written and imported again, and images that are not valid. `namespace/snapshot_tests.rs` does the same
//! with random histories.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hearth_types::{
    Access, AclEntry, AclScope, AclType, Block, BlockId, BlockPoolId, FsPermission, GenerationStamp, PoolIdentity,
    Xattr, XattrSpace,
};
use hearth_wire::proto::hdfs::fsimage::{
    CreatedListEntryProto, DiffEntryProto, DiffTypeProto, DirectoryDiffProto, FileDiffProto,
};
use md5::{Digest, Md5};

use super::input::Input;
use super::{ImageError, ImageSource, Imported, NewNameDirectory, Written, import, write};
use crate::caching::{EXPIRY_MAX_MS, Pool, Terms, UNLIMITED};
use crate::changes::{Changes, Counters};
use crate::namespace::stored::{FileParts, InodeParts};
use crate::namespace::{
    Attributes, BlockRecord, InodeId, Limits, Namespace, PrincipalId, Quota, RecordState, Truncation, Writer,
};
use crate::store::{Directory, Loaded, StoreError, Tables, format};

fn identity() -> PoolIdentity {
    PoolIdentity {
        pool: BlockPoolId::new("BP-1-127.0.0.1-2"),
        namespace_id: 77,
        cluster_id: "CID-x".into(),
        created_ms: 2,
    }
}

fn tables(place: &Path) -> Tables {
    Tables::open(&place.join("current/namespace.redb")).unwrap()
}

/// Writes the image of a store with these contents to `root`.
fn image_of(changes: &Changes, root: &Path) -> Result<Written, ImageError> {
    let place = tempfile::tempdir().unwrap();
    format(&Directory::lock(place.path()).unwrap(), &identity(), changes, false).unwrap();
    let new = NewNameDirectory::begin(root)?;
    let (file, path) = new.create_image()?;
    let written = write(&tables(place.path()).views(), &identity(), &file, &path)?;
    new.finish(&identity(), written.txid, written.md5)?;
    Ok(written)
}

fn imported(root: &Path, into: &Path) -> Result<Imported, ImageError> {
    import(&ImageSource::find(root)?, &Directory::lock(into).unwrap(), Limits::default())
}

/// Returns what is left of a store's contents after an image was made of them and imported.
fn loaded(changes: &Changes, limits: Limits) -> Loaded {
    let place = tempfile::tempdir().unwrap();
    let (image, store) = (place.path().join("image"), place.path().join("store"));
    let written = image_of(changes, &image).unwrap();
    let imported = import(&ImageSource::find(&image).unwrap(), &Directory::lock(&store).unwrap(), limits.clone());
    assert_eq!(imported.unwrap().txid, written.txid);
    tables(&store).load(limits).unwrap()
}

/// Like [`loaded`], for the namespace alone.
pub fn round_trip(changes: &Changes, limits: Limits) -> Namespace {
    loaded(changes, limits).namespace
}

/// Returns why the image of a store with these contents cannot be imported.
pub fn refusal(changes: &Changes) -> String {
    let place = tempfile::tempdir().unwrap();
    let image = place.path().join("image");
    image_of(changes, &image).unwrap();
    imported(&image, &place.path().join("store")).unwrap_err().to_string()
}

/// Returns the ids of the snapshots in the differences of each inode, newest first, as the image of a store has them.
pub fn differences(changes: &Changes) -> BTreeMap<u64, Vec<u32>> {
    let place = tempfile::tempdir().unwrap();
    let image = place.path().join("image");
    image_of(changes, &image).unwrap();
    let source = ImageSource::find(&image).unwrap();
    let input = Input::open(&source.path, &source.md5).unwrap();
    let mut section = input.section("SNAPSHOT_DIFF");
    let mut all = BTreeMap::new();
    while let Some(entry) = section.next::<DiffEntryProto>().unwrap() {
        let mut ids = Vec::new();
        for _ in 0..entry.num_of_diff.unwrap() {
            if entry.r#type == DiffTypeProto::Filediff as i32 {
                ids.push(section.required::<FileDiffProto>().unwrap().snapshot_id.unwrap());
                continue;
            }
            let diff: DirectoryDiffProto = section.required().unwrap();
            for _ in 0..diff.created_list_size.unwrap() {
                section.required::<CreatedListEntryProto>().unwrap();
            }
            ids.push(diff.snapshot_id.unwrap());
        }
        all.insert(entry.inode_id.unwrap(), ids);
    }
    all
}

fn block(id: i64, length: u64) -> BlockRecord {
    let block = Block { id: BlockId(id), stamp: GenerationStamp((1001 + id) as u64), length };
    BlockRecord::new(block, RecordState::Complete)
}

const USER: PrincipalId = PrincipalId(0);
const GROUP: PrincipalId = PrincipalId(1);

fn directory(id: u64, name: &str) -> InodeParts {
    InodeParts {
        attributes: Attributes::directory(InodeId(id), USER, GROUP, FsPermission(0o1755), 1_700_000_000_000 + id),
        name: name.as_bytes().to_vec(),
        xattrs: Vec::new(),
        acl: Vec::new(),
        quota: None,
        is_snapshottable: false,
        file: None,
    }
}

fn file(id: u64, name: &str, blocks: &[BlockRecord]) -> InodeParts {
    let attributes = Attributes {
        replication: 3,
        block_size: 1 << 27,
        access_time_ms: 1_600_000_000_000,
        ..directory(id, name).attributes
    };
    InodeParts { attributes, file: Some(FileParts { blocks: blocks.to_vec(), writer: None }), ..directory(id, name) }
}

/// Returns a namespace with everything but snapshots, by inode id, with the parents.
fn inodes() -> BTreeMap<u64, (u64, InodeParts)> {
    let mut all = BTreeMap::new();
    let root = InodeId::ROOT.0;
    let mut put = |parent: u64, parts: InodeParts| {
        all.insert(parts.attributes.id.0, (parent, parts));
    };
    put(root, directory(root, ""));
    let xattr = |space, name: &str, value: &[u8]| Xattr { space, name: name.into(), value: value.into() };
    let mut rare = directory(16400, "rare");
    rare.attributes.storage_policy = 10;
    rare.xattrs = vec![
        xattr(XattrSpace::User, "note", &[0, 255]),
        xattr(XattrSpace::Trusted, "note", b""),
        xattr(XattrSpace::Raw, "x", b"1"),
    ];
    let entry = |scope, kind, name: Option<&str>, bits| AclEntry {
        scope,
        kind,
        name: name.map(Into::into),
        access: Access::from_bits(bits),
    };
    rare.acl = vec![
        entry(AclScope::Access, AclType::User, Some("bob"), 7),
        entry(AclScope::Access, AclType::Group, None, 5),
        entry(AclScope::Access, AclType::Group, Some("bob"), 1),
        entry(AclScope::Default, AclType::User, None, 6),
        entry(AclScope::Default, AclType::Mask, None, 4),
        entry(AclScope::Default, AclType::Other, None, 0),
    ];
    rare.quota = Some(Quota {
        names: Some(1000),
        space: Some(0),
        types: [Some(1), None, Some(i64::MAX as u64), None, Some(5)],
        ..Quota::default()
    });
    put(root, rare);
    put(16400, directory(16401, "é"));
    put(16400, directory(16402, "a"));
    put(root, file(16403, "empty", &[]));
    let mut policy = file(16404, "blocks", &[block(1, 7), block(-9, 1 << 40)]);
    policy.attributes.storage_policy = 12;
    put(16401, policy);
    let mut open = file(16405, "open", &[block(2, 7), block(3, 5)]);
    if let Some(parts) = &mut open.file {
        parts.blocks[1].state = RecordState::UnderConstruction;
        parts.writer = Some(Writer { client: "DFSClient_1".into(), machine: "127.0.0.1".into(), truncation: None });
    }
    put(16402, open);
    all
}

fn changes(inodes: &BTreeMap<u64, (u64, InodeParts)>) -> Changes {
    let pool = Pool {
        owner: "o".into(),
        group: "g".into(),
        permission: FsPermission(0o750),
        limit: UNLIMITED,
        default_replication: 2,
        max_expiry_ms: EXPIRY_MAX_MS,
    };
    let terms = Terms { path: "/rare/é".into(), replication: 3, pool: "p".into(), expires_ms: 1_795_245_564_051 };
    Changes {
        inodes_put: inodes.iter().map(|(id, (parent, parts))| (*id, parts.encode(*parent))).collect(),
        names_put: vec![(0, "root".into()), (1, "supergroup".into()), (2, "unused".into())],
        counters: Some(Counters { last_inode: 20_000, last_block: 1 << 31, last_stamp: 5000, last_snapshot: 0 }),
        cache_pools: vec![("p".into(), Some(pool))],
        cache_directives: vec![(4, Some(terms))],
        last_directive: Some(9),
        ..Changes::default()
    }
}

/// Describes an inode with the names of its owner and group.
fn described(namespace: &Namespace) -> BTreeMap<String, String> {
    let inodes = namespace.iter().map(|inode| {
        let slot = namespace.slot(inode.id()).unwrap();
        let attributes = Attributes { owner: PrincipalId(0), group: PrincipalId(0), ..inode.attributes() };
        let (owner, group) = (namespace.names.text(inode.owner()), namespace.names.text(inode.group()));
        let file = inode.as_file().map(|file| (file.blocks().to_vec(), file.writer()));
        let rare = (inode.xattrs(), inode.acl(), inode.quota(), inode.snapshots());
        (namespace.path_of(slot), format!("{attributes:?} {owner} {group} {file:?} {rare:?}"))
    });
    inodes.collect()
}

fn original(changes: &Changes) -> Loaded {
    let place = tempfile::tempdir().unwrap();
    format(&Directory::lock(place.path()).unwrap(), &identity(), changes, false).unwrap();
    tables(place.path()).load(Limits::default()).unwrap()
}

#[test]
fn everything_is_in_the_image() {
    let changes = changes(&inodes());
    let (before, after) = (original(&changes), loaded(&changes, Limits::default()));
    assert_eq!(described(&after.namespace), described(&before.namespace));
    assert_eq!(after.namespace.inode_count(), 7);
    assert_eq!(after.namespace.counters(), before.namespace.counters());
    assert_eq!(after.caching.pools, before.caching.pools);
    assert_eq!(after.caching.directives, before.caching.directives);
    assert_eq!(after.caching.last_directive, 9);
}

#[test]
fn image_layout_is_apaches() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("image");
    let written = image_of(&changes(&inodes()), &root).unwrap();
    let image = fs::read(root.join("current").join(super::image_name(written.txid))).unwrap();
    assert_eq!(image.len() as u64, written.bytes);
    assert_eq!(<[u8; 16]>::from(Md5::digest(&image)), written.md5);
    assert_eq!(&image[..8], b"HDFSIMG1");
    // Length of the section's message, then namespaceId (field 1), 77.
    assert_eq!(&image[9..11], &[0x08, 77]);
    let tail = image.len() - 4;
    let length = u32::from_be_bytes(image[tail..].try_into().unwrap()) as usize;
    let summary = &image[tail - length..tail];
    // A length of one byte or two, then ondiskVersion 1 and layoutVersion -67 as an unsigned number of 32 bits.
    let at = summary.iter().position(|byte| *byte == 0x08).unwrap();
    assert!(at <= 2);
    assert_eq!(&summary[at..at + 8], &[0x08, 1, 0x10, 0xBD, 0xFF, 0xFF, 0xFF, 0x0F]);
    let order = ["NS_INFO", "ERASURE_CODING", "INODE", "INODE_DIR", "FILES_UNDERCONSTRUCTION", "SNAPSHOT"];
    let rest = ["INODE_REFERENCE", "SECRET_MANAGER", "CACHE_MANAGER", "STRING_TABLE"];
    let mut from = 0;
    for name in order.into_iter().chain(rest) {
        let name = name.as_bytes();
        // The name has its length before it.
        let found = summary[from..]
            .windows(name.len() + 1)
            .position(|bytes| usize::from(bytes[0]) == name.len() && &bytes[1..] == name);
        from += found.unwrap_or_else(|| panic!("{} is missing", String::from_utf8_lossy(name)));
    }
}

#[test]
fn truncation_in_progress_is_refused() {
    let mut inodes = inodes();
    let (_, open) = inodes.get_mut(&16405).unwrap();
    let writer = open.file.as_mut().and_then(|file| file.writer.as_mut()).unwrap();
    writer.truncation = Some(Truncation { length: 3, told: 3, copied_from: None });
    let place = tempfile::tempdir().unwrap();
    let said = image_of(&changes(&inodes), &place.path().join("image")).unwrap_err();
    assert!(matches!(&said, ImageError::Inexpressible { what } if what.contains("16405")), "{said}");
}

#[test]
fn existing_namespace_is_not_replaced() {
    let place = tempfile::tempdir().unwrap();
    let (image, store) = (place.path().join("image"), place.path().join("store"));
    image_of(&changes(&inodes()), &image).unwrap();
    let first = imported(&image, &store).unwrap();
    assert_eq!((first.inodes, first.blocks, first.open_files, first.snapshots), (7, 4, 1, 0));
    assert_eq!(first.identity, identity());
    assert_eq!(Directory::lock(&store).unwrap().version().unwrap(), identity());
    let again = imported(&image, &store).unwrap_err();
    assert!(matches!(again, ImageError::Store(StoreError::AlreadyFormatted { .. })), "{again}");
}

#[test]
fn counters_follow_the_largest_numbers_in_the_image() {
    let mut changes = changes(&inodes());
    changes.counters = Some(Counters { last_block: 1, last_stamp: 1, ..changes.counters.unwrap() });
    let counters = loaded(&changes, Limits::default()).namespace.counters();
    assert_eq!((counters.last_block, counters.last_stamp), (3, 1004));
}

#[test]
fn damaged_numbers_are_refused() {
    let good = changes(&inodes());
    let counters = Some(Counters { last_block: (1 << 60) + 1, ..good.counters.unwrap() });
    let said = refusal(&Changes { counters, ..changes(&inodes()) });
    assert!(said.contains("block id"), "{said}");
    let said = refusal(&Changes { last_directive: Some(1 << 61), ..good });
    assert!(said.contains("cache directive"), "{said}");
    let mut inodes = inodes();
    inodes.insert(16403, (InodeId::ROOT.0, file(16403, "twice", &[block(2, 7)])));
    let said = refusal(&changes(&inodes));
    assert!(said.contains("block 2 is in two files"), "{said}");
}

/// Writes `bytes` as an image, with a digest that fits.
fn put_image(root: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = root.join(name);
    fs::write(&path, bytes).unwrap();
    fs::write(root.join(format!("{name}.md5")), format!("{} *{name}\n", super::hex(&Md5::digest(bytes)))).unwrap();
    path
}

#[test]
fn damaged_images_are_refused_without_a_panic() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("image");
    let written = image_of(&changes(&inodes()), &root).unwrap();
    let current = root.join("current");
    let name = super::image_name(written.txid);
    let image = fs::read(current.join(&name)).unwrap();
    // The digest does not fit.
    let mut other = image.clone();
    other[20] ^= 1;
    fs::write(current.join(&name), &other).unwrap();
    let said = imported(&root, &place.path().join("store")).unwrap_err().to_string();
    assert!(said.contains("MD5"), "{said}");
    for length in (0..image.len()).step_by(97).chain(image.len() - 6..image.len()) {
        put_image(&current, &name, &image[..length]);
        let store = place.path().join(format!("short-{length}"));
        assert!(imported(&root, &store).is_err(), "{length} of {} bytes", image.len());
        assert!(!store.join("current").exists());
    }
    // Some flipped bits are other valid images. None may cause a panic.
    for at in (8..image.len()).step_by(31) {
        let mut flipped = image.clone();
        flipped[at] ^= 0x84;
        put_image(&current, &name, &flipped);
        let store = place.path().join(format!("flipped-{at}"));
        let outcome = imported(&root, &store);
        assert_eq!(outcome.is_ok(), store.join("current").exists(), "{outcome:?}");
    }
}

#[test]
fn summary_that_announces_more_than_the_file_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("image");
    let written = image_of(&changes(&inodes()), &root).unwrap();
    let current = root.join("current");
    let name = super::image_name(written.txid);
    let mut image = fs::read(current.join(&name)).unwrap();
    let tail = image.len() - 4;
    for length in [0, u32::MAX, 1 << 31, image.len() as u32] {
        image[tail..].copy_from_slice(&length.to_be_bytes());
        put_image(&current, &name, &image);
        let said = imported(&root, &place.path().join("store")).unwrap_err();
        assert!(matches!(said, ImageError::Damaged { .. }), "{length}: {said}");
    }
}
