//! The private socket: whose it is, and what is done about what lies where it goes.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use lateen_admin::{Answer, Asked, Both, Pages, Reply, bind_private, serve};

/// Answers one path with one word.
struct One(&'static str, &'static str);

impl Pages for One {
    async fn answer(&self, asked: &Asked) -> Reply {
        match asked.path == self.0 {
            true => Answer::text(200, self.1).into(),
            false => Answer::not_found().into(),
        }
    }
}

/// A directory that everybody may enter; gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lateen-admin-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("admin.sock")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a process of this user is told.
async fn ask(directory: &Directory, uid: u32, path: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-s", "--max-time", "15", "--unix-socket"])
        .arg(directory.socket())
        .arg(format!("http://proxy{path}"))
        .uid(uid)
        .gid(uid);
    let told = tokio::task::spawn_blocking(move || curl.output())
        .await
        .unwrap();
    String::from_utf8(told.expect("curl can be run by root").stdout).unwrap()
}

#[tokio::test]
async fn a_stranger_is_told_nothing_whatever_the_files_mode() {
    const STRANGER: u32 = 54_321;
    let directory = Directory::new("stranger");
    let listener = bind_private(&directory.socket()).await.unwrap();
    let mode = fs::metadata(directory.socket()).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    tokio::spawn(serve(
        listener,
        Both(One("/a", "first"), One("/b", "second")),
    ));
    assert_eq!(ask(&directory, 0, "/a").await, "first");
    assert_eq!(ask(&directory, 0, "/b").await, "second");
    assert_eq!(ask(&directory, STRANGER, "/a").await, "");
    fs::set_permissions(directory.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(ask(&directory, STRANGER, "/a").await, "");
    assert_eq!(ask(&directory, 0, "/a").await, "first");
}

#[tokio::test]
async fn takes_the_place_of_a_process_that_ended_and_of_no_other() {
    let directory = Directory::new("place");
    let before = bind_private(&directory.socket()).await.unwrap();
    let error = bind_private(&directory.socket()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains("admin.sock"), "{error}");
    drop(before);
    let _next = bind_private(&directory.socket()).await.unwrap();
    let left = fs::read_dir(&directory.0).unwrap().count();
    assert_eq!(left, 1, "nothing else stays in the directory");
}

#[tokio::test]
async fn removes_nothing_that_is_no_socket() {
    let directory = Directory::new("file");
    fs::write(directory.socket(), "precious").unwrap();
    let error = bind_private(&directory.socket()).await.unwrap_err();
    assert!(error.to_string().contains("name another path"), "{error}");
    assert_eq!(fs::read_to_string(directory.socket()).unwrap(), "precious");
}
