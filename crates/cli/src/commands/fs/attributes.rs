//! `-chmod`, `-chown`, `-chgrp`

use hearth_types::FsPermission;

use super::failure::Failure;
use super::item::Item;
use super::options::Arguments;
use super::shell::Shell;
use super::walk::{Visit, walk};

/// One clause of a symbolic mode, or an octal one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Clause {
    /// Bits of the affected classes (`u` 0700, `g` 0070, `o` 0007), and the sticky bit.
    classes: u16,
    operator: char,
    bits: u16,
    /// `X`: execute for directories and for files that already have an execute bit.
    conditional_execute: bool,
    sticky: bool,
}

/// A parsed mode argument of chmod.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Mode {
    Octal(u16),
    Symbolic(Vec<Clause>),
}

impl Mode {
    fn parse(text: &str) -> Option<Self> {
        if let Some(bits) = octal(text) {
            return Some(Self::Octal(bits));
        }
        let clauses: Option<Vec<_>> = text.split(',').map(clause).collect();
        Some(Self::Symbolic(clauses?))
    }

    fn applied(&self, before: FsPermission, directory: bool) -> FsPermission {
        let clauses = match self {
            Self::Octal(bits) => return FsPermission(*bits),
            Self::Symbolic(clauses) => clauses,
        };
        let mut mode = before.0;
        for clause in clauses {
            let mut bits = clause.bits;
            if clause.conditional_execute && (directory || mode & 0o111 != 0) {
                bits |= 0o111;
            }
            bits &= clause.classes;
            mode = match clause.operator {
                '+' => mode | bits,
                '-' => mode & !bits,
                _ => mode & !clause.classes | bits,
            };
            if clause.sticky {
                mode = if clause.operator == '-' { mode & !0o1000 } else { mode | 0o1000 };
            }
        }
        FsPermission(mode & FsPermission::MASK)
    }
}

/// Parses three digits, or four with the sticky bit in front. Fewer digits are ambiguous, because it is unclear which
/// classes they are for. A plus sign before them is ignored. Source: ChmodParser.java.
fn octal(text: &str) -> Option<u16> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if !matches!(digits.len(), 3 | 4) || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    u16::from_str_radix(digits, 8).ok().filter(|bits| *bits <= FsPermission::MASK)
}

fn clause(text: &str) -> Option<Clause> {
    let at = text.find(['+', '-', '='])?;
    let mut classes = 0;
    for letter in text[..at].chars() {
        classes |= match letter {
            'u' => 0o700,
            'g' => 0o070,
            'o' => 0o007,
            'a' => 0o777,
            _ => return None,
        };
    }
    let mut clause = Clause {
        classes: if classes == 0 { 0o777 } else { classes },
        operator: text[at..].chars().next()?,
        bits: 0,
        conditional_execute: false,
        sticky: false,
    };
    for letter in text[at + 1..].chars() {
        match letter {
            'r' => clause.bits |= 0o444,
            'w' => clause.bits |= 0o222,
            'x' => clause.bits |= 0o111,
            'X' => clause.conditional_execute = true,
            't' => clause.sticky = true,
            _ => return None,
        }
    }
    Some(clause)
}

/// Change to apply to each path.
enum ChangeAttribute {
    Mode(Mode),
    Owner { user: Option<String>, group: Option<String> },
}

impl Visit for ChangeAttribute {
    async fn visit(&self, _: &mut Shell, item: &Item) -> Result<(), Failure> {
        let status = item.status()?;
        match self {
            Self::Mode(mode) => {
                let wanted = mode.applied(status.permission, item.is_directory());
                if wanted == status.permission {
                    return Ok(());
                }
                let done = item.store.set_permission(&item.path, &item.shown, wanted).await;
                done.map_err(|why| Failure::Message(format!("changing permissions of '{}': {why}", item.shown)))
            }
            Self::Owner { user, group } => {
                let user = user.as_deref().filter(|user| *user != status.owner);
                let group = group.as_deref().filter(|group| *group != status.group);
                if user.is_none() && group.is_none() {
                    return Ok(());
                }
                let done = item.store.set_owner(&item.path, &item.shown, user, group).await;
                done.map_err(|why| Failure::Message(format!("changing ownership of '{}': {why}", item.shown)))
            }
        }
    }
}

