//! Consumes one partition of Kafka into buffers of Arrow.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;

use crate::buffers::Output;
use crate::librdkafka::{Failure, Handle, Message, load};
use crate::malformed::{Malformed, Result};

/// The most messages of one call of librdkafka, which waits for all of them.
const CHUNK: usize = 1024;

const MAX_BYTES: usize = i32::MAX as usize;

/// A consumer, and the messages of its last poll until they are taken.
#[pyclass]
pub struct TopicConsumer {
    /// They are dropped before the client that they are of.
    messages: Vec<Message>,
    handle: Option<Handle>,
}

/// Names and values.
type Headers = Vec<(String, Option<Vec<u8>>)>;

/// The number of messages, the bytes of their keys and values, the offset of the next message if
/// the partition has ended, and an error with its name.
type Polled = (usize, usize, usize, Option<i64>, Option<(String, String)>);

#[pymethods]
impl TopicConsumer {
    #[new]
    #[allow(clippy::needless_pass_by_value)]
    fn new(py: Python<'_>, library: PathBuf, settings: Vec<(String, String)>) -> PyResult<Self> {
        let api = load(&library).map_err(PyOSError::new_err)?;
        let handle = py.detach(|| Handle::new(api, &settings)).map_err(raised)?;
        Ok(Self { messages: Vec::new(), handle: Some(handle) })
    }

    /// Begin to consume a partition; raises `RuntimeError` with the name and the text of an error.
    fn assign(&mut self, py: Python<'_>, topic: &str, partition: i32, offset: i64) -> PyResult<()> {
        self.messages.clear();
        let handle = open(self.handle.as_mut())?;
        py.detach(|| handle.assign(topic, partition, offset)).map_err(raised)
    }

    /// Poll at most `count` messages until the timeout, and no more once they have `max_bytes`.
    fn poll(
        &mut self,
        py: Python<'_>,
        count: usize,
        max_bytes: usize,
        timeout_ms: u32,
    ) -> PyResult<Polled> {
        let (handle, messages) = (open(self.handle.as_mut())?, &mut self.messages);
        let polled = py.detach(|| {
            messages.clear();
            poll(handle, messages, count, max_bytes, timeout_ms)
        });
        if polled.1.max(polled.2) > MAX_BYTES {
            self.messages.clear();
            return Err(PyRuntimeError::new_err(("_MSG_SIZE_TOO_LARGE", "more than 2 GiB")));
        }
        Ok(polled)
    }

    /// Fill `offsets` and `timestamps` (int64) with those of the messages.
    fn places(&self, py: Python<'_>, mut offsets: Output, mut timestamps: Output) -> PyResult<()> {
        let (offsets, timestamps) = (offsets.slice_mut()?, timestamps.slice_mut()?);
        Ok(py.detach(|| places(&self.messages, offsets, timestamps))?)
    }

    /// Fill the bitmap `valid`, the `offsets` (uint32) and the `data` of the keys, and return how
    /// many are null.
    fn keys(
        &self,
        py: Python<'_>,
        mut valid: Output,
        mut offsets: Output,
        mut data: Output,
    ) -> PyResult<usize> {
        let (valid, offsets) = (valid.slice_mut()?, offsets.slice_mut()?);
        let data = data.slice_mut()?;
        let keys = self.messages.iter().map(Message::key);
        Ok(py.detach(|| fill(keys, valid, offsets, data))?)
    }

    /// As `keys`, for the values.
    fn values(
        &self,
        py: Python<'_>,
        mut valid: Output,
        mut offsets: Output,
        mut data: Output,
    ) -> PyResult<usize> {
        let (valid, offsets) = (valid.slice_mut()?, offsets.slice_mut()?);
        let data = data.slice_mut()?;
        let values = self.messages.iter().map(Message::value);
        Ok(py.detach(|| fill(values, valid, offsets, data))?)
    }

    /// Return the headers of each message that has any.
    fn headers(&self) -> Vec<Option<Headers>> {
        let headers = self.messages.iter().map(|message| {
            let found = message.headers()?;
            let owned = found.into_iter().map(|(name, value)| {
                (name.to_string_lossy().into_owned(), value.map(<[u8]>::to_vec))
            });
            Some(owned.collect())
        });
        headers.collect()
    }

