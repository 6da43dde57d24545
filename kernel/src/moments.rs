//! Merges moments: counts, means and sums of squared differences from the mean.

use crate::column::Column;
use crate::malformed::{Malformed, Result};
use crate::place;

type Floats<'a> = &'a [[u8; 8]];

/// The moments of parts of groups. Without counts and squares these are single values.
pub struct Parts<'a> {
    means: Floats<'a>,
    counts: Option<Floats<'a>>,
    squares: Option<Floats<'a>>,
}

/// The first mean of a group, the sum of the differences from it, and the count.
#[derive(Clone, Copy, Default)]
struct Sum {
    first: f64,
    differences: f64,
    count: f64,
}

/// The mean of a group, and the sum of the differences from it, which would be 0 if the mean were
/// not rounded. The sum of the squares has a compensation for rounding (Kahan, Further remarks on
/// reducing truncation errors, 1965), so it is as exact as one that is added in pairs.
#[derive(Clone, Copy, Default)]
struct Spread {
    mean: f64,
    differences: f64,
    squares: f64,
    compensation: f64,
}

impl<'a> Parts<'a> {
    pub fn new(
        means: &'a Column,
        counts: Option<&'a Column>,
        squares: Option<&'a Column>,
    ) -> Result<Self> {
        let means = means.doubles()?;
        let counts = counts.map(Column::doubles).transpose()?;
        let squares = squares.map(Column::doubles).transpose()?;
        if [counts, squares].iter().flatten().any(|each| each.len() != means.len()) {
            return Err(Malformed::Column("it has more or fewer rows than another"));
        }
        Ok(Self { means, counts, squares })
    }

    /// Write the mean, the count and the squares of each group to `merged`; `numbers` has the group
    /// of each part.
    pub fn merge(&self, numbers: &Column, merged: &mut [u64]) -> Result<()> {
        let merged = merged.as_chunks_mut::<3>().0;
        let numbers = place::checked(numbers, merged.len())?;
        if numbers.len() != self.means.len() {
            return Err(Malformed::Column("it has more or fewer rows than another"));
        }
        let mut sums = vec![Sum::default(); merged.len()];
        for (row, &group) in numbers.iter().enumerate() {
            let (mean, count) = (float(self.means[row]), self.count(row));
            let sum = &mut sums[group as usize];
            if sum.count == 0.0 {
                sum.first = mean;
            }
            sum.count += count;
            sum.differences += count * (mean - sum.first);
        }
        let mean = |sum: &Sum| sum.first + sum.differences / sum.count;
        let spread = |sum| Spread { mean: mean(sum), ..Spread::default() };
        let mut spreads: Vec<_> = sums.iter().map(spread).collect();
        for (row, &group) in numbers.iter().enumerate() {
            let squares = self.squares.map_or(0.0, |squares| float(squares[row]));
            spreads[group as usize].add(float(self.means[row]), self.count(row), squares);
        }
        for ((out, sum), spread) in merged.iter_mut().zip(&sums).zip(&spreads) {
            let squares = spread.squares - spread.differences * spread.differences / sum.count;
            let squares = if squares < 0.0 { 0.0 } else { squares };
            *out = [spread.mean, sum.count, squares].map(f64::to_bits);
        }
        Ok(())
    }

    #[inline]
    fn count(&self, row: usize) -> f64 {
        self.counts.map_or(1.0, |counts| float(counts[row]))
    }
}

impl Spread {
    #[inline]
    fn add(&mut self, mean: f64, count: f64, squares: f64) {
        let off = mean - self.mean;
        let weighted = count * off;
        self.differences += weighted;
        let term = squares + weighted * off - self.compensation;
        let sum = self.squares + term;
        self.compensation = if sum.is_finite() { (sum - self.squares) - term } else { 0.0 };
        self.squares = sum;
    }
}

#[inline]
fn float(bytes: [u8; 8]) -> f64 {
    f64::from_le_bytes(bytes)
}
