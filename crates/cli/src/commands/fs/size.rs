/// Bytes as `-h` prints them: `512`, `1.5 K`, `2.0 G`.
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let units = ["K", "M", "G", "T", "P", "E"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    // Rounding must not show 1024.0 of the smaller unit.
    if value >= 1023.95 && unit + 1 < units.len() {
        value = 1.0;
        unit += 1;
    }
    format!("{value:.1} {}", units[unit])
}

pub fn size(bytes: u64, humanly: bool) -> String {
    if humanly { human(bytes) } else { bytes.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_with_one_decimal() {
        for (bytes, shown) in [
            (0u64, "0"),
            (1023, "1023"),
            (1024, "1.0 K"),
            (1536, "1.5 K"),
            (1 << 20, "1.0 M"),
            ((1 << 20) - 1, "1.0 M"),
            (3 << 30, "3.0 G"),
            (u64::MAX, "16.0 E"),
        ] {
            assert_eq!(human(bytes), shown);
        }
    }
}
