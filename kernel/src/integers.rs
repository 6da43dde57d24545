//! Integers of any width, at any address, which are widened to 64 bits to be hashed.

use crate::malformed::{Malformed, Result};

/// Consecutive little-endian integers.
#[derive(Clone, Copy)]
pub enum Integers<'a> {
    I8(&'a [[u8; 1]]),
    I16(&'a [[u8; 2]]),
    I32(&'a [[u8; 4]]),
    /// Integers of 8 bytes, whose bits are the same with and without a sign.
    Any64(&'a [[u8; 8]]),
    U8(&'a [[u8; 1]]),
    U16(&'a [[u8; 2]]),
    U32(&'a [[u8; 4]]),
}

/// Evaluates `$body` with `$chunks`, a slice with the bytes of each value, and `$widen`, which
/// widens them to 64 bits. So the width is checked once per call and not for every value.
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

    /// Return the position of the first integer above `bound`, if they ascend.
    pub fn first_above(&self, bound: u64) -> usize {
        with_chunks!(*self, chunks, widen => chunks.partition_point(|&chunk| widen(chunk) <= bound))
    }
}
