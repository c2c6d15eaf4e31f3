//! `-getfacl`, `-setfacl`

use hearth_types::{AclChange, AclEntry, AclScope, AclStatus, FileFlags, FsPermission, effective_access, whole_acl};

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::store::Store;
use super::walk::{Visit, walk};

fn usage(what: &str) -> Failure {
    Failure::Usage(what.to_owned())
}

/// Returns the only path of a command line.
pub fn only_path(arguments: &[String]) -> Result<&[String], Failure> {
    match arguments.len() {
        0 => Err(usage("<path> is missing")),
        1 => Ok(arguments),
        _ => Err(usage("Too many arguments")),
    }
}

pub async fn getfacl(shell: &mut Shell, arguments: Arguments) -> Result<(), Failure> {
    for item in shell.existing(only_path(&arguments.rest)?).await? {
        walk(shell, &item, &ShowAcl, arguments.has("R")).await;
    }
    Ok(())
}

struct ShowAcl;

impl Visit for ShowAcl {
    async fn visit(&self, shell: &mut Shell, item: &Item) -> Result<(), Failure> {
        let status = item.status()?;
        let acl = match &item.store {
            Store::Hdfs(fs) if status.flags.contains(FileFlags::HAS_ACL) => {
                fs.acl(&item.path).await.map_err(|error| Failure::of(&item.shown, error))?
            }
            _ => AclStatus {
                owner: status.owner.clone(),
                group: status.group.clone(),
                permission: status.permission,
                entries: Vec::new(),
            },
        };
        shell.line(format_args!("# file: {}", item.shown));
        shell.line(format_args!("# owner: {}", status.owner));
        shell.line(format_args!("# group: {}", status.group));
        if acl.permission.0 & 0o1000 != 0 {
            shell.line(format_args!("# flags: --{}", if acl.permission.0 & 1 != 0 { "t" } else { "T" }));
        }
        for scope in [AclScope::Access, AclScope::Default] {
            let whole = acl.whole(scope);
            for entry in &whole {
                let granted = effective_access(entry, &whole);
                if granted == entry.access {
                    shell.line(entry);
                } else {
                    shell.line(format_args!("{entry}\t#effective:{}", granted.letters()));
                }
            }
        }
        shell.line("");
        Ok(())
    }
}

pub async fn setfacl(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let given = |flag: &str| usize::from(arguments.has(flag));
    if given("b") + given("k") + given("m") + given("x") + given("-set") > 1 {
        return Err(usage("Specified flags contains both remove and modify flags"));
    }
    let with_entries = ["m", "x", "-set"].into_iter().find(|flag| arguments.has(flag));
    let mut entries = Vec::new();
    if let Some(flag) = with_entries {
        match arguments.rest.len() {
            0 => return Err(usage("Missing arguments: <acl_spec> <path>")),
            1 => return Err(usage("Missing either <acl_spec> or <path>")),
            _ => {}
        }
        let spec = arguments.rest.remove(0);
        entries = AclEntry::parse_all(&spec, flag != "x").map_err(|error| Failure::Usage(error.to_string()))?;
        if entries.is_empty() {
            return Err(usage("Missing <acl_spec> entry"));
        }
    }
    let path = only_path(&arguments.rest)?;
    let recursive = arguments.has("R");
    let of: fn(Vec<AclEntry>) -> AclChange = match with_entries {
        Some("m") => AclChange::Modify,
        Some("x") => AclChange::Remove,
        Some(_) => AclChange::Set,
        None if arguments.has("b") => |_| AclChange::RemoveAll,
        None if arguments.has("k") => |_| AclChange::RemoveDefault,
        None => return Err(usage("Expected one of -b, -k, -m, -x or --set options")),
    };
    // Only directories have default entries. With -R, files get the other entries, if there are any.
    let of_files: Vec<_> = match recursive {
        true => entries.iter().filter(|entry| entry.scope == AclScope::Access).cloned().collect(),
        false => entries.clone(),
    };
    let files = (with_entries.is_none() || !of_files.is_empty()).then(|| of(of_files));
    let change = ChangeAcl { directories: of(entries), files };
    for item in shell.existing(path).await? {
        walk(shell, &item, &change, recursive).await;
    }
    Ok(())
}

struct ChangeAcl {
    directories: AclChange,
    /// Change for files. `None`: nothing to change.
    files: Option<AclChange>,
}

impl Visit for ChangeAcl {
    async fn visit(&self, _: &mut Shell, item: &Item) -> Result<(), Failure> {
        let change = if item.is_directory() { Some(&self.directories) } else { self.files.as_ref() };
        match change {
            Some(change) => apply(change, item).await,
            None => Ok(()),
        }
    }
}

async fn apply(change: &AclChange, item: &Item) -> Result<(), Failure> {
    match &item.store {
        Store::Hdfs(fs) => fs.change_acl(&item.path, change).await.map_err(|error| Failure::of(&item.shown, error)),
        _ => Err(Failure::path(&item.shown, "changing ACLs of local files is not supported: use setfacl(1)")),
    }
}

/// Gives `target` the ACL of `source` if that has entries beyond its mode bits.
pub async fn copy(source: &Item, target: &Item) -> Result<(), Failure> {
    let status = source.status()?;
    let Store::Hdfs(fs) = &source.store else { return Ok(()) };
    if !status.flags.contains(FileFlags::HAS_ACL) {
        return Ok(());
    }
    let acl = fs.acl(&source.path).await.map_err(|error| Failure::of(&source.shown, error))?;
    apply(&AclChange::Set(entries(status.permission, &acl.entries)), target).await
}

/// Returns all entries, including those that the mode bits stand for. The NameNode rejects an ACL without them.
fn entries(permission: FsPermission, stored: &[AclEntry]) -> Vec<AclEntry> {
    let scopes = [AclScope::Access, AclScope::Default];
    scopes.into_iter().flat_map(|scope| whole_acl(permission, stored, scope)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_acl_is_complete() {
        let copied = |permission, stored| -> Vec<String> {
            let stored = AclEntry::parse_all(stored, true).unwrap();
            entries(FsPermission(permission), &stored).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            copied(0o1750, "user:bruce:rwx,group::r--"),
            ["user::rwx", "user:bruce:rwx", "group::r--", "mask::r-x", "other::---"]
        );
        assert_eq!(
            copied(0o750, "default:user::rwx,default:group::r-x,default:other::---"),
            ["user::rwx", "group::r-x", "other::---", "default:user::rwx", "default:group::r-x", "default:other::---"]
        );
    }
}
