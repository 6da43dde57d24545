//! Numbers the groups of rows by their keys, and sums the values of each group.

use crate::bits::Bits;
use crate::byte_groups;
use crate::column::{Column, Layout};
use crate::distinct;
use crate::integers::{Integers, with_chunks, with_widened};
use crate::malformed::{Malformed, Result};
use crate::row;

/// Write the number of each row's key among the distinct ones, by where they occur first, to
/// `numbers`, and the rows where they do to `firsts`. Return how many there are, and None if two of
/// them have the same hash.
pub fn number(
    columns: &[Column],
    numbers: &mut [u32],
    firsts: &mut [u32],
) -> Result<Option<usize>> {
    if numbers.len() != firsts.len() || columns.iter().any(|each| each.rows != numbers.len()) {
        return Err(Malformed::Output);
    }
    if u32::try_from(numbers.len()).is_err() {
        return Err(Malformed::TooLong);
    }
    let all = 0..numbers.len();
    if let [column] = columns
        && column.validity(&all)?.is_none()
    {
        match column.layout {
            Layout::Signed | Layout::Unsigned => {
                return distinct::number(column, numbers, firsts).map(Some);
            }
            Layout::Binary => {
                if let Integers::I32(offsets) = column.offsets(&all)? {
                    let data = column.buffer(2);
                    return byte_groups::number(offsets, data, numbers, firsts).map(Some);
                }
            }
            _ => {}
        }
    }
    let mut hashes = vec![0; numbers.len()];
    row::hash(columns, &mut hashes)?;
    let count = distinct::number_all(hashes.into_iter(), numbers, firsts)?;
    for column in columns {
        if !is_one_of_each(column, numbers, &firsts[..count])? {
            return Ok(None);
        }
    }
    Ok(Some(count))
}

/// Return whether each row has the value of the first row of its group.
fn is_one_of_each(column: &Column, numbers: &[u32], firsts: &[u32]) -> Result<bool> {
    let all = 0..column.rows;
    let rows = Rows { numbers, firsts, valid: column.validity(&all)? };
    match column.layout {
        Layout::Null => Ok(true),
        Layout::Bool => {
            let bits = column.bits(&all)?;
            Ok(rows.agree(|row, first| bits.get(row) == bits.get(first)))
        }
        Layout::Signed | Layout::Unsigned | Layout::Float | Layout::Decimal | Layout::Fixed => {
            let values = column.fixed(&all, column.width)?;
            Ok(match column.width {
                0 => true,
                1 => rows.agree_in::<1>(values),
                2 => rows.agree_in::<2>(values),
                4 => rows.agree_in::<4>(values),
                8 => rows.agree_in::<8>(values),
                16 => rows.agree_in::<16>(values),
                width => {
                    let value = |row: usize| &values[row * width..(row + 1) * width];
                    rows.agree(|row, first| value(row) == value(first))
                }
            })
        }
        Layout::Binary => with_chunks!(column.offsets(&all)?, offsets, widen => {
            let data = column.buffer(2);
            // Hashing has seen that all offsets are within the data.
            #[allow(clippy::cast_possible_truncation)]
            let place = |row: usize| widen(offsets[row]) as usize;
            let value = |row: usize| data.get(place(row)..place(row + 1));
            Ok(rows.agree(|row, first| value(row) == value(first)))
        }),
        _ => Err(Malformed::Column("its layout cannot be grouped")),
    }
}

/// The group of each row, the first row of each group, and which rows are not null.
struct Rows<'a> {
    numbers: &'a [u32],
    firsts: &'a [u32],
    valid: Option<Bits<'a>>,
}

impl Rows<'_> {
    /// Return whether each row is null where the first row of its group is, or else equal to it.
    #[inline]
    fn agree(&self, equal: impl Fn(usize, usize) -> bool) -> bool {
        self.numbers.iter().enumerate().all(|(row, &number)| {
            let first = self.firsts[number as usize] as usize;
            match self.valid.map(|valid| (valid.get(row), valid.get(first))) {
                None | Some((true, true)) => equal(row, first),
                Some((one, other)) => one == other,
            }
        })
    }

    fn agree_in<const WIDTH: usize>(&self, values: &[u8]) -> bool {
        let values = values.as_chunks::<WIDTH>().0;
        self.agree(|row, first| values[row] == values[first])
    }
}

/// Write the sum of the values of each group to `sums`. Return false if one does not fit.
pub fn sum_integers(values: &Column, numbers: &Column, sums: &mut [i64]) -> Result<bool> {
    let all = 0..values.rows;
    let numbers = numbers_of(numbers, values)?;
    sums.fill(0);
    let mut fits = true;
    with_widened!(values.integers(&all)?, values => {
        for (value, &number) in values.zip(numbers) {
            let sum = sums.get_mut(place(number)).ok_or(NO_GROUP)?;
            let (total, overflows) = sum.overflowing_add(value.cast_signed());
            *sum = total;
            fits &= !overflows;
        }
    });
    Ok(fits)
}

/// The first number of 39 digits, for which a decimal of 128 bits has no room.
const LIMIT: u128 = 10_u128.pow(38);

/// Write the sum of the decimals of each group to `sums`. Return false if one does not fit.
pub fn sum_decimals(values: &Column, numbers: &Column, sums: &mut [i128]) -> Result<bool> {
    if values.layout != Layout::Decimal || values.width != size_of::<i128>() {
        return Err(Malformed::Column("its numbers are no decimals of 128 bits"));
    }
    let bytes = values.fixed(&(0..values.rows), values.width)?;
    let numbers = numbers_of(numbers, values)?;
    sums.fill(0);
    let mut fits = true;
    for (&value, &number) in bytes.as_chunks().0.iter().zip(numbers) {
        let sum = sums.get_mut(place(number)).ok_or(NO_GROUP)?;
        let (total, overflows) = sum.overflowing_add(i128::from_le_bytes(value));
        *sum = total;
        fits &= !overflows;
    }
    Ok(fits && sums.iter().all(|sum| sum.unsigned_abs() < LIMIT))
}

const NO_GROUP: Malformed = Malformed::Column("a number is not that of a group");

fn numbers_of<'a>(numbers: &'a Column, values: &Column) -> Result<&'a [[u8; 4]]> {
    let all = 0..values.rows;
    if numbers.rows != values.rows || numbers.width != 4 {
        return Err(Malformed::Column("there are more or fewer numbers than values"));
    }
    if values.validity(&all)?.is_some() {
        return Err(Malformed::Column("it has nulls"));
    }
    Ok(numbers.fixed(&all, 4)?.as_chunks().0)
}

#[inline]
fn place(number: [u8; 4]) -> usize {
    u32::from_le_bytes(number) as usize
}
