//! Group membership from the machine's group file, for the administration of this DataNode.

/// Returns true if `user` is listed as a member of `group` in `/etc/group`. Returns false if the file cannot be read.
pub fn is_member(user: &str, group: &str) -> bool {
    std::fs::read_to_string("/etc/group").is_ok_and(|text| lists_member(&text, user, group))
}

/// `text`: lines of `name:password:number:member,member`.
fn lists_member(text: &str, user: &str, group: &str) -> bool {
    !user.is_empty()
        && text.lines().any(|line| {
            let mut fields = line.split(':');
            fields.next() == Some(group)
                && fields.nth(2).is_some_and(|members| members.split(',').any(|member| member.trim() == user))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_in_fourth_field() {
        let text = "root:x:0:\nsupergroup:x:1001:alice,bob\n";
        assert!(lists_member(text, "bob", "supergroup"));
        assert!(!lists_member(text, "carol", "supergroup"));
        assert!(!lists_member(text, "bob", "root"));
        assert!(!lists_member(text, "", "root"));
    }
}
