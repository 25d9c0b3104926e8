//! An hour of one tier as bytes, with a checksum. Pure.
//!
//! Layout, little endian: CRC-32 of all that follows and of the hour; then for each minute that has a point, ascending,
//! the minute of the hour (one byte) and ten `f32`. A minute without a point is absent; not-a-number keeps its bits.

use flate2::Crc;

use super::HistoryPoint;

const CHECKSUM_BYTES: usize = 4;
const FIELDS: usize = 10;
const RECORD_BYTES: usize = 1 + FIELDS * 4;
const MINUTES_IN_HOUR: i64 = 60;

/// Why bytes are not an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BlockError {
    #[error("the length doesn't fit")]
    Length,
    #[error("the checksum differs")]
    Checksum,
    #[error("the minutes are out of order")]
    Minutes,
}

/// The hour that a minute lies in.
pub(super) fn hour_of(minute: i64) -> i64 {
    minute.div_euclid(MINUTES_IN_HOUR)
}

/// Puts a point in its place; a point of the same minute is replaced.
pub(super) fn insert(points: &mut Vec<HistoryPoint>, point: HistoryPoint) {
    match points.binary_search_by_key(&point.minute, |point| point.minute) {
        Ok(index) => points[index] = point,
        Err(index) => points.insert(index, point),
    }
}

/// Points of one hour, ascending, as bytes. Points of another hour are left out.
pub(super) fn encode(hour: i64, points: &[HistoryPoint]) -> Vec<u8> {
    let mut bytes = vec![0; CHECKSUM_BYTES];
    for point in points.iter().filter(|point| hour_of(point.minute) == hour) {
        bytes.push(point.minute.rem_euclid(MINUTES_IN_HOUR) as u8);
        for field in fields(point) {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
    }
    let sum = checksum(hour, &bytes[CHECKSUM_BYTES..]);
    bytes[..CHECKSUM_BYTES].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads what [`encode`] wrote for this hour.
pub(super) fn decode(hour: i64, bytes: &[u8]) -> Result<Vec<HistoryPoint>, BlockError> {
    let (sum, records) = bytes.split_first_chunk::<CHECKSUM_BYTES>().ok_or(BlockError::Length)?;
    let (records, rest) = records.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() {
        return Err(BlockError::Length);
    }
    if u32::from_le_bytes(*sum) != checksum(hour, records.as_flattened()) {
        return Err(BlockError::Checksum);
    }
    let points: Vec<HistoryPoint> = records.iter().map(|record| point(hour, record)).collect();
    let ascending = points.windows(2).all(|pair| pair[0].minute < pair[1].minute);
    let inside = points.iter().all(|point| hour_of(point.minute) == hour);
    if ascending && inside { Ok(points) } else { Err(BlockError::Minutes) }
}

/// CRC-32 of bytes that belong to a key: under another key they don't hold.
pub(super) fn checksum(key: i64, bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(&key.to_le_bytes());
    crc.update(bytes);
    crc.sum()
}

fn fields(point: &HistoryPoint) -> [f32; FIELDS] {
    [
        point.requests,
        point.uncached_input_tokens,
        point.output_tokens,
        point.rejected,
        point.kv_tokens,
        point.running,
        point.waiting,
        point.ready,
        point.demand,
        point.required,
    ]
}

fn point(hour: i64, record: &[u8; RECORD_BYTES]) -> HistoryPoint {
    let (minute, fields) = record.split_at(1);
    let (fields, _) = fields.as_chunks::<4>();
    let field = |index: usize| fields.get(index).map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes));
    HistoryPoint {
        minute: hour * MINUTES_IN_HOUR + i64::from(minute.first().copied().unwrap_or_default()),
        requests: field(0),
        uncached_input_tokens: field(1),
        output_tokens: field(2),
        rejected: field(3),
        kv_tokens: field(4),
        running: field(5),
        waiting: field(6),
        ready: field(7),
        demand: field(8),
        required: field(9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point_at(minute: i64, field: f32) -> HistoryPoint {
        HistoryPoint {
            minute,
            requests: field,
            uncached_input_tokens: field * 2.0,
            output_tokens: f32::NAN,
            rejected: 0.0,
            kv_tokens: f32::MAX,
            running: -0.0,
            waiting: 1.5,
            ready: 3.0,
            demand: 2.25,
            required: 4.0,
        }
    }

    fn bits(points: &[HistoryPoint]) -> Vec<(i64, [u32; FIELDS])> {
        points.iter().map(|point| (point.minute, fields(point).map(f32::to_bits))).collect()
    }

    #[test]
    fn minutes_before_the_epoch_lie_in_their_hour() {
        assert_eq!((hour_of(-1), hour_of(0), hour_of(59), hour_of(60)), (-1, 0, 0, 1));
        let points = [point_at(-60, 1.0), point_at(-1, 2.0)];
        assert_eq!(bits(&decode(-1, &encode(-1, &points)).unwrap()), bits(&points));
    }

    #[test]
    fn a_point_of_the_same_minute_is_replaced() {
        let mut points = Vec::new();
        for (minute, field) in [(5, 1.0), (3, 2.0), (5, 3.0)] {
            insert(&mut points, point_at(minute, field));
        }
        assert_eq!(points.iter().map(|p| (p.minute, p.requests)).collect::<Vec<_>>(), [(3, 2.0), (5, 3.0)]);
    }

    #[test]
    fn a_block_under_the_key_of_another_hour_is_refused() {
        let bytes = encode(7, &[point_at(7 * 60, 1.0)]);
        assert_eq!(decode(8, &bytes), Err(BlockError::Checksum));
        assert_eq!(decode(7, &bytes[..3]), Err(BlockError::Length));
        assert_eq!(decode(7, &bytes[..bytes.len() - 1]), Err(BlockError::Length));
    }

    proptest! {
        #[test]
        fn every_bit_of_an_hour_comes_back(
            hour in -1000_i64..1_000_000,
            fields in prop::collection::btree_map(0_i64..60, any::<f32>(), 0..60),
        ) {
            let points: Vec<HistoryPoint> =
                fields.iter().map(|(minute, field)| point_at(hour * 60 + minute, *field)).collect();
            prop_assert_eq!(bits(&decode(hour, &encode(hour, &points)).unwrap()), bits(&points));
        }

        #[test]
        fn a_flipped_bit_is_never_a_number(minute in 0_i64..60, byte in 0_usize..45, bit in 0_u8..8) {
            let mut bytes = encode(3, &[point_at(180 + minute, 7.0)]);
            bytes[byte] ^= 1 << bit;
            prop_assert!(decode(3, &bytes).is_err());
        }
    }
}
