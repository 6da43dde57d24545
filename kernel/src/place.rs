//! Which partition a row goes to, and the rows in the order of their partitions.

use crate::column::Column;
use crate::integers::with_widened;
use crate::malformed::{Malformed, Result};

/// `hash * partitions / 2^64`: an even spread for any number of partitions, without division
/// (Lemire, Fast random integer generation in an interval, 2019).
#[inline]
#[allow(clippy::cast_possible_truncation)] // the product's high word is below `partitions`
pub fn partition(hash: u64, partitions: u32) -> u32 {
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u32
}

/// Order rows by their hash's partition; `offsets` has one place more than there are partitions.
///
/// Leaves the partitions in place of the hashes. Computed in a loop of their own they are known
/// when they are counted; counting straight from the product took four times as long, as each
/// increment then waits for the one before (AMD EPYC, 20 partitions).
pub fn by_hash(hashes: &mut [u64], rows: &mut [u32], offsets: &mut [i64]) -> Result<()> {
    let partitions = u32::try_from(offsets.len().saturating_sub(1));
    let partitions = partitions.map_err(|_| Malformed::TooLong)?;
    for hash in &mut *hashes {
        *hash = partition(*hash, partitions).into();
    }
    #[allow(clippy::cast_possible_truncation)] // each is below 2^32
    counting_sort(hashes.iter().map(|&id| id as usize), rows, offsets)
}

/// Order rows by the partitions that a partitioner gave them, which may be wrong.
pub fn by_id(ids: &Column, rows: &mut [u32], offsets: &mut [i64]) -> Result<()> {
    if ids.rows != rows.len() {
        return Err(Malformed::Output);
    }
    let (all, partitions) = (0..ids.rows, offsets.len().saturating_sub(1));
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
        counting_sort(ids, rows, offsets)
    })
}

/// A stable order by `ids`, one per row, each a partition's number.
fn counting_sort(
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
