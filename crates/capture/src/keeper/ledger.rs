//! A worker's ledger: a file in which every open connection stands in a record of its own. The node agent has a
//! duplicate, so that it can tell what was open when the process was killed, which the process itself cannot. The file has
//! a name as well, so that an agent that was killed at the same time finds it when it comes back.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use lateen_types::Direction;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// Bytes of one record.
pub const RECORD: usize = 64;

/// Records at most: 4 MiB for one worker. Connections beyond are served and not recorded.
const MOST: usize = 1 << 16;

/// Room that is taken at once, so that these records can be written when the disk is full.
const RESERVED: usize = 1024 * RECORD;

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
pub struct Ledger(File);

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
        Ok(Self(file))
    }

    /// For the agent.
    ///
    /// # Errors
    /// The kernel has no descriptor to give.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.0.as_fd().try_clone_to_owned()
    }

    /// Notes an open connection at `place`, which no other open connection has.
    pub fn open(&self, place: usize, record: &Record) {
        self.write(place, &record.encode());
    }

    /// The connection at `place` is closed.
    pub fn close(&self, place: usize) {
        self.write(place, &[0; 8]);
    }

    fn write(&self, place: usize, bytes: &[u8]) {
        if place < MOST {
            // Memory may be short. Then a connection is not counted if the process dies, and nothing else is amiss.
            let _ = self.0.write_all_at(bytes, (place * RECORD) as u64);
        }
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

    #[test]
    fn a_closed_connection_is_not_open_any_more_and_the_ledger_is_bounded() {
        // No directory can be made in a file: this one has no name.
        let ledger = Ledger::new(Path::new("/proc/self/exe/ledgers")).unwrap();
        ledger.open(2, &record("10.0.0.1:1"));
        ledger.open(MOST, &record("10.0.0.1:1"));
        let theirs = File::from(ledger.share().unwrap());
        assert_eq!(theirs.metadata().unwrap().size(), 3 * RECORD as u64);
        let open = |place: usize| {
            let mut byte = [9];
            theirs
                .read_exact_at(&mut byte, (place * RECORD) as u64)
                .unwrap();
            byte[0]
        };
        assert_eq!((open(0), open(2)), (0, 1));
        ledger.close(2);
        assert_eq!(open(2), 0);
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
        let theirs = ledger.share().unwrap();
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
