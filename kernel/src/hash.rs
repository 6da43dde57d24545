//! XXH3, 64 bits, seed 0, with the fixed lengths of the hot loops inlined.
//!
//! The formulas are those for 4..8 and 9..16 bytes of the specification,
//! <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md#xxh3-algorithm-overview>,
//! with constants for the terms that depend only on the seed and the secret.

use xxhash_rust::xxh3::xxh3_64;

/// The hash of a null, whatever its type: 2^64 divided by the golden ratio.
pub const NULL: u64 = 0x9E37_79B9_7F4A_7C15;

/// Pairs of 64-bit little-endian words of the default secret, combined by xor.
const SECRET_8_16: u64 = 0x1cad_21f7_2c81_017c ^ 0xdb97_9083_e96d_d4de;
const SECRET_24_32: u64 = 0x1f67_b3b7_a4a4_4072 ^ 0x78e5_c0cc_4ee6_79cb;
const SECRET_40_48: u64 = 0x2172_ffcc_7dd0_5a82 ^ 0x8e24_43f7_7446_08b8;

/// Return the hash of any bytes.
#[inline]
pub fn bytes(value: &[u8]) -> u64 {
    xxh3_64(value)
}

/// Return the hash of the 8 little-endian bytes of `value`.
#[inline]
pub fn word(value: u64) -> u64 {
    const MULTIPLIER: u64 = 0x9FB2_1C65_1E98_DF25;
    let mut h = value.rotate_left(32) ^ SECRET_8_16;
    h ^= h.rotate_left(49) ^ h.rotate_left(24);
    h = h.wrapping_mul(MULTIPLIER);
    h ^= (h >> 35).wrapping_add(8);
    h = h.wrapping_mul(MULTIPLIER);
    h ^ (h >> 28)
}

/// Return the hash of the 16 little-endian bytes of `low`, then `high`.
#[inline]
pub fn two_words(low: u64, high: u64) -> u64 {
    let (low, high) = (low ^ SECRET_24_32, high ^ SECRET_40_48);
    let product = u128::from(low) * u128::from(high);
    #[allow(clippy::cast_possible_truncation)]
    let folded = (product as u64) ^ (product >> 64) as u64;
    let mut h = 16_u64.wrapping_add(low.swap_bytes()).wrapping_add(high).wrapping_add(folded);
    h ^= h >> 37;
    h = h.wrapping_mul(0x1656_6791_9E37_79F9);
    h ^ (h >> 32)
}
