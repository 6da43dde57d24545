//! A key column as `mrflight.compute.kernel` describes it, and its parts cut out of the buffers.

use std::ops::Range;

use pyo3::prelude::*;

use crate::bits::Bits;
use crate::buffers::Input;
use crate::integers::Integers;
use crate::malformed::{Malformed, Result};

/// How values lie in the buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Null,
    Bool,
    Signed,
    Unsigned,
    Float,
    Decimal,
    Fixed,
    /// Offsets of `width` bytes into one buffer.
    Binary,
    /// 16 bytes each, which hold a short value or point to a long one.
    View,
    /// Children: indices, values.
    Dictionary,
    /// Children: where each run ends, values.
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

/// Attribute by attribute, `Column` of `mrflight/compute/kernel/native.py`. The buffers are those of the
/// Arrow format, validity first.
#[derive(FromPyObject)]
pub struct Column {
    pub layout: Layout,
    /// Bytes of a value, or of an offset; 0 where the layout says it.
    pub width: usize,
    pub rows: usize,
    /// Where in its buffers the column begins.
    pub first: usize,
    buffers: Vec<Option<Input>>,
    children: Vec<Column>,
}

impl Column {
    /// The bytes of buffer `at`; none where there is no such buffer.
    pub fn buffer(&self, at: usize) -> &[u8] {
        let buffer = self.buffers.get(at).and_then(Option::as_ref);
        buffer.map_or(&[], Input::bytes)
    }

    /// The buffers that views point to.
    pub fn view_data(&self) -> Vec<&[u8]> {
        (2..self.buffers.len()).map(|at| self.buffer(at)).collect()
    }

    pub fn child(&self, at: usize) -> Result<&Column> {
        let missing = Malformed::Column("it lacks a child");
        self.children.get(at).ok_or(missing)
    }

    /// Whether values, at any depth, are those of a dictionary.
    pub fn has_dictionary(&self) -> bool {
        self.layout == Layout::Dictionary || self.children.iter().any(Self::has_dictionary)
    }

    /// Which of `rows` are null; None: none is.
    pub fn validity(&self, rows: &Range<usize>) -> Result<Option<Bits<'_>>> {
        match self.buffers.first() {
            Some(Some(validity)) => {
                let bits = Bits::new(validity.bytes(), self.place(rows)?)?;
                Ok((!bits.all_set()).then_some(bits))
            }
            _ => Ok(None),
        }
    }

    /// The values of `rows` as bits.
    pub fn bits(&self, rows: &Range<usize>) -> Result<Bits<'_>> {
        Bits::new(self.buffer(1), self.place(rows)?)
    }

    /// The values of `rows`, `width` bytes each.
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

    /// The values of `rows` as integers.
    pub fn integers(&self, rows: &Range<usize>) -> Result<Integers<'_>> {
        let values = self.fixed(rows, self.width)?;
        match self.layout {
            Layout::Signed => Integers::new(values, self.width, true),
            Layout::Unsigned => Integers::new(values, self.width, false),
            _ => Err(Malformed::Column("indices or run ends are no integers")),
        }
    }

    /// The offsets at which `rows` begin, and the one at which the last ends.
    pub fn offsets(&self, rows: &Range<usize>) -> Result<Integers<'_>> {
        let end = if rows.is_empty() { rows.end } else { rows.end + 1 };
        Integers::new(self.fixed(&(rows.start..end), self.width)?, self.width, true)
    }

    /// Where `rows` are in the buffers.
    fn place(&self, rows: &Range<usize>) -> Result<Range<usize>> {
        let end = self.first.checked_add(rows.end);
        let end = end.ok_or(Malformed::Column("it is too long"))?;
        Ok(end - rows.len()..end)
    }
}
