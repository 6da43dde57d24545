//! The hash of a row's key: of its one column, or of the hashes of several.

use crate::column::Column;
use crate::hash;
use crate::malformed::{Malformed, Result};

/// Write the hash of each row to `out`, which has as many places as each column has rows.
pub fn hash(columns: &[Column], out: &mut [u64]) -> Result<()> {
    let Some((first, others)) = columns.split_first() else {
        return Err(Malformed::Column("there is none"));
    };
    let rows = out.len();
    if columns.iter().any(|column| column.rows != rows) {
        return Err(Malformed::Column("it has more or fewer rows than another"));
    }
    first.hash(0..rows, out)?;
    match others {
        [] => {}
        [second] => {
            let mut hashes = vec![0; rows];
            second.hash(0..rows, &mut hashes)?;
            for (slot, hash) in out.iter_mut().zip(hashes) {
                *slot = hash::two_words(*slot, hash);
            }
        }
        _ => join_many(others, out)?,
    }
    Ok(())
}

fn join_many(others: &[Column], out: &mut [u64]) -> Result<()> {
    let mut hashes = vec![vec![0; out.len()]; others.len()];
    for (column, hashes) in others.iter().zip(&mut hashes) {
        column.hash(0..out.len(), hashes)?;
    }
    let mut joined = vec![[0; 8]; others.len() + 1];
    for (row, slot) in out.iter_mut().enumerate() {
        joined[0] = slot.to_le_bytes();
        for (place, hashes) in joined[1..].iter_mut().zip(&hashes) {
            *place = hashes[row].to_le_bytes();
        }
        *slot = hash::bytes(joined.as_flattened());
    }
    Ok(())
}
