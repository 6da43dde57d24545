//! A column as `mrflight.compute.kernel` describes it, and checked slices of its buffers.

use std::ops::Range;

use pyo3::prelude::*;

use crate::bits::Bits;
use crate::buffers::Input;
use crate::integers::Integers;
use crate::malformed::{Malformed, Result};

/// The layout of values in the buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Null,
    Bool,
    Signed,
    Unsigned,
    Float,
    Decimal,
    Fixed,
    /// The values are in one buffer, at offsets of `width` bytes.
    Binary,
    /// Each view has 16 bytes, which hold a short value or point to a long one.
    View,
    /// The children are the indices and the values.
    Dictionary,
    /// The children are the run ends and the values.
    Runs,
}

impl<'py> FromPyObject<'_, 'py> for Layout {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match &*object.extract::<String>()? {
            "null" => Ok(Self::Null),
            "bool" => Ok(Self::Bool),
            "signed" => Ok(Self::Signed),
            "unsigned" => Ok(Self::Unsigned),
            "float" => Ok(Self::Float),
            "decimal" => Ok(Self::Decimal),
            "fixed" => Ok(Self::Fixed),
            "binary" => Ok(Self::Binary),
            "view" => Ok(Self::View),
            "dictionary" => Ok(Self::Dictionary),
            "runs" => Ok(Self::Runs),
            _ => Err(Malformed::Column("its layout is unknown").into()),
        }
    }
}

/// The attributes of `Column` in `mrflight/compute/kernel/native.py`. The buffers are those of the
/// Arrow format, the validity first.
#[derive(FromPyObject)]
pub struct Column {
    pub layout: Layout,
    /// The bytes of a value, or of an offset; 0 if the layout fixes them.
    pub width: usize,
    pub rows: usize,
    /// The first row of the column in its buffers.
    pub first: usize,
    buffers: Vec<Option<Input>>,
    children: Vec<Column>,
}

impl Column {
    /// Return the bytes of buffer `at`; no bytes if there is no such buffer.
    pub fn buffer(&self, at: usize) -> &[u8] {
        let buffer = self.buffers.get(at).and_then(Option::as_ref);
        buffer.map_or(&[], Input::bytes)
    }

    /// Return the buffers that views point to.
    pub fn view_data(&self) -> Vec<&[u8]> {
        (2..self.buffers.len()).map(|at| self.buffer(at)).collect()
    }

    pub fn child(&self, at: usize) -> Result<&Column> {
        let missing = Malformed::Column("it lacks a child");
        self.children.get(at).ok_or(missing)
    }

    /// Return whether the values, at any depth, are those of a dictionary.
    pub fn has_dictionary(&self) -> bool {
        self.layout == Layout::Dictionary || self.children.iter().any(Self::has_dictionary)
    }

    /// Return the validity of `rows`; None if no row is null.
    pub fn validity(&self, rows: &Range<usize>) -> Result<Option<Bits<'_>>> {
        match self.buffers.first() {
            Some(Some(validity)) => {
                let bits = Bits::new(validity.bytes(), self.place(rows)?)?;
                Ok((!bits.all_set()).then_some(bits))
            }
            _ => Ok(None),
        }
    }

    /// Return the values of `rows` as bits.
    pub fn bits(&self, rows: &Range<usize>) -> Result<Bits<'_>> {
        Bits::new(self.buffer(1), self.place(rows)?)
    }

    /// Return the values of `rows`, `width` bytes each.
    pub fn fixed(&self, rows: &Range<usize>, width: usize) -> Result<&[u8]> {
        let short = Malformed::Column("a buffer is shorter than its values");
        let place = self.place(rows)?;
        let start = place.start.checked_mul(width);
        let end = place.end.checked_mul(width);
        match (start, end) {
            (Some(start), Some(end)) => self.buffer(1).get(start..end).ok_or(short),
            _ => Err(short),
        }
    }

    /// Return the values of `rows` as integers.
    pub fn integers(&self, rows: &Range<usize>) -> Result<Integers<'_>> {
        let values = self.fixed(rows, self.width)?;
        match self.layout {
            Layout::Signed => Integers::new(values, self.width, true),
            Layout::Unsigned => Integers::new(values, self.width, false),
            _ => Err(Malformed::Column("indices or run ends are no integers")),
        }
    }

    /// Return the bytes of all values, which are doubles.
    pub fn doubles(&self) -> Result<&[[u8; 8]]> {
        if self.layout != Layout::Float || self.width != 8 {
            return Err(Malformed::Column("its numbers are not doubles"));
        }
        Ok(self.fixed(&(0..self.rows), 8)?.as_chunks().0)
    }

    /// Return the offsets at which `rows` begin, and the offset at which the last one ends.
    pub fn offsets(&self, rows: &Range<usize>) -> Result<Integers<'_>> {
        let end = if rows.is_empty() { rows.end } else { rows.end + 1 };
        Integers::new(self.fixed(&(rows.start..end), self.width)?, self.width, true)
    }

    /// Return the range of `rows` in the buffers.
    fn place(&self, rows: &Range<usize>) -> Result<Range<usize>> {
        let end = self.first.checked_add(rows.end);
        let end = end.ok_or(Malformed::Column("it is too long"))?;
        Ok(end - rows.len()..end)
    }
}
