//! Integers of any width, at any address, widened to the 64 bits that are hashed.

use crate::malformed::{Malformed, Result};

/// Little-endian integers that lie one after the other.
#[derive(Clone, Copy)]
pub enum Integers<'a> {
    I8(&'a [[u8; 1]]),
    I16(&'a [[u8; 2]]),
    I32(&'a [[u8; 4]]),
    /// Signed or not: both are their bits.
    Any64(&'a [[u8; 8]]),
    U8(&'a [[u8; 1]]),
    U16(&'a [[u8; 2]]),
    U32(&'a [[u8; 4]]),
}

/// Evaluates `$body` with `$chunks`, the slice of one width's bytes, and `$widen`, from such bytes
/// to the 64 bits: once per call what would else be asked for every value.
macro_rules! with_chunks {
    ($integers:expr, $chunks:ident, $widen:ident => $body:expr) => {{
        use $crate::integers::Integers;
        macro_rules! of_type {
            ($slice:ident, $type:ty) => {{
                let $chunks = $slice;
                #[allow(clippy::cast_lossless, clippy::cast_sign_loss)]
                let $widen = |bytes| <$type>::from_le_bytes(bytes) as u64;
                $body
            }};
        }
        match $integers {
            Integers::I8(slice) => of_type!(slice, i8),
            Integers::I16(slice) => of_type!(slice, i16),
            Integers::I32(slice) => of_type!(slice, i32),
            Integers::Any64(slice) => of_type!(slice, u64),
            Integers::U8(slice) => of_type!(slice, u8),
            Integers::U16(slice) => of_type!(slice, u16),
            Integers::U32(slice) => of_type!(slice, u32),
        }
    }};
}

/// Evaluates `$body` with `$values`, an iterator of the widened values.
macro_rules! with_widened {
    ($integers:expr, $values:ident => $body:expr) => {
        $crate::integers::with_chunks!($integers, chunks, widen => {
            let $values = chunks.iter().copied().map(widen);
            $body
        })
    };
}
pub(crate) use {with_chunks, with_widened};

impl<'a> Integers<'a> {
    pub fn new(bytes: &'a [u8], width: usize, signed: bool) -> Result<Self> {
        match (width, signed) {
            (1, true) => Ok(Self::I8(bytes.as_chunks().0)),
            (2, true) => Ok(Self::I16(bytes.as_chunks().0)),
            (4, true) => Ok(Self::I32(bytes.as_chunks().0)),
            (8, _) => Ok(Self::Any64(bytes.as_chunks().0)),
            (1, false) => Ok(Self::U8(bytes.as_chunks().0)),
            (2, false) => Ok(Self::U16(bytes.as_chunks().0)),
            (4, false) => Ok(Self::U32(bytes.as_chunks().0)),
            _ => Err(Malformed::Column("its integers are of no known width")),
        }
    }

    pub fn get(&self, at: usize) -> Option<u64> {
        with_chunks!(*self, chunks, widen => chunks.get(at).copied().map(widen))
    }

    /// Where the first one above `bound` is, if they ascend.
    pub fn first_above(&self, bound: u64) -> usize {
        with_chunks!(*self, chunks, widen => chunks.partition_point(|&chunk| widen(chunk) <= bound))
    }
}
