//! Python's buffers as slices. Only this module, `append`, `librdkafka`, `separators`
//! and `wide` have `unsafe` code.

use std::ffi::c_int;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::pool::PoolReference;

/// A buffer to read. It keeps its owner alive.
pub struct Input(PyUntypedBuffer);

impl Input {
    pub fn bytes(&self) -> &[u8] {
        let (start, size) = (self.0.buf_ptr().cast::<u8>(), self.0.len_bytes());
        if start.is_null() || size == 0 {
            return &[];
        }
        // SAFETY: the view holds `size` contiguous bytes at `start` for as long
        // as it lives, and the bytes of an Arrow array do not change any more.
        unsafe { std::slice::from_raw_parts(start, size) }
    }
}

impl<'py> FromPyObject<'_, 'py> for Input {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        contiguous(object).map(Self)
    }
}

/// A buffer to fill, which was allocated for this call and is not shared.
pub struct Output(PyUntypedBuffer);

impl Output {
    /// Return the whole buffer as numbers.
    pub fn slice_mut<T: Number>(&mut self) -> PyResult<&mut [T]> {
        let (start, size) = (self.0.buf_ptr().cast::<T>(), self.0.len_bytes());
        if size == 0 {
            return Ok(&mut []);
        }
        if self.0.readonly() || !start.is_aligned() || !size.is_multiple_of(size_of::<T>()) {
            let message = "a buffer to fill is read-only, unaligned or of a wrong size";
            return Err(PyValueError::new_err(message));
        }
        // SAFETY: the view holds `size` writable, contiguous and aligned bytes
        // at `start` for as long as it lives, and any bytes are a valid `Number`.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, size / size_of::<T>()) })
    }
}

impl<'py> FromPyObject<'_, 'py> for Output {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        contiguous(object).map(Self)
    }
}

/// Bytes that Python reads without a copy. They return to their pool when it releases them.
#[pyclass(frozen)]
pub struct Bytes {
    bytes: Vec<u8>,
    pool: PoolReference,
}

impl Bytes {
    pub fn new(bytes: Vec<u8>, pool: PoolReference) -> Self {
        Self { bytes, pool }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.bytes));
    }
}

#[pymethods]
impl Bytes {
    #[allow(clippy::needless_pass_by_value)]
    /// # Safety
    ///
    /// `view` is a buffer view that the interpreter asks to be filled.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().bytes;
        // `len` of a vector is at most `isize::MAX`.
        let (start, size) = (bytes.as_ptr().cast_mut().cast(), bytes.len().cast_signed());
        // SAFETY: a frozen class never changes its bytes. The view is read-only, and
        // holds a reference to their owner until it is released.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, size, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// Types for which every bit pattern is a valid value.
pub trait Number: private::Sealed {}
impl Number for u8 {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for i64 {}
impl Number for i128 {}

mod private {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for i64 {}
    impl Sealed for i128 {}
}

fn contiguous(object: Borrowed<'_, '_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(&object)?;
    if buffer.is_c_contiguous() {
        Ok(buffer)
    } else {
        Err(PyValueError::new_err("a buffer is not contiguous"))
    }
}
