//! A slice of a bitmap.

use std::ops::Range;

use crate::malformed::{Malformed, Result};

/// A range of bits in a buffer, the least significant first.
#[derive(Clone, Copy)]
pub struct Bits<'a> {
    bytes: &'a [u8],
    first: usize,
    count: usize,
}

impl<'a> Bits<'a> {
    pub fn new(bytes: &'a [u8], range: Range<usize>) -> Result<Self> {
        let whole = range.start / 8..range.end.div_ceil(8);
        let bytes = bytes.get(whole);
        Ok(Self {
            bytes: bytes.ok_or(Malformed::Column("a bitmap is shorter than its rows"))?,
            first: range.start % 8,
            count: range.len(),
        })
    }

    /// Return bit `at`, which must be less than the count.
    #[inline]
    pub fn get(&self, at: usize) -> bool {
        let at = self.first + at;
        self.bytes[at / 8] >> (at % 8) & 1 == 1
    }

    pub fn all_set(&self) -> bool {
        let head = self.count.min((8 - self.first) % 8);
        let bytes = (self.count - head) / 8;
        let start = (self.first + head) / 8;
        (0..head).all(|at| self.get(at))
            && self.bytes[start..start + bytes].iter().all(|&byte| byte == 0xff)
            && (head + 8 * bytes..self.count).all(|at| self.get(at))
    }
}
