/// Rack of a datanode without a configured one.
pub const DEFAULT_RACK: &str = "/default-rack";

/// Returns the hops between two machines through their nearest common switch: 0 on one machine, 2 in one rack, 4 across
/// racks of one level, more across deeper trees.
pub(super) fn distance(left_machine: &str, left_rack: &str, right_machine: &str, right_rack: &str) -> u32 {
    if left_machine == right_machine && left_rack == right_rack {
        return 0;
    }
    let left = left_rack.split('/').filter(|part| !part.is_empty());
    let right = right_rack.split('/').filter(|part| !part.is_empty());
    let common = left.clone().zip(right.clone()).take_while(|(a, b)| a == b).count();
    (left.count() - common + right.count() - common + 2) as u32
}

/// Normalizes a rack from a script or table to a path without a trailing slash; `None` if it is not a valid rack.
pub fn normalized_rack(text: &str) -> Option<String> {
    let trimmed = text.trim().trim_end_matches('/');
    (trimmed.starts_with('/') && trimmed.len() <= 1024).then(|| trimmed.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("a", "/r1", "a", "/r1"), 0);
        assert_eq!(distance("a", "/r1", "b", "/r1"), 2);
        assert_eq!(distance("a", "/r1", "b", "/r2"), 4);
        assert_eq!(distance("a", "/d1/r1", "b", "/d1/r2"), 4);
        assert_eq!(distance("a", "/d1/r1", "b", "/d2/r1"), 6);
    }
}
