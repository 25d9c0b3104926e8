//! Serde of numbers as their bits, so that a memory that was written and read back is the same memory. JSON readers may
//! round the last digit of a decimal, and a replay must not differ from what it replays.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Something made of floating-point numbers that is written as integers.
pub(crate) trait Exact: Sized {
    /// What is written.
    type Bits: Serialize + for<'de> Deserialize<'de>;

    fn to_exact(&self) -> Self::Bits;
    fn from_exact(bits: Self::Bits) -> Self;
}

impl Exact for f64 {
    type Bits = u64;

    fn to_exact(&self) -> u64 {
        self.to_bits()
    }

    fn from_exact(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}

impl Exact for Option<f64> {
    type Bits = Option<u64>;

    fn to_exact(&self) -> Option<u64> {
        self.map(f64::to_bits)
    }

    fn from_exact(bits: Option<u64>) -> Self {
        bits.map(f64::from_bits)
    }
}

impl Exact for [f64; 10] {
    type Bits = [u64; 10];

    fn to_exact(&self) -> [u64; 10] {
        self.map(f64::to_bits)
    }

    fn from_exact(bits: [u64; 10]) -> Self {
        bits.map(f64::from_bits)
    }
}

pub(crate) fn serialize<T: Exact, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.to_exact().serialize(to)
}

pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::Bits::deserialize(from).map(T::from_exact)
}
