//! What makes two requests the same workflow (I1 to I3).

use super::{WorkflowId, WorkflowName};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::fmt;
use uuid::Uuid;

/// SHA-256 of a canonical identity. Stored in place of the identity itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

/// Why a value cannot be an identity.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A number beyond 2^53 or one that no double holds: RFC 8785 would round it, and two identities would meet.
    #[error("the identity's number {number} is not held exactly by a double; send it as a string")]
    Number {
        /// The number.
        number: String,
    },
    /// It does not serialise.
    #[error("the identity does not serialise to JSON")]
    Serialise(#[source] serde_json::Error),
}

impl Digest {
    /// The digest of `identity`'s canonical JSON (RFC 8785), so that key order, white space and number spelling do not matter.
    ///
    /// # Errors
    /// [`IdentityError`] when it does not serialise or holds a number that canonical JSON would round.
    ///
    /// # Examples
    /// ```
    /// use leasehold_core::model::Digest;
    /// use serde_json::json;
    /// assert_eq!(Digest::of(&json!({"a": 1, "b": 2}))?, Digest::of(&json!({"b": 2, "a": 1.0}))?);
    /// assert!(Digest::of(&json!(9007199254740993_u64)).is_err());
    /// # Ok::<(), leasehold_core::model::IdentityError>(())
    /// ```
    pub fn of<T: Serialize + ?Sized>(identity: &T) -> Result<Self, IdentityError> {
        Ok(Self(Sha256::digest(canonical_json(identity)?.as_bytes()).into()))
    }

    /// The digest of bytes that are canonical already.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// `value` as canonical JSON by RFC 8785.
///
/// # Errors
/// [`IdentityError`] as for [`Digest::of`].
pub fn canonical_json<T: Serialize + ?Sized>(value: &T) -> Result<String, IdentityError> {
    let value = serde_json::to_value(value).map_err(IdentityError::Serialise)?;
    check_numbers(&value)?;
    serde_json_canonicalizer::to_string(&value).map_err(IdentityError::Serialise)
}

fn check_numbers(value: &serde_json::Value) -> Result<(), IdentityError> {
    use serde_json::Value;
    /// Every integer up to here is a double (2^53).
    const EXACT_MAX: u64 = 9_007_199_254_740_992;
    match value {
        Value::Number(number) => {
            let exact = match (number.as_u64(), number.as_i64()) {
                (Some(n), _) => n <= EXACT_MAX || power_of_two_multiple(n),
                (None, Some(n)) => n.unsigned_abs() <= EXACT_MAX || power_of_two_multiple(n.unsigned_abs()),
                (None, None) => true,
            };
            if exact { Ok(()) } else { Err(IdentityError::Number { number: number.to_string() }) }
        }
        Value::Array(items) => items.iter().try_for_each(check_numbers),
        Value::Object(members) => members.values().try_for_each(check_numbers),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// Whether `n` fits in a double's 53 bits of precision.
fn power_of_two_multiple(n: u64) -> bool {
    64 - n.leading_zeros() - n.trailing_zeros() <= 53
}

/// The id of the workflow `name` with identity `digest`: the same everywhere, for ever (a version 8 UUID).
pub fn derived_id(name: &WorkflowName, digest: &Digest) -> WorkflowId {
    let mut hash = Sha256::new();
    hash.update((name.as_str().len() as u64).to_be_bytes());
    hash.update(name.as_str().as_bytes());
    hash.update(digest.0);
    let full: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(full).for_each(|(to, from)| *to = from);
    fresh_from(Uuid::new_v8(bytes))
}

/// A new id that sorts by its time of making (a version 7 UUID).
pub fn fresh_id() -> WorkflowId {
    fresh_from(Uuid::now_v7())
}

fn fresh_from(uuid: Uuid) -> WorkflowId {
    match WorkflowId::new(uuid.to_string()) {
        Ok(id) => id,
        Err(_) => unreachable!("a UUID is a valid id"),
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
impl std::str::FromStr for Digest {
    type Err = NotADigest;
    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let refuse = || NotADigest(text.to_owned());
        if text.len() != 64 || !text.is_ascii() {
            return Err(refuse());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let pair = text.get(2 * at..2 * at + 2).ok_or_else(refuse)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| refuse())?;
        }
        Ok(Self(bytes))
    }
}

/// A text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a SHA-256 digest")]
pub struct NotADigest(String);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The example of RFC 8785, section 3.2.2 to 3.2.4.
    #[test]
    fn the_published_vector_of_rfc_8785_holds() {
        let given = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let value: serde_json::Value = serde_json::from_str(given).unwrap();
        let expected =
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(canonical_json(&value).unwrap(), expected);
    }

    /// Section 3.2.3: members sort by UTF-16 code units.
    #[test]
    fn members_sort_by_utf_16() {
        let value = json!({"\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7});
        let canonical = canonical_json(&value).unwrap();
        let order: Vec<usize> = (1..=7).map(|n| canonical.find(&format!(":{n}")).unwrap()).collect();
        let mut by_place: Vec<(usize, usize)> = order.into_iter().zip(1..).collect();
        by_place.sort_unstable();
        assert_eq!(by_place.into_iter().map(|(_, n)| n).collect::<Vec<_>>(), [2, 4, 6, 7, 1, 5, 3]);
    }

    #[test]
    fn a_number_that_a_double_would_round_is_refused() {
        assert!(Digest::of(&json!(9_007_199_254_740_992_u64)).is_ok());
        assert!(Digest::of(&json!({"a": [9_007_199_254_740_993_u64]})).is_err());
        assert!(Digest::of(&json!(-9_007_199_254_740_993_i64)).is_err());
        assert!(Digest::of(&json!(1_u64 << 63)).is_ok());
    }

    #[test]
    fn an_id_is_derived_from_name_and_digest() {
        let digest = Digest::of(&json!({"tenant": "a"})).unwrap();
        let (a, b) = (WorkflowName::new("a").unwrap(), WorkflowName::new("b").unwrap());
        assert_eq!(derived_id(&a, &digest), derived_id(&a, &digest));
        assert_ne!(derived_id(&a, &digest), derived_id(&b, &digest));
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
    }
}
