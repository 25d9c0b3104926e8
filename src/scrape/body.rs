//! The body of an answer, as it comes: counted on the wire, expanded where it is gzip, counted again.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

use super::ScrapeError;

/// Collects a body within its bounds. Chunks go in as they arrive, so a bomb is noticed long before its end.
pub(super) struct BodyReader {
    max_wire: usize,
    wire: usize,
    sink: Sink,
}

enum Sink {
    Plain(Vec<u8>),
    Gzip(Box<MultiGzDecoder<Capped>>),
}

impl BodyReader {
    /// A reader for an answer with these headers. `announced` is its `Content-Length`.
    ///
    /// # Errors
    /// When more is announced than allowed, or the encoding is neither absent, `identity` nor `gzip`.
    pub(super) fn new(
        encoding: Option<&str>,
        announced: Option<u64>,
        max_wire: usize,
        max_expanded: usize,
    ) -> Result<Self, ScrapeError> {
        let announced = usize::try_from(announced.unwrap_or(0)).unwrap_or(usize::MAX);
        let max_plain = max_wire.min(max_expanded);
        let encoding = encoding.map_or("", str::trim);
        if encoding.is_empty() || encoding.eq_ignore_ascii_case("identity") {
            if announced > max_plain {
                return Err(ScrapeError::BodyTooLarge(max_plain));
            }
            // Without compression both bounds hold for the same bytes.
            let sink = Sink::Plain(Vec::with_capacity(announced));
            return Ok(Self { max_wire: max_plain, wire: 0, sink });
        }
        if !encoding.eq_ignore_ascii_case("gzip") && !encoding.eq_ignore_ascii_case("x-gzip") {
            return Err(ScrapeError::Encoding(encoding.chars().take(40).collect()));
        }
        if announced > max_wire {
            return Err(ScrapeError::BodyTooLarge(max_wire));
        }
        let capped = Capped { bytes: Vec::new(), max: max_expanded, full: false };
        let sink = Sink::Gzip(Box::new(MultiGzDecoder::new(capped)));
        Ok(Self { max_wire, wire: 0, sink })
    }

    /// Takes one chunk of the wire.
    ///
    /// # Errors
    /// When a bound is passed, or the bytes are not gzip.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), ScrapeError> {
        self.wire = self.wire.saturating_add(chunk.len());
        if self.wire > self.max_wire {
            return Err(ScrapeError::BodyTooLarge(self.max_wire));
        }
        match &mut self.sink {
            Sink::Plain(bytes) => bytes.extend_from_slice(chunk),
            Sink::Gzip(decoder) => {
                if let Err(error) = decoder.write_all(chunk) {
                    return Err(gzip_error(decoder.get_ref(), &error));
                }
            }
        }
        Ok(())
    }

    /// The whole body.
    ///
    /// # Errors
    /// When gzip ends before its end, or its checksum is wrong.
    pub(super) fn finish(self) -> Result<Vec<u8>, ScrapeError> {
        match self.sink {
            Sink::Plain(bytes) => Ok(bytes),
            Sink::Gzip(mut decoder) => {
                if let Err(error) = decoder.try_finish() {
                    return Err(gzip_error(decoder.get_ref(), &error));
                }
                decoder
                    .finish()
                    .map(|capped| capped.bytes)
                    .map_err(|error| ScrapeError::BadGzip(error.to_string()))
            }
        }
    }
}

fn gzip_error(sink: &Capped, error: &io::Error) -> ScrapeError {
    if sink.full { ScrapeError::ExpandedTooLarge(sink.max) } else { ScrapeError::BadGzip(error.to_string()) }
}

/// A vector that refuses to grow past its bound.
struct Capped {
    bytes: Vec<u8>,
    max: usize,
    full: bool,
}

impl Write for Capped {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if chunk.len() > self.max - self.bytes.len() {
            self.full = true;
            return Err(io::Error::other("the bound on expanded bytes is reached"));
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn read(encoding: Option<&str>, wire: &[u8], chunk: usize, max: usize) -> Result<Vec<u8>, ScrapeError> {
        let mut reader = BodyReader::new(encoding, None, max, max)?;
        for part in wire.chunks(chunk) {
            reader.push(part)?;
        }
        reader.finish()
    }

    #[test]
    fn an_encoding_that_was_not_asked_for_is_refused() {
        assert_eq!(read(Some("br"), b"x", 1, 9), Err(ScrapeError::Encoding("br".into())));
        assert_eq!(read(Some("gzip, gzip"), b"x", 1, 9), Err(ScrapeError::Encoding("gzip, gzip".into())));
        assert_eq!(read(Some("Identity"), b"x", 1, 9), Ok(b"x".to_vec()));
    }

    #[test]
    fn a_body_exactly_at_the_bound_is_read_and_one_byte_more_is_not() {
        assert_eq!(read(None, b"123456789", 4, 9), Ok(b"123456789".to_vec()));
        assert_eq!(read(None, b"1234567890", 4, 9), Err(ScrapeError::BodyTooLarge(9)));
        let packed = gzip(&[b'a'; 1000]);
        assert_eq!(read(Some("gzip"), &packed, 4, 1000), Ok(vec![b'a'; 1000]));
        assert_eq!(read(Some("gzip"), &packed, 4, 999), Err(ScrapeError::ExpandedTooLarge(999)));
    }

    #[test]
    fn an_announced_length_above_the_bound_is_refused_before_a_byte_is_read() {
        assert_eq!(BodyReader::new(None, Some(10), 9, 9).err(), Some(ScrapeError::BodyTooLarge(9)));
        assert_eq!(BodyReader::new(Some("gzip"), Some(10), 9, 900).err(), Some(ScrapeError::BodyTooLarge(9)));
    }

    #[test]
    fn gzip_members_one_after_the_other_are_one_body() {
        let wire = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(read(Some("gzip"), &wire, 3, 100), Ok(b"one two".to_vec()));
    }

    proptest! {
        #[test]
        fn gzip_cut_anywhere_is_an_error_and_whole_gzip_is_the_body(
            bytes in proptest::collection::vec(any::<u8>(), 1..2000),
            chunk in 1_usize..300,
            cut in 0.0_f64..1.0,
        ) {
            let wire = gzip(&bytes);
            prop_assert_eq!(read(Some("gzip"), &wire, chunk, 1 << 20), Ok(bytes));
            let kept = (wire.len() as f64 * cut) as usize;
            let result = read(Some("gzip"), &wire[..kept], chunk, 1 << 20);
            prop_assert!(matches!(result, Err(ScrapeError::BadGzip(_))), "{} of {}: {:?}", kept, wire.len(), result);
        }
    }
}
