//! The commands of bpf(2) that this crate uses.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const MAP_DELETE: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_ATTACH: libc::c_int = 8;
const PROG_TEST_RUN: libc::c_int = 10;
const BTF_LOAD: libc::c_int = 18;

/// BPF_SK_MSG_VERDICT
const MESSAGE_VERDICT: u32 = 7;

/// A kind of map, as the kernel numbers them.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum MapKind {
    Array = 2,
    SockHash = 18,
    SocketStorage = 24,
}

/// A kind of program.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum ProgramKind {
    Classifier = 3,
    Message = 16,
}

#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct MapAttr {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
    interface: u32,
    types: u32,
    key_type: u32,
    value_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct ElementAttr {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct AttachAttr {
    target: u32,
    program: u32,
    kind: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct RunAttr {
    program: u32,
    answer: u32,
    data_in_len: u32,
    data_out_len: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_in_len: u32,
    context_out_len: u32,
    context_in: u64,
    context_out: u64,
}

#[repr(C)]
#[derive(Default)]
struct TypesAttr {
    types: u64,
    log: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    unused: u32,
}

/// # Safety
/// The addresses in `attr` are those of memory that is as large as `attr` says, that the command may read or write as it
/// is documented to, and that lives until this returns.
unsafe fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    let attr: *mut T = attr;
    // SAFETY: the kernel reads and writes `attr` within its size; the rest is the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<T>()) };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// # Safety
/// As for [`bpf`], and `command` answers a descriptor.
unsafe fn made<T>(command: libc::c_int, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

fn raw(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<u8>() as u64
}

impl MapAttr {
    pub(crate) fn new(kind: MapKind, key: usize, value: usize, entries: u32) -> Self {
        MapAttr {
            kind: kind as u32,
            key: key as u32,
            value: value as u32,
            entries,
            name: *b"lateen_accel\0\0\0\0",
            ..Self::default()
        }
    }

    /// The process can look at the map's memory (BPF_F_MMAPABLE).
    pub(crate) fn mapped(self) -> Self {
        MapAttr {
            flags: 1 << 10,
            ..self
        }
    }

    /// For a socket's storage: made when needed (BPF_F_NO_PREALLOC), and of described types.
    pub(crate) fn described(self, types: BorrowedFd<'_>, key_type: u32, value_type: u32) -> Self {
        MapAttr {
            flags: 1,
            types: raw(types),
            key_type,
            value_type,
            ..self
        }
    }

    pub(crate) fn create(mut self) -> io::Result<OwnedFd> {
        // SAFETY: there is no address in it.
        unsafe { made(MAP_CREATE, &mut self) }
    }
}

/// Enters a socket into a map of sockets.
pub(crate) fn enter(map: BorrowedFd<'_>, key: u64, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = raw(socket);
    let mut attr = ElementAttr {
        map: raw(map),
        key: address(&key),
        value: address(&value),
        ..ElementAttr::default()
    };
    // SAFETY: key and value are as large as the map's, and live until the end.
    unsafe { bpf(MAP_UPDATE, &mut attr) }.map(drop)
}

/// Takes a socket out of a map of sockets; no error if it is not there.
pub(crate) fn remove(map: BorrowedFd<'_>, key: u64) {
    let mut attr = ElementAttr {
        map: raw(map),
        key: address(&key),
        ..ElementAttr::default()
    };
    // SAFETY: the key is as large as the map's, and lives until the end.
    let _ = unsafe { bpf(MAP_DELETE, &mut attr) };
}

/// Loads type information that describes a map's key and value.
pub(crate) fn load_types(types: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = TypesAttr {
        types: address(types),
        size: types.len() as u32,
        ..TypesAttr::default()
    };
    // SAFETY: the kernel reads `size` bytes of `types`.
    unsafe { made(BTF_LOAD, &mut attr) }
}

/// Loads a program; the kernel's reasons come with an error if it does not accept the program itself.
pub(crate) fn load(
    kind: ProgramKind,
    instructions: &[u64],
    licence: &CStr,
) -> Result<OwnedFd, (io::Error, String)> {
    let attach_type = match kind {
        ProgramKind::Classifier => 0,
        ProgramKind::Message => MESSAGE_VERDICT,
    };
    let attr = || LoadAttr {
        kind: kind as u32,
        count: instructions.len() as u32,
        instructions: address(instructions),
        licence: licence.as_ptr() as u64,
        name: *b"lateen_accel\0\0\0\0",
        attach_type,
        ..LoadAttr::default()
    };
    // SAFETY: the kernel reads `count` instructions, and the licence to its zero.
    let refused = match unsafe { made(PROG_LOAD, &mut attr()) } {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    // Once more for the reasons.
    let mut log = vec![0u8; 1 << 18];
    let mut attr = LoadAttr {
        log_level: 1,
        log_size: log.len() as u32,
        log: log.as_mut_ptr() as u64,
        ..attr()
    };
    // SAFETY: as above, and the kernel writes at most `log_size` bytes to `log`, which nothing else refers to.
    match unsafe { made(PROG_LOAD, &mut attr) } {
        Ok(program) => Ok(program),
        Err(_) => {
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            Err((refused, String::from_utf8_lossy(&log[..end]).into_owned()))
        }
    }
}

/// Has a program decide about what the sockets of a map send.
pub(crate) fn attach(map: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = AttachAttr {
        target: raw(map),
        program: raw(program),
        kind: MESSAGE_VERDICT,
        flags: 0,
    };
    // SAFETY: there is no address in it.
    unsafe { bpf(PROG_ATTACH, &mut attr) }.map(drop)
}

/// Runs a classifier once on these bytes, in the calling thread's network namespace.
pub(crate) fn run(program: BorrowedFd<'_>, packet: &[u8]) -> io::Result<u32> {
    let mut attr = RunAttr {
        program: raw(program),
        data_in_len: packet.len() as u32,
        data_in: address(packet),
        repeat: 1,
        ..RunAttr::default()
    };
    // SAFETY: the kernel reads `data_in_len` bytes and, with no room given, writes none.
    unsafe { bpf(PROG_TEST_RUN, &mut attr) }?;
    Ok(attr.answer)
}

/// Makes the kernel give a socket its number for life, which is compared later.
pub(crate) fn number(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut length = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `cookie`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(cookie)
}

/// Lifts the limit on bytes that wait unsent (TCP_NOTSENT_LOWAT, which a node may set for all): the kernel keeps to it in the
/// middle of a message that was counted already.
pub(crate) fn unlimit_unsent(socket: BorrowedFd<'_>) -> io::Result<()> {
    let most = libc::c_int::MAX;
    // SAFETY: pointer and length describe `most`.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const most).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A map's memory, shared with the kernel.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<libc::c_void>,
    length: usize,
}

impl Shared {
    /// The memory of a map whose values take `length` bytes in all.
    pub(crate) fn of(map: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Shared { start, length })
    }

    /// The 64-bit word at this place, counted in words.
    ///
    /// # Panics
    /// There is no such place.
    pub(crate) fn word(&self, place: usize) -> &std::sync::atomic::AtomicU64 {
        assert!(place < self.length / 8, "within the map");
        // SAFETY: within the mapping, which lives as long as `self`, aligned, and only ever reached atomically; the kernel
        // reads and writes it in whole words.
        unsafe { self.start.cast().add(place).as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}

// SAFETY: memory of the process, reached atomically.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}
