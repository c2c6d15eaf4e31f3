//! Floating-point numbers as Java prints them: the fewest digits that identify the value, with an exponent if it is
//! large or small.

/// `Double.toString`
pub fn double(value: f64) -> String {
    shown(value, format!("{:e}", value.abs()))
}

/// `Float.toString`
pub fn float(value: f32) -> String {
    shown(f64::from(value), format!("{:e}", value.abs()))
}

/// Formats a value. `digits`: as `1.25e-3`, without a sign.
fn shown(value: f64, digits: String) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    if value.is_infinite() {
        return format!("{sign}Infinity");
    }
    if value == 0.0 {
        return format!("{sign}0.0");
    }
    let (mantissa, exponent) = digits.split_once('e').unwrap_or((&digits, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{first}{rest}");
    let or_zero = |text: &str| if text.is_empty() { "0".to_owned() } else { text.to_owned() };
    match exponent {
        0..=6 => {
            let point = exponent as usize + 1;
            let padded = format!("{all:0<point$}");
            format!("{sign}{}.{}", &padded[..point], or_zero(&padded[point..]))
        }
        -3..=-1 => format!("{sign}0.{}{all}", "0".repeat((-exponent - 1) as usize)),
        _ => format!("{sign}{first}.{}E{exponent}", or_zero(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_like_java() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (100.0, "100.0"),
            (1_234_567.0, "1234567.0"),
            (9_999_999.5, "9999999.5"),
            (1e7, "1.0E7"),
            (1.25e10, "1.25E10"),
            (0.001, "0.001"),
            (0.00125, "0.00125"),
            (0.0001, "1.0E-4"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(double(value), text);
        }
        assert_eq!(float(0.1), "0.1");
        assert_eq!(float(3.4e38), "3.4E38");
    }
}
