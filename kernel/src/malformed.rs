//! What can be wrong with a column.

use std::fmt;

/// A column whose buffers contradict each other, or an id that is no partition.
#[derive(Debug)]
pub enum Malformed {
    /// What of the column is wrong.
    Column(&'static str),
    /// More rows or partitions than fit in 32 bits.
    TooLong,
    /// More bytes of one column in a partition than 32-bit offsets reach.
    TooWide,
    /// A buffer to fill has not the size that the rows or partitions take.
    Output,
    /// A row without a partition.
    NullPartition { row: usize },
    /// A row whose partition does not exist.
    NoSuchPartition { row: usize, id: isize, partitions: usize },
}

pub type Result<T> = std::result::Result<T, Malformed>;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(what) => write!(f, "a column is malformed: {what}"),
            Self::TooLong => write!(f, "too many rows or partitions: at most 2^32 fit"),
            Self::TooWide => {
                write!(f, "a partition would hold more than 2^31 bytes of a column: send it before")
            }
            Self::Output => write!(f, "a buffer to fill is of a wrong size"),
            Self::NullPartition { row } => write!(
                f,
                "row {row} has no partition: its id is null; a partitioner must give every row one"
            ),
            Self::NoSuchPartition { row, id, partitions } => write!(
                f,
                "row {row} is placed in partition {id}, which does not exist: \
                 there are {partitions}, numbered from 0"
            ),
        }
    }
}
