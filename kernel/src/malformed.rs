//! The errors of malformed columns and ids.

use std::fmt;

/// A column whose buffers contradict each other, or an id that is not a partition.
#[derive(Debug)]
pub enum Malformed {
    /// The buffers contradict each other, as the text says.
    Column(&'static str),
    /// There are more rows or partitions than fit in 32 bits.
    TooLong,
    /// A partition would have more bytes of one column than 32-bit offsets reach.
    TooWide,
    /// A buffer to fill does not have the size that the rows or partitions need.
    Output,
    /// A row has no partition.
    NullPartition { row: usize },
    /// The partition of a row does not exist.
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
