//! A column of Arrow that grows by values of Avro.

use std::collections::HashSet;

use crate::avro_cursor::{Cursor, Damaged, Result};
use crate::avro_kind::Kind;
use crate::bit_buffer::{BitBuffer, Validity};

/// The values that were read. After an error it has to be truncated.
#[derive(Clone)]
pub struct Column {
    kind: Kind,
    /// The index of null in the union of null and the kind.
    null_at: Option<i64>,
    children: Vec<Column>,
    rows: usize,
    valid: Validity,
    bits: BitBuffer,
    /// Offsets of 4 bytes, the first of which is 0.
    offsets: Vec<u8>,
    data: Vec<u8>,
}

/// The number of rows and the buffers of a column, without those of its children.
pub type Part = (usize, Vec<Option<Vec<u8>>>);

/// The most bytes of a buffer, and the most items.
const MAX: usize = i32::MAX as usize;

/// So many keys of a map are compared each with each.
const FEW_KEYS: usize = 8;

impl Column {
    pub fn new(kind: Kind, null_at: Option<i64>, children: Vec<Column>) -> Self {
        let has_offsets =
            matches!(kind, Kind::Bytes | Kind::String | Kind::Enum(_) | Kind::Array | Kind::Map);
        Self {
            kind,
            null_at,
            children,
            rows: 0,
            valid: Validity::default(),
            bits: BitBuffer::default(),
            offsets: if has_offsets { vec![0; 4] } else { Vec::new() },
            data: Vec::new(),
        }
    }

