//! Finds the ends of the values of plain csv: each value ends at the next delimiter or line end.
//!
//! A block of 64 bytes becomes masks with a bit for each byte, so that the time depends on the
//! number of values, and little on their lengths.

/// How lines are divided into values, and what is not plain.
pub struct Dialect {
    pub delimiter: u8,
    /// Quotes, and other characters that change what those after them mean.
    pub special: Vec<u8>,
    /// The values of each line, at least one.
    pub columns: usize,
}

const BLOCK: usize = 64;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Dialect {
    /// Replace `ends` by where each value of `text` ends, and return whether the text is plain:
    /// UTF-8 without special characters, carriage returns and empty lines, and with the same number
    /// of values in each line.
    pub fn find(&self, text: &[u8], ends: &mut Vec<u32>) -> bool {
        ends.clear();
        if text.is_empty() || i32::try_from(text.len()).is_err() {
            return false;
        }
        let (blocks, rest) = text.as_chunks::<BLOCK>();
        let mut last = [0; BLOCK];
        last[..rest.len()].copy_from_slice(rest);
        if !text.ends_with(b"\n") {
            last[rest.len()] = b'\n'; // the rest of a text is shorter than a block
        }
        let (mut at, mut column, mut is_ascii) = (0, 0, true);
        for block in blocks.iter().chain([&last]) {
            if !self.find_in(block, at, &mut column, ends) {
                return false;
            }
            is_ascii &= block.is_ascii();
            at += 64;
        }
        let is_whole = column == 0 && !(self.columns == 1 && has_empty_line(ends));
        let is_utf8 = is_ascii || std::str::from_utf8(text).is_ok();
        is_whole && is_utf8 && !text.starts_with(BYTE_ORDER_MARK)
    }

    /// Append where values end in the block that begins `at`; `column` is that of the next value.
    /// Return whether the block is plain.
    #[inline]
    fn find_in(
        &self,
        block: &[u8; BLOCK],
        at: u32,
        column: &mut usize,
        ends: &mut Vec<u32>,
    ) -> bool {
        let special = self.special.iter().map(|&byte| equal(block, byte));
        if special.fold(equal(block, b'\r'), |all, mask| all | mask) != 0 {
            return false;
        }
        let newlines = equal(block, b'\n');
        let mut found = newlines | equal(block, self.delimiter);
        let (mut places, mut count, mut is_plain) = ([0; BLOCK], 0, true);
        while found != 0 {
            let bit = found.trailing_zeros();
            found &= found - 1;
            let ends_line = newlines >> bit & 1 == 1;
            is_plain &= ends_line == (*column + 1 == self.columns);
            *column = if ends_line { 0 } else { *column + 1 };
            places[count] = at + bit;
            count += 1;
        }
        ends.extend_from_slice(&places[..count]);
        is_plain
    }
}

/// Return whether a text of one column has a line without a value.
fn has_empty_line(ends: &[u32]) -> bool {
    ends.first() == Some(&0) || ends.windows(2).any(|pair| pair[0] + 1 == pair[1])
}

/// Return a bit for each byte of a block: 1 where it is `byte`.
#[cfg(target_arch = "x86_64")]
#[inline]
fn equal(block: &[u8; BLOCK], byte: u8) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};

    let mut mask = 0;
    for (number, bytes) in block.as_chunks::<16>().0.iter().enumerate() {
        // SAFETY: every x86-64 has these instructions, and all of the 16 bytes can be read.
        let found = unsafe {
            let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte.cast_signed())))
        };
        mask |= u64::from(found.cast_unsigned()) << (16 * number);
    }
    mask
}

/// Return a bit for each byte of a block: 1 where it is `byte`.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn equal(block: &[u8; BLOCK], byte: u8) -> u64 {
    block.iter().rev().fold(0, |mask, &each| mask << 1 | u64::from(each == byte))
}
