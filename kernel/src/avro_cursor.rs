//! Reads the values that Avro encodes, from bytes that may be damaged.

/// The bytes are not those of a record of the schema.
#[derive(Debug)]
pub struct Damaged;

pub type Result<T> = std::result::Result<T, Damaged>;

/// What is left of a record.
pub struct Cursor<'a> {
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The number of bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.bytes.split_first().ok_or(Damaged)?;
        self.bytes = rest;
        Ok(byte)
    }

    #[inline]
    pub fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(size).ok_or(Damaged)?;
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Damaged)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// Read a number in zigzag encoding, which has at most 10 bytes.
    #[inline]
    pub fn long(&mut self) -> Result<i64> {
        let first = self.byte()?;
        let mut bits = u64::from(first & 0x7f);
        if first >= 0x80 {
            let mut shift = 7;
            loop {
                let byte = self.byte()?;
                if shift == 63 && byte > 1 {
                    return Err(Damaged);
                }
                bits |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
                shift += 7;
            }
        }
        Ok((bits >> 1).cast_signed() ^ -(bits & 1).cast_signed())
    }

    /// Read a number and as many bytes.
    #[inline]
    pub fn sized(&mut self) -> Result<&'a [u8]> {
        let size = usize::try_from(self.long()?).map_err(|_| Damaged)?;
        self.take(size)
    }
}
