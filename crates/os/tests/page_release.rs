//! The program lets go of its own pages. A process of its own: the threads of other tests would bring theirs back meanwhile.

use std::path::Path;

/// The program's mappings that nobody may write: addresses, and bytes that are mapped, by `/proc/self/smaps`.
fn mappings() -> Vec<(std::ops::Range<usize>, usize)> {
    let program = std::env::current_exe().unwrap();
    let mut found = Vec::new();
    let mut inside = false;
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [range, permissions, _offset, _device, _inode, ref path @ ..]
                if range.contains('-') =>
            {
                inside = !permissions.contains('w')
                    && path.first().is_some_and(|p| Path::new(p) == program);
                if inside {
                    let (start, end) = range.split_once('-').unwrap();
                    let address = |text| usize::from_str_radix(text, 16).unwrap();
                    found.push((address(start)..address(end), 0));
                }
            }
            ["Rss:", kib, "kB"] if inside => {
                found.last_mut().unwrap().1 = kib.parse::<usize>().unwrap() * 1024;
            }
            _ => {}
        }
    }
    found
}

fn mapped() -> usize {
    mappings().iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn a_program_that_was_let_go_runs_on_with_fewer_of_its_pages() {
    for (range, _) in mappings() {
        let start = std::ptr::without_provenance_mut(range.start);
        // SAFETY: pages are read, which changes nothing.
        let read = unsafe { libc::madvise(start, range.len(), libc::MADV_POPULATE_READ) };
        assert_eq!(read, 0);
    }
    let before = mapped();
    lateen_os::release_program().unwrap();
    let after = mapped();
    assert!(after < before / 4 * 3, "{after} of {before} bytes are left");
}
