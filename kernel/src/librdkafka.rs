//! The functions of librdkafka that a consumer needs, from the library in confluent-kafka's wheel.
//!
//! The names and layouts are those of `rdkafka.h`, whose binary interface stays compatible.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;

use libloading::Library;

/// `rd_kafka_message_t`.
#[repr(C)]
struct RawMessage {
    error: c_int,
    topic: *mut c_void,
    partition: i32,
    payload: *const u8,
    length: usize,
    key: *const u8,
    key_length: usize,
    offset: i64,
    private: *mut c_void,
}

const CONSUMER: c_int = 1;
const PARTITION_EOF: c_int = -191;
const CONFIG_OK: c_int = 0;
const NO_CONSUMER_CLOSE: c_int = 8;
const MESSAGE_BYTES: usize = 512;

type ErrorCallback = unsafe extern "C" fn(*mut c_void, c_int, *const c_char, *mut c_void);

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions by their names.
        #[allow(clippy::struct_field_names)]
        pub struct Api {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Api {
            fn of(library: &'static Library) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: the types are those that `rdkafka.h` declares.
                    $($name: unsafe {
                        *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(|error| error.to_string())?
                    },)*
                })
            }
        }
    };
}

functions! {
    rd_kafka_conf_new: fn() -> *mut c_void;
    rd_kafka_conf_destroy: fn(*mut c_void);
    rd_kafka_conf_set: fn(*mut c_void, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    rd_kafka_conf_set_opaque: fn(*mut c_void, *mut c_void);
    rd_kafka_conf_set_error_cb: fn(*mut c_void, ErrorCallback);
    rd_kafka_new: fn(c_int, *mut c_void, *mut c_char, usize) -> *mut c_void;
    rd_kafka_destroy_flags: fn(*mut c_void, c_int);
    rd_kafka_consumer_close: fn(*mut c_void) -> c_int;
    rd_kafka_poll_set_consumer: fn(*mut c_void) -> c_int;
    rd_kafka_queue_get_consumer: fn(*mut c_void) -> *mut c_void;
    rd_kafka_queue_destroy: fn(*mut c_void);
    rd_kafka_topic_partition_list_new: fn(c_int) -> *mut c_void;
    rd_kafka_topic_partition_list_destroy: fn(*mut c_void);
    rd_kafka_topic_partition_list_add: fn(*mut c_void, *const c_char, i32) -> *mut c_void;
    rd_kafka_topic_partition_list_set_offset: fn(*mut c_void, *const c_char, i32, i64) -> c_int;
    rd_kafka_assign: fn(*mut c_void, *const c_void) -> c_int;
    rd_kafka_consume_batch_queue: fn(*mut c_void, c_int, *mut *mut RawMessage, usize) -> isize;
    rd_kafka_message_destroy: fn(*mut RawMessage);
    rd_kafka_message_timestamp: fn(*const RawMessage, *mut c_int) -> i64;
    rd_kafka_message_headers: fn(*const RawMessage, *mut *mut c_void) -> c_int;
    rd_kafka_message_errstr: fn(*const RawMessage) -> *const c_char;
    rd_kafka_header_get_all: fn(
        *const c_void, usize, *mut *const c_char, *mut *const u8, *mut usize) -> c_int;
    rd_kafka_err2name: fn(c_int) -> *const c_char;
    rd_kafka_err2str: fn(c_int) -> *const c_char;
}

/// Load a library once; it stays until the process ends.
pub fn load(path: &Path) -> Result<&'static Api, String> {
    static LOADED: Mutex<Option<HashMap<std::path::PathBuf, &'static Api>>> = Mutex::new(None);
    let mut loaded = LOADED.lock().map_err(|error| error.to_string())?;
    let loaded = loaded.get_or_insert_default();
    if let Some(api) = loaded.get(path) {
        return Ok(api);
    }
    // SAFETY: what the library does when it is loaded is what it does for confluent-kafka.
    let library = unsafe { Library::new(path) }.map_err(|error| error.to_string())?;
    let api: &'static Api = Box::leak(Box::new(Api::of(Box::leak(Box::new(library)))?));
    loaded.insert(path.to_owned(), api);
    Ok(api)
}

/// An error with the name that librdkafka has for it.
#[derive(Clone)]
pub struct Failure {
    pub name: String,
    pub text: String,
}

/// A name and a value.
pub type Header<'a> = (&'a CStr, Option<&'a [u8]>);