    /// Forget the messages of the last poll.
    fn forget(&mut self, py: Python<'_>) {
        let messages = std::mem::take(&mut self.messages);
        py.detach(|| drop(messages));
    }

    #[getter]
    fn last_error(&self) -> String {
        self.handle.as_ref().map(Handle::last_error).unwrap_or_default()
    }

    /// End the connections.
    fn close(&mut self, py: Python<'_>) {
        self.forget(py);
        let handle = self.handle.take();
        py.detach(|| drop(handle));
    }
}

fn open(handle: Option<&mut Handle>) -> PyResult<&mut Handle> {
    handle.ok_or_else(|| PyRuntimeError::new_err(("_STATE", "the consumer is closed")))
}

fn raised(failure: Failure) -> PyErr {
    PyRuntimeError::new_err((failure.name, failure.text))
}

fn poll(
    handle: &mut Handle,
    messages: &mut Vec<Message>,
    count: usize,
    max_bytes: usize,
    timeout_ms: u32,
) -> Polled {
    let until = Instant::now() + Duration::from_millis(timeout_ms.into());
    let (mut key_bytes, mut value_bytes) = (0, 0);
    let (mut end, mut failure) = (None, None);
    while messages.len() < count
        && key_bytes + value_bytes < max_bytes
        && end.is_none()
        && failure.is_none()
    {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let left = i32::try_from(left).unwrap_or(i32::MAX);
        let found = handle.poll((count - messages.len()).min(CHUNK), left);
        if found.is_empty() {
            break;
        }
        for message in found {
            if message.is_end() {
                end = Some(message.offset());
            } else if let Some(found) = message.failure() {
                failure = Some((found.name, found.text));
            } else {
                key_bytes += message.key().map_or(0, <[u8]>::len);
                value_bytes += message.value().map_or(0, <[u8]>::len);
                messages.push(message);
            }
        }
    }
    (messages.len(), key_bytes, value_bytes, end, failure)
}

fn places(messages: &[Message], offsets: &mut [i64], timestamps: &mut [i64]) -> Result<()> {
    if offsets.len() != messages.len() || timestamps.len() != messages.len() {
        return Err(Malformed::Output);
    }
    for ((message, offset), timestamp) in messages.iter().zip(offsets).zip(timestamps) {
        *offset = message.offset();
        *timestamp = message.timestamp();
    }
    Ok(())
}

/// Fill the buffers of a binary column, and return how many of its values are null.
fn fill<'a>(
    values: impl ExactSizeIterator<Item = Option<&'a [u8]>>,
    valid: &mut [u8],
    offsets: &mut [u32],
    data: &mut [u8],
) -> Result<usize> {
    if offsets.len() != values.len() + 1 || valid.len() < values.len().div_ceil(8) {
        return Err(Malformed::Output);
    }
    valid.fill(0);
    offsets[0] = 0;
    let (mut at, mut nulls) = (0, 0);
    for (row, value) in values.enumerate() {
        if let Some(value) = value {
            let end = at + value.len();
            data.get_mut(at..end).ok_or(Malformed::Output)?.copy_from_slice(value);
            valid[row / 8] |= 1 << (row % 8);
            at = end;
        } else {
            nulls += 1;
        }
        offsets[row + 1] = u32::try_from(at).map_err(|_| Malformed::TooWide)?;
    }
    Ok(nulls)
}

/// Fill `lines` with values and a line end after each; line ends within them become spaces.
pub fn join_lines(data: &[u8], offsets: &[u32], lines: &mut [u8]) -> Result<()> {
    let rows = offsets.len().saturating_sub(1);
    if lines.len() != data.len() + rows {
        return Err(Malformed::Output);
    }
    let mut at = 0;
    for bounds in offsets.windows(2) {
        let value = data.get(bounds[0] as usize..bounds[1] as usize).ok_or(Malformed::Output)?;
        let end = at + value.len();
        let line = lines.get_mut(at..=end).ok_or(Malformed::Output)?;
        line[..value.len()].copy_from_slice(value);
        line[value.len()] = b'\n';
        at = end + 1;
    }
    if memchr::memchr2_iter(b'\n', b'\r', data).next().is_some() {
        let mut at = 0;
        for bounds in offsets.windows(2) {
            let size = (bounds[1] - bounds[0]) as usize;
            for byte in &mut lines[at..at + size] {
                if matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
            at += size + 1;
        }
    }
    Ok(())
}
