//! Bitmaps that grow.

/// Consecutive bits, the least significant first.
#[derive(Clone, Default)]
pub struct BitBuffer {
    bytes: Vec<u8>,
    count: usize,
}

impl BitBuffer {
    fn ones(count: usize) -> Self {
        let mut bits = Self::default();
        bits.push_ones(count);
        bits
    }

    #[inline]
    pub fn push(&mut self, bit: bool) {
        let at = self.count % 8;
        match self.bytes.last_mut() {
            Some(last) if at > 0 => *last |= u8::from(bit) << at,
            _ => self.bytes.push(u8::from(bit)),
        }
        self.count += 1;
    }

    fn push_ones(&mut self, count: usize) {
        let head = count.min((8 - self.count % 8) % 8);
        (0..head).for_each(|_| self.push(true));
        let whole = (count - head) / 8;
        self.bytes.resize(self.bytes.len() + whole, 0xff);
        self.count += 8 * whole;
        (0..count - head - 8 * whole).for_each(|_| self.push(true));
    }

    /// Forget all but the first bits.
    pub fn truncate(&mut self, count: usize) {
        if count >= self.count {
            return;
        }
        self.bytes.truncate(count.div_ceil(8));
        if let Some(last) = self.bytes.last_mut().filter(|_| !count.is_multiple_of(8)) {
            *last &= (1 << (count % 8)) - 1;
        }
        self.count = count;
    }

    pub fn bytes(&self) -> &Vec<u8> {
        &self.bytes
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The validity of rows; it takes no memory before the first null.
#[derive(Clone, Default)]
pub struct Validity {
    bits: Option<BitBuffer>,
    rows: usize,
}

impl Validity {
    #[inline]
    pub fn push(&mut self, valid: bool) {
        if let Some(bits) = &mut self.bits {
            bits.push(valid);
        } else if !valid {
            let mut bits = BitBuffer::ones(self.rows);
            bits.push(false);
            self.bits = Some(bits);
        }
        self.rows += 1;
    }

    pub fn push_valid(&mut self, rows: usize) {
        if let Some(bits) = &mut self.bits {
            bits.push_ones(rows);
        }
        self.rows += rows;
    }

    /// Forget all but the first rows.
    pub fn truncate(&mut self, rows: usize) {
        if let Some(bits) = &mut self.bits {
            bits.truncate(rows);
        }
        self.rows = self.rows.min(rows);
    }

    pub fn bytes(&self) -> Option<&Vec<u8>> {
        self.bits.as_ref().map(BitBuffer::bytes)
    }

    pub fn into_bytes(self) -> Option<Vec<u8>> {
        self.bits.map(BitBuffer::into_bytes)
    }
}
