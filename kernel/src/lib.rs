//! `mrflight._kernel`: hashes the key columns of a batch, assigns its rows to partitions, scatters
//! them, ranks strings, numbers and orders integers, and decodes text and Avro.
//!
//! `mrflight.compute.kernel` describes each column by its Arrow buffers and passes
//! the buffers to fill. This module only reads and writes bytes, with the interpreter
//! lock released. Buffers may start at any address, as those received from a socket
//! do, and every length, offset and index in them is checked: a malformed column
//! raises `ValueError`. (The C data interface has no sizes, and arrow-rs copies
//! buffers that are not aligned when it imports them.)

mod append;
mod avro_column;
mod avro_cursor;
mod avro_decoder;
mod avro_kind;
mod bit_buffer;
mod bits;
mod buffers;
mod byte_groups;
mod canonical;
mod centroids;
mod column;
mod distinct;
mod float;
mod groups;
mod hash;
mod hash_table;
mod integers;
mod librdkafka;
mod malformed;
mod moments;
mod order;
mod place;
mod plain_csv;
mod pool;
mod rank;
mod repeats;
mod row;
mod running_sums;
mod scatter;
mod separators;
mod target;
mod topic_consumer;
mod wide;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::malformed::Malformed;

impl From<Malformed> for PyErr {
    fn from(error: Malformed) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

#[pymodule]
mod _kernel {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::avro_decoder::AvroDecoder;
    use crate::buffers::{Input, Output};
    use crate::column::{Column, Layout};
    #[pymodule_export]
    use crate::hash_table::HashTable;
    #[pymodule_export]
    use crate::plain_csv::PlainCsv;
    #[pymodule_export]
    use crate::running_sums::RunningSums;
    #[pymodule_export]
    use crate::scatter::Scatter;
    #[pymodule_export]
    use crate::topic_consumer::TopicConsumer;
    use crate::{
        centroids, distinct, groups, moments, order, place, rank, repeats, row, topic_consumer,
    };

    /// Fill `hashes` (uint64) with the hash of each row's key.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn hash_rows(py: Python<'_>, columns: Vec<Column>, mut hashes: Output) -> PyResult<()> {
        let hashes = hashes.slice_mut()?;
        Ok(py.detach(|| row::hash(&columns, hashes))?)
    }

