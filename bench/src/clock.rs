//! Times, and what many of them amount to.

use std::time::{Duration, Instant};

/// Runs `body` and says how long it took.
pub(crate) fn timed<T, E>(body: impl FnOnce() -> Result<T, E>) -> Result<(T, Duration), E> {
    let begun = Instant::now();
    let value = body()?;
    Ok((value, begun.elapsed()))
}

/// `count` things in `took`, a second.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub(crate) fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// Microseconds of `took`.
pub(crate) fn micros(took: Duration) -> f64 {
    took.as_secs_f64() * 1e6
}

/// The middle one.
pub(crate) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which `share` of all lie.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place in a list that fits in memory"
)]
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (share * (sorted.len().saturating_sub(1)) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// A ratio a round, of what was measured side by side.
pub(crate) fn ratios(numerators: &[f64], denominators: &[f64]) -> Vec<f64> {
    numerators.iter().zip(denominators).map(|(over, under)| over / under).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "values are handed on as they are")]
    fn a_quantile_is_a_value_that_was_measured() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.99), 5.0);
        assert!(median(&[]).is_nan());
    }
}
