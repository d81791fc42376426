//! What enters from outside, as it never should: every text is read or refused, and what is read comes back the same.

#![expect(clippy::unwrap_used, reason = "a test")]

use leasehold_core::model::{Digest, Json, OpId, Timestamp, WorkflowName, canonical_json};
use proptest::prelude::*;
use serde_json::{Map, Number, Value, json};

/// Text that is nearly an instant.
fn nearly_instants() -> impl Strategy<Value = String> {
    let number = |digits: &'static str| proptest::string::string_regex(digits).unwrap();
    let parts = (
        number("[0-9]{3,5}"),
        number("[0-9]{1,3}"),
        number("[0-9]{1,3}"),
        prop::sample::select(vec!["T", "t", " ", "_", ""]),
        number("[0-9]{1,3}"),
        number("[0-9]{1,3}"),
        number("[0-9]{1,3}(\\.[0-9]{0,12})?"),
        prop::sample::select(vec!["Z", "z", "", "+00:00", "-23:59", "+24:00", "+9:00", "+0900", "Zulu", "−01:00"]),
    );
    parts.prop_map(|(year, month, day, t, hour, minute, second, zone)| format!("{year}-{month}-{day}{t}{hour}:{minute}:{second}{zone}"))
}

/// JSON values whose numbers a double holds.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-9_007_199_254_740_992_i64..=9_007_199_254_740_992).prop_map(|number| json!(number)),
        any::<f64>().prop_filter_map("finite", Number::from_f64).prop_map(Value::Number),
        ".*".prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            prop::collection::vec((".{0,4}", inner), 0..8).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The same value with the members of every object the other way round.
fn turned(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(turned).collect()),
        Value::Object(members) => {
            Value::Object(members.iter().rev().map(|(key, value)| (key.clone(), turned(value))).collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_an_instant_or_refused(text in prop_oneof![".*", nearly_instants()]) {
        if let Ok(instant) = Timestamp::parse(&text) {
            prop_assert_eq!(Timestamp::parse(&instant.to_string()), Ok(instant), "{}", text);
            prop_assert!(instant >= Timestamp::MIN && instant <= Timestamp::MAX);
        }
    }

    #[test]
    fn every_instant_reads_back_as_it_is_written(micros in Timestamp::MIN.as_micros()..=Timestamp::MAX.as_micros()) {
        let instant = Timestamp::from_micros(micros).unwrap();
        prop_assert_eq!(Timestamp::parse(&instant.to_string()), Ok(instant));
    }

    #[test]
    fn any_text_is_json_or_refused(text in prop_oneof![".*", "[\\[\\]{}\",:0-9eE.+ \\\\u-]{0,60}"]) {
        if let Ok(json) = Json::parse(text.as_str()) {
            prop_assert_eq!(json.as_str(), text.as_str(), "it is kept as given");
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        }
    }

    #[test]
    fn canonical_json_is_read_as_the_same_value_and_is_canonical(value in values()) {
        let canonical = canonical_json(&value).unwrap();
        let again: Value = serde_json::from_str(&canonical).unwrap();
        // A double past 2^53 is spelled as an integer that no double holds exactly: read again that is refused, not rounded.
        if let Ok(twice) = canonical_json(&again) {
            prop_assert_eq!(twice, canonical.clone());
            prop_assert_eq!(Digest::of(&again).unwrap(), Digest::of(&value).unwrap());
        }
    }

    #[test]
    fn the_order_of_members_does_not_change_a_digest(value in values()) {
        prop_assert_eq!(Digest::of(&turned(&value)).unwrap(), Digest::of(&value).unwrap());
    }

    #[test]
    fn any_text_is_a_name_or_refused(text in ".*") {
        for kept in [OpId::new(text.as_str()).map(|id| id.to_string()), WorkflowName::new(text.as_str()).map(|name| name.to_string())].into_iter().flatten() {
            prop_assert_eq!(&kept, &text);
        }
    }
}

/// RFC 8785, appendix B: bits of a double, and how it is spelled.
const NUMBERS: &[(u64, &str)] = &[
    (0x0000_0000_0000_0000, "0"),
    (0x8000_0000_0000_0000, "0"),
    (0x0000_0000_0000_0001, "5e-324"),
    (0x8000_0000_0000_0001, "-5e-324"),
    (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
    (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
    (0x4340_0000_0000_0000, "9007199254740992"),
    (0xc340_0000_0000_0000, "-9007199254740992"),
    (0x4430_0000_0000_0000, "295147905179352830000"),
    (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
    (0x44b5_2d02_c7e1_4af6, "1e+23"),
    (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
    (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
    (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
    (0x444b_1ae4_d6e2_ef50, "1e+21"),
    (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
    (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
    (0x41b3_de43_5555_5553, "333333333.3333332"),
    (0x41b3_de43_5555_5554, "333333333.33333325"),
    (0x41b3_de43_5555_5555, "333333333.3333333"),
    (0x41b3_de43_5555_5556, "333333333.3333334"),
    (0x41b3_de43_5555_5557, "333333333.33333343"),
    (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
    (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
];

#[test]
fn the_published_numbers_of_rfc_8785_are_spelled_as_published() {
    for (bits, spelled) in NUMBERS {
        assert_eq!(canonical_json(&f64::from_bits(*bits)).unwrap(), *spelled, "{bits:016x}");
    }
}
