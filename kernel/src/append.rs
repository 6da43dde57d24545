//! Appends values of one width to a buffer, with one check of its capacity for all of them.

use std::mem::MaybeUninit;

/// Append all `values` to `buffer`.
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
    // SAFETY: `written` bytes after the last one have just been written, within the capacity.
    unsafe { buffer.set_len(buffer.len() + written) };
}
