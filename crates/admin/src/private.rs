//! Unix socket that only its own user and root may connect to.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::server::Listening;

/// A listener at a path of the file system.
#[derive(Debug)]
pub struct Private {
    listener: UnixListener,
    owner: u32,
}

/// Binds `path`, in place of a socket that a process left which has ended. The file stays when the listener goes: the
/// next process replaces it.
///
/// # Errors
/// Of kind `AddrInUse` while somebody listens there; they name the path.
pub async fn bind_private(path: &Path) -> io::Result<Private> {
    let named = |error: io::Error, what: &str| {
        let shown = path.display();
        io::Error::new(error.kind(), format!("bind {shown}: {what}{error}"))
    };
    refuse_what_is_taken(path)
        .await
        .map_err(|error| named(error, ""))?;
    // Under its name it appears with its permissions.
    let first = beside(path);
    match fs::remove_file(&first) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(named(error, "remove what an earlier process left: "));
        }
        _ => {}
    }
    let bound = || -> io::Result<Private> {
        let listener = UnixListener::bind(&first)?;
        fs::set_permissions(&first, fs::Permissions::from_mode(0o600))?;
        // A new file is its maker's.
        let owner = fs::symlink_metadata(&first)?.uid();
        fs::rename(&first, path)?;
        Ok(Private { listener, owner })
    };
    bound().map_err(|error| named(error, "its directory must be this process's to write: "))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

async fn refuse_what_is_taken(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let why = "something else than a socket is there; name another path";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog is somebody's too.
        _ => {
            let why = "another process listens there";
            Err(io::Error::new(io::ErrorKind::AddrInUse, why))
        }
    }
}

impl Listening for Private {
    type Stream = UnixStream;

    /// The next connection of somebody who may ask. The file's mode says the same; it can be changed, and this cannot.
    async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let who = stream.peer_cred()?.uid();
            if may_ask(who, self.owner) {
                return Ok(stream);
            }
            tracing::warn!(
                "a process of user {who} asked for the admin pages and was told nothing"
            );
        }
    }
}

fn may_ask(who: u32, owner: u32) -> bool {
    who == 0 || who == owner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_and_root_may_ask() {
        assert!(may_ask(1000, 1000));
        assert!(may_ask(0, 1000));
        assert!(!may_ask(1001, 1000));
        assert!(!may_ask(1000, 0));
    }
}
