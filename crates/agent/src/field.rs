//! Fields of an agent's JSON, read without trust: what is of another type than expected counts as
//! absent, so that one changed field never costs the rest of its line. Text is borrowed from the
//! line where it has no escapes.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Text, or nothing.
#[derive(Clone, Default, Debug)]
pub(crate) struct Str<'a>(Option<Cow<'a, str>>);

impl<'a> Str<'a> {
    pub(crate) fn get(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The text, or an empty one.
    pub(crate) fn or_empty(&self) -> &str {
        self.get().unwrap_or_default()
    }
}

/// A number, or nothing.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Num(Option<f64>);

impl Num {
    pub(crate) const fn get(self) -> Option<f64> {
        self.0
    }

    /// The number as a count; what is negative, infinite or not a number counts as absent.
    pub(crate) fn count(self) -> Option<u64> {
        self.0.filter(|value| (0.0..9e15).contains(value)).map(|value| value as u64)
    }

    /// The number as an HTTP status.
    pub(crate) fn status(self) -> Option<u16> {
        self.count().and_then(|value| u16::try_from(value).ok()).filter(|&status| status >= 100)
    }
}

/// Yes or no, or nothing.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Flag(Option<bool>);

impl Flag {
    pub(crate) const fn get(self) -> Option<bool> {
        self.0
    }

    pub(crate) fn is_set(self) -> bool {
        self.0 == Some(true)
    }
}

/// What a scalar turned out to be.
enum Scalar<'de> {
    Text(Cow<'de, str>),
    Number(f64),
    Flag(bool),
    Other,
}

struct ScalarVisitor;

impl<'de> Visitor<'de> for ScalarVisitor {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Flag(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number(value))
    }

    fn visit_unit<E>(self) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Other)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match deserializer.deserialize_any(ScalarVisitor)? {
            Scalar::Text(text) => Some(text),
            Scalar::Number(_) | Scalar::Flag(_) | Scalar::Other => None,
        }))
    }
}

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match deserializer.deserialize_any(ScalarVisitor)? {
            Scalar::Number(value) => Some(value),
            Scalar::Text(_) | Scalar::Flag(_) | Scalar::Other => None,
        }))
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match deserializer.deserialize_any(ScalarVisitor)? {
            Scalar::Flag(value) => Some(value),
            Scalar::Text(_) | Scalar::Number(_) | Scalar::Other => None,
        }))
    }
}

/// A part of a line that is read later, if at all.
pub(crate) type Part<'a> = Option<&'a RawValue>;

/// Reads a part; what cannot be read counts as absent.
pub(crate) fn read<'a, T: Deserialize<'a>>(part: Part<'a>) -> Option<T> {
    serde_json::from_str(part?.get()).ok()
}

/// The raw text of a part, or nothing.
pub(crate) fn raw<'a>(part: Part<'a>) -> &'a str {
    part.map(RawValue::get).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Sample<'a> {
        #[serde(borrow, default)]
        text: Str<'a>,
        #[serde(default)]
        number: Num,
        #[serde(default)]
        flag: Flag,
        #[serde(borrow, default)]
        part: Part<'a>,
    }

    #[test]
    fn a_field_of_another_type_counts_as_absent() {
        let line = r#"{"text":{"a":[1,2]},"number":"7","flag":null,"part":[1,{"x":2}],"new":[]}"#;
        let sample: Sample<'_> = serde_json::from_str(line).unwrap();
        assert_eq!(sample.text.get(), None);
        assert_eq!(sample.number.count(), None);
        assert_eq!(sample.flag.get(), None);
        assert_eq!(read::<Vec<serde_json::Value>>(sample.part).unwrap().len(), 2);
        assert!(read::<String>(sample.part).is_none());
    }

    #[test]
    fn text_without_escapes_is_borrowed() {
        let sample: Sample<'_> = serde_json::from_str(r#"{"text":"plain","flag":true}"#).unwrap();
        assert!(matches!(sample.text.0, Some(Cow::Borrowed("plain"))));
        assert!(sample.flag.is_set());
        let sample: Sample<'_> = serde_json::from_str(r#"{"text":"a\nb","number":-3}"#).unwrap();
        assert_eq!(sample.text.get(), Some("a\nb"));
        assert_eq!(sample.number.count(), None);
        assert_eq!(sample.number.get(), Some(-3.0));
    }
}
