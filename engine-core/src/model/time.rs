//! Instants and durations in whole microseconds (T1, T3, T4).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An instant: microseconds since 1970-01-01 UTC, in the years 0001 to 9999.
///
/// Numbers are what databases compare; RFC 3339 text exists only at the borders to people and JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A duration of at least one microsecond: what deadlines are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Micros(i64);

/// Why an instant or a duration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Not RFC 3339 with an offset.
    #[error("{text:?} is not an RFC 3339 instant with an offset, such as 2026-01-31T09:30:00Z: {reason}")]
    NotRfc3339 {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Before year 0001 or after year 9999.
    #[error("the instant lies outside the years 0001 to 9999")]
    OutOfRange,
    /// A deadline needs a duration above zero.
    #[error("a duration of {micros} µs is not positive")]
    NotPositive {
        /// What was given, in microseconds.
        micros: i64,
    },
    /// Longer than 64 bits of microseconds.
    #[error("the duration is too long")]
    TooLong,
}

impl Timestamp {
    /// 0001-01-01T00:00:00Z.
    pub const MIN: Self = Self(-62_135_596_800_000_000);
    /// The last microsecond of year 9999.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// The instant `micros` after (or before) 1970-01-01 UTC.
    ///
    /// # Errors
    /// [`TimeError::OutOfRange`] outside the years 0001 to 9999.
    pub const fn from_micros(micros: i64) -> Result<Self, TimeError> {
        if micros < Self::MIN.0 || micros > Self::MAX.0 {
            return Err(TimeError::OutOfRange);
        }
        Ok(Self(micros))
    }

    /// Microseconds since 1970-01-01 UTC.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The instant `by` later.
    ///
    /// # Errors
    /// [`TimeError::OutOfRange`] past year 9999: neither wrapped nor clamped.
    pub const fn after(self, by: Micros) -> Result<Self, TimeError> {
        match self.0.checked_add(by.0) {
            Some(micros) => Self::from_micros(micros),
            None => Err(TimeError::OutOfRange),
        }
    }

    /// Time from `earlier` to `self`, zero when the clock went backward in between.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0).max(0).unsigned_abs())
    }

    /// Reads RFC 3339 with an offset. Digits past the microsecond are floored, second 60 is refused.
    ///
    /// # Errors
    /// [`TimeError::NotRfc3339`] or [`TimeError::OutOfRange`]; never a guess.
    ///
    /// # Examples
    /// ```
    /// use leasehold_core::model::Timestamp;
    /// let instant = Timestamp::parse("2026-01-31T10:30:00.0000019+01:00")?;
    /// assert_eq!(instant.to_string(), "2026-01-31T09:30:00.000001Z");
    /// assert!(Timestamp::parse("2026-01-31 10:30").is_err());
    /// # Ok::<(), leasehold_core::model::TimeError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        let refuse = |reason: &str| TimeError::NotRfc3339 { text: text.to_owned(), reason: reason.to_owned() };
        check_rfc3339_shape(text).map_err(refuse)?;
        let parsed = OffsetDateTime::parse(text, &Rfc3339).map_err(|error| refuse(&error.to_string()))?;
        // Floored, not rounded to zero: before 1970 the two differ.
        let micros = parsed.unix_timestamp_nanos().div_euclid(1_000);
        i64::try_from(micros).map_err(|_| TimeError::OutOfRange).and_then(Self::from_micros)
    }
}

/// The grammar of RFC 3339 that parsers are laxer about: four digits of year, a full time, an offset, no second 60.
fn check_rfc3339_shape(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let Some((head, rest)) = bytes.split_at_checked(shape.len()) else {
        return Err("it is too short");
    };
    let fits = head.iter().zip(shape).all(|(byte, expected)| match expected {
        b'd' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't'),
        other => byte == other,
    });
    if !fits {
        return Err("it is not of the form YYYY-MM-DDThh:mm:ss");
    }
    if head.ends_with(b"60") {
        return Err("second 60 is not supported");
    }
    if head.starts_with(b"0000") {
        return Err("the year is before 0001");
    }
    let rest = match rest.split_first() {
        Some((b'.', fraction)) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 || digits > 9 {
                return Err("the fraction needs one to nine digits");
            }
            fraction.split_at(digits).1
        }
        _ => rest,
    };
    match rest {
        [b'Z' | b'z'] => Ok(()),
        [b'+' | b'-', h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|byte| byte.is_ascii_digit()) => Ok(()),
        _ => Err("the offset is missing or not of the form Z or ±hh:mm"),
    }
}

/// RFC 3339 with `Z`, and as many digits after the second as are not zero.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000).map_err(|_| fmt::Error)?;
        f.pad(&instant.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}
impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Micros {
    /// A duration of `micros` microseconds.
    ///
    /// # Errors
    /// [`TimeError::NotPositive`] for zero and below.
    pub const fn new(micros: i64) -> Result<Self, TimeError> {
        if micros <= 0 { Err(TimeError::NotPositive { micros }) } else { Ok(Self(micros)) }
    }
    /// A duration of `n` seconds; at least one.
    pub const fn from_secs(n: u32) -> Self {
        Self(if n == 0 { 1_000_000 } else { n as i64 * 1_000_000 })
    }
    /// A duration of `n` milliseconds; at least one.
    pub const fn from_millis(n: u32) -> Self {
        Self(if n == 0 { 1_000 } else { n as i64 * 1_000 })
    }
    /// Whole microseconds.
    pub const fn get(self) -> i64 {
        self.0
    }
    /// As the standard library's type.
    pub const fn as_duration(self) -> Duration {
        Duration::from_micros(self.0.unsigned_abs())
    }
    /// The same multiplied, staying at the longest duration where it would overflow.
    #[must_use]
    pub const fn saturating_mul(self, by: u32) -> Self {
        Self(self.0.saturating_mul(by as i64).saturating_add((by == 0) as i64))
    }
}
impl TryFrom<i64> for Micros {
    type Error = TimeError;
    fn try_from(micros: i64) -> Result<Self, TimeError> {
        Self::new(micros)
    }
}
impl From<Micros> for i64 {
    fn from(micros: Micros) -> Self {
        micros.0
    }
}
impl TryFrom<Duration> for Micros {
    type Error = TimeError;
    fn try_from(duration: Duration) -> Result<Self, TimeError> {
        i64::try_from(duration.as_micros()).map_err(|_| TimeError::TooLong).and_then(Self::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rfc_3339_with_an_offset_is_an_instant() {
        for good in ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2024-02-29t23:59:59.5z", "2026-01-01T00:00:00-00:00"] {
            assert!(Timestamp::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "2026",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:60Z",
            "2026-13-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "10000-01-01T00:00:00Z",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00Z[UTC]",
            "1769000000",
            "+2026-01-01T00:00:00Z",
        ] {
            assert!(Timestamp::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn digits_past_the_microsecond_are_floored_on_both_sides_of_1970() {
        assert_eq!(Timestamp::parse("1970-01-01T00:00:00.0000019Z").unwrap().as_micros(), 1);
        assert_eq!(Timestamp::parse("1969-12-31T23:59:59.9999991Z").unwrap().as_micros(), -1);
    }

    #[test]
    fn a_deadline_past_9999_is_an_error() {
        assert_eq!(Timestamp::MAX.after(Micros::from_millis(1)), Err(TimeError::OutOfRange));
        assert_eq!(Micros::new(0), Err(TimeError::NotPositive { micros: 0 }));
    }
}
