//! Serde of long lists of `f32` as one base64 string: a tenth of the decimals, and exact.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(values: &[f32], to: S) -> Result<S::Ok, S::Error> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    to.serialize_str(&STANDARD_NO_PAD.encode(bytes))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
    let bytes = STANDARD_NO_PAD.decode(text.as_bytes()).map_err(D::Error::custom)?;
    if bytes.len() % 4 != 0 {
        return Err(D::Error::custom("not a list of four-byte numbers"));
    }
    let (numbers, _) = bytes.as_chunks::<4>();
    Ok(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}
