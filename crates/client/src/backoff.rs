use std::time::Duration;

/// Twice as long, at most `limit`.
pub(crate) fn doubled(delay: Duration, limit: Duration) -> Duration {
    delay.saturating_mul(2).min(limit)
}

/// `base` scaled by a random factor below one, so that clients do not come back in step.
pub(crate) fn random_part(base: Duration) -> Duration {
    base.mul_f64(f64::from(random_u32()) / f64::from(u32::MAX))
}

/// Not for secrets: a failing source of randomness gives 0.
pub(crate) fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u32::from_ne_bytes(bytes),
        Err(_) => 0,
    }
}
