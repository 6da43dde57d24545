//! Buffers that have been read, kept for the rows to come.
//!
//! Memory that comes fresh from the system costs a page fault per 4 KiB: as much
//! as all the rest of moving a row there. So buffers come back when Python lets
//! go of them, and are handed out again while they are still in the cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Free buffers by size: each class is half as large again as the one before, or a third.
pub struct Pool {
    free: [Vec<Vec<u8>>; CLASSES],
    free_bytes: usize,
    used_bytes: usize,
    /// What is free and what is in use may take together; 0 while the pool is closed.
    limit: usize,
    limit_when_open: usize,
}

/// Smaller buffers are the allocator's, which keeps them itself.
const SMALLEST: usize = 1024;

/// To 1.5 GiB.
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

    /// Let go of all that is free, and keep nothing that comes back.
    pub fn close(&mut self) {
        self.limit = 0;
        self.shrink();
    }

    pub fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Whether buffers may be larger than they have to be now.
    pub fn is_half_empty(&self) -> bool {
        self.used_bytes < self.limit / 2
    }

    /// Give `buffer` room for at least `size` bytes.
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

    /// Set what is in use now, and let go of the largest free buffers that leave no room for it.
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

/// The class of the smallest buffers that have `size` bytes: 1024, 1536, 2048, 3072...
fn class_of(size: usize) -> usize {
    let units = size.div_ceil(SMALLEST / 2).max(2);
    // Of `units`, which are at least 2, the next power of two, and three quarters of it.
    let power = units.next_power_of_two();
    let class = 2 * (power.trailing_zeros() as usize - 1);
    if units <= power / 4 * 3 && power > 2 { class - 1 } else { class }
}

fn size_of_class(class: usize) -> usize {
    let power = SMALLEST << (class / 2);
    if class.is_multiple_of(2) { power } else { power / 2 * 3 }
}

/// A pool that buffers find their way back to.
#[derive(Clone)]
pub struct SharedPool(Arc<Mutex<Pool>>);

/// The way back, for as long as the pool is there.
pub struct WayBack(Weak<Mutex<Pool>>);

impl SharedPool {
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Pool::new(limit))))
    }

    pub fn lock(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn way_back(&self) -> WayBack {
        WayBack(Arc::downgrade(&self.0))
    }
}

impl WayBack {
    pub fn put(&self, buffer: Vec<u8>) {
        if let Some(pool) = self.0.upgrade() {
            pool.lock().unwrap_or_else(PoisonError::into_inner).put(buffer);
        }
    }
}