    /// Fill `ids` (int32) with the partition of each row.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn partition_ids(
        py: Python<'_>,
        columns: Vec<Column>,
        partitions: u32,
        mut ids: Output,
    ) -> PyResult<()> {
        let ids = ids.slice_mut()?;
        Ok(py.detach(|| row::partitions(&columns, partitions, ids))?)
    }

    /// Fill `rows` (uint32) with the rows by partition, and `offsets` (int64) with their bounds.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn order_rows(
        py: Python<'_>,
        ids: Column,
        mut rows: Output,
        mut offsets: Output,
    ) -> PyResult<()> {
        let (rows, offsets) = (rows.slice_mut()?, offsets.slice_mut()?);
        Ok(py.detach(|| place::by_id(&ids, rows, offsets))?)
    }

    /// Fill `ranks` (uint32) with the rank of each string among the distinct ones.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn rank_bytes(py: Python<'_>, column: Column, mut ranks: Output) -> PyResult<()> {
        let ranks = ranks.slice_mut()?;
        Ok(py.detach(|| rank::ranks(&column, ranks))?)
    }

    /// Fill `numbers` and the beginning of `firsts` (uint32) with the number of each value among the
    /// distinct ones, and the row where each of these occurs first. Return how many there are.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn number_distinct(
        py: Python<'_>,
        column: Column,
        mut numbers: Output,
        mut firsts: Output,
    ) -> PyResult<usize> {
        let (numbers, firsts) = (numbers.slice_mut()?, firsts.slice_mut()?);
        Ok(py.detach(|| distinct::number(&column, numbers, firsts))?)
    }

    /// Fill `numbers` and the beginning of `firsts` (uint32) as `number_distinct` does, for keys of
    /// any columns. Return None if two keys have the same hash.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn number_keys(
        py: Python<'_>,
        columns: Vec<Column>,
        mut numbers: Output,
        mut firsts: Output,
    ) -> PyResult<Option<usize>> {
        let (numbers, firsts) = (numbers.slice_mut()?, firsts.slice_mut()?);
        Ok(py.detach(|| groups::number(&columns, numbers, firsts))?)
    }

    /// Fill `sums` (int64, or decimals of 128 bits) with the sum of the values of each group. Return
    /// false if one does not fit.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn sum_groups(
        py: Python<'_>,
        values: Column,
        numbers: Column,
        mut sums: Output,
    ) -> PyResult<bool> {
        if values.layout == Layout::Decimal {
            let sums = sums.slice_mut()?;
            return Ok(py.detach(|| groups::sum_decimals(&values, &numbers, sums))?);
        }
        let sums = sums.slice_mut()?;
        Ok(py.detach(|| groups::sum_integers(&values, &numbers, sums))?)
    }

    /// Fill the bitmap `marks` with whether other rows have the value of a row. Return how many such
    /// rows there are.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn mark_repeated(py: Python<'_>, column: Column, mut marks: Output) -> PyResult<usize> {
        let marks = marks.slice_mut()?;
        Ok(py.detach(|| repeats::mark(&column, marks))?)
    }

    /// Fill `ordered` (int64) with the rows (int64) of each run in the order of their values.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn order_runs(
        py: Python<'_>,
        values: Column,
        rows: Column,
        offsets: Column,
        mut ordered: Output,
    ) -> PyResult<()> {
        let ordered = ordered.slice_mut()?;
        Ok(py.detach(|| order::runs(&values, &rows, &offsets, ordered))?)
    }

    /// Fill the beginning of `merged` with the mean and the weight (float64) of the merged centroids
    /// of each digest, and `counts` (int64) with how many it has. Return how many there are.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)]
    fn merge_centroids(
        py: Python<'_>,
        means: Column,
        weights: Column,
        bounds: Column,
        cuts: Vec<f64>,
        max_unmerged: usize,
        mut merged: Output,
        mut counts: Output,
    ) -> PyResult<usize> {
        let rule = centroids::Rule { cuts, max_unmerged };
        let (merged, counts) = (merged.slice_mut()?, counts.slice_mut()?);
        Ok(py.detach(|| centroids::merge(&means, &weights, &bounds, &rule, merged, counts))?)
    }

    /// Fill `merged` with the mean, the count and the squares (float64) of each group.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn merge_moments(
        py: Python<'_>,
        means: Column,
        counts: Option<Column>,
        squares: Option<Column>,
        numbers: Column,
        mut merged: Output,
    ) -> PyResult<()> {
        let parts = moments::Parts::new(&means, counts.as_ref(), squares.as_ref())?;
        let merged = merged.slice_mut()?;
        Ok(py.detach(|| parts.merge(&numbers, merged))?)
    }

    /// Fill `lines` with values, given their bytes and offsets (uint32) from 0 on, and a line end
    /// after each; line ends within them become spaces.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn join_lines(
        py: Python<'_>,
        data: Input,
        mut offsets: Output,
        mut lines: Output,
    ) -> PyResult<()> {
        let (offsets, lines) = (offsets.slice_mut()?, lines.slice_mut()?);
        Ok(py.detach(|| topic_consumer::join_lines(data.bytes(), offsets, lines))?)
    }

    /// Fail for an id that is null or not a partition.
    #[pyfunction]
    #[allow(clippy::needless_pass_by_value)]
    fn check_ids(py: Python<'_>, ids: Column, partitions: usize) -> PyResult<()> {
        py.detach(|| place::checked(&ids, partitions))?;
        Ok(())
    }
}
