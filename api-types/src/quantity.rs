//! Amounts of cpu, memory and disk in the notation of Kubernetes: `900m`, `2`, `3906250Ki`, `4Gi`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// An amount in thousandths (of a core, or of a byte), so that `900m` of a core is exact.
///
/// ```
/// use ha_api_types::quantity::Quantity;
///
/// let memory: Quantity = "4096Mi".parse().unwrap();
/// assert_eq!(memory, Quantity::from_units(4 << 30));
/// assert_eq!(memory.to_string(), "4Gi");
/// assert_eq!("900m".parse::<Quantity>().unwrap().milli(), 900);
/// assert!("4 GB".parse::<Quantity>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    milli: i128,
}

impl Quantity {
    /// Builds a quantity from thousandths.
    pub const fn from_milli(milli: i128) -> Quantity {
        Quantity { milli }
    }

    /// Builds a quantity from whole units (cores, bytes).
    pub const fn from_units(units: i128) -> Quantity {
        Quantity { milli: units * 1000 }
    }

    /// Returns the amount in thousandths.
    pub const fn milli(self) -> i128 {
        self.milli
    }

    /// Returns the amount in whole units, rounded up.
    pub const fn units(self) -> i128 {
        self.milli.div_euclid(1000) + if self.milli.rem_euclid(1000) == 0 { 0 } else { 1 }
    }

    /// Returns the amount in units as a floating-point number, for scores.
    pub fn as_f64(self) -> f64 {
        self.milli as f64 / 1000.0
    }
}

/// Binary suffixes, then decimal suffixes, each list from the largest to the smallest, with their factors.
const SUFFIXES: [(&str, i128); 12] = [
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

/// The error for a text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a valid quantity: use a number, optionally with m, k, M, G, T, P, E, Ki, Mi, Gi, \
     Ti, Pi or Ei, such as 900m, 2 or 4Gi"
)]
pub struct QuantityError {
    text: String,
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        let error = || QuantityError { text: text.to_owned() };
        let trimmed = text.trim();
        let (digits, factor_milli) = match SUFFIXES
            .iter()
            .find_map(|(suffix, factor)| trimmed.strip_suffix(suffix).map(|digits| (digits, factor * 1000)))
        {
            Some(digits_and_factor) => digits_and_factor,
            None => match trimmed.strip_suffix('m') {
                Some(digits) => (digits, 1),
                None => (trimmed, 1000),
            },
        };
        let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (integer.is_empty() && fraction.is_empty())
            || !is_digits(integer)
            || !is_digits(fraction)
            || digits.len() > 24
        {
            return Err(error());
        }
        let parse =
            |part: &str| if part.is_empty() { Ok(0) } else { part.parse::<i128>().map_err(|_| error()) };
        let scale =
            10_i128.checked_pow(u32::try_from(fraction.len()).map_err(|_| error())?).ok_or_else(error)?;
        let integer = parse(integer)?.checked_mul(factor_milli).ok_or_else(error)?;
        // Fractions of a thousandth are rounded up, as in Kubernetes, so that a request is never understated.
        let fraction_milli = parse(fraction)?.checked_mul(factor_milli).ok_or_else(error)?;
        let fraction_milli = fraction_milli / scale + i128::from(fraction_milli % scale != 0);
        Ok(Quantity { milli: integer.checked_add(fraction_milli).ok_or_else(error)? })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli % 1000 != 0 {
            return write!(f, "{}m", self.milli);
        }
        let units = self.milli / 1000;
        for (suffix, factor) in SUFFIXES.iter().filter(|(suffix, _)| suffix.ends_with('i')) {
            if units != 0 && units % factor == 0 {
                return write!(f, "{}{suffix}", units / factor);
            }
        }
        write!(f, "{units}")
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 900m, 2 or 4Gi")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(i128::from(number)))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A quantity in the notation of Kubernetes, such as 900m, 2, 3906250Ki or 4Gi.",
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "string"}, {"type": "number"}]
        })
    }
}

/// Amounts of cpu, memory and disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Amounts {
    /// Number of cores, or of threads with `countThreads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Memory, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// Disk space, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Quantity>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        let printed = text.parse::<Quantity>().ok().map(|quantity| quantity.to_string());
        assert_eq!(printed.as_deref(), expected, "{text}");
    }

    #[test]
    fn quantities_use_the_kubernetes_format() {
        check("900m", Some("900m"));
        check("2", Some("2"));
        check("0.5", Some("500m"));
        check("3906250Ki", Some("3906250Ki"));
        check("4Gi", Some("4Gi"));
        check("4096Mi", Some("4Gi"));
        check("1.5Gi", Some("1536Mi"));
        check("0.0001", Some("1m"));
        check("1k", Some("1000"));
        check("", None);
        check("m", None);
        check("-1", None);
        check("4 Gi x", None);
        check("99999999999999999999999999999", None);
    }
}
