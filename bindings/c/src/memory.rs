//! Memory that passes between C and Rust. The only module with `unsafe` blocks.
//!
//! The types for arguments are pointers under another name (`repr(transparent)`). Their fields are private, so they come
//! from callers in C, or from the functions `own` and `returned`, for pointers that this library has made. Each type's
//! doc comment says what the header asks of those callers. This promise, which no C library can check, is the argument
//! of the `unsafe` blocks here.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int, c_void};

use crate::failure::Failure;

/// A handle that this library has returned, and that the caller has not freed. NULL is checked.
#[repr(transparent)]
pub struct Handle<T>(*const T);

impl<T> Handle<T> {
    /// Returns what the handle stands for; `None` for NULL.
    pub fn get<'a>(self) -> Option<&'a T> {
        // SAFETY: not NULL means that `give` returned it, and the caller has not yet freed it. Handles are only shared:
        // whatever changes in them has a lock.
        unsafe { self.0.as_ref() }
    }
}

/// A handle that the caller frees with this call, and that it does not use any more.
#[repr(transparent)]
pub struct Owned<T>(*mut T);

impl<T> Owned<T> {
    /// Wraps a pointer of [`give`] that the caller had in a structure.
    pub fn returned(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Takes the handle back; `None` for NULL.
    pub fn take(self) -> Option<Box<T>> {
        // SAFETY: `give` made the pointer from a box, and the caller gives it up, once.
        (!self.0.is_null()).then(|| unsafe { Box::from_raw(self.0) })
    }
}

/// Returns a handle for the caller, who gives it back as [`Owned`].
pub fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// A string of the caller that ends with NUL, or NULL. It is valid during the call.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// Returns the string; `None` for NULL.
    ///
    /// Errors: `EINVAL` if it is not UTF-8, as all names in HDFS are.
    pub fn optional<'a>(self) -> Result<Option<&'a str>, Failure> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller passes NULL or a string that ends with NUL and stays as it is during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        let text = text.to_str().map_err(|_| Failure::invalid(format!("{text:?} is not UTF-8")))?;
        Ok(Some(text))
    }

    /// Returns the string. `what` names the argument for the error of a NULL.
    pub fn required<'a>(self, what: &str) -> Result<&'a str, Failure> {
        self.optional()?.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
    }
}

/// A place of the caller for one value, or NULL. It is valid during the call.
#[repr(transparent)]
pub struct Place<T>(*mut T);

impl<T> Place<T> {
    /// Errors: `EINVAL` for NULL.
    pub fn put(&self, value: T) -> Result<(), Failure> {
        if self.0.is_null() {
            return Err(Failure::invalid("the place of a result is NULL"));
        }
        // SAFETY: the caller owns the place during the call. What was there is plain data, which needs no drop.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// Start of memory of the caller that the call fills. Valid during the call for the length passed with it.
#[repr(transparent)]
pub struct Space(*mut c_void);

impl Space {
    /// Errors: `EINVAL` for NULL with a length above 0.
    pub fn slice<'a>(self, length: usize) -> Result<&'a mut [u8], Failure> {
        if length == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() {
            return Err(Failure::invalid("the buffer is NULL"));
        }
        // SAFETY: the caller owns `length` bytes there during the call, and no other thread uses them. They may hold
        // anything; this library only writes them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), length) })
    }
}

/// Memory of the caller that a call in the background fills. The caller keeps it until the call has ended.
pub struct SpaceInBackground {
    start: *mut c_void,
    length: usize,
}

// SAFETY: the caller leaves the memory to the call until it has ended, so one thread uses it at a time.
unsafe impl Send for SpaceInBackground {}

impl SpaceInBackground {
    /// Errors: `EINVAL` for NULL with a length above 0.
    pub fn new(space: Space, length: usize) -> Result<Self, Failure> {
        match space.0.is_null() && length > 0 {
            true => Err(Failure::invalid("the buffer is NULL")),
            false => Ok(Self { start: space.0, length }),
        }
    }

    pub fn slice(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: see `Space::slice`. The borrow of `self` lets no second slice exist.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.length) }
    }
}

