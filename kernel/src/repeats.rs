//! Finds the rows of a column whose value other rows have as well.

use crate::column::Column;
use crate::integers::with_widened;
use crate::malformed::{Malformed, Result};

/// Set the bit of each row whose value other rows have as well, and clear the others. Return how
/// many such rows there are.
///
/// Only the rows that share a bucket with others, in two small tables one after the other, are
/// compared by a sort. If all values are distinct, these are at most 2 of 100.
pub fn mark(column: &Column, marks: &mut [u8]) -> Result<usize> {
    let rows = 0..column.rows;
    if marks.len() != rows.len().div_ceil(8) {
        return Err(Malformed::Output);
    }
    if u32::try_from(rows.len()).is_err() {
        return Err(Malformed::TooLong);
    }
    if column.validity(&rows)?.is_some() {
        return Err(Malformed::Column("it has nulls"));
    }
    let met: Vec<(u64, u32)> = with_widened!(column.integers(&rows)?, values => {
        let buckets = Buckets::of(values.clone(), FIRST_FACTOR);
        values.zip(0..).filter(|&(value, _)| buckets.has_others(value)).collect()
    });
    let buckets = Buckets::of(met.iter().map(|&(value, _)| value), SECOND_FACTOR);
    let mut met: Vec<_> = met.into_iter().filter(|&(value, _)| buckets.has_others(value)).collect();
    met.sort_unstable();
    marks.fill(0);
    let mut count = 0;
    for equal in met.chunk_by(|one, other| one.0 == other.0).filter(|equal| equal.len() > 1) {
        for &(_, row) in equal {
            marks[row as usize / 8] |= 1 << (row % 8);
        }
        count += equal.len();
    }
    Ok(count)
}

/// Counts the values in each of 8 to 16 buckets a value: none, one or more. A bucket takes two bits,
/// so the table has at most half the bytes of the values.
struct Buckets {
    bits: u32,
    factor: u64,
    words: Vec<u64>,
}

const BUCKETS_PER_WORD: usize = 32;

/// Odd numbers. The bucket of a value is in the highest bits of the product, which depend on all
/// bits of the value.
const FIRST_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND_FACTOR: u64 = 0xC2B2_AE3D_27D4_EB4F;

impl Buckets {
    fn of(values: impl ExactSizeIterator<Item = u64>, factor: u64) -> Self {
        let count = (8 * values.len()).next_power_of_two().max(BUCKETS_PER_WORD);
        let words = vec![0; count / BUCKETS_PER_WORD];
        let mut buckets = Self { bits: count.trailing_zeros(), factor, words };
        values.for_each(|value| buckets.add(value));
        buckets
    }

    #[inline]
    fn add(&mut self, value: u64) {
        let (word, shift) = self.place(value);
        let before = self.words[word];
        let has_one = before >> shift & 1;
        self.words[word] = before | (1 | has_one << 1) << shift;
    }

    /// Return whether the bucket of a value has more than one.
    #[inline]
    fn has_others(&self, value: u64) -> bool {
        let (word, shift) = self.place(value);
        self.words[word] >> shift & 2 != 0
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // there are at most 2^35 buckets
    fn place(&self, value: u64) -> (usize, usize) {
        let bucket = (value.wrapping_mul(self.factor) >> (64 - self.bits)) as usize;
        (bucket / BUCKETS_PER_WORD, bucket % BUCKETS_PER_WORD * 2)
    }
}
