//! Ledger of a worker: a file with one record for each open connection. The node agent has a duplicate of the descriptor, so it
//! can list the connections that were open when the process was killed. The file has a name as well, so an agent that was
//! killed at the same time finds it when it returns.
//!
//! A file in memory (tmpfs, memfd) is mapped, as long as the agent that shares it is known never to truncate it. Noting a
//! connection then takes no system call, and the record stays in the file however the process ends.
//!
//! Otherwise records are written with a system call: with another agent, with none yet, or for a file on a disk. Access to a
//! mapped page that was truncated, or that the disk cannot store or read, would raise a signal instead of returning an error.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use lateen_types::Direction;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

/// Bytes of one record.
pub const RECORD: usize = 64;

/// Records at most: 4 MiB for one worker. Connections beyond are served and not recorded.
const MOST: usize = 1 << 16;

/// Room that is taken at once, so that these records can be written when the disk is full. Of a mapped ledger it is also
/// what it grows by.
const RESERVED: usize = 1024 * RECORD;

/// Numbers of eight bytes in a record.
const WORDS: usize = RECORD / size_of::<AtomicU64>();

/// Files in the directory at most. There are so many only if no agent has come for long while proxies were killed.
const FILES: usize = 128;

/// One open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The pod's network namespace.
    pub netns: u64,
    /// To the pod or from it.
    pub direction: Direction,
    /// The client's address.
    pub source: SocketAddr,
    /// What the client dialled.
    pub destination: SocketAddr,
    /// When it was opened.
    pub since: SystemTime,
}

impl Record {
    /// Little-endian: a byte that says open (1) and one for the direction (1 in, 2 out); at 8 the namespace's inode; at 16
    /// and 32 both addresses, IPv4 mapped into IPv6; at 48 both ports; at 56 the seconds since 1970.
    fn encode(&self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[0] = 1;
        record[1] = match self.direction {
            Direction::Inbound => 1,
            Direction::Outbound => 2,
        };
        record[8..16].copy_from_slice(&self.netns.to_le_bytes());
        record[16..32].copy_from_slice(&octets(self.source.ip()));
        record[32..48].copy_from_slice(&octets(self.destination.ip()));
        record[48..50].copy_from_slice(&self.source.port().to_le_bytes());
        record[50..52].copy_from_slice(&self.destination.port().to_le_bytes());
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        record[56..64].copy_from_slice(&since.as_secs().to_le_bytes());
        record
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// A worker's own end; only it writes.
#[derive(Debug)]
pub struct Ledger(Shared);

/// The end of a ledger that is for the agent's sake: its descriptor, and whether it is mapped.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: File,
    // Held while a record is written: nobody writes to a mapping that is being given up.
    mapped: Mutex<Option<Mapped>>,
}

impl Ledger {
    /// An empty one, with a name in the directory `beside` if one can be had there. It is locked (flock) as long as this
    /// process or the agent has it open; one that nobody has locked is what a process left that is gone.
    ///
    /// # Errors
    /// The kernel has no descriptor to give.
    pub fn new(beside: &Path) -> io::Result<Self> {
        // Without a name it still tells an agent that lives.
        let file = match named(beside) {
            Ok(file) => file,
            Err(_) => memfd_create(c"lateen-ledger", MFdFlags::MFD_CLOEXEC)?.into(),
        };
        Ok(Self(Shared(Arc::new(Inner {
            file,
            mapped: Mutex::default(),
        }))))
    }

    /// For the agent.
    pub fn share(&self) -> Shared {
        self.0.clone()
    }

    /// Notes an open connection at `place`, which no other open connection has.
    pub fn open(&self, place: usize, record: &Record) {
        let bytes = record.encode();
        let Inner { file, .. } = &*self.0.0;
        match &mut *self.0.mapped() {
            Some(mapped) => {
                if let Some(words) = mapped.room(file, place) {
                    write(words, &bytes);
                }
            }
            None => write_to(file, place, &bytes),
        }
    }

    /// The connection at `place` is closed.
    pub fn close(&self, place: usize) {
        match &*self.0.mapped() {
            Some(mapped) => {
                // Where there is no room, nothing was noted.
                if let Some([first, ..]) = mapped.record(place) {
                    first.store(0, Ordering::Relaxed);
                }
            }
            None => write_to(&self.0.0.file, place, &[0; 8]),
        }
    }
}

impl Shared {
    /// Has it mapped, if it is in memory. Nobody may make the file shorter from now on, until [`Self::unmap`] has returned.
    pub(crate) fn map(&self) {
        let mut mapped = self.mapped();
        if mapped.is_none() {
            *mapped = Mapped::new(&self.0.file);
        }
    }

    /// Has it written to: whoever has the file may make it shorter.
    pub(crate) fn unmap(&self) {
        self.mapped().take();
    }

