//! The sums of the values of each key, over batches that come one after the other.

use std::ops::Range;

use pyo3::prelude::*;

use crate::buffers::Output;
use crate::column::{Column, Layout};
use crate::integers::with_widened;
use crate::malformed::{Malformed, Result};

/// The rows whose groups are looked up before their values are added.
const BLOCK: usize = 64;

const MIN_BITS: u32 = 12;

/// The first number of 39 digits, for which a decimal of 128 bits has no room.
const LIMIT: u128 = 10_u128.pow(38);

/// A group for each key, with the sums of some columns.
///
/// A sum that would not fit its column begins another group of the same key. A group takes 8 bytes
/// for its key, 8 or 16 for each sum, and 8 to 16 for its slots.
#[pyclass]
pub struct RunningSums {
    key: (Layout, usize),
    sums: Vec<Sum>,
    groups: Groups,
}

#[pymethods]
impl RunningSums {
    #[new]
    fn new(key: (Layout, usize), sums: Vec<(Layout, usize)>) -> PyResult<Self> {
        let sums = sums.into_iter().map(|(layout, width)| Sum::new(layout, width));
        let sums = sums.collect::<Result<Vec<_>>>()?;
        let stride = 1 + sums.iter().map(Sum::words).sum::<usize>();
        Ok(Self { key, sums, groups: Groups::new(stride) })
    }

    #[getter]
    fn groups(&self) -> usize {
        self.groups.count()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.groups.used_bytes()
    }

    /// Add the rows of a batch. Nothing is added of a malformed one.
    #[allow(clippy::needless_pass_by_value)]
    fn add(&mut self, py: Python<'_>, key: Column, values: Vec<Column>) -> PyResult<()> {
        Ok(py.detach(|| self.add_all(&key, &values))?)
    }

    /// Fill `keys` and `sums` with those of all groups, by their first rows, and forget these.
    fn take(&mut self, mut keys: Output, mut sums: Vec<Output>) -> PyResult<()> {
        let Groups { words, stride, .. } = &self.groups;
        fill(words, *stride, 0, self.key.1, keys.slice_mut()?)?;
        let mut at = 1;
        for (sum, filled) in self.sums.iter().zip(&mut sums) {
            fill(words, *stride, at, sum.width(), filled.slice_mut()?)?;
            at += sum.words();
        }
        self.groups = Groups::new(*stride);
        Ok(())
    }
}

impl RunningSums {
    fn add_all(&mut self, key: &Column, values: &[Column]) -> Result<()> {
        self.check(key, values)?;
        let mut places = [0; BLOCK];
        for start in (0..key.rows).step_by(BLOCK) {
            let rows = start..key.rows.min(start + BLOCK);
            let places = &mut places[..rows.len()];
            with_widened!(key.integers(&rows)?, keys => self.groups.find(keys, places));
            let mut at = 1;
            for (sum, column) in self.sums.iter().zip(values) {
                sum.add(&mut self.groups, column, &rows, places, at)?;
                at += sum.words();
            }
        }
        Ok(())
    }

    /// Fail unless the columns are those that were named, without nulls, and have all their values.
    fn check(&self, key: &Column, values: &[Column]) -> Result<()> {
        let all = 0..key.rows;
        if values.len() != self.sums.len() || (key.layout, key.width) != self.key {
            return Err(Malformed::Column("it is not one of those that are summed"));
        }
        key.integers(&all)?;
        for (sum, column) in self.sums.iter().zip(values) {
            if column.rows != key.rows || !sum.is_of(column) {
                return Err(Malformed::Column("it is not one of those that are summed"));
            }
            column.fixed(&all, column.width)?;
        }
        if std::iter::once(key).chain(values).any(|each| !matches!(each.validity(&all), Ok(None))) {
            return Err(Malformed::Column("it has nulls"));
        }
        let groups = key.rows.saturating_mul(1 + values.len()).saturating_add(self.groups.count());
        let words = groups.saturating_mul(self.groups.stride);
        u32::try_from(words).map_err(|_| Malformed::TooLong).map(|_| ())
    }
}

/// The type of a sum, and of the values that are added to it.
enum Sum {
    /// An integer of 32 bits.
    Int,
    /// An integer of 64 bits.
    Long,
    /// A decimal of 38 digits.
    Decimal,
}

impl Sum {
    fn new(layout: Layout, width: usize) -> Result<Self> {
        match (layout, width) {
            (Layout::Signed, 4) => Ok(Self::Int),
            (Layout::Signed, 8) => Ok(Self::Long),
            (Layout::Decimal, 16) => Ok(Self::Decimal),
            _ => Err(Malformed::Column("its values cannot be summed")),
        }
    }

    fn is_of(&self, column: &Column) -> bool {
        let layout = if let Self::Decimal = self { Layout::Decimal } else { Layout::Signed };
        column.layout == layout && column.width == self.width()
    }

    fn width(&self) -> usize {
        match self {
            Self::Int => 4,
            Self::Long => 8,
            Self::Decimal => 16,
        }
    }

    fn words(&self) -> usize {
        self.width().div_ceil(8)
    }

    /// Add the values of some rows to the sums that begin in word `at` of the groups in `places`.
    #[inline]
    fn add(
        &self,
        groups: &mut Groups,
        column: &Column,
        rows: &Range<usize>,
        places: &[u32],
        at: usize,
    ) -> Result<()> {
        match self {
            Self::Decimal => {
                groups.add_decimals(column.fixed(rows, 16)?.as_chunks().0, places, at);
            }
            Self::Int => with_widened!(column.integers(rows)?, values => {
                groups.add(values, places, at, |total| i32::try_from(total).is_ok());
            }),
            Self::Long => with_widened!(column.integers(rows)?, values => {
                groups.add(values, places, at, |_| true);
            }),
        }
        Ok(())
    }
}

