/// Returns the name of the user that runs this process, from the password file. Returns the user's number if the file
/// has no name for it.
pub fn os_user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_of(uid, &text).map_or_else(|| uid.to_string(), str::to_owned)
}

fn name_of(uid: u32, passwd: &str) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n# comment\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(name_of(1000, passwd), Some("ada"));
        assert_eq!(name_of(7, passwd), None);
    }
}
