//! Hashes and orders floats by one 64-bit pattern for all equal values.

use crate::hash;

const NAN: u64 = 0x7FF8_0000_0000_0000;

/// Return the hash of a float. Both zeros have one hash, and all NaNs have one.
#[inline]
pub fn hash(value: f64) -> u64 {
    hash::word(bits(value))
}

/// Return a number in the order of floats, in which both zeros are equal. NaNs are the greatest.
#[inline]
pub fn order(value: f64) -> u64 {
    let bits = bits(value);
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

#[inline]
fn bits(value: f64) -> u64 {
    // Adding 0.0 turns -0.0 into 0.0 and changes no other value.
    if value.is_nan() { NAN } else { (value + 0.0).to_bits() }
}

/// Convert a float of 16 bits: 1 of sign, 5 of exponent, 10 of fraction.
#[inline]
pub fn from_half(bytes: [u8; 2]) -> f64 {
    let bits = u16::from_le_bytes(bytes);
    let (exponent, fraction) = (bits >> 10 & 0x1F, bits & 0x3FF);
    let magnitude = match exponent {
        0 => f64::from(fraction) / f64::from(1 << 24),
        0x1F if fraction == 0 => f64::INFINITY,
        0x1F => f64::NAN,
        _ => f64::from_bits(u64::from(exponent + 1023 - 15) << 52 | u64::from(fraction) << 42),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}