pub async fn chmod(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let text = arguments.rest.remove(0);
    let wrong = || Failure::Usage(format!("chmod : mode '{text}' does not match the expected pattern."));
    let mode = Mode::parse(&text).ok_or_else(wrong)?;
    change(shell, &arguments, ChangeAttribute::Mode(mode)).await
}

pub async fn chown(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let text = arguments.rest.remove(0);
    let (user, group) = owner_and_group(&text)?;
    change(shell, &arguments, ChangeAttribute::Owner { user, group }).await
}

/// Parses `owner`, `owner:`, `owner:group` or `:group`.
fn owner_and_group(text: &str) -> Result<(Option<String>, Option<String>), Failure> {
    let plain = text.trim_matches(IS_SPACE);
    let (user, group) = plain.split_once(':').unwrap_or((plain, ""));
    if !is_name(user) || !is_name(group) {
        return Err(Failure::Usage(format!("'{text}' does not match expected pattern for [owner][:group].")));
    }
    if user.is_empty() && group.is_empty() {
        return Err(Failure::Usage(format!("'{text}' does not specify owner or group.")));
    }
    let some = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    Ok((some(user), some(group)))
}

pub async fn chgrp(shell: &mut Shell, mut arguments: Arguments) -> Result<(), Failure> {
    let text = arguments.rest.remove(0);
    let group = text.trim_matches(IS_SPACE);
    if group.is_empty() || !is_name(group) {
        return Err(Failure::Usage(format!("'{text}' does not match expected pattern for group")));
    }
    change(shell, &arguments, ChangeAttribute::Owner { user: None, group: Some(group.to_owned()) }).await
}

const IS_SPACE: [char; 6] = [' ', '\t', '\n', '\u{b}', '\u{c}', '\r'];

/// Returns whether `text` is a valid name of a user or group, or empty. Source: FsShellPermissions.java.
fn is_name(name: &str) -> bool {
    name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-+_./@".contains(letter))
}

async fn change(shell: &mut Shell, arguments: &Arguments, change: ChangeAttribute) -> Result<(), Failure> {
    for item in shell.existing(&arguments.rest).await? {
        walk(shell, &item, &change, arguments.has("R")).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_and_groups_parse_like_hadoop() {
        let read = |text: &str| owner_and_group(text).map_err(|failure| failure.to_string());
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(read("ann"), Ok((some("ann"), None)));
        assert_eq!(read(" ann:\n"), Ok((some("ann"), None)));
        assert_eq!(read("a+b@c/d:e_f.g"), Ok((some("a+b@c/d"), some("e_f.g"))));
        assert_eq!(read(":staff"), Ok((None, some("staff"))));
        for wrong in ["a b", "a:b:c", "a: b", "ä", "a,b", "$x"] {
            assert!(
                read(wrong).unwrap_err().ends_with("does not match expected pattern for [owner][:group]."),
                "{wrong}"
            );
        }
        for wrong in ["", ":", "  "] {
            assert!(read(wrong).unwrap_err().ends_with("does not specify owner or group."), "{wrong}");
        }
    }

    #[test]
    fn modes_apply_like_chmod() {
        for (mode, before, directory, after) in [
            ("755", 0o600, false, 0o755),
            ("1777", 0o600, true, 0o1777),
            ("0640", 0o1777, true, 0o640),
            ("+007", 0o600, false, 0o007),
            ("u+x", 0o644, false, 0o744),
            ("go-rwx", 0o755, false, 0o700),
            ("a=r", 0o777, false, 0o444),
            ("+w", 0o444, false, 0o666),
            ("u=rw,g=r,o=", 0o777, false, 0o640),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o744, false, 0o755),
            ("a+X", 0o644, true, 0o755),
            ("+t", 0o755, true, 0o1755),
            ("-t", 0o1755, true, 0o755),
            ("-rwx", 0o755, false, 0),
        ] {
            let parsed = Mode::parse(mode).unwrap();
            assert_eq!(parsed.applied(FsPermission(before), directory), FsPermission(after), "{mode}");
        }
        for wrong in ["", "9", "7", "75", "+75", "888", "2777", "00755", "++755", "755,u+x", "u", "u*x", "z+x", "u+q"] {
            assert_eq!(Mode::parse(wrong), None, "{wrong}");
        }
    }
}