/// Memory of the caller that the call reads. Valid during the call for the length passed with it.
#[repr(transparent)]
pub struct Bytes(*const c_void);

impl Bytes {
    /// Errors: `EINVAL` for NULL with a length above 0.
    pub fn slice<'a>(self, length: usize) -> Result<&'a [u8], Failure> {
        if length == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(Failure::invalid("the buffer is NULL"));
        }
        // SAFETY: the caller passes `length` bytes that stay as they are during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), length) })
    }
}

/// An array of the caller, valid during the call for the count passed with it.
#[repr(transparent)]
pub struct Array<T>(*const T);

impl<T> Array<T> {
    /// Errors: `EINVAL` for NULL with a count above 0.
    pub fn slice<'a>(self, count: usize) -> Result<&'a [T], Failure> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(Failure::invalid("the array is NULL"));
        }
        // SAFETY: the caller passes `count` elements that stay as they are during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.0, count) })
    }
}

/// An array of places of the caller, valid during the call for the count passed with it.
#[repr(transparent)]
pub struct Places<T>(*mut T);

impl<T: Copy> Places<T> {
    /// Sets each place to the value of `make`.
    ///
    /// Errors: `EINVAL` for NULL with a count above 0. No value has then been made.
    pub fn fill(self, count: usize, make: impl FnMut(usize) -> T) -> Result<(), Failure> {
        if count > 0 && self.0.is_null() {
            return Err(Failure::invalid("the array of results is NULL"));
        }
        // SAFETY: the caller owns `count` places during the call.
        (0..count).map(make).enumerate().for_each(|(index, value)| unsafe { self.0.add(index).write(value) });
        Ok(())
    }

    /// Passes each of the values to `each`, and sets its place to `cleared`.
    pub fn clear(self, count: usize, cleared: T, mut each: impl FnMut(T)) {
        if self.0.is_null() {
            return;
        }
        for index in 0..count {
            // SAFETY: the caller owns `count` places, which `fill` has filled.
            unsafe { each(self.0.add(index).replace(cleared)) };
        }
    }
}

/// A pointer of the caller that a call in the background hands to the caller's function.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Argument(*mut c_void);

// SAFETY: the library only passes it on. hearth.h says that the function runs on a thread of the library.
unsafe impl Send for Argument {}

#[cfg(test)]
impl Argument {
    pub const NULL: Self = Self(std::ptr::null_mut());
}

/// The function that [`Argument`] is for: it gets the number of bytes read, or -1 and an error number.
pub type Done = extern "C" fn(argument: Argument, count: i64, errno: c_int);

/// The program's function that says whether a call is interrupted: nonzero if it is.
pub type InterruptCheck = extern "C" fn() -> c_int;

/// A place for the function, without a lock: one that another thread holds at a fork stays locked in the child.
#[derive(Debug)]
pub struct InterruptCheckPlace(AtomicPtr<c_void>);

impl InterruptCheckPlace {
    pub const fn empty() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub fn set(&self, check: Option<InterruptCheck>) {
        self.0.store(check.map_or(std::ptr::null_mut(), |check| check as *mut c_void), Ordering::Release);
    }

    pub fn get(&self) -> Option<InterruptCheck> {
        let pointer = self.0.load(Ordering::Acquire);
        // SAFETY: the pointer is NULL, which is `None`, or `set` made it from such a function.
        unsafe { std::mem::transmute::<*mut c_void, Option<InterruptCheck>>(pointer) }
    }
}