/// A message, or an event in the place of one.
pub struct Message {
    api: &'static Api,
    raw: NonNull<RawMessage>,
}

impl Message {
    fn raw(&self) -> &RawMessage {
        // SAFETY: the message lives until this is dropped.
        unsafe { self.raw.as_ref() }
    }

    pub fn is_end(&self) -> bool {
        self.raw().error == PARTITION_EOF
    }

    pub fn failure(&self) -> Option<Failure> {
        let error = self.raw().error;
        if error == 0 || self.is_end() {
            return None;
        }
        // SAFETY: both return texts that end with a zero.
        let (name, text) = unsafe {
            let name = (self.api.rd_kafka_err2name)(error);
            (text_at(name), text_at((self.api.rd_kafka_message_errstr)(self.raw())))
        };
        Some(Failure { name, text })
    }

    pub fn offset(&self) -> i64 {
        self.raw().offset
    }

    /// Milliseconds since 1970, or -1.
    pub fn timestamp(&self) -> i64 {
        let mut kind = 0;
        // SAFETY: the message lives, and `kind` is a place for its kind of time.
        unsafe { (self.api.rd_kafka_message_timestamp)(self.raw(), &raw mut kind) }
    }

    pub fn key(&self) -> Option<&[u8]> {
        // SAFETY: the message lives as long as what is borrowed of it.
        unsafe { bytes_at(self.raw().key, self.raw().key_length) }
    }

    pub fn value(&self) -> Option<&[u8]> {
        // SAFETY: the message lives as long as what is borrowed of it.
        unsafe { bytes_at(self.raw().payload, self.raw().length) }
    }

    /// The headers with their names; None if there are none.
    pub fn headers(&self) -> Option<Vec<Header<'_>>> {
        let mut list = null_mut();
        // SAFETY: the message lives, and owns the list.
        if unsafe { (self.api.rd_kafka_message_headers)(self.raw(), &raw mut list) } != 0 {
            return None;
        }
        let mut found = Vec::new();
        loop {
            let (mut name, mut value, mut size) = (std::ptr::null(), std::ptr::null(), 0);
            // SAFETY: an index beyond the last header is an error, which ends the loop.
            let error = unsafe {
                (self.api.rd_kafka_header_get_all)(
                    list,
                    found.len(),
                    &raw mut name,
                    &raw mut value,
                    &raw mut size,
                )
            };
            if error != 0 || name.is_null() {
                return Some(found);
            }
            // SAFETY: names end with a zero, and the list lives as long as the message.
            found.push(unsafe { (CStr::from_ptr(name), bytes_at(value, size)) });
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: nobody else destroys the message.
        unsafe { (self.api.rd_kafka_message_destroy)(self.raw.as_ptr()) }
    }
}

// SAFETY: librdkafka's messages belong to no thread.
unsafe impl Send for Message {}
// SAFETY: nothing changes a message.
unsafe impl Sync for Message {}

/// A consumer to which one partition is assigned.
pub struct Handle {
    api: &'static Api,
    client: NonNull<c_void>,
    queue: NonNull<c_void>,
    /// The last error of a connection. The callback has its address.
    last_error: Box<Mutex<String>>,
    process: u32,
    slots: Vec<*mut RawMessage>,
}

// SAFETY: librdkafka's handles may be used by any thread.
unsafe impl Send for Handle {}
// SAFETY: only `&mut self` touches the slots.
unsafe impl Sync for Handle {}

impl Handle {
    /// Connect with these settings, none of which has a zero in it.
    pub fn new(api: &'static Api, settings: &[(String, String)]) -> Result<Self, Failure> {
        let last_error = Box::<Mutex<String>>::default();
        let mut text = [0 as c_char; MESSAGE_BYTES];
        // SAFETY: the functions are called as `rdkafka.h` says: a configuration is destroyed unless
        // a client has taken it, and the callback's target outlives the client.
        unsafe {
            let config = (api.rd_kafka_conf_new)();
            for (name, value) in settings {
                let (name, value) = (c_string(name)?, c_string(value)?);
                let text = text.as_mut_ptr();
                let set = api.rd_kafka_conf_set;
                if set(config, name.as_ptr(), value.as_ptr(), text, MESSAGE_BYTES) != CONFIG_OK {
                    (api.rd_kafka_conf_destroy)(config);
                    return Err(wrong_setting(text_at(text)));
                }
            }
            let target: *const Mutex<String> = &raw const *last_error;
            (api.rd_kafka_conf_set_opaque)(config, target.cast_mut().cast());
            (api.rd_kafka_conf_set_error_cb)(config, note_error);
            let text = text.as_mut_ptr();
            let client = (api.rd_kafka_new)(CONSUMER, config, text, MESSAGE_BYTES);
            let Some(client) = NonNull::new(client) else {
                (api.rd_kafka_conf_destroy)(config);
                return Err(wrong_setting(text_at(text)));
            };
            (api.rd_kafka_poll_set_consumer)(client.as_ptr());
            let queue = NonNull::new((api.rd_kafka_queue_get_consumer)(client.as_ptr()))
                .ok_or_else(|| wrong_setting("the consumer has no queue".to_owned()))?;
            let (process, slots) = (std::process::id(), Vec::new());
            Ok(Self { api, client, queue, last_error, process, slots })
        }
    }

