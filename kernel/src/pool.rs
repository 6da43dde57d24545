//! A pool of buffers that have been read, for later rows.
//!
//! New memory from the system costs a page fault per 4 KiB, as much time as copying the
//! rows into it. So buffers return to the pool when Python releases them, and are used
//! again while they are still in the cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Free buffers by size class. Each class is larger than the one before by a half or a third.
pub struct Pool {
    free: [Vec<Vec<u8>>; CLASSES],
    free_bytes: usize,
    used_bytes: usize,
    /// The most bytes of free and used buffers together; 0 while the pool is closed.
    limit: usize,
    limit_when_open: usize,
}

/// Smaller buffers are freed, because the allocator caches them itself.
const SMALLEST: usize = 1024;

/// The number of size classes, of which the largest is 1.5 GiB.
const CLASSES: usize = 42;

impl Pool {
    pub fn new(limit: usize) -> Self {
        Self {
            free: std::array::from_fn(|_| Vec::new()),
            free_bytes: 0,
            used_bytes: 0,
            limit,
            limit_when_open: limit,
        }
    }

    pub fn open(&mut self) {
        self.limit = self.limit_when_open;
    }

    /// Free all buffers in the pool, and those that are returned later.
    pub fn close(&mut self) {
        self.limit = 0;
        self.shrink();
    }

    pub fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Return whether there is memory for buffers that are larger than needed now.
    pub fn is_half_empty(&self) -> bool {
        self.used_bytes < self.limit / 2
    }

    /// Grow `buffer` to a capacity of at least `size` bytes.
    pub fn grow(&mut self, buffer: &mut Vec<u8>, size: usize) {
        let mut larger = self.get(size);
        larger.extend_from_slice(buffer);
        self.used_bytes += larger.capacity();
        self.used_bytes -= buffer.capacity();
        self.put(std::mem::replace(buffer, larger));
    }

    fn get(&mut self, size: usize) -> Vec<u8> {
        let class = class_of(size);
        if size <= SMALLEST / 2 || class >= CLASSES {
            return Vec::with_capacity(size);
        }
        let Some(buffer) = self.free[class].pop() else {
            return Vec::with_capacity(size_of_class(class));
        };
        self.free_bytes -= buffer.capacity();
        buffer
    }

    /// Keep a buffer for later.
    pub fn put(&mut self, mut buffer: Vec<u8>) {
        let (size, class) = (buffer.capacity(), class_of(buffer.capacity()));
        if class < CLASSES && size == size_of_class(class) && self.room() >= size {
            buffer.clear();
            self.free_bytes += size;
            self.free[class].push(buffer);
        }
    }

    /// Set the bytes in use, and free the largest buffers until both fit into the limit.
    pub fn set_used(&mut self, bytes: usize) {
        self.used_bytes = bytes;
        self.shrink();
    }

    fn shrink(&mut self) {
        let most = self.limit.saturating_sub(self.used_bytes);
        for class in self.free.iter_mut().rev() {
            while self.free_bytes > most {
                let Some(buffer) = class.pop() else { break };
                self.free_bytes -= buffer.capacity();
            }
        }
    }

    fn room(&self) -> usize {
        self.limit.saturating_sub(self.used_bytes + self.free_bytes)
    }
}

/// Return the class of the smallest buffers that have `size` bytes: 1024, 1536, 2048, 3072...
fn class_of(size: usize) -> usize {
    let units = size.div_ceil(SMALLEST / 2).max(2);
    // The next power of two of `units`, which are at least 2, or three quarters of it.
    let power = units.next_power_of_two();
    let class = 2 * (power.trailing_zeros() as usize - 1);
    if units <= power / 4 * 3 && power > 2 { class - 1 } else { class }
}

fn size_of_class(class: usize) -> usize {
    let power = SMALLEST << (class / 2);
    if class.is_multiple_of(2) { power } else { power / 2 * 3 }
}

/// A pool to which buffers are returned.
#[derive(Clone)]
pub struct SharedPool(Arc<Mutex<Pool>>);

/// A reference with which a buffer is returned, if the pool still exists.
pub struct PoolReference(Weak<Mutex<Pool>>);

impl SharedPool {
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Pool::new(limit))))
    }

    pub fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reference(&self) -> PoolReference {
        PoolReference(Arc::downgrade(&self.0))
    }
}

impl PoolReference {
    /// Return a reference with which buffers are freed.
    pub fn none() -> Self {
        Self(Weak::new())
    }

    pub fn put(&self, buffer: Vec<u8>) {
        if let Some(pool) = self.0.upgrade() {
            pool.lock().unwrap_or_else(PoisonError::into_inner).put(buffer);
        }
    }
}
