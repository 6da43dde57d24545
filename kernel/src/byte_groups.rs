//! Numbers the distinct values of a column of bytes.

use crate::malformed::{Malformed, Result};

/// Write the number of each value among the distinct ones, by where they occur first, to `numbers`,
/// and the rows where they do to `firsts`. Return how many there are.
///
/// The values are in `data`, between consecutive `offsets`.
pub fn number(
    offsets: &[[u8; 4]],
    data: &[u8],
    numbers: &mut [u32],
    firsts: &mut [u32],
) -> Result<usize> {
    let Some((&first, ends)) = offsets.split_first() else {
        return Ok(0);
    };
    let mut table = Table::new(data);
    let mut start = u32::from_le_bytes(first);
    for ((row, end), number) in (0_u32..).zip(ends).zip(numbers) {
        let end = u32::from_le_bytes(*end);
        let value = data.get(start as usize..end as usize);
        let value = value.ok_or(Malformed::Column("an offset is outside its data"))?;
        let (found, is_new) = table.number(value, start);
        if is_new {
            firsts[found as usize] = row;
        }
        *number = found;
        start = end;
    }
    // The numbers are read with a sign.
    i32::try_from(table.count).map_err(|_| Malformed::TooLong)?;
    Ok(table.count as usize)
}

/// A hash table with linear probing, of which at most half is used: 32 to 64 bytes a value.
struct Table<'a> {
    data: &'a [u8],
    bits: u32,
    count: u32,
    slots: Vec<Slot>,
}

/// A value in the data.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// Half of its hash, whose highest bits are its bucket.
    hash: u32,
    /// One more than its number; 0 in a free slot.
    number: u32,
    start: u32,
    length: u32,
}

const FIRST_BITS: u32 = 8;

impl<'a> Table<'a> {
    fn new(data: &'a [u8]) -> Self {
        Self { data, bits: FIRST_BITS, count: 0, slots: vec![Slot::default(); 1 << FIRST_BITS] }
    }

    /// Return the number of a value, and whether it is new. It begins at `start` in the data.
    #[inline]
    fn number(&mut self, value: &[u8], start: u32) -> (u32, bool) {
        let hash = hash(value);
        let mut at = self.bucket(hash);
        loop {
            let slot = self.slots[at];
            if slot.number == 0 {
                break;
            }
            if slot.hash == hash && slot.length as usize == value.len() {
                let begin = slot.start as usize;
                if same(&self.data[begin..begin + value.len()], value) {
                    return (slot.number - 1, false);
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.count += 1;
        #[allow(clippy::cast_possible_truncation)] // it is between offsets of 32 bits
        let length = value.len() as u32;
        self.slots[at] = Slot { hash, number: self.count, start, length };
        if self.count as usize * 2 > self.slots.len() {
            self.grow();
        }
        (self.count - 1, true)
    }

    #[inline]
    fn bucket(&self, hash: u32) -> usize {
        (hash >> (32 - self.bits)) as usize
    }

    #[cold]
    fn grow(&mut self) {
        self.bits = (self.bits + 1).min(32);
        let slots = vec![Slot::default(); self.slots.len() * 2];
        let old = std::mem::replace(&mut self.slots, slots);
        for used in old.into_iter().filter(|slot| slot.number > 0) {
            let mut at = self.bucket(used.hash);
            while self.slots[at].number > 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = used;
        }
    }
}

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Return a hash for this table only, in less than half of the time of XXH3.
#[inline]
fn hash(value: &[u8]) -> u32 {
    let start = mix(value.len() as u64, FACTOR);
    let (words, rest) = value.as_chunks::<8>();
    let hash = words.iter().fold(start, |hash, &word| mix(hash, u64::from_le_bytes(word)));
    let last = match value.last_chunk::<8>() {
        Some(&last) => u64::from_le_bytes(last),
        None => rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    };
    (mix(hash, last) >> 32) as u32
}

/// Return the product of two numbers, its halves combined.
#[inline]
#[allow(clippy::cast_possible_truncation)] // into halves
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ (word >> 32)) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
}

/// Return whether two values of one length are equal, without a call for a short one.
#[inline]
fn same(one: &[u8], other: &[u8]) -> bool {
    let (Some(last), Some(other_last)) = (one.last_chunk::<8>(), other.last_chunk::<8>()) else {
        return one.iter().zip(other).all(|(a, b)| a == b);
    };
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let words = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
    words.fold(word(last) ^ word(other_last), |all, (a, b)| all | (word(a) ^ word(b))) == 0
}
