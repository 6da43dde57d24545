//! Hashes the canonical bytes of each value, with one tight loop per layout.
//!
//! `mrflight/compute/kernel/reference.py` defines what the canonical bytes are.

use std::ops::Range;
use std::slice;

use crate::bits::Bits;
use crate::column::{Column, Layout};
use crate::float;
use crate::hash;
use crate::integers::with_widened;
use crate::malformed::{Malformed, Result};
use crate::wide;

impl Column {
    /// Write the hashes of `rows` to `out`, which has the same length.
    pub fn hash(&self, rows: Range<usize>, out: &mut [u64]) -> Result<()> {
        if rows.end > self.rows || rows.len() != out.len() {
            return Err(Malformed::Column("it has fewer rows than are asked for"));
        }
        match self.layout {
            Layout::Null => {
                out.fill(hash::NULL);
                return Ok(());
            }
            Layout::Binary => return self.hash_binary(&rows, out),
            Layout::View => return self.hash_views(&rows, out),
            Layout::Dictionary => return self.hash_dictionary(&rows, out),
            Layout::Runs => return self.hash_runs(&rows, out),
            Layout::Bool => {
                let hashes = [hash::bytes(&[0]), hash::bytes(&[1])];
                let bits = self.bits(&rows)?;
                write(out, (0..rows.len()).map(|at| hashes[usize::from(bits.get(at))]));
            }
            Layout::Signed | Layout::Unsigned => {
                with_widened!(self.integers(&rows)?, values => write(out, values.map(hash::word)));
            }
            Layout::Float => self.hash_floats(&rows, out)?,
            Layout::Decimal => self.hash_decimals(&rows, out)?,
            Layout::Fixed if self.width == 0 => out.fill(hash::bytes(&[])),
            Layout::Fixed => {
                let values = self.fixed(&rows, self.width)?.chunks_exact(self.width);
                write(out, values.map(hash::bytes));
            }
        }
        if let Some(validity) = self.validity(&rows)? {
            for (at, slot) in out.iter_mut().enumerate() {
                *slot = if validity.get(at) { *slot } else { hash::NULL };
            }
        }
        Ok(())
    }

    fn hash_floats(&self, rows: &Range<usize>, out: &mut [u64]) -> Result<()> {
        let bytes = self.fixed(rows, self.width)?;
        match self.width {
            2 => write(out, chunks(bytes).map(|b| float::hash(float::from_half(b)))),
            4 => write(out, chunks(bytes).map(|b| float::hash(f32::from_le_bytes(b).into()))),
            8 => write(out, chunks(bytes).map(|b| float::hash(f64::from_le_bytes(b)))),
            _ => return Err(Malformed::Column("its floats are of no known width")),
        }
        Ok(())
    }

    fn hash_decimals(&self, rows: &Range<usize>, out: &mut [u64]) -> Result<()> {
        let bytes = self.fixed(rows, self.width)?;
        match self.width {
            4 => write(out, chunks(bytes).map(|b| unscaled(i32::from_le_bytes(b).into()))),
            8 => write(out, chunks(bytes).map(|b| unscaled(i64::from_le_bytes(b).into()))),
            16 => write(out, chunks(bytes).map(|b| unscaled(i128::from_le_bytes(b)))),
            32 => {
                let low_halves = chunks(bytes).step_by(2);
                write(out, low_halves.map(|b| unscaled(i128::from_le_bytes(b))));
            }
            _ => return Err(Malformed::Column("its decimals are of no known width")),
        }
        Ok(())
    }

    fn hash_binary(&self, rows: &Range<usize>, out: &mut [u64]) -> Result<()> {
        let data = self.buffer(2);
        with_widened!(self.offsets(rows)?, offsets => {
            let ends = offsets.clone().skip(1);
            write_valid(out, self.validity(rows)?, offsets.zip(ends), |(start, end)| {
                let value = data.get(place(start)..place(end));
                let value = value.ok_or(Malformed::Column("an offset is outside its data"))?;
                Ok(hash::bytes(value))
            })
        })
    }