/// The key and the sums of each group, one group after the other, and a hash table with linear
/// probing, of which at most half is used.
struct Groups {
    /// The words of a group: its key, and one or two for each sum.
    stride: usize,
    words: Vec<u64>,
    bits: u32,
    /// One more than the first word of a group; 0 in a free slot.
    slots: Vec<u32>,
    /// The words of half as many groups as there are slots.
    max_words: usize,
}

impl Groups {
    fn new(stride: usize) -> Self {
        Self {
            stride,
            words: Vec::new(),
            bits: MIN_BITS,
            slots: vec![0; 1 << MIN_BITS],
            max_words: stride << (MIN_BITS - 1),
        }
    }

    fn count(&self) -> usize {
        self.words.len() / self.stride
    }

    fn used_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>() + self.slots.len() * size_of::<u32>()
    }

    /// Write the first word of the group of each key to `places`, of which there are as many.
    ///
    /// The slots of all keys are read first, and then the keys in them, so that these loads do not
    /// wait for each other.
    #[inline]
    fn find(&mut self, keys: impl Iterator<Item = u64>, places: &mut [u32]) {
        let mut block = [(0, 0); BLOCK];
        for (((key, _), place), each) in block.iter_mut().zip(places.iter_mut()).zip(keys) {
            *place = self.slots[bucket(each, self.bits)].wrapping_sub(1);
            *key = each;
        }
        for ((key, known), &place) in block.iter_mut().zip(places.iter()) {
            *known = self.words.get(place as usize).copied().unwrap_or(!*key);
        }
        for (place, &(key, known)) in places.iter_mut().zip(&block) {
            if known != key {
                *place = self.find_or_begin(key);
            }
        }
    }

    fn find_or_begin(&mut self, key: u64) -> u32 {
        let slot = self.slot(key);
        match self.slots[slot] {
            0 => self.begin(key, slot),
            known => known - 1,
        }
    }

    /// Return the slot of a key: the one that has it, or else a free one.
    #[inline]
    fn slot(&self, key: u64) -> usize {
        let mut slot = bucket(key, self.bits);
        loop {
            let known = self.slots[slot];
            if known == 0 || self.words[known as usize - 1] == key {
                return slot;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Begin a group of the key of a slot, to which the rows belong that come later. Return its
    /// first word.
    #[allow(clippy::cast_possible_truncation)] // there are less than 2^32 words: see `check`
    fn begin(&mut self, key: u64, slot: usize) -> u32 {
        let place = self.words.len() as u32;
        self.words.push(key);
        self.words.resize(self.words.len() + self.stride - 1, 0);
        self.slots[slot] = place + 1;
        if self.words.len() > self.max_words {
            self.grow();
        }
        place
    }

    #[cold]
    #[allow(clippy::cast_possible_truncation)]
    fn grow(&mut self) {
        self.bits += 1;
        self.max_words *= 2;
        self.slots = vec![0; 1 << self.bits];
        for place in (0..self.words.len()).step_by(self.stride) {
            let slot = self.slot(self.words[place]);
            self.slots[slot] = place as u32 + 1;
        }
    }

    /// Begin another group of the same key. Return its first word.
    #[cold]
    fn begin_again(&mut self, place: u32) -> usize {
        let key = self.words[place as usize];
        self.begin(key, self.slot(key)) as usize
    }

    /// Add values to the sums in word `at` of the groups in `places`.
    #[inline]
    fn add(
        &mut self,
        values: impl Iterator<Item = u64>,
        places: &[u32],
        at: usize,
        fits: impl Fn(i64) -> bool,
    ) {
        for (value, &place) in values.zip(places) {
            let sum = &mut self.words[place as usize + at];
            let (total, overflows) = sum.cast_signed().overflowing_add(value.cast_signed());
            if overflows || !fits(total) {
                let sum = self.begin_again(place) + at;
                self.words[sum] = value;
            } else {
                *sum = total.cast_unsigned();
            }
        }
    }

    /// Add decimals to the sums in two words from `at` on, the lower one first.
    #[allow(clippy::cast_possible_truncation)] // into halves
    fn add_decimals(&mut self, values: &[[u8; 16]], places: &[u32], at: usize) {
        for (&value, &place) in values.iter().zip(places) {
            let value = i128::from_le_bytes(value);
            let sum = place as usize + at;
            let total = u128::from(self.words[sum + 1]) << 64 | u128::from(self.words[sum]);
            let total = total.cast_signed().checked_add(value);
            let (sum, total) = match total.filter(|total| total.unsigned_abs() < LIMIT) {
                Some(total) => (sum, total),
                None => (self.begin_again(place) + at, value),
            };
            let total = total.cast_unsigned();
            self.words[sum] = total as u64;
            self.words[sum + 1] = (total >> 64) as u64;
        }
    }
}

/// Fill `filled` with the lowest bytes of the words from `at` on of each group.
fn fill(words: &[u64], stride: usize, at: usize, width: usize, filled: &mut [u8]) -> Result<()> {
    if filled.len() != words.len() / stride * width {
        return Err(Malformed::Output);
    }
    let groups = words.chunks_exact(stride);
    for (filled, group) in filled.chunks_exact_mut(width).zip(groups) {
        for (part, word) in filled.chunks_mut(8).zip(&group[at..]) {
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        }
    }
    Ok(())
}

/// Return the bucket of a key: the highest bits of its product with an odd number, which depend on
/// all bits of the key.
#[inline]
#[allow(clippy::cast_possible_truncation)] // there are at most 2^32 buckets
fn bucket(key: u64, bits: u32) -> usize {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
}
