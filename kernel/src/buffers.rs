//! Python's buffers as slices. `unsafe` is here, in `append` and in `wide`, and nowhere else.

use std::ffi::c_int;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::pool::WayBack;

/// A buffer to read; keeps its owner alive.
pub struct Input(PyUntypedBuffer);

impl Input {
    pub fn bytes(&self) -> &[u8] {
        let (start, size) = (self.0.buf_ptr().cast::<u8>(), self.0.len_bytes());
        if start.is_null() || size == 0 {
            return &[];
        }
        // SAFETY: the view holds `size` contiguous bytes at `start` for as long
        // as it lives, and what is in an Arrow array does not change any more.
        unsafe { std::slice::from_raw_parts(start, size) }
    }
}

impl<'py> FromPyObject<'_, 'py> for Input {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        contiguous(object).map(Self)
    }
}

/// A buffer to fill, allocated for this call and shared with nobody.
pub struct Output(PyUntypedBuffer);

impl Output {
    /// The whole buffer.
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
        // at `start` for as long as it lives, any of which make a `Number`.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, size / size_of::<T>()) })
    }
}

impl<'py> FromPyObject<'_, 'py> for Output {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        contiguous(object).map(Self)
    }
}

/// Bytes that Python reads where they lie, for as long as it holds on to them.
#[pyclass(frozen)]
pub struct Bytes {
    bytes: Vec<u8>,
    home: WayBack,
}

impl Bytes {
    pub fn new(bytes: Vec<u8>, home: WayBack) -> Self {
        Self { bytes, home }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.home.put(std::mem::take(&mut self.bytes));
    }
}

#[pymethods]
impl Bytes {
    #[allow(clippy::needless_pass_by_value)]
    /// # Safety
    ///
    /// `view` is a buffer to describe, as the interpreter hands it in.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().bytes;
        // `len` of a vector is at most `isize::MAX`.
        let (start, size) = (bytes.as_ptr().cast_mut().cast(), bytes.len().cast_signed());
        // SAFETY: a frozen class never changes its bytes, the view says that they are
        // read-only, and holds a reference to their owner until it is released.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, size, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// Types that every bit pattern is a value of.
pub trait Number: private::Sealed {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for i64 {}

mod private {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for i64 {}
}

fn contiguous(object: Borrowed<'_, '_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(&object)?;
    if buffer.is_c_contiguous() {
        Ok(buffer)
    } else {
        Err(PyValueError::new_err("a buffer is not contiguous"))
    }
}
