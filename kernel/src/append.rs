//! Values of one width, appended to bytes without asking before each whether there is room.

use std::mem::MaybeUninit;

/// Append `values` to `buffer`, as many as the iterator says that it has.
#[inline]
pub fn fixed<const WIDTH: usize>(
    buffer: &mut Vec<u8>,
    values: impl ExactSizeIterator<Item = [u8; WIDTH]>,
) {
    let size = values.len() * WIDTH;
    buffer.reserve(size);
    let slots = buffer.spare_capacity_mut()[..size].as_chunks_mut::<WIDTH>().0;
    let mut written = 0;
    for (slot, value) in slots.iter_mut().zip(values) {
        *slot = value.map(MaybeUninit::new);
        written += WIDTH;
    }
    // SAFETY: so many bytes behind the last have just been written, within the capacity.
    unsafe { buffer.set_len(buffer.len() + written) };
}
