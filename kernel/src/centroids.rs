//! Merges the centroids of t-digests. `mrflight.compute.t_digest` explains it.

use crate::column::Column;
use crate::float;
use crate::integers::with_widened;
use crate::malformed::{Malformed, Result};
use crate::order::{Entry, Sorter};

/// How the centroids of a digest are merged.
pub struct Rule {
    /// The quantiles between which centroids are merged, in ascending order.
    pub cuts: Vec<f64>,
    /// The most centroids that stay as they are.
    pub max_unmerged: usize,
}

/// The mean and the weight of a centroid, as bits.
type Bits = [u64; 2];

/// Write the centroids of all digests, merged, to the beginning of `merged`, and how many each has
/// to `counts`. Return how many there are. The digests lie between `bounds`, the first of which is 0
/// and the last the number of centroids.
pub fn merge(
    means: &Column,
    weights: &Column,
    bounds: &Column,
    rule: &Rule,
    merged: &mut [u64],
    counts: &mut [i64],
) -> Result<usize> {
    let (means, weights) = (means.doubles()?, weights.doubles()?);
    let mut rest = merged.as_chunks_mut::<2>().0;
    if weights.len() != means.len() || rest.len() != means.len() || counts.len() + 1 != bounds.rows
    {
        return Err(Malformed::Output);
    }
    if u32::try_from(means.len()).is_err() {
        return Err(Malformed::TooLong);
    }
    let outside = || Malformed::Column("its digests do not ascend to its last centroid");
    let mut digest = Digest::default();
    let (mut start, mut filled) = (0, 0);
    with_widened!(bounds.integers(&(0..bounds.rows))?, bounds => {
        let mut bounds = bounds;
        if bounds.next() != Some(0) {
            return Err(outside());
        }
        for (end, count) in bounds.zip(counts) {
            let end = usize::try_from(end).map_err(|_| outside())?;
            let own = means.get(start..end).ok_or_else(outside)?;
            let found = digest.merge(own, &weights[start..end], rule, rest);
            *count = i64::try_from(found).map_err(|_| outside())?;
            (start, filled, rest) = (end, filled + found, &mut rest[found..]);
        }
    });
    if start == means.len() { Ok(filled) } else { Err(outside()) }
}

/// The buffers for one digest after the other.
#[derive(Default)]
struct Digest {
    order: Vec<Entry>,
    sorter: Sorter,
    centroids: Vec<Centroid>,
}

struct Centroid {
    mean: f64,
    weight: f64,
}

impl Digest {
    /// Write merged centroids to `out`, which has room for all, and return how many there are.
    fn merge(
        &mut self,
        means: &[[u8; 8]],
        weights: &[[u8; 8]],
        rule: &Rule,
        out: &mut [Bits],
    ) -> usize {
        if means.len() <= rule.max_unmerged {
            for ((out, mean), weight) in out.iter_mut().zip(means).zip(weights) {
                *out = [u64::from_le_bytes(*mean), u64::from_le_bytes(*weight)];
            }
            return means.len();
        }
        self.order.clear();
        let codes = means.iter().map(|mean| float::order(f64::from_le_bytes(*mean)));
        self.order.extend(codes.zip(0..));
        self.sorter.sort(&mut self.order);
        self.centroids.clear();
        self.centroids.extend(self.order.iter().map(|&(_, at)| Centroid {
            mean: f64::from_le_bytes(means[at as usize]),
            weight: f64::from_le_bytes(weights[at as usize]),
        }));
        self.merge_runs(rule, out)
    }

    fn merge_runs(&self, rule: &Rule, out: &mut [Bits]) -> usize {
        let total = sum(self.centroids.iter().map(|centroid| centroid.weight));
        let mut cuts = rule.cuts.iter().map(|cut| cut * total).peekable();
        let (mut start, mut until, mut filled) = (0, 0.0, 0);
        let last = self.centroids.len() - 1;
        for (at, centroid) in self.centroids.iter().enumerate() {
            until += centroid.weight;
            let middle = until - centroid.weight / 2.0;
            // The least and the greatest stay as they are.
            let mut is_apart = at == 1 || at == last;
            while cuts.next_if(|cut| *cut <= middle).is_some() {
                is_apart = true;
            }
            is_apart &= centroid.mean.is_finite();
            if at > 0 && (is_apart || is_another_kind(self.order[at - 1].0, self.order[at].0)) {
                out[filled] = one_of(&self.centroids[start..at]);
                (start, filled) = (at, filled + 1);
            }
        }
        out[filled] = one_of(&self.centroids[start..]);
        filled + 1
    }
}

/// Return whether two means in order are not both numbers, the same infinity or NaN.
fn is_another_kind(before: u64, mean: u64) -> bool {
    let is_number = |code| float::order(f64::MIN) <= code && code <= float::order(f64::MAX);
    before != mean && !(is_number(before) && is_number(mean))
}

/// Return one centroid for several in order. Its mean is within theirs despite rounding.
fn one_of(run: &[Centroid]) -> Bits {
    let total = sum(run.iter().map(|centroid| centroid.weight));
    let mean = match run {
        [lowest, .., highest] if lowest.mean.is_finite() => {
            sum(run.iter().map(|centroid| centroid.mean * (centroid.weight / total)))
                .max(lowest.mean)
                .min(highest.mean)
        }
        [one, ..] => one.mean, // or infinite, or NaN,
        [] => f64::NAN,
    };
    [mean.to_bits(), total.to_bits()]
}

/// Return the sum of numbers, added in their order.
fn sum(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |sum, number| sum + number)
}