    fn mapped(&self) -> MutexGuard<'_, Option<Mapped>> {
        // Nothing inside a critical section can leave it half-changed.
        self.0.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

fn write_to(file: &File, place: usize, bytes: &[u8]) {
    if place < MOST {
        // Memory may be short. Then a connection is not counted if the process dies, and nothing else is amiss.
        let _ = file.write_all_at(bytes, (place * RECORD) as u64);
    }
}

/// Writes a record such that one that says open is whole, whenever the process is killed.
fn write(words: &[AtomicU64; WORDS], bytes: &[u8; RECORD]) {
    let mut numbers = [0; WORDS];
    for (number, bytes) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
        *number = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    // What is written now must not be seen before the last connection there was seen to be closed.
    fence(Ordering::Release);
    for (word, number) in words.iter().zip(numbers).skip(1) {
        word.store(number, Ordering::Relaxed);
    }
    words[0].store(numbers[0], Ordering::Release);
}

/// A ledger's file in this process' memory, which nobody makes shorter as long as this lives.
#[derive(Debug)]
struct Mapped {
    /// Address space for all records that there may be.
    base: NonNull<[AtomicU64; WORDS]>,
    /// Records that the file has room for: only those may be touched.
    records: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread.
unsafe impl Send for Mapped {}

impl Mapped {
    /// `None` if the file is not in memory, or cannot be mapped.
    fn new(file: &File) -> Option<Self> {
        if fstatfs(file).ok()?.filesystem_type() != TMPFS_MAGIC {
            return None;
        }
        let length = usize::try_from(file.metadata().ok()?.len()).ok()?;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                MOST * RECORD,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return None;
        }
        let mut mapped = Self {
            base: NonNull::new(base.cast())?,
            records: 0,
        };
        // What was written there may have left pages out, and its connections will be closed.
        mapped.grow(file, length.clamp(1, MOST * RECORD))?;
        Some(mapped)
    }

    /// Has room for so many bytes. The pages of a file in memory are there from then on. `None`: memory is short.
    fn grow(&mut self, file: &File, length: usize) -> Option<()> {
        let end = length.next_multiple_of(RESERVED);
        fallocate(file, FallocateFlags::empty(), 0, end as i64).ok()?;
        self.records = end / RECORD;
        Some(())
    }

    /// The record at `place`, if there is room for it or room can be had. Memory may be short: then this connection is not
    /// counted if the process dies, and nothing else is amiss.
    fn room(&mut self, file: &File, place: usize) -> Option<&[AtomicU64; WORDS]> {
        if place >= MOST {
            return None;
        }
        if place >= self.records {
            self.grow(file, (place + 1) * RECORD)?;
        }
        self.record(place)
    }

    /// The record at `place`, if there is room for it.
    fn record(&self, place: usize) -> Option<&[AtomicU64; WORDS]> {
        if place >= self.records {
            return None;
        }
        // SAFETY: `place` is within the mapping, whose pages begin at multiples of a record, and within the file, which
        // nobody makes shorter while `self` lives: this process does not, and its agent has said that it does not
        // (`Shared::map`). All other access is atomic too, or another process'. It is unmapped when `self` is dropped.
        Some(unsafe { self.base.add(place).as_ref() })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `new` made, and no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), MOST * RECORD) };
    }
}

