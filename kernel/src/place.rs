//! Assigns rows to partitions, and orders them by their partitions.

use crate::column::Column;
use crate::integers::with_widened;
use crate::malformed::{Malformed, Result};

/// Return `hash * partitions / 2^64`, which spreads hashes evenly over any number of partitions
/// without a division (Lemire, Fast random integer generation in an interval, 2019).
///
/// The product of 96 bits is computed from the two halves of the hash, because vector instructions
/// multiply no more than 32 bits by 32.
#[inline]
#[allow(clippy::cast_possible_truncation)] // into halves; the result is below `partitions`
pub fn partition(hash: u64, partitions: u32) -> u32 {
    let (high, low) = (hash >> 32, u64::from(hash as u32));
    let partitions = u64::from(partitions);
    ((high * partitions + ((low * partitions) >> 32)) >> 32) as u32
}

/// Order rows by the partitions that a partitioner returned. They are checked.
pub fn by_id(ids: &Column, rows: &mut [u32], offsets: &mut [i64]) -> Result<()> {
    if ids.rows != rows.len() {
        return Err(Malformed::Output);
    }
    let ids = checked(ids, offsets.len().saturating_sub(1))?;
    counting_sort(ids.iter().map(|&id| id as usize), rows, offsets)
}

/// Return the partition of each row. Fail for one that is null or not below `partitions`.
pub fn checked(ids: &Column, partitions: usize) -> Result<Vec<u32>> {
    let all = 0..ids.rows;
    if let Some(validity) = ids.validity(&all)?
        && let Some(row) = all.clone().find(|&row| !validity.get(row))
    {
        return Err(Malformed::NullPartition { row });
    }
    with_widened!(ids.integers(&all)?, ids => {
        let ids = ids.map(|id| usize::try_from(id).unwrap_or(usize::MAX));
        if let Some((row, id)) = ids.clone().enumerate().find(|&(_, id)| id >= partitions) {
            return Err(Malformed::NoSuchPartition { row, id: id.cast_signed(), partitions });
        }
        #[allow(clippy::cast_possible_truncation)] // there are at most 2^32 partitions
        Ok(ids.map(|id| id as u32).collect())
    })
}

/// Order rows by `ids`, the partition of each. Rows with equal ids keep their order.
pub fn counting_sort(
    ids: impl Iterator<Item = usize> + Clone,
    rows: &mut [u32],
    offsets: &mut [i64],
) -> Result<()> {
    if u32::try_from(rows.len()).is_err() {
        return Err(Malformed::TooLong);
    }
    if offsets.is_empty() {
        return Err(Malformed::Output);
    }
    let mut next = vec![0_u32; offsets.len()];
    for id in ids.clone() {
        next[id] += 1;
    }
    let mut start = 0;
    for (next, offset) in next.iter_mut().zip(offsets) {
        *offset = start.into();
        start += std::mem::replace(next, start);
    }
    for (row, id) in (0_u32..).zip(ids) {
        rows[next[id] as usize] = row;
        next[id] += 1;
    }
    Ok(())
}