/// Sets the `errno` of this thread.
pub fn set_errno(errno: c_int) {
    // SAFETY: the C library returns the address of a variable of this thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns a copy of `text` that the caller frees, also with `free`. It ends at the first NUL in it.
pub fn allocate_text(text: &str) -> Result<*mut c_char, Failure> {
    allocate_text_with(text, &[])
}

/// Like [`allocate_text`], with `extra` behind the string, on the next boundary of 8 bytes.
pub fn allocate_text_with(text: &str, extra: &[u8]) -> Result<*mut c_char, Failure> {
    let text = text.split('\0').next().unwrap_or_default();
    let start = (text.len() + 1).next_multiple_of(8);
    // SAFETY: `calloc` returns NULL or zeroed memory for all bytes; both copies stay within it.
    unsafe {
        let memory = libc::calloc(1, start + extra.len()).cast::<u8>();
        if memory.is_null() {
            return Err(Failure::out_of_memory());
        }
        memory.copy_from_nonoverlapping(text.as_ptr(), text.len());
        memory.add(start).copy_from_nonoverlapping(extra.as_ptr(), extra.len());
        Ok(memory.cast())
    }
}

/// Returns the number that is stored behind a string of [`allocate_text_with`].
pub fn number_behind_text(text: *const c_char) -> c_int {
    // SAFETY: a string of `allocate_text_with`, which put a number there, on a boundary of 8 bytes.
    unsafe { text.add((CStr::from_ptr(text).to_bytes().len() + 1).next_multiple_of(8)).cast::<c_int>().read() }
}

/// Returns an array of `values` that the caller frees, NULL if it is empty.
pub fn allocate_array<T: Copy>(values: &[T]) -> Result<*mut T, Failure> {
    if values.is_empty() {
        return Ok(std::ptr::null_mut());
    }
    // SAFETY: `calloc` returns NULL or memory for all values, aligned for any type of C.
    unsafe {
        let memory = libc::calloc(values.len(), size_of::<T>()).cast::<T>();
        if memory.is_null() {
            return Err(Failure::out_of_memory());
        }
        memory.copy_from_nonoverlapping(values.as_ptr(), values.len());
        Ok(memory)
    }
}

/// Memory that one of the functions above returned, and that the caller frees with this call. NULL is allowed.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Allocated<T>(*mut T);

impl<T: Copy> Allocated<T> {
    /// Wraps what this library has just allocated, to free it after a failure.
    pub fn own(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn pointer(self) -> *mut T {
        self.0
    }

    /// Frees it.
    pub fn free(self) {
        // SAFETY: `allocate_text` or `allocate_array` returned it, and the caller gives it up, once.
        unsafe { libc::free(self.0.cast()) };
    }

    /// Returns the element at `index`.
    pub fn element(self, index: usize) -> T {
        // SAFETY: the callers know the number of elements, by a count of the caller or a terminating NULL.
        unsafe { *self.0.add(index) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_end_at_nul_and_carry_bytes_behind_them() {
        for name in ["", "ada", "sevenab", "eightabc", "ad\0a"] {
            let text = allocate_text_with(name, &1_i32.to_ne_bytes()).unwrap();
            let expected = name.split('\0').next().unwrap();
            assert_eq!(Text(text).optional().unwrap(), Some(expected));
            assert_eq!(number_behind_text(text), 1);
            Allocated::own(text).free();
        }
    }

    #[test]
    fn null_is_an_error_or_nothing() {
        assert!(Text(std::ptr::null()).optional().unwrap().is_none());
        assert_eq!(Text(std::ptr::null()).required("path").unwrap_err().errno, libc::EINVAL);
        assert!(Handle::<u8>(std::ptr::null()).get().is_none());
        assert!(Owned::<u8>(std::ptr::null_mut()).take().is_none());
        assert!(Space(std::ptr::null_mut()).slice(1).is_err());
        assert!(Bytes(std::ptr::null()).slice(1).is_err());
        assert_eq!(Bytes(std::ptr::null()).slice(0).unwrap(), b"");
        assert!(Place::<u8>(std::ptr::null_mut()).put(1).is_err());
        assert_eq!(Text(c"caf\xe9".as_ptr()).optional().unwrap_err().errno, libc::EINVAL);
    }

    #[test]
    fn interrupt_check_is_set_and_removed() {
        extern "C" fn seven() -> c_int {
            7
        }
        let place = InterruptCheckPlace::empty();
        assert!(place.get().is_none());
        place.set(Some(seven));
        assert_eq!(place.get().map(|check| check()), Some(7));
        place.set(None);
        assert!(place.get().is_none());
    }

    #[test]
    fn handles_are_given_and_taken_back() {
        let handle = give(7_u32);
        assert_eq!(Handle(handle.cast_const()).get(), Some(&7));
        assert_eq!(Owned(handle).take(), Some(Box::new(7)));
    }
}
