//! Decodes records of Avro to the buffers of Arrow columns.

use pyo3::prelude::*;

use crate::avro_column::{Column, Part};
use crate::avro_cursor::Cursor;
use crate::avro_kind::{Kind, Node};
use crate::buffers::{Bytes, Input};
use crate::malformed::{Malformed, Result};
use crate::pool::PoolReference;

/// Reads records of one schema.
#[pyclass(frozen)]
pub struct AvroDecoder {
    record: Column,
}

/// The parts of the record and of all columns in it, and the values that are no such record.
type Decoded = (Vec<(usize, Vec<Option<Bytes>>)>, Vec<u32>);

/// The most kinds within one another.
const MAX_DEPTH: usize = 80;

const OFFSETS: Malformed = Malformed::Column("its offsets are not those of the bytes");

#[pymethods]
impl AvroDecoder {
    /// The nodes are those of a record, each before its children.
    #[new]
    #[allow(clippy::needless_pass_by_value)]
    fn new(nodes: Vec<Node>) -> PyResult<Self> {
        let mut rest = nodes.iter();
        let record = column(&mut rest, MAX_DEPTH)?;
        if rest.next().is_some() {
            return Err(Malformed::Column("it has more nodes than children").into());
        }
        Ok(Self { record })
    }

    /// Decode the values at `offsets` (int32) of `data`, but for the first `skip` bytes of each.
    #[allow(clippy::needless_pass_by_value)]
    fn decode(
        &self,
        py: Python<'_>,
        data: Input,
        offsets: Input,
        skip: usize,
    ) -> PyResult<Decoded> {
        let (parts, bad) = py.detach(|| self.read(data.bytes(), offsets.bytes(), skip))?;
        let bytes = |buffer| Bytes::new(buffer, PoolReference::none());
        let parts = parts.into_iter().map(|(rows, buffers)| {
            (rows, buffers.into_iter().map(|buffer| buffer.map(bytes)).collect())
        });
        Ok((parts.collect(), bad))
    }
}

impl AvroDecoder {
    fn read(&self, data: &[u8], offsets: &[u8], skip: usize) -> Result<(Vec<Part>, Vec<u32>)> {
        let bounds = offsets.as_chunks().0;
        let mut record = self.record.with_room(bounds.len());
        let (mut rows, mut bad) = (0, Vec::new());
        for (value, bound) in bounds.windows(2).enumerate() {
            let (start, stop) = (u32::from_le_bytes(bound[0]), u32::from_le_bytes(bound[1]));
            let value_bytes = data.get(start as usize..stop as usize).ok_or(OFFSETS)?;
            let mut cursor = Cursor::new(value_bytes);
            let is_read = cursor
                .take(skip)
                .and_then(|_| record.read(&mut cursor))
                .is_ok_and(|()| cursor.left() == 0);
            if is_read {
                rows += 1;
            } else {
                record.truncate(rows);
                bad.push(u32::try_from(value).map_err(|_| Malformed::TooLong)?);
            }
        }
        let mut parts = Vec::new();
        record.take(&mut parts);
        Ok((parts, bad))
    }
}

/// Return the column of the next node.
fn column<'a>(rest: &mut impl Iterator<Item = &'a Node>, depth: usize) -> Result<Column> {
    let node = rest.next().ok_or(Malformed::Column("it lacks a node"))?;
    let depth = depth.checked_sub(1).ok_or(Malformed::Column("it is too deep"))?;
    let kind = node.kind()?;
    let children = (0..node.children).map(|_| column(rest, depth)).collect::<Result<Vec<_>>>()?;
    if matches!(kind, Kind::Map) && !children.first().is_some_and(Column::is_text) {
        return Err(Malformed::Column("the keys of a map are not strings"));
    }
    Ok(Column::new(kind, node.null_at, children))
}
