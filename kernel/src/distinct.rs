//! Numbers the distinct values of a column.

use crate::column::Column;
use crate::integers::with_widened;
use crate::malformed::{Malformed, Result};

/// The values whose slots are looked up together, so that their loads do not wait for each other.
const BLOCK: usize = 64;

/// Write the number of each value among the distinct ones, by where they occur first, to `numbers`,
/// and the rows where they do to `firsts`. Both have the length of the column. Return how many
/// there are.
pub fn number(column: &Column, numbers: &mut [u32], firsts: &mut [u32]) -> Result<usize> {
    let rows = 0..column.rows;
    if rows.len() != numbers.len() || rows.len() != firsts.len() {
        return Err(Malformed::Output);
    }
    if u32::try_from(rows.len()).is_err() {
        return Err(Malformed::TooLong);
    }
    if column.validity(&rows)?.is_some() {
        return Err(Malformed::Column("it has nulls"));
    }
    with_widened!(column.integers(&rows)?, values => number_all(values, numbers, firsts))
}

/// Number values as `number` does; there are as many as `numbers`.
pub fn number_all(
    mut values: impl Iterator<Item = u64>,
    numbers: &mut [u32],
    firsts: &mut [u32],
) -> Result<usize> {
    let mut table = Table::new(numbers.len() / 4);
    let mut block = [(0, [0; 3]); BLOCK];
    let mut rows = 0_u32..;
    for numbers in numbers.chunks_mut(BLOCK) {
        for (place, value) in block[..numbers.len()].iter_mut().zip(values.by_ref()) {
            *place = (value, table.slots[bucket(value, table.bits)]);
        }
        for ((&(value, [low, high, seen]), number), row) in block.iter().zip(numbers).zip(&mut rows)
        {
            if seen > 0 && halves(value) == [low, high] {
                *number = seen - 1; // also if the table has grown since
                continue;
            }
            let (found, is_new) = table.number(value);
            *number = found;
            if is_new {
                firsts[found as usize] = row;
            }
        }
    }
    // The numbers are read with a sign.
    i32::try_from(table.count).map_err(|_| Malformed::TooLong)?;
    Ok(table.count as usize)
}

/// A hash table with linear probing, of which at most half is used: 24 to 48 bytes a value.
struct Table {
    bits: u32,
    count: u32,
    slots: Vec<Slot>,
}

/// The two halves of a value, the lower one first, and one more than its number; 0 in a free slot.
/// There are 12 bytes without padding.
type Slot = [u32; 3];

const MIN_SLOTS: usize = 256;

impl Table {
    /// Return a table with so many slots, or a few more. Slots that are never used take no memory.
    fn new(slots: usize) -> Self {
        let slots = slots.next_power_of_two().max(MIN_SLOTS);
        Self { bits: slots.trailing_zeros(), count: 0, slots: vec![[0; 3]; slots] }
    }

    /// Return the number of a value, and whether it is new.
    #[inline]
    fn number(&mut self, value: u64) -> (u32, bool) {
        let [low, high] = halves(value);
        let slot = self.find(low, high);
        let [.., number] = self.slots[slot];
        if number > 0 {
            return (number - 1, false);
        }
        self.count += 1;
        self.slots[slot] = [low, high, self.count];
        if self.count as usize * 2 > self.slots.len() {
            self.grow();
        }
        (self.count - 1, true)
    }

    /// Return the slot of a value: the one that has it, or else a free one.
    #[inline]
    fn find(&self, low: u32, high: u32) -> usize {
        let value = u64::from(high) << 32 | u64::from(low);
        let mut slot = bucket(value, self.bits);
        loop {
            let [its_low, its_high, number] = self.slots[slot];
            if number == 0 || (its_low == low && its_high == high) {
                return slot;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.bits += 1;
        let old = std::mem::replace(&mut self.slots, vec![[0; 3]; 1 << self.bits]);
        for used in old.into_iter().filter(|used| used[2] > 0) {
            let slot = self.find(used[0], used[1]);
            self.slots[slot] = used;
        }
    }
}

/// Return the bucket of a value: the highest bits of its product with an odd number, which depend on
/// all bits of the value.
#[inline]
#[allow(clippy::cast_possible_truncation)] // there are at most 2^32 buckets
fn bucket(value: u64, bits: u32) -> usize {
    (value.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // into halves
fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}
