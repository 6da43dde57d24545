//! Finds the ends of the values of plain csv: each value ends at the next delimiter or line end.

use memchr::{memchr, memchr2_iter};

/// How lines are divided into values, and what is not plain.
pub struct Dialect {
    pub delimiter: u8,
    /// Quotes, and other characters that change what those after them mean.
    pub special: Vec<u8>,
    /// The values of each line, at least one.
    pub columns: usize,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Dialect {
    /// Replace `ends` by where each value of `text` ends, and return whether the text is plain:
    /// UTF-8 without special characters, carriage returns and empty lines, and with the same number
    /// of values in each line.
    pub fn find(&self, text: &[u8], ends: &mut Vec<u32>) -> bool {
        ends.clear();
        let Ok(size) = u32::try_from(text.len()) else { return false };
        let is_special = |&byte: &u8| memchr(byte, text).is_some();
        if text.is_empty() || size > i32::MAX.cast_unsigned() || text.starts_with(BYTE_ORDER_MARK) {
            return false;
        }
        if is_special(&b'\r') || self.special.iter().any(is_special) {
            return false;
        }
        self.divide(text, size, ends) && std::str::from_utf8(text).is_ok()
    }

    /// Append where values end, and return whether each line has as many as the first.
    #[allow(clippy::cast_possible_truncation)] // a text has less than 2^31 bytes
    fn divide(&self, text: &[u8], size: u32, ends: &mut Vec<u32>) -> bool {
        let mut left = self.columns; // the values that the line still has
        for place in memchr2_iter(self.delimiter, b'\n', text) {
            left -= 1;
            if (text[place] == b'\n') != (left == 0) {
                return false;
            }
            if left == 0 {
                left = self.columns;
            }
            ends.push(place as u32);
        }
        if !text.ends_with(b"\n") {
            left -= 1;
            ends.push(size);
        }
        let is_whole = left == 0 || left == self.columns;
        is_whole && !(self.columns == 1 && has_empty_line(ends))
    }
}

/// Return whether a text of one column has a line without a value.
fn has_empty_line(ends: &[u32]) -> bool {
    ends.first() == Some(&0) || ends.windows(2).any(|pair| pair[0] + 1 == pair[1])
}