fn named(directory: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if fs::read_dir(directory)?.count() >= FILES {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    loop {
        // The process' number alone may be that of one that was killed.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let name = format!("{}-{}", process::id(), now.unwrap_or_default().as_nanos());
        let path = directory.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        file.lock()?;
        // An agent that tidied up before it was locked has removed it.
        if file.metadata()?.nlink() == 0 {
            continue;
        }
        if let Err(error) = fallocate(&file, FallocateFlags::empty(), 0, RESERVED as i64) {
            fs::remove_file(&path)?;
            return Err(error.into());
        }
        return Ok(file);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::fcntl::{FcntlArg, SealFlag, fcntl};

    use super::*;

    /// A directory of the test's own that does not exist yet.
    fn nowhere(test: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("lateen-ledger-{}-{test}", process::id()))
    }

    fn record(source: &str) -> Record {
        Record {
            netns: 0x0102_0304_0506_0708,
            direction: Direction::Outbound,
            source: source.parse().unwrap(),
            destination: "10.1.2.3:80".parse().unwrap(),
            since: UNIX_EPOCH + Duration::from_secs(0x0a0b_0c0d),
        }
    }

    #[test]
    fn a_record_is_what_the_agent_reads() {
        let bytes = record("[fd00::1]:4660").encode();
        assert_eq!(bytes[..2], [1, 2]);
        assert_eq!(bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[16..18], [0xfd, 0]);
        assert_eq!(bytes[42..48], [0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!(bytes[48..52], [0x34, 0x12, 80, 0]);
        assert_eq!(bytes[56..64], [0xd, 0xc, 0xb, 0xa, 0, 0, 0, 0]);
    }

    /// A ledger in memory without a name: no directory can be made in a file.
    fn nameless() -> Ledger {
        Ledger::new(Path::new("/proc/self/exe/ledgers")).unwrap()
    }

    fn is_mapped(ledger: &Ledger) -> bool {
        ledger.0.mapped().is_some()
    }

    /// A ledger that is mapped, and the same written to as before an agent allows that.
    fn both() -> [Ledger; 2] {
        let ledgers = [nameless(), nameless()];
        ledgers[0].share().map();
        assert_eq!(ledgers.each_ref().map(is_mapped), [true, false]);
        ledgers
    }

    fn bytes(ledger: &Ledger, place: usize) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        let file = &ledger.0.0.file;
        file.read_exact_at(&mut bytes, (place * RECORD) as u64)
            .unwrap();
        bytes
    }

    #[test]
    fn a_connection_is_closed_in_a_ledger_that_was_mapped_or_unmapped_meanwhile() {
        let ledger = nameless();
        let shared = ledger.share();
        for place in [2, 5000, MOST - 1] {
            for [before, after] in [[false, true], [true, false]] {
                let switch = |mapped| match mapped {
                    true => shared.map(),
                    false => shared.unmap(),
                };
                switch(before);
                ledger.open(place, &record("10.0.0.1:1"));
                switch(after);
                assert_eq!(bytes(&ledger, place), record("10.0.0.1:1").encode());
                ledger.close(place);
                assert_eq!(bytes(&ledger, place)[0], 0);
            }
        }
    }

    #[test]
    fn a_ledger_that_is_not_mapped_may_be_made_shorter() {
        let ledger = nameless();
        let shared = ledger.share();
        shared.map();
        ledger.open(1, &record("10.0.0.1:1"));
        shared.unmap();
        // A page that is not there would end this process by a signal.
        ledger.0.0.file.set_len(0).unwrap();
        ledger.close(1);
        ledger.open(2000, &record("10.0.0.1:1"));
        assert_eq!(bytes(&ledger, 2000), record("10.0.0.1:1").encode());
        ledger.0.0.file.set_len(0).unwrap();
        shared.map();
        ledger.close(2000);
        ledger.open(2000, &record("[fd00::1]:2"));
        assert_eq!(bytes(&ledger, 2000), record("[fd00::1]:2").encode());
    }

    #[test]
    fn a_connection_stands_in_the_file_until_it_is_closed() {
        for ledger in both() {
            for place in [2, 5000, MOST - 1] {
                ledger.open(place, &record("10.0.0.1:1"));
                assert_eq!(bytes(&ledger, place), record("10.0.0.1:1").encode());
                assert_eq!(bytes(&ledger, place - 1), [0; RECORD]);
                ledger.close(place);
                assert_eq!(bytes(&ledger, place)[0], 0);
                ledger.open(place, &record("[fd00::1]:2"));
                assert_eq!(bytes(&ledger, place), record("[fd00::1]:2").encode());
            }
        }
    }

    #[test]
    fn a_ledger_is_bounded() {
        for ledger in both() {
            ledger.open(MOST - 1, &record("10.0.0.1:1"));
            ledger.open(MOST, &record("10.0.0.1:1"));
            ledger.close(MOST);
            assert_eq!(
                ledger.0.0.file.metadata().unwrap().size(),
                (MOST * RECORD) as u64
            );
        }
    }

    #[test]
    fn where_memory_is_short_connections_are_not_noted_and_nothing_else_is_amiss() {
        let file: File = memfd_create(c"lateen-ledger-test", MFdFlags::MFD_ALLOW_SEALING)
            .unwrap()
            .into();
        let mapped = Mutex::default();
        let ledger = Ledger(Shared(Arc::new(Inner { file, mapped })));
        ledger.share().map();
        assert!(is_mapped(&ledger));
        ledger.open(1000, &record("10.0.0.1:1"));
        let grow = FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW);
        fcntl(&ledger.0.0.file, grow).unwrap();
        // A page that is not there would end this process by a signal.
        ledger.open(1024, &record("10.0.0.1:1"));
        ledger.close(1024);
        let file = &ledger.0.0.file;
        assert_eq!(file.metadata().unwrap().size(), RESERVED as u64);
        ledger.open(1023, &record("10.0.0.1:1"));
        assert_eq!(bytes(&ledger, 1023)[0], 1);
    }

    #[test]
    fn a_ledger_outlives_its_process_and_is_locked_until_then() {
        let directory = nowhere("named");
        let ledger = Ledger::new(&directory).unwrap();
        let other = Ledger::new(&directory).unwrap();
        ledger.open(1, &record("10.0.0.1:1"));
        let names: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(names.len(), 2);
        for name in &names {
            let found = File::open(name).unwrap();
            assert!(found.try_lock().is_err(), "a living process has it");
        }
        let theirs = ledger.share().as_fd().try_clone_to_owned().unwrap();
        drop((ledger, other));
        let free = |name: &&std::path::PathBuf| File::open(name).unwrap().try_lock().is_ok();
        assert_eq!(names.iter().filter(free).count(), 1, "the agent has one");
        drop(theirs);
        assert_eq!(names.iter().filter(free).count(), 2);
        let written: Vec<_> = names.iter().map(|name| fs::read(name).unwrap()).collect();
        assert!(written.iter().any(|bytes| bytes[RECORD] == 1));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn ledgers_that_nobody_reads_are_bounded() {
        let directory = nowhere("bounded");
        for _ in 0..FILES + 3 {
            Ledger::new(&directory).unwrap();
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), FILES);
        fs::remove_dir_all(directory).unwrap();
    }
}
