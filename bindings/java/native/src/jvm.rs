//! Functions of the JVM that the library uses.

use std::ffi::{CString, c_void};

use jni_sys::{
    JNI_ABORT, JNIEnv, JNINativeInterface_, jbyte, jbyteArray, jint, jintArray, jlong, jlongArray, jobject,
    jobjectArray, jsize,
};

/// A Java exception to be thrown when the native method returns.
#[derive(Debug)]
pub enum Thrown {
    /// An `IOException` with this message.
    Io(String),
    /// A `ConnectException` with this message: a server does not answer.
    Unreachable(String),
    /// An `io.hearth.hdfs.RefusedException`: the NameNode answered with an exception of this class.
    Refused { class: String, message: String },
    /// An `InterruptedIOException`: the thread was interrupted while it waited.
    Interrupted,
    /// An `IllegalArgumentException`: a caller in `io.hearth.hdfs` is wrong.
    Argument(&'static str),
    /// The JVM has thrown it already.
    Pending,
}

impl From<hearth_client::Error> for Thrown {
    fn from(error: hearth_client::Error) -> Self {
        if let Some(class) = error.exception_class() {
            return Self::Refused { class: class.to_owned(), message: error.to_string() };
        }
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            message.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self::Io(message)
    }
}

/// The JVM as seen by the current thread, during one native method.
pub struct Jvm {
    env: *mut JNIEnv,
}

/// Calls a function of the JVM, all of which exist since Java 1.4.
macro_rules! call {
    ($jvm:expr, $function:ident $(, $argument:expr)*) => {
        ($jvm.functions().v1_4.$function)($jvm.env $(, $argument)*)
    };
}

impl Jvm {
    /// # Safety
    ///
    /// `env` is the environment that the JVM passed to a native method that has not returned yet.
    pub unsafe fn new(env: *mut JNIEnv) -> Self {
        Self { env }
    }

    fn functions(&self) -> &JNINativeInterface_ {
        // SAFETY: `env` is valid, see `new`; it points to a pointer to the table of functions.
        unsafe { &**self.env }
    }

    /// Throws the exception, unless one is pending.
    pub fn throw(&self, thrown: Thrown) {
        let (class, message) = match thrown {
            Thrown::Io(message) => (c"java/io/IOException", message),
            Thrown::Unreachable(message) => (c"java/net/ConnectException", message),
            // A class name has no line end.
            Thrown::Refused { class, message } => (c"io/hearth/hdfs/RefusedException", format!("{class}\n{message}")),
            Thrown::Interrupted => (c"java/io/InterruptedIOException", "interrupted while waiting for HDFS".to_owned()),
            Thrown::Argument(message) => (c"java/lang/IllegalArgumentException", message.to_owned()),
            Thrown::Pending => return,
        };
        let message = modified_utf8(&message);
        // SAFETY: both texts end with NUL. The classes are the JVM's own, and one beside the class with the native method,
        // whose loader finds it. If a call fails, an exception is pending.
        unsafe {
            let class = call!(self, FindClass, class.as_ptr());
            if !class.is_null() {
                call!(self, ThrowNew, class, message.as_ptr());
            }
        }
    }

    /// Returns a new Java array with these bytes.
    pub fn new_bytes(&self, bytes: &[u8]) -> Result<jbyteArray, Thrown> {
        // SAFETY: a plain allocation.
        let array = unsafe { call!(self, NewByteArray, bytes.len() as jsize) };
        if array.is_null() {
            return Err(Thrown::Pending);
        }
        self.store(array, 0, bytes)?;
        Ok(array)
    }

    /// Returns a copy of the array.
    pub fn bytes(&self, array: jbyteArray) -> Result<Vec<u8>, Thrown> {
        let mut bytes = vec![0; self.length(array)?];
        // SAFETY: the copy is as long as the array.
        unsafe { call!(self, GetByteArrayRegion, array, 0, bytes.len() as jsize, bytes.as_mut_ptr().cast::<jbyte>()) };
        Ok(bytes)
    }

    /// Returns a copy of the array, which contains UTF-8.
    pub fn text(&self, array: jbyteArray) -> Result<String, Thrown> {
        String::from_utf8(self.bytes(array)?).map_err(|_| Thrown::Argument("text that is not UTF-8"))
    }

    /// Copies `bytes` into the array, from `offset` on.
    pub fn store(&self, array: jbyteArray, offset: usize, bytes: &[u8]) -> Result<(), Thrown> {
        if offset + bytes.len() > self.length(array)? {
            return Err(Thrown::Argument("range outside of the array"));
        }
        // SAFETY: the range lies in the array.
        unsafe {
            let from = bytes.as_ptr().cast::<jbyte>();
            call!(self, SetByteArrayRegion, array, offset as jsize, bytes.len() as jsize, from);
        }
        Ok(())
    }

