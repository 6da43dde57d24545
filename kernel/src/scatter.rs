//! Appends the rows of batches to the buffers of their partitions.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::buffers::{Bytes, Output};
use crate::column::{Column, Layout};
use crate::malformed::{Malformed, Result};
use crate::pool::SharedPool;
use crate::target::{Placement, Room, Target};

/// The growing columns of every partition.
#[pyclass]
pub struct Scatter {
    partitions: usize,
    rows: Vec<usize>,
    sizes: Vec<usize>,
    columns: Vec<Target>,
    /// The bytes of all buffers that hold rows.
    used: usize,
    pool: SharedPool,
    expected: usize,
}

#[pymethods]
impl Scatter {
    #[new]
    fn new(
        layouts: Vec<(Layout, usize)>,
        partitions: usize,
        budget_bytes: usize,
        expected_bytes: usize,
    ) -> PyResult<Self> {
        let columns = layouts.into_iter();
        let columns = columns.map(|(layout, width)| Target::new(layout, width, partitions));
        let columns = columns.collect::<Result<_>>()?;
        let zeros = vec![0; partitions];
        let pool = SharedPool::new(budget_bytes);
        Ok(Self {
            partitions,
            rows: zeros.clone(),
            sizes: zeros,
            columns,
            used: 0,
            pool,
            expected: expected_bytes,
        })
    }

    /// The bytes of all buffers that hold rows, including the unused ends of the buffers.
    #[getter]
    fn used_bytes(&self) -> usize {
        self.used
    }

    /// The bytes of the buffers that are kept for later rows.
    #[getter]
    fn free_bytes(&self) -> usize {
        self.pool.lock().free_bytes()
    }

    /// Free the buffers that are kept, until there are rows again.
    fn release(&self) {
        self.pool.lock().close();
    }

    /// Append the rows of a batch, whose partitions are `ids`. Nothing is appended of a malformed
    /// batch.
    #[allow(clippy::needless_pass_by_value)]
    fn add(&mut self, py: Python<'_>, columns: Vec<Column>, ids: Column) -> PyResult<()> {
        Ok(py.detach(|| self.append(&columns, &ids))?)
    }

    /// Fill `rows` and `sizes` (int64) with the number of rows of each partition, and their bytes.
    fn measure(&self, mut rows: Output, mut sizes: Output) -> PyResult<()> {
        for (filled, values) in [(&mut rows, &self.rows), (&mut sizes, &self.sizes)] {
            let filled: &mut [i64] = filled.slice_mut()?;
            if filled.len() != values.len() {
                return Err(Malformed::Output.into());
            }
            for (slot, &value) in filled.iter_mut().zip(values) {
                *slot = i64::try_from(value).unwrap_or(i64::MAX);
            }
        }
        Ok(())
    }

    /// Return the number of rows of a partition, and the buffers of its columns, and empty it.
    #[allow(clippy::type_complexity)]
    fn take(&mut self, partition: usize) -> PyResult<(usize, Vec<Vec<Option<Bytes>>>)> {
        if partition >= self.partitions {
            return Err(PyIndexError::new_err(format!("there is no partition {partition}")));
        }
        self.used -= self.capacity(&[partition]);
        self.pool.lock().set_used(self.used);
        self.sizes[partition] = 0;
        let rows = std::mem::take(&mut self.rows[partition]);
        let take = |column: &mut Target| {
            let buffers = column.take(partition).into_iter();
            let bytes = |buffer| Bytes::new(buffer, self.pool.reference());
            buffers.map(|buffer| buffer.map(bytes)).collect()
        };
        Ok((rows, self.columns.iter_mut().map(take).collect()))
    }
}

impl Scatter {
    fn append(&mut self, columns: &[Column], ids: &Column) -> Result<()> {
        if columns.len() != self.columns.len() {
            return Err(Malformed::Column("there are more or fewer than before"));
        }
        let rows = Placement::new(ids, self.partitions)?;
        let sizes = self.columns.iter().zip(columns);
        let sizes = sizes.map(|(target, source)| target.measure(source, &rows));
        let sizes = sizes.collect::<Result<Vec<_>>>()?;
        let before = self.capacity(&rows.touched);
        let mut all_sizes = vec![0; self.partitions];
        for sizes in &sizes {
            rows.touched.iter().for_each(|&p| all_sizes[p] += sizes[p]);
        }
        let mut pool = self.pool.lock();
        pool.open();
        let expected_bytes = self.expected;
        let mut room = Room { pool: &mut pool, sizes: &all_sizes, expected_bytes };
        for ((target, source), sizes) in self.columns.iter_mut().zip(columns).zip(&sizes) {
            target.append(source, &rows, sizes, &mut room)?;
        }
        for &p in &rows.touched {
            self.sizes[p] += all_sizes[p];
            self.rows[p] += rows.count(p);
        }
        drop(pool);
        self.used += self.capacity(&rows.touched);
        self.used -= before;
        self.pool.lock().set_used(self.used);
        Ok(())
    }

    fn capacity(&self, partitions: &[usize]) -> usize {
        let of_column =
            |column: &Target| partitions.iter().map(|&p| column.capacity(p)).sum::<usize>();
        self.columns.iter().map(of_column).sum()
    }
}
