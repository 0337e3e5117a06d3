//! Notification of the service manager by the protocol of sd_notify(3). It decides nothing.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;

/// The starter, if it wants to know; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Starter(Option<Arc<(UnixDatagram, SocketAddr)>>);

impl Starter {
    /// The socket that `NOTIFY_SOCKET` names: a path, or after `@` an abstract name.
    ///
    /// # Errors
    /// The value is no such name.
    pub fn new(socket: Option<OsString>) -> io::Result<Self> {
        let Some(name) = socket.filter(|name| !name.is_empty()) else {
            return Ok(Self::default());
        };
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(OsString::from_vec(name.into_vec()))?,
        };
        let from = UnixDatagram::unbound()?;
        // A starter that does not read must not hold anything up.
        from.set_nonblocking(true)?;
        Ok(Self(Some(Arc::new((from, address)))))
    }

    /// It serves, with all that its predecessor had.
    pub fn ready(&self) {
        self.say("READY=1\nSTATUS=ready");
    }

    /// It accepts nothing any more, and lets connections finish.
    pub fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=draining");
    }

    /// What it waits for, in words.
    pub fn status(&self, text: &str) {
        self.say(&format!("STATUS={}", text.replace('\n', " ")));
    }

    fn say(&self, text: &str) {
        if let Some(starter) = &self.0
            && let Err(error) = starter.0.send_to_addr(text.as_bytes(), &starter.1)
        {
            tracing::debug!(%error, "whoever started this process does not listen");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 100];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn tells_a_starter_at_a_path_and_at_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("lateen-notify-{}", std::process::id()));
        let abstract_name = format!("lateen-notify-{}", std::process::id());
        let by_name = SocketAddr::from_abstract_name(abstract_name.as_bytes()).unwrap();
        let starters = [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.clone().into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&by_name).unwrap(),
                format!("@{abstract_name}").into(),
            ),
        ];
        for (socket, name) in starters {
            let starter = Starter::new(Some(name)).unwrap();
            starter.status("one\ntwo");
            starter.ready();
            starter.stopping();
            assert_eq!(hear(&socket), "STATUS=one two");
            assert!(hear(&socket).starts_with("READY=1\n"));
            assert!(hear(&socket).starts_with("STOPPING=1\n"));
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn without_a_starter_nothing_is_said() {
        Starter::new(None).unwrap().ready();
        Starter::new(Some(OsString::new())).unwrap().ready();
    }
}