    /// Returns a new Java array for `count` arrays of bytes, which are null.
    ///
    /// # Safety
    ///
    /// The result stays on this thread, and is dropped before the native method returns.
    pub unsafe fn new_arrays(&self, count: usize) -> Result<NewArrays<'_>, Thrown> {
        // SAFETY: the name ends with NUL; the class is the JVM's own. A failed call leaves an exception pending.
        let all = unsafe {
            let class = call!(self, FindClass, c"[B".as_ptr());
            if class.is_null() {
                return Err(Thrown::Pending);
            }
            let all = call!(self, NewObjectArray, count as jsize, class, std::ptr::null_mut());
            call!(self, DeleteLocalRef, class);
            all
        };
        if all.is_null() { Err(Thrown::Pending) } else { Ok(NewArrays { jvm: self, all, is_full: false }) }
    }

    /// Returns a copy of the array of numbers.
    pub fn longs(&self, array: jlongArray) -> Result<Vec<jlong>, Thrown> {
        let mut copy = vec![0; self.length(array)?];
        // SAFETY: the copy is as long as the array.
        unsafe { call!(self, GetLongArrayRegion, array, 0, copy.len() as jsize, copy.as_mut_ptr()) };
        Ok(copy)
    }

    /// Returns a copy of the array of numbers.
    pub fn ints(&self, array: jintArray) -> Result<Vec<jint>, Thrown> {
        let mut copy = vec![0; self.length(array)?];
        // SAFETY: the copy is as long as the array.
        unsafe { call!(self, GetIntArrayRegion, array, 0, copy.len() as jsize, copy.as_mut_ptr()) };
        Ok(copy)
    }

    /// Calls `use_it` with an element of the array, which stays referenced during the call.
    pub fn with_element<T>(
        &self,
        array: jobjectArray,
        index: usize,
        use_it: impl FnOnce(jobject) -> Result<T, Thrown>,
    ) -> Result<T, Thrown> {
        // SAFETY: the caller's declaration says that it is an array of objects; the JVM checks the index.
        let element = unsafe { call!(self, GetObjectArrayElement, array, index as jsize) };
        if element.is_null() {
            // The index is outside, or the element is null.
            return Err(if self.is_pending() {
                Thrown::Pending
            } else {
                Thrown::Argument("null instead of an object")
            });
        }
        let result = use_it(element);
        // SAFETY: the reference is local to this method and not used any more. Allowed while an exception is pending.
        unsafe { call!(self, DeleteLocalRef, element) };
        result
    }

    fn is_pending(&self) -> bool {
        // SAFETY: has no precondition.
        let pending = unsafe { call!(self, ExceptionOccurred) };
        if pending.is_null() {
            return false;
        }
        // SAFETY: as in `with_element`.
        unsafe { call!(self, DeleteLocalRef, pending) };
        true
    }

    /// Returns a new direct buffer of this memory.
    ///
    /// # Safety
    ///
    /// The memory stays valid until Java has given up the buffer and all buffers made of it, and Java does not write to it.
    pub unsafe fn new_direct_buffer(&self, bytes: &[u8]) -> Result<jobject, Thrown> {
        let start = bytes.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the memory is valid, see above.
        let buffer = unsafe { call!(self, NewDirectByteBuffer, start, bytes.len() as jlong) };
        if buffer.is_null() { Err(Thrown::Pending) } else { Ok(buffer) }
    }

    /// Returns true if the current thread is interrupted. Leaves it interrupted.
    pub fn is_interrupted(&self) -> bool {
        // SAFETY: the texts end with NUL, and the methods exist since Java 1.0 with these types and without arguments.
        // No method is called after one has failed.
        unsafe {
            let class = call!(self, FindClass, c"java/lang/Thread".as_ptr());
            if class.is_null() {
                call!(self, ExceptionClear);
                return false;
            }
            let current =
                call!(self, GetStaticMethodID, class, c"currentThread".as_ptr(), c"()Ljava/lang/Thread;".as_ptr());
            let is_interrupted = call!(self, GetMethodID, class, c"isInterrupted".as_ptr(), c"()Z".as_ptr());
            let mut answer = false;
            if !current.is_null() && !is_interrupted.is_null() {
                let thread = call!(self, CallStaticObjectMethodA, class, current, std::ptr::null());
                if !thread.is_null() {
                    answer = call!(self, CallBooleanMethodA, thread, is_interrupted, std::ptr::null());
                    call!(self, DeleteLocalRef, thread);
                }
            }
            call!(self, ExceptionClear);
            call!(self, DeleteLocalRef, class);
            answer
        }
    }

    fn length(&self, array: jbyteArray) -> Result<usize, Thrown> {
        if array.is_null() {
            return Err(Thrown::Argument("null instead of an array"));
        }
        // SAFETY: the declaration of the native method says that it is an array.
        Ok(unsafe { call!(self, GetArrayLength, array) } as usize)
    }

    /// Returns the range as offset and length, which lies in the array.
    pub fn checked_range(&self, array: jbyteArray, offset: jint, length: jint) -> Result<(usize, usize), Thrown> {
        range_in(self.length(array)?, offset, length)
    }

