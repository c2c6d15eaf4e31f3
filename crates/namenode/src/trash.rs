//! The emptier of all users' trash; clients only move files there. Each round turns the files deleted since the last
//! round into a checkpoint, and removes checkpoints that are old enough for good. Source: `TrashPolicyDefault.Emptier`,
//! which Apache's NameNode runs.

use std::sync::Arc;
use std::time::Duration;

use hearth_config::{ConfigError, Configuration, keys};
use hearth_types::Calendar;
use hearth_wire::proto::hdfs::{DeleteRequestProto, Rename2RequestProto};

use crate::Error;
use crate::audit::Event;
use crate::namespace::Caller;
use crate::ops::{delete::delete, rename::rename2};
use crate::state::{CallContext, Namenode};

/// Directory of deleted files before the next checkpoint.
const CURRENT: &str = "Current";

/// Limit of names tried for a checkpoint if one of the same second exists.
const NAMES_MAX: u32 = 1000;

/// Configuration of the emptier.
#[derive(Clone, Debug)]
pub struct TrashSettings {
    /// `fs.trash.interval`: age from which a checkpoint is removed.
    pub age: Duration,
    /// `fs.trash.checkpoint.interval`: time between rounds.
    pub every: Duration,
    /// `dfs.user.home.dir.prefix`: the parent of the users' directories.
    pub homes: String,
}

impl TrashSettings {
    /// Returns `None` if trash is off.
    pub fn read(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        let age = conf.get(keys::FS_TRASH_INTERVAL)?;
        let every = match conf.get(keys::FS_TRASH_CHECKPOINT_INTERVAL)? {
            every if every.is_zero() || every > age => age,
            every => every,
        };
        let homes = conf.get(keys::DFS_USER_HOME_DIR_PREFIX)?.trim_end_matches('/').to_owned();
        Ok((!age.is_zero()).then_some(Self { age, every, homes }))
    }
}

/// Runs a round each time that the wall clock is a multiple of the interval, as long as the NameNode runs.
pub async fn run(namenode: Arc<Namenode>, settings: TrashSettings) {
    let every = (settings.every.as_millis() as u64).max(1);
    loop {
        let wait = every - namenode.clock.wall_ms() % every;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if !namenode.read().blocks.in_safe_mode() {
            empty(&namenode, &settings).await;
        }
    }
}

/// Runs one round.
pub async fn empty(namenode: &Namenode, settings: &TrashSettings) {
    for root in roots(namenode, &settings.homes) {
        if let Err(error) = empty_one(namenode, settings, &root).await {
            tracing::warn!(root, %error, "cannot process a user's trash in this round");
        }
    }
}

/// Returns the `.Trash` of each user that has one.
fn roots(namenode: &Namenode, homes: &str) -> Vec<String> {
    children(namenode, homes).into_iter().map(|home| format!("{homes}/{home}/.Trash")).collect()
}

/// Returns the names in the directory at `path`; none if it does not exist.
fn children(namenode: &Namenode, path: &str) -> Vec<String> {
    let state = namenode.read();
    let namespace = &state.namespace;
    let top = if path.is_empty() { "/" } else { path };
    let directory = namespace.lookup(top).map(|slot| namespace.inode(slot));
    let children = directory.and_then(|directory| directory.children());
    let name = |slot| namespace.path_of(slot).rsplit('/').next().unwrap_or_default().to_owned();
    children.map(|children| children.iter().map(name).collect()).unwrap_or_default()
}

async fn empty_one(namenode: &Namenode, settings: &TrashSettings, root: &str) -> Result<(), Error> {
    let now_ms = namenode.clock.wall_ms();
    let caller = Caller {
        user: namenode.groups.owner().into(),
        groups: [].into(),
        superuser: true,
        machine: "127.0.0.1".into(),
    };
    let context = || CallContext::new(caller.clone(), None);
    let names = children(namenode, root);
    for name in &names {
        let Some(made_ms) = Calendar::checkpoint_ms(name) else { continue };
        if now_ms.saturating_sub(made_ms) <= settings.age.as_millis() as u64 {
            continue;
        }
        let src = format!("{root}/{name}");
        delete(namenode, &context(), DeleteRequestProto { src: src.clone(), recursive: true }).await?;
        tracing::info!(checkpoint = src, "deleted a trash checkpoint");
        note(namenode, &caller, "delete", &src, None).await;
    }
    if !names.iter().any(|name| name == CURRENT) {
        return Ok(());
    }
    let src = format!("{root}/{CURRENT}");
    let mut attempt = 0;
    loop {
        let dst = format!("{root}/{}", Calendar::checkpoint_name(now_ms, attempt));
        let request =
            Rename2RequestProto { src: src.clone(), dst: dst.clone(), overwrite_dest: false, move_to_trash: None };
        match rename2(namenode, &context(), request).await {
            Ok(_) => {
                tracing::info!(checkpoint = dst, "created a trash checkpoint");
                note(namenode, &caller, "rename (options=[NONE])", &src, Some(&dst)).await;
                return Ok(());
            }
            Err(Error::RenameExists { .. }) if attempt < NAMES_MAX => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

async fn note(namenode: &Namenode, caller: &Caller, command: &str, source: &str, target: Option<&str>) {
    let Some(log) = &namenode.audit else { return };
    let (user, machine) = (&*caller.user, &*caller.machine);
    log.write(Event { allowed: true, user, machine, command, source: Some(source), target, ..Event::default() }).await;
}