    /// Return whether the values are strings that are not null.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, Kind::String) && self.null_at.is_none()
    }

    /// Return a copy without values, with room for those of so many rows.
    pub fn with_room(&self, rows: usize) -> Self {
        let mut room = self.clone();
        room.data.reserve(rows * self.width().unwrap_or(0).min(16));
        room.offsets.reserve(4 * rows);
        if matches!(self.kind, Kind::Record) {
            room.children = self.children.iter().map(|child| child.with_room(rows)).collect();
        }
        room
    }

    /// Append the value that comes next.
    #[inline]
    pub fn read(&mut self, from: &mut Cursor) -> Result<()> {
        if let Some(null_at) = self.null_at {
            let branch = from.long()?;
            if branch == null_at {
                return self.push_null();
            }
            if branch != 1 - null_at {
                return Err(Damaged);
            }
        }
        self.read_value(from)?;
        self.valid.push(true);
        self.rows += 1;
        Ok(())
    }

    fn read_value(&mut self, from: &mut Cursor) -> Result<()> {
        match &self.kind {
            Kind::Null => {}
            Kind::Boolean => self.bits.push(from.byte()? != 0),
            Kind::Int(low, high) => {
                let value = within(from.long()?, *low, *high)?;
                let value = i32::try_from(value).map_err(|_| Damaged)?;
                self.data.extend_from_slice(&value.to_le_bytes());
            }
            Kind::Long(low, high) => {
                let value = within(from.long()?, *low, *high)?;
                self.data.extend_from_slice(&value.to_le_bytes());
            }
            Kind::Float => self.data.extend_from_slice(from.array::<4>()?),
            Kind::Double => self.data.extend_from_slice(from.array::<8>()?),
            Kind::Bytes => {
                self.data.extend_from_slice(from.sized()?);
                return self.push_end(self.data.len());
            }
            Kind::String => {
                let text = std::str::from_utf8(from.sized()?).map_err(|_| Damaged)?;
                self.data.extend_from_slice(text.as_bytes());
                return self.push_end(self.data.len());
            }
            Kind::Fixed(size) => self.data.extend_from_slice(from.take(*size)?),
            Kind::Decimal(size, power) => {
                let bytes = match size {
                    Some(size) => from.take(*size)?,
                    None => from.sized()?,
                };
                let value = decimal(bytes, *power)?;
                self.data.extend_from_slice(&value.to_le_bytes());
            }
            Kind::Enum(symbols) => {
                let index = usize::try_from(from.long()?).map_err(|_| Damaged)?;
                let symbol = symbols.get(index).ok_or(Damaged)?;
                self.data.extend_from_slice(symbol.as_bytes());
                return self.push_end(self.data.len());
            }
            Kind::Array => {
                self.read_blocks(from)?;
                return self.push_end(self.items());
            }
            Kind::Map => {
                let first = self.items();
                self.read_blocks(from)?;
                self.children.first().ok_or(Damaged)?.check_distinct(first)?;
                return self.push_end(self.items());
            }
            Kind::Record => {
                for child in &mut self.children {
                    child.read(from)?;
                }
            }
        }
        Ok(())
    }

    /// Append the items of an array or a map. Each has a byte at least, so no block has more items
    /// than bytes are left.
    fn read_blocks(&mut self, from: &mut Cursor) -> Result<()> {
        loop {
            let count = from.long()?;
            if count == 0 {
                return Ok(());
            }
            if count < 0 {
                from.long()?; // the number of bytes of the block, which readers can skip by
            }
            if count.unsigned_abs() > from.left() as u64 {
                return Err(Damaged);
            }
            for _ in 0..count.unsigned_abs() {
                for child in &mut self.children {
                    child.read(from)?;
                }
            }
        }
    }

    /// The number of items of all arrays or maps.
    fn items(&self) -> usize {
        self.children.first().map_or(0, |child| child.rows)
    }

    /// Fail if two of the texts from the first one on are the same.
    fn check_distinct(&self, first: usize) -> Result<()> {
        let texts = || (first..self.rows).map(|row| &self.data[self.end(row)..self.end(row + 1)]);
        let are_distinct = if self.rows - first <= FEW_KEYS {
            texts().enumerate().all(|(at, text)| !texts().take(at).any(|before| before == text))
        } else {
            let mut seen = HashSet::new();
            texts().all(|text| seen.insert(text))
        };
        if are_distinct { Ok(()) } else { Err(Damaged) }
    }

    #[inline]
    fn push_end(&mut self, end: usize) -> Result<()> {
        if end > MAX {
            return Err(Damaged);
        }
        let end = u32::try_from(end).map_err(|_| Damaged)?;
        self.offsets.extend_from_slice(&end.to_le_bytes());
        Ok(())
    }

    /// Append a null; a record of nulls if it is one.
    fn push_null(&mut self) -> Result<()> {
        match self.kind {
            Kind::Null => {}
            Kind::Boolean => self.bits.push(false),
            Kind::Record => {
                for child in &mut self.children {
                    child.push_null()?;
                }
            }
            Kind::Array | Kind::Map => self.push_end(self.items())?,
            _ => match self.width() {
                Some(width) => {
                    let size = self.data.len().saturating_add(width);
                    if size > MAX {
                        return Err(Damaged);
                    }
                    self.data.resize(size, 0);
                }
                None => self.push_end(self.data.len())?,
            },
        }
        self.valid.push(false);
        self.rows += 1;
        Ok(())
    }

    /// Forget all but the first rows, and what is left of one that could not be read.
    pub fn truncate(&mut self, rows: usize) {
        self.rows = self.rows.min(rows);
        self.valid.truncate(rows);
        match self.kind {
            Kind::Null => {}
            Kind::Boolean => self.bits.truncate(rows),
            Kind::Record => self.children.iter_mut().for_each(|child| child.truncate(rows)),
            Kind::Array | Kind::Map => {
                self.offsets.truncate(4 * (rows + 1));
                let end = self.end(rows);
                self.children.iter_mut().for_each(|child| child.truncate(end));
            }
            _ => {
                if let Some(width) = self.width() {
                    self.data.truncate(rows.saturating_mul(width));
                } else {
                    self.offsets.truncate(4 * (rows + 1));
                    self.data.truncate(self.end(rows));
                }
            }
        }
    }

    /// Append the parts of the column and of its children to `parts`.
    pub fn take(self, parts: &mut Vec<Part>) {
        let valid = self.valid.into_bytes();
        let buffers = match self.kind {
            Kind::Null => vec![None],
            Kind::Record => vec![valid],
            Kind::Boolean => vec![valid, Some(self.bits.into_bytes())],
            Kind::Array | Kind::Map => vec![valid, Some(self.offsets)],
            Kind::Bytes | Kind::String | Kind::Enum(_) => {
                vec![valid, Some(self.offsets), Some(self.data)]
            }
            _ => vec![valid, Some(self.data)],
        };
        parts.push((self.rows, buffers));
        self.children.into_iter().for_each(|child| child.take(parts));
    }

    /// The bytes of each value in Arrow; None if they differ, or are not in `data`.
    fn width(&self) -> Option<usize> {
        match self.kind {
            Kind::Int(..) | Kind::Float => Some(4),
            Kind::Long(..) | Kind::Double => Some(8),
            Kind::Decimal(..) => Some(16),
            Kind::Fixed(size) => Some(size),
            _ => None,
        }
    }

    /// Return the offset at which the values before a row end.
    fn end(&self, row: usize) -> usize {
        let offset = self.offsets.get(4 * row..).and_then(|found| found.first_chunk());
        offset.map_or(0, |&found| u32::from_le_bytes(found) as usize)
    }
}

#[inline]
fn within(value: i64, low: i64, high: i64) -> Result<i64> {
    if (low..=high).contains(&value) { Ok(value) } else { Err(Damaged) }
}

/// Return a number of two's complement, whose size is less than the power.
fn decimal(bytes: &[u8], power: i128) -> Result<i128> {
    let sign = if bytes.first().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 };
    let mut wide = [sign; 16];
    let start = wide.len().checked_sub(bytes.len()).ok_or(Damaged)?;
    wide[start..].copy_from_slice(bytes);
    let value = i128::from_be_bytes(wide);
    if -power < value && value < power { Ok(value) } else { Err(Damaged) }
}