    /// Returns the array's own memory.
    ///
    /// # Safety
    ///
    /// Until the result is dropped, the thread neither calls the JVM nor waits: the JVM may be unable to collect garbage.
    pub unsafe fn critical(&self, array: jbyteArray) -> Result<CriticalArray<'_>, Thrown> {
        let length = self.length(array)?;
        // SAFETY: it is an array, see `length`.
        let start = unsafe { call!(self, GetPrimitiveArrayCritical, array, std::ptr::null_mut()) };
        if start.is_null() {
            return Err(Thrown::Io("the JVM is out of memory".to_owned()));
        }
        Ok(CriticalArray { jvm: self, array, start, length, changes: false })
    }

    /// Returns a range of a direct buffer's memory.
    ///
    /// # Safety
    ///
    /// `buffer` stays referenced while the result is used.
    pub unsafe fn direct_range<'a>(&self, buffer: jobject, offset: jint, length: jint) -> Result<&'a mut [u8], Thrown> {
        // SAFETY: the declaration of the native method says that it is a buffer.
        let (start, capacity) =
            unsafe { (call!(self, GetDirectBufferAddress, buffer), call!(self, GetDirectBufferCapacity, buffer)) };
        if start.is_null() || capacity < 0 {
            return Err(Thrown::Argument("a buffer that is not direct"));
        }
        let (offset, length) = range_in(capacity as usize, offset, length)?;
        // SAFETY: the range lies in the buffer, which lives as long, see above. Java code may access the same bytes at
        // the same time, as with any read into a shared buffer; then their values are unspecified.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>().add(offset), length) })
    }
}

/// A new Java array of arrays of bytes.
pub struct NewArrays<'a> {
    jvm: &'a Jvm,
    all: jobjectArray,
    /// The JVM had no memory for one of them.
    is_full: bool,
}

// SAFETY: it stays on the thread of `jvm`, as the caller of `new_arrays` promises. Futures that hold it must be `Send` only
// because the client's functions ask for that.
unsafe impl Send for NewArrays<'_> {}

impl NewArrays<'_> {
    /// Puts an array with these bytes at the index. It must be less than the number of arrays.
    pub fn put(&mut self, index: usize, bytes: &[u8]) {
        if self.is_full {
            return;
        }
        match self.jvm.new_bytes(bytes) {
            // SAFETY: the index lies in the array of arrays. The reference is local to this method.
            Ok(array) => unsafe {
                call!(self.jvm, SetObjectArrayElement, self.all, index as jsize, array);
                call!(self.jvm, DeleteLocalRef, array);
            },
            Err(_) => {
                self.is_full = true;
                // SAFETY: has no precondition. Later calls of the JVM need a thread without an exception.
                unsafe { call!(self.jvm, ExceptionClear) };
            }
        }
    }

    pub fn finish(self) -> Result<jobjectArray, Thrown> {
        if self.is_full { Err(Thrown::Io("the JVM is out of memory".to_owned())) } else { Ok(self.all) }
    }
}

fn range_in(whole: usize, offset: jint, length: jint) -> Result<(usize, usize), Thrown> {
    match (usize::try_from(offset), usize::try_from(length)) {
        (Ok(offset), Ok(length)) if offset + length <= whole => Ok((offset, length)),
        _ => Err(Thrown::Argument("range outside of the memory to read into")),
    }
}

/// Memory of a Java array, which the JVM does not move.
pub struct CriticalArray<'a> {
    jvm: &'a Jvm,
    array: jbyteArray,
    start: *mut c_void,
    length: usize,
    /// The bytes may have been changed here.
    changes: bool,
}

impl CriticalArray<'_> {
    /// Returns the bytes, to be read only.
    pub fn source(&self) -> &[u8] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.start.cast::<u8>(), self.length) }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        self.changes = true;
        // SAFETY: the array's memory stays in place until `drop`. About concurrent access, see `direct_range`.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<u8>(), self.length) }
    }
}

impl Drop for CriticalArray<'_> {
    fn drop(&mut self) {
        // 0: a JVM that made a copy stores it. A copy that was only read is discarded: other threads may have changed the
        // array since.
        let mode = if self.changes { 0 } else { JNI_ABORT };
        // SAFETY: the counterpart of the call in `critical`.
        unsafe { call!(self.jvm, ReleasePrimitiveArrayCritical, self.array, self.start, mode) };
    }
}

/// Converts to the encoding that JNI takes, in which NUL and characters outside of the basic plane are written
/// differently. Those are replaced.
fn modified_utf8(text: &str) -> CString {
    let plain: String = text.chars().map(|c| if c == '\0' || c as u32 > 0xFFFF { '?' } else { c }).collect();
    CString::new(plain).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_are_refused() {
        assert_eq!(range_in(10, 3, 7).ok(), Some((3, 7)));
        for (offset, length) in [(3, 8), (-1, 2), (2, -1), (i32::MAX, i32::MAX)] {
            assert!(range_in(10, offset, length).is_err(), "{length} at {offset}");
        }
    }

    #[test]
    fn messages_are_encoded_for_jni() {
        assert_eq!(modified_utf8("größe\0\u{1F525}").to_str(), Ok("größe??"));
    }
}
