//! How the user can call this program, for commands that are printed and work as they are.

use std::env;
use std::path::Path;

/// Returns how the user can call this program: by its name, if that finds it, otherwise by its path.
pub fn program() -> String {
    let Ok(this) = env::current_exe() else { return "hearth".to_owned() };
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join("hearth")).find(|file| file.is_file());
    if found.and_then(|found| found.canonicalize().ok()).is_some_and(|found| found == this) {
        return "hearth".to_owned();
    }
    // Without a current directory, the whole path is left.
    let here = env::current_dir().unwrap_or_default();
    quoted(this.strip_prefix(here).unwrap_or(&this))
}

/// Returns the path of a program as a shell reads it.
fn quoted(path: &Path) -> String {
    let mut text = path.display().to_string();
    // A shell looks for a bare name in PATH only.
    if !text.contains('/') {
        text = format!("./{text}");
    }
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-+".contains(character);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quoted(Path::new("target/release/hearth")), "target/release/hearth");
        assert_eq!(quoted(Path::new("hearth")), "./hearth");
        assert_eq!(quoted(Path::new("/my programs/it's")), r"'/my programs/it'\''s'");
    }
}