    pub fn assign(&self, topic: &str, partition: i32, offset: i64) -> Result<(), Failure> {
        let (api, topic) = (self.api, c_string(topic)?);
        // SAFETY: the list is destroyed after librdkafka has copied it.
        let error = unsafe {
            let list = (api.rd_kafka_topic_partition_list_new)(1);
            (api.rd_kafka_topic_partition_list_add)(list, topic.as_ptr(), partition);
            let set = api.rd_kafka_topic_partition_list_set_offset;
            let mut error = set(list, topic.as_ptr(), partition, offset);
            if error == 0 {
                error = (api.rd_kafka_assign)(self.client.as_ptr(), list);
            }
            (api.rd_kafka_topic_partition_list_destroy)(list);
            error
        };
        if error == 0 {
            return Ok(());
        }
        // SAFETY: both return texts that end with a zero.
        Err(unsafe {
            Failure {
                name: text_at((api.rd_kafka_err2name)(error)),
                text: text_at((api.rd_kafka_err2str)(error)),
            }
        })
    }

    /// Return at most so many messages and events; wait for all of them until the timeout.
    pub fn poll(&mut self, count: usize, timeout_ms: i32) -> Vec<Message> {
        self.slots.clear();
        self.slots.resize(count, null_mut());
        // SAFETY: there are `count` slots, and each that is filled is a message of our own.
        let found = unsafe {
            let slots = self.slots.as_mut_ptr();
            (self.api.rd_kafka_consume_batch_queue)(self.queue.as_ptr(), timeout_ms, slots, count)
        };
        let found = usize::try_from(found).unwrap_or(0).min(count);
        let raw = self.slots[..found].iter().filter_map(|slot| NonNull::new(*slot));
        raw.map(|raw| Message { api: self.api, raw }).collect()
    }

    pub fn last_error(&self) -> String {
        self.last_error.lock().map(|text| text.clone()).unwrap_or_default()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return; // a child has the handle of its parent without the threads that would end it
        }
        // SAFETY: nobody uses the queue and the client any more, and messages were dropped before.
        unsafe {
            (self.api.rd_kafka_queue_destroy)(self.queue.as_ptr());
            (self.api.rd_kafka_consumer_close)(self.client.as_ptr());
            (self.api.rd_kafka_destroy_flags)(self.client.as_ptr(), NO_CONSUMER_CLOSE);
        }
    }
}

unsafe extern "C" fn note_error(
    _client: *mut c_void,
    _error: c_int,
    reason: *const c_char,
    target: *mut c_void,
) {
    // SAFETY: `target` is the mutex of a `Handle`, which lives as long as its client.
    let (target, reason) = unsafe { (&*target.cast::<Mutex<String>>(), text_at(reason)) };
    if let Ok(mut text) = target.lock() {
        *text = reason;
    }
}

fn wrong_setting(text: String) -> Failure {
    Failure { name: "_INVALID_ARG".to_owned(), text }
}

fn c_string(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| wrong_setting("a text has a zero byte in it".to_owned()))
}

/// # Safety
///
/// `text` ends with a zero, or is null.
unsafe fn text_at(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by this function's own contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
///
/// There are `size` bytes at `start`, which live as long as the result, or it is null.
unsafe fn bytes_at<'a>(start: *const u8, size: usize) -> Option<&'a [u8]> {
    if start.is_null() {
        return None;
    }
    // SAFETY: by this function's own contract.
    Some(unsafe { std::slice::from_raw_parts(start, size) })
}
