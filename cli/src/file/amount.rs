//! Durations and sizes as people write them: `250ms`, `10s`, `5m`, `2h`; `64KiB`, `1MiB`.

use leasehold::model::Micros;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A duration above zero, written as a whole number and a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Micros);

impl Span {
    pub(crate) fn as_duration(self) -> Duration {
        self.0.as_duration()
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is not a duration: write a whole number above zero and a unit, such as 250ms, 10s, 5m or 2h");
        let (number, unit) = split(text).ok_or_else(refuse)?;
        let unit: i64 = match unit {
            "ms" => 1_000,
            "s" => 1_000_000,
            "m" => 60_000_000,
            "h" => 3_600_000_000,
            "d" => 86_400_000_000,
            _ => return Err(refuse()),
        };
        let micros = i64::try_from(number).ok().and_then(|number| number.checked_mul(unit)).ok_or_else(refuse)?;
        Micros::new(micros).map(Self).map_err(|_| refuse())
    }
}

/// A number of bytes, written as a number or with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("{text:?} is not a size: write bytes as a number, or a number and a unit, such as 64KiB or 1MiB");
        let (number, unit) = split(text).ok_or_else(refuse)?;
        let unit: u64 = match unit {
            "" | "B" => 1,
            "KiB" => 1024,
            "MiB" => 1024 * 1024,
            _ => return Err(refuse()),
        };
        number.checked_mul(unit).and_then(|bytes| usize::try_from(bytes).ok()).map(Self).ok_or_else(refuse)
    }
}

/// The leading digits and what follows them.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start()))
}

struct AmountVisitor<T> {
    expected: &'static str,
    of_number: fn(u64) -> Result<T, String>,
}

impl<T: FromStr<Err = String>> Visitor<'_> for AmountVisitor<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        (self.of_number)(number).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor {
            expected: "a duration such as \"10s\"",
            of_number: |number| Err(format!("{number} is a duration without a unit: write \"{number}s\" for seconds")),
        })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AmountVisitor {
            expected: "a size such as \"64KiB\"",
            of_number: |number| usize::try_from(number).map(Self).map_err(|_| format!("{number} bytes are too many")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_are_above_zero() {
        for (text, micros) in [("250ms", 250_000), ("10s", 10_000_000), ("5 m", 300_000_000), ("2h", 7_200_000_000), ("1d", 86_400_000_000)]
        {
            assert_eq!(text.parse::<Span>().unwrap().0.get(), micros, "{text}");
        }
        for bad in ["", "10", "0s", "-1s", "1.5s", "10 parsecs", "s", "99999999999999999999s", "9223372036854775807h"] {
            assert!(bad.parse::<Span>().unwrap_err().contains("such as"), "{bad}");
        }
    }

    #[test]
    fn sizes_are_numbers_or_carry_a_unit() {
        for (text, bytes) in [("0", 0), ("512", 512), ("64KiB", 65_536), ("1 MiB", 1_048_576)] {
            assert_eq!(text.parse::<Size>().unwrap().0, bytes, "{text}");
        }
        for bad in ["", "64kb", "-1", "1GiB", "99999999999999999999"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
