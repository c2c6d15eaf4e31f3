/// Formats bytes like `-h`: `512`, `1.5 K`, and without a decimal if it divides evenly, `2 G`. Source: Hadoop's
/// StringUtils.java, `TraditionalBinaryPrefix.long2String`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = (bytes.ilog2() / 10) as usize - 1;
    let value = |unit: usize| 1u64 << (10 * (unit + 1));
    if bytes.is_multiple_of(value(unit)) {
        return format!("{} {}", bytes / value(unit), UNITS[unit]);
    }
    // Rounds half up.
    let tenths = |unit: usize| (u128::from(bytes) * 10 + u128::from(value(unit)) / 2) / u128::from(value(unit));
    if tenths(unit) >= 10_240 && unit + 1 < UNITS.len() {
        unit += 1;
    }
    format!("{}.{} {}", tenths(unit) / 10, tenths(unit) % 10, UNITS[unit])
}

pub fn size(bytes: u64, humanly: bool) -> String {
    if humanly { human(bytes) } else { bytes.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_decimal_unless_even() {
        for (bytes, shown) in [
            (0u64, "0"),
            (1023, "1023"),
            (1024, "1 K"),
            (1536, "1.5 K"),
            (1280, "1.3 K"),
            (10_000, "9.8 K"),
            (1 << 20, "1 M"),
            ((1 << 20) + 1, "1.0 M"),
            ((1 << 20) - 1, "1.0 M"),
            (64 << 20, "64 M"),
            (1023 << 20, "1023 M"),
            ((1 << 30) - 1, "1.0 G"),
            (3 << 30, "3 G"),
            (u64::MAX, "16.0 E"),
        ] {
            assert_eq!(human(bytes), shown);
        }
    }
}
