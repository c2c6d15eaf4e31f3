use std::time::Duration;

/// Returns twice the delay, at most `limit`.
pub(crate) fn doubled(delay: Duration, limit: Duration) -> Duration {
    delay.saturating_mul(2).min(limit)
}

/// Returns `base` scaled by a random factor below one, so that clients do not retry in step.
pub(crate) fn random_part(base: Duration) -> Duration {
    base.mul_f64(f64::from(random_u32()) / f64::from(u32::MAX))
}

/// Returns a random number. Not for secrets: it is 0 if the source of randomness fails.
pub(crate) fn random_u32() -> u32 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u32::from_ne_bytes(bytes),
        Err(_) => 0,
    }
}
