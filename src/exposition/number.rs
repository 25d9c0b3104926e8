//! Numbers as metrics pages write them.

/// `10^n` for the exponents whose powers of ten a double holds exactly.
const POWERS_OF_TEN: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Digits that always fit a double exactly (10^15 < 2^53).
const EXACT_DIGITS: usize = 15;

/// Reads `0`, `0.0`, `1.79e+09`, `+Inf`, `-Inf` or `NaN`.
///
/// Short plain decimals, nearly all there is on a page, are one exact integer divided by one exact power of ten: the
/// division rounds once, so the result is the nearest double (Clinger 1990, "How to read floating point numbers
/// accurately"). All else is left to the standard library.
#[must_use]
pub fn parse_number(text: &[u8]) -> Option<f64> {
    parse_short_decimal(text).or_else(|| std::str::from_utf8(text).ok()?.parse().ok())
}

fn parse_short_decimal(text: &[u8]) -> Option<f64> {
    if text.is_empty() || text.len() > EXACT_DIGITS + 1 {
        return None;
    }
    let mut digits: u64 = 0;
    let mut point = None;
    for (place, &byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' => digits = digits * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(place),
            _ => return None,
        }
    }
    let Some(point) = point else {
        return (text.len() <= EXACT_DIGITS).then_some(digits as f64);
    };
    let decimals = text.len() - point - 1;
    (point > 0 && decimals > 0).then(|| digits as f64 / POWERS_OF_TEN[decimals])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_on_real_pages_is_read() {
        for (text, number) in [
            ("0", 0.0),
            ("0.0", 0.0),
            ("12", 12.0),
            ("0.8297872340425532", 0.829_787_234_042_553_2),
            ("1.79597143492e+09", 1_795_971_434.92),
            ("1.7959714985905042e+09", 1_795_971_498.590_504_2),
            ("+Inf", f64::INFINITY),
            ("-Inf", f64::NEG_INFINITY),
            ("-3.5", -3.5),
            ("1e-05", 0.000_01),
        ] {
            assert_eq!(parse_number(text.as_bytes()), Some(number), "{text}");
        }
        assert!(parse_number(b"NaN").is_some_and(f64::is_nan));
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in ["", ".", "1.2.3", "--1", "1_000", "0x10", "one", "1 ", "1,5", "\u{661}"] {
            assert_eq!(parse_number(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_number(&[0xff, 0xfe]), None);
    }

    proptest! {
        #[test]
        fn short_decimals_are_read_like_the_standard_library_reads_them(text in "[0-9]{1,9}(\\.[0-9]{1,9})?") {
            prop_assert_eq!(parse_number(text.as_bytes()), text.parse::<f64>().ok());
        }

        #[test]
        fn what_was_written_is_read_back(number in proptest::num::f64::ANY) {
            let read = parse_number(number.to_string().as_bytes()).unwrap();
            prop_assert!(read.to_bits() == number.to_bits() || (read.is_nan() && number.is_nan()));
        }
    }
}
