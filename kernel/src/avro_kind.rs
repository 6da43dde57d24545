//! The kinds of values of Avro, as `mrflight.sources.kafka.formats.avro_layout` describes them.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::malformed::{Malformed, Result};

/// What a value is, and how it becomes one of Arrow.
#[derive(Clone)]
pub enum Kind {
    Null,
    Boolean,
    /// A number that Arrow stores in 4 bytes, within bounds.
    Int(i64, i64),
    /// A number that Arrow stores in 8 bytes, within bounds.
    Long(i64, i64),
    /// 4 bytes as they are.
    Float,
    /// 8 bytes as they are.
    Double,
    Bytes,
    String,
    /// So many bytes as they are.
    Fixed(usize),
    /// Big-endian bytes, of a fixed number unless that is None, of a number of fewer digits than the
    /// power of ten has.
    Decimal(Option<usize>, i128),
    /// The number of one of the texts, which is stored.
    Enum(Arc<[String]>),
    /// The child are the items.
    Array,
    /// The children are the keys, which are strings, and the values.
    Map,
    /// The children are the fields.
    Record,
}

/// The items of a `Node` in `avro_layout.py`. The nodes of the children follow.
#[derive(FromPyObject)]
pub struct Node {
    kind: String,
    /// The index of null in the union of null and this kind; None if it is no such union.
    pub null_at: Option<i64>,
    pub children: usize,
    /// The number of bytes; None if the kind, or the value, says it.
    size: Option<usize>,
    /// The digits of a decimal.
    digits: u32,
    low: i64,
    high: i64,
    symbols: Vec<String>,
}

impl Node {
    pub fn kind(&self) -> Result<Kind> {
        let (kind, children) = match self.kind.as_str() {
            "null" => (Kind::Null, 0),
            "boolean" => (Kind::Boolean, 0),
            "int" => {
                let (least, most) = (i32::MIN.into(), i32::MAX.into());
                (Kind::Int(self.low.max(least), self.high.min(most)), 0)
            }
            "long" => (Kind::Long(self.low, self.high), 0),
            "float" => (Kind::Float, 0),
            "double" => (Kind::Double, 0),
            "bytes" => (Kind::Bytes, 0),
            "string" => (Kind::String, 0),
            "fixed" => (Kind::Fixed(self.size.ok_or(UNKNOWN)?), 0),
            "decimal" => {
                let power = 10_i128.checked_pow(self.digits).ok_or(UNKNOWN)?;
                (Kind::Decimal(self.size, power), 0)
            }
            "enum" => (Kind::Enum(self.symbols.clone().into()), 0),
            "array" => (Kind::Array, 1),
            "map" => (Kind::Map, 2),
            "record" => (Kind::Record, self.children),
            _ => return Err(UNKNOWN),
        };
        if children == self.children { Ok(kind) } else { Err(UNKNOWN) }
    }
}

const UNKNOWN: Malformed = Malformed::Column("its kind of Avro is unknown");
