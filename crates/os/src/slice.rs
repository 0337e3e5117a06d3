//! The scheduler's slice of a thread.
//!
//! Linux 6.12 and later give a thread of the class SCHED_OTHER a slice of its own (`sched_runtime` of sched_setattr(2), 0.1 to
//! 100 ms). A thread with a shorter slice has an earlier virtual deadline, so it preempts a running thread sooner after it wakes.
//! Its share of the processor stays the same. Older kernels ignore the field.

use std::io;
use std::time::Duration;

/// `struct sched_attr` of sched_setattr(2), in its first version of 48 bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const SIZE: u32 = size_of::<SchedAttr>() as u32;
/// SCHED_OTHER of sched(7).
const OTHER: u32 = 0;
/// Without a capability a thread keeps its slice within these bounds; the kernel clamps to them.
pub const SLICES: std::ops::RangeInclusive<Duration> =
    Duration::from_micros(100)..=Duration::from_millis(100);

/// Gives the calling thread a slice, or leaves it with the system's for `None`. Threads that it starts later inherit the slice. The
/// answer is false if the kernel refuses.
///
/// Nothing changes for a thread of another scheduling class, whose operator chose it. A refusal of the kernel, as by a seccomp
/// filter, is logged.
pub fn set_slice(slice: Option<Duration>) -> bool {
    if let Some(slice) = slice
        && let Err(error) = set(slice)
    {
        tracing::info!(%error, "the kernel gives the thread no slice of its own; it keeps the system's");
        return false;
    }
    true
}

/// Gives the calling thread the system's slice again, which is what a runtime of 0 asks for. A refusal of the kernel is logged.
pub fn reset_slice() {
    if let Err(error) = set(Duration::ZERO) {
        tracing::info!(%error, "the kernel does not give the thread the system's slice again; it keeps its own");
    }
}

fn set(slice: Duration) -> io::Result<()> {
    let mut own = attributes()?;
    if own.policy != OTHER {
        return Ok(());
    }
    own.runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel reads SIZE bytes of a struct that is as long; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const own, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn attributes() -> io::Result<SchedAttr> {
    let mut own = SchedAttr::default();
    // SAFETY: the kernel writes at most SIZE bytes into a struct that is as long; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, SIZE, 0) } {
        0 => Ok(SchedAttr { size: SIZE, ..own }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_changes_and_nice_value_stays() {
        // Since 6.12 sched_getattr(2) tells the slice of a SCHED_OTHER thread; before, it tells 0.
        std::thread::spawn(|| {
            let before = attributes().unwrap();
            set(Duration::from_micros(300)).unwrap();
            set_slice(None);
            let after = attributes().unwrap();
            assert_eq!((after.policy, after.nice), (before.policy, before.nice));
            let takes = before.policy == OTHER && before.runtime != 0;
            let told = if takes { 300_000 } else { before.runtime };
            assert_eq!(after.runtime, told);
            reset_slice();
            assert_eq!(attributes().unwrap().runtime, before.runtime);
        })
        .join()
        .unwrap();
    }
}