    fn hash_views(&self, rows: &Range<usize>, out: &mut [u64]) -> Result<()> {
        let data = self.view_data();
        let views = self.fixed(rows, 16)?.as_chunks::<16>().0;
        write_valid(out, self.validity(rows)?, views.iter(), |view| {
            let value = view_bytes(view, &data);
            let value = value.ok_or(Malformed::Column("a view is outside its data"))?;
            Ok(hash::bytes(value))
        })
    }

    fn hash_dictionary(&self, rows: &Range<usize>, out: &mut [u64]) -> Result<()> {
        let (indices, values) = (self.child(0)?, self.child(1)?);
        let validity = indices.validity(rows)?;
        let outside = || Malformed::Column("an index is outside its dictionary");
        with_widened!(indices.integers(rows)?, places => {
            if values.rows / 2 > rows.len() {
                // Most values are not those of these rows: hash only the values that are.
                write_valid(out, validity, places, |at| {
                    let (start, mut hash) = (place(at), 0);
                    let end = start.checked_add(1).ok_or_else(outside)?;
                    values.hash(start..end, slice::from_mut(&mut hash))?;
                    Ok(hash)
                })
            } else {
                let mut hashes = vec![0; values.rows];
                values.hash(0..values.rows, &mut hashes)?;
                write_valid(out, validity, places, |at| {
                    hashes.get(place(at)).copied().ok_or_else(outside)
                })
            }
        })
    }

    fn hash_runs(&self, rows: &Range<usize>, out: &mut [u64]) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let disorder = || Malformed::Column("its run ends do not ascend to its last row");
        let (ends, values) = (self.child(0)?, self.child(1)?);
        let ends = ends.integers(&(0..ends.rows))?;
        let at = self.first.checked_add(rows.start).ok_or_else(disorder)? as u64;
        let mut run = ends.first_above(at);
        let last = ends.first_above(at.saturating_add(rows.len() as u64 - 1));
        // The run ends ascend, so each run has a row, and no more runs than rows are hashed.
        if last < run || last - run >= rows.len() {
            return Err(disorder());
        }
        let mut hashes = vec![0; last - run + 1];
        values.hash(run..last + 1, &mut hashes)?;
        let mut filled = 0;
        for hash in hashes {
            let end = ends.get(run).ok_or_else(disorder)?;
            let end = place(end.saturating_sub(at)).min(rows.len());
            if end <= filled {
                return Err(disorder());
            }
            out[filled..end].fill(hash);
            (filled, run) = (end, run + 1);
        }
        if filled < rows.len() { Err(disorder()) } else { Ok(()) }
    }
}

/// Return the hash of the unscaled value of a decimal.
#[allow(clippy::cast_possible_truncation)] // into its two halves
fn unscaled(value: i128) -> u64 {
    let bits = value.cast_unsigned();
    hash::two_words(bits as u64, (bits >> 64) as u64)
}

/// Return the bytes of a view: inline if there are at most 12, otherwise in another buffer.
fn view_bytes<'a>(view: &'a [u8; 16], data: &[&'a [u8]]) -> Option<&'a [u8]> {
    let field = |at: usize| -> Option<usize> {
        let bytes = view.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(i32::from_le_bytes(bytes)).ok()
    };
    let length = field(0)?;
    if length <= 12 {
        return view.get(4..4 + length);
    }
    let start = field(12)?;
    data.get(field(8)?)?.get(start..start.checked_add(length)?)
}

/// Return an offset or index as `usize`. One that is too large is outside of every buffer.
fn place(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn chunks<const WIDTH: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; WIDTH]> {
    bytes.as_chunks().0.iter().copied()
}

fn write(out: &mut [u64], hashes: impl Iterator<Item = u64>) {
    wide::update(out, hashes, |_, hash| hash);
}

/// Hash the valid values. The bytes behind a null may be anything and are not read.
fn write_valid<T>(
    out: &mut [u64],
    validity: Option<Bits<'_>>,
    values: impl Iterator<Item = T>,
    hash: impl Fn(T) -> Result<u64>,
) -> Result<()> {
    let slots = out.iter_mut().zip(values);
    match validity {
        None => {
            for (slot, value) in slots {
                *slot = hash(value)?;
            }
        }
        Some(validity) => {
            for (at, (slot, value)) in slots.enumerate() {
                *slot = if validity.get(at) { hash(value)? } else { hash::NULL };
            }
        }
    }
    Ok(())
}
