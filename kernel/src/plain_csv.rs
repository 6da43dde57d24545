//! Reads the columns of plain csv, in which a value is what is between two separators.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::buffers::{Input, Output};
use crate::malformed::{Malformed, Result};
use crate::separators::Dialect;

/// Where the values of a text are. The text itself is passed to each call.
#[pyclass]
pub struct PlainCsv {
    dialect: Dialect,
    /// Where each value ends, line by line.
    ends: Vec<u32>,
}

/// Short values are copied as this many bytes, and the next value overwrites the surplus.
const SHORT: usize = 32;

/// The most digits that every integer of 64 bits has room for.
const DIGITS: usize = 18;

const OTHER_TEXT: Malformed = Malformed::Column("it is not the text that was divided");

#[pymethods]
impl PlainCsv {
    #[new]
    fn new(delimiter: u8, special: Vec<u8>, columns: usize) -> PyResult<Self> {
        if columns == 0 {
            return Err(Malformed::Column("there is none").into());
        }
        Ok(Self { dialect: Dialect { delimiter, special, columns }, ends: Vec::new() })
    }

    /// Divide a text into values, and return the number of its rows; None if it is not plain.
    #[allow(clippy::needless_pass_by_value)]
    fn divide(&mut self, py: Python<'_>, text: Input) -> Option<usize> {
        let Self { dialect, ends } = self;
        let is_plain = py.detach(|| dialect.find(text.bytes(), ends));
        is_plain.then(|| self.rows())
    }

    /// Fill `offsets` (uint32) with those of the values of a column, and return their bytes.
    fn offsets(&self, py: Python<'_>, column: usize, mut offsets: Output) -> PyResult<usize> {
        self.check(column)?;
        let offsets = offsets.slice_mut()?;
        Ok(py.detach(|| self.fill_offsets(column, offsets))?)
    }

    /// Fill `data` with the values of a column, one after the other.
    #[allow(clippy::needless_pass_by_value)]
    fn bytes(&self, py: Python<'_>, text: Input, column: usize, mut data: Output) -> PyResult<()> {
        self.check(column)?;
        let data = data.slice_mut()?;
        Ok(py.detach(|| self.fill_bytes(text.bytes(), column, data))?)
    }

    /// Fill `values` (int64) with the numbers of a column, and the bitmap `valid`. Return how many
    /// are null, which is what no value is; None for other values than digits behind a sign.
    #[allow(clippy::needless_pass_by_value)]
    fn integers(
        &self,
        py: Python<'_>,
        text: Input,
        column: usize,
        mut values: Output,
        mut valid: Output,
    ) -> PyResult<Option<usize>> {
        self.check(column)?;
        let (values, valid) = (values.slice_mut()?, valid.slice_mut()?);
        Ok(py.detach(|| self.fill_numbers(text.bytes(), column, integer, values, valid))?)
    }

    /// Fill `values` (float64) as `integers` does; None for anything that might not be a number.
    #[allow(clippy::needless_pass_by_value)]
    fn floats(
        &self,
        py: Python<'_>,
        text: Input,
        column: usize,
        mut values: Output,
        mut valid: Output,
    ) -> PyResult<Option<usize>> {
        self.check(column)?;
        let (values, valid) = (values.slice_mut()?, valid.slice_mut()?);
        let bits = |value: &[u8]| float(value).map(f64::to_bits);
        Ok(py.detach(|| self.fill_numbers(text.bytes(), column, bits, values, valid))?)
    }
}

impl PlainCsv {
    fn rows(&self) -> usize {
        self.ends.len() / self.dialect.columns
    }

    fn check(&self, column: usize) -> PyResult<()> {
        if column < self.dialect.columns {
            return Ok(());
        }
        Err(PyIndexError::new_err(format!("there is no column {column}")))
    }

    /// Iterate over where the values of a column start and end. A value starts behind the separator
    /// that ends the one before it.
    #[inline]
    fn places(&self, column: usize) -> impl Iterator<Item = (usize, usize)> {
        let columns = self.dialect.columns;
        let of = |column: usize| self.ends.iter().skip(column).step_by(columns);
        let before = of((column + columns - 1) % columns).map(|&end| end as usize + 1);
        let first = std::iter::repeat_n(0, usize::from(column == 0));
        first.chain(before).zip(of(column).map(|&end| end as usize))
    }

    #[allow(clippy::cast_possible_truncation)] // a text has less than 2^31 bytes
    fn fill_offsets(&self, column: usize, offsets: &mut [u32]) -> Result<usize> {
        if offsets.len() != self.rows() + 1 {
            return Err(Malformed::Output);
        }
        let mut total = 0;
        offsets[0] = 0;
        for (offset, (start, end)) in offsets[1..].iter_mut().zip(self.places(column)) {
            total += end - start;
            *offset = total as u32;
        }
        Ok(total)
    }

    fn fill_bytes(&self, text: &[u8], column: usize, data: &mut [u8]) -> Result<()> {
        let mut at = 0;
        for (start, end) in self.places(column) {
            let (value, size) = (text.get(start..end).ok_or(OTHER_TEXT)?, end - start);
            let room = data.get_mut(at..).ok_or(Malformed::Output)?;
            if size <= SHORT
                && let Some(from) = text[start..].first_chunk::<SHORT>()
                && let Some(to) = room.first_chunk_mut::<SHORT>()
            {
                *to = *from;
            } else {
                room.get_mut(..size).ok_or(Malformed::Output)?.copy_from_slice(value);
            }
            at += size;
        }
        if at == data.len() { Ok(()) } else { Err(Malformed::Output) }
    }

    fn fill_numbers<T: Default>(
        &self,
        text: &[u8],
        column: usize,
        parse: impl Fn(&[u8]) -> Option<T>,
        values: &mut [T],
        valid: &mut [u8],
    ) -> Result<Option<usize>> {
        if values.len() != self.rows() || valid.len() != self.rows().div_ceil(8) {
            return Err(Malformed::Output);
        }
        valid.fill(0);
        let mut nulls = 0;
        for (row, (slot, (start, end))) in values.iter_mut().zip(self.places(column)).enumerate() {
            let value = text.get(start..end).ok_or(OTHER_TEXT)?;
            if value.is_empty() {
                *slot = T::default();
                nulls += 1;
                continue;
            }
            let Some(number) = parse(value) else { return Ok(None) };
            *slot = number;
            valid[row / 8] |= 1 << (row % 8);
        }
        Ok(Some(nulls))
    }
}

/// Return an integer of 18 digits or fewer; None for any other text.
#[inline]
fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if !(1..=DIGITS).contains(&digits.len()) {
        return None;
    }
    let mut value = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = 10 * value + i64::from(digit);
    }
    Some(if digits.len() < text.len() { -value } else { value })
}

/// Return a number as the nearest float; None for what Arrow may read otherwise.
fn float(text: &[u8]) -> Option<f64> {
    let is_part = |byte: &u8| byte.is_ascii_digit() || b".-+eE".contains(byte);
    let is_plain = !text.starts_with(b"+") && text.iter().all(is_part);
    std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()
}
