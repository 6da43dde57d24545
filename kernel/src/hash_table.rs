//! The rows of one table by the hashes of their keys, which rows of another table probe.

use pyo3::prelude::*;

use crate::bits::Bits;
use crate::buffers::Output;
use crate::column::Column;
use crate::integers::{Integers, with_widened};
use crate::malformed::{Malformed, Result};

/// The rows that look up their buckets together, so that their loads do not wait for each other.
const BLOCK: usize = 256;

/// Rows in the order of their buckets. The rows of a bucket keep their order.
///
/// There are one to two buckets for each row, so it takes 16 to 20 bytes a row.
#[pyclass(frozen)]
pub struct HashTable {
    bits: u32,
    /// The first entry of each bucket, and the end of the last one.
    starts: Vec<u32>,
    entries: Vec<Entry>,
}

/// The two halves of a hash, the lower one first, and the row: 12 bytes without padding.
type Entry = [u32; 3];

/// The next pair to return: a probing row, and an entry of its bucket.
type Place = (usize, usize);

#[pymethods]
impl HashTable {
    #[new]
    #[allow(clippy::needless_pass_by_value)]
    fn new(py: Python<'_>, hashes: Column) -> PyResult<Self> {
        Ok(py.detach(|| Self::of(&hashes))?)
    }

    /// Fill `probes` and `rows` (uint32) with pairs of equal hashes from `place` on. Return the
    /// number of pairs, and the place of the next one, which is the number of hashes at the end.
    /// With `only_first` a probing row gets only the first row that it finds.
    #[allow(clippy::needless_pass_by_value)]
    fn pairs(
        &self,
        py: Python<'_>,
        hashes: Column,
        only_first: bool,
        place: Place,
        mut probes: Output,
        mut rows: Output,
    ) -> PyResult<(usize, Place)> {
        let (probes, rows) = (probes.slice_mut()?, rows.slice_mut()?);
        Ok(py.detach(|| self.find_pairs(&hashes, only_first, place, probes, rows))?)
    }
}

impl HashTable {
    fn of(hashes: &Column) -> Result<Self> {
        let Ok(count) = u32::try_from(hashes.rows) else {
            return Err(Malformed::TooLong);
        };
        let (values, validity) = of_rows(hashes, 0)?;
        let bits = count.max(2).next_power_of_two().trailing_zeros();
        let mut starts = vec![0_u32; (1 << bits) + 2];
        let is_there = |row: usize| validity.as_ref().is_none_or(|validity| validity.get(row));
        with_widened!(values, values => {
            // Counts are stored two entries later. Their running sum is the start of each bucket,
            // one entry later, and adding the rows moves that to the end of the bucket.
            for (_, hash) in values.clone().enumerate().filter(|&(row, _)| is_there(row)) {
                starts[bucket(hash, bits) + 2] += 1;
            }
            let mut until = 0;
            for start in &mut starts {
                until += *start;
                *start = until;
            }
            let mut entries = vec![[0; 3]; until as usize];
            for ((row, hash), number) in values.enumerate().zip(0_u32..) {
                if is_there(row) {
                    let next = &mut starts[bucket(hash, bits) + 1];
                    let [low, high] = halves(hash);
                    entries[*next as usize] = [low, high, number];
                    *next += 1;
                }
            }
            Ok(Self { bits, starts, entries })
        })
    }

    fn find_pairs(
        &self,
        hashes: &Column,
        only_first: bool,
        place: Place,
        probes: &mut [u32],
        rows: &mut [u32],
    ) -> Result<(usize, Place)> {
        let (first, mut resumed) = place;
        if u32::try_from(hashes.rows).is_err() || first > hashes.rows {
            return Err(Malformed::TooLong);
        }
        let (values, validity) = of_rows(hashes, first)?;
        let mut filled = 0;
        let mut found = probes.iter_mut().zip(rows);
        let mut block = [(0, 0, 0); BLOCK];
        with_widened!(values, values => {
            let mut values = values.enumerate();
            let mut row = first;
            while row < hashes.rows {
                let mut looking = 0;
                for (slot, (at, hash)) in block.iter_mut().zip(values.by_ref()) {
                    let is_there = validity.as_ref().is_none_or(|validity| validity.get(at));
                    let bucket = bucket(hash, self.bits);
                    let (start, end) = (self.starts[bucket], self.starts[bucket + 1]);
                    *slot = (hash, start as usize, if is_there { end } else { start } as usize);
                    looking += 1;
                }
                for &(hash, start, end) in &block[..looking] {
                    let [low, high] = halves(hash);
                    let start = start.max(std::mem::take(&mut resumed)).min(end);
                    for (at, entry) in (start..).zip(&self.entries[start..end]) {
                        if entry[0] != low || entry[1] != high {
                            continue;
                        }
                        let Some((probe, met)) = found.next() else {
                            return Ok((filled, (row, at)));
                        };
                        #[allow(clippy::cast_possible_truncation)] // there are at most 2^32 rows
                        let number = row as u32;
                        (*probe, *met) = (number, entry[2]);
                        filled += 1;
                        if only_first {
                            break;
                        }
                    }
                    row += 1;
                }
            }
            Ok((filled, (hashes.rows, 0)))
        })
    }
}

/// Return the hashes from row `first` on, and their validity; None if all are valid.
fn of_rows(hashes: &Column, first: usize) -> Result<(Integers<'_>, Option<Bits<'_>>)> {
    let rows = first..hashes.rows;
    if hashes.width != 8 {
        return Err(Malformed::Column("its hashes are not of 64 bits"));
    }
    Ok((hashes.integers(&rows)?, hashes.validity(&rows)?))
}

/// Return the bucket of a hash: the highest bits of its product with an odd number. They depend on
/// all bits of the hash. Its own highest bits are the same in all rows of a partition, and its
/// lowest bits in all rows of a spill partition.
#[inline]
#[allow(clippy::cast_possible_truncation)] // there are at most 2^32 buckets
fn bucket(hash: u64, bits: u32) -> usize {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // into halves
fn halves(hash: u64) -> [u32; 2] {
    [hash as u32, (hash >> 32) as u32]
}
