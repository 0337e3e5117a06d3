//! A document in place of a control plane.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lateen_config::Kinds;
use lateen_config::local::Mesh;

use crate::client::{Observer, Sink};

/// How often a file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Where the document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In a file; a change of it is noticed within a second.
    File(PathBuf),
    /// Here.
    Inline(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => path.display().fmt(f),
            Source::Inline(_) => f.write_str("LOCAL_XDS"),
        }
    }
}

/// Hands a document's resources to a sink, as a control plane's stream would.
#[derive(Debug)]
pub struct Local<S, O> {
    source: Source,
    kinds: Kinds,
    sink: S,
    observer: O,
    mesh: Mesh,
    /// What was read last, good or bad.
    text: Option<String>,
    /// Why it could not be read last: said once.
    failure: Option<String>,
    synced: bool,
}

impl<S: Sink, O: Observer> Local<S, O> {
    /// Reads `source` once it runs, and applies its resources in the order of `kinds`.
    pub fn new(source: Source, kinds: Kinds, sink: S, observer: O) -> Self {
        Self {
            source,
            kinds,
            sink,
            observer,
            mesh: Mesh::default(),
            text: None,
            failure: None,
            synced: false,
        }
    }

    /// Runs until dropped. A document that cannot be used is named in the log, and what is known stays in use.
    pub async fn run(mut self) -> Infallible {
        loop {
            self.look().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn look(&mut self) {
        let text = match &self.source {
            Source::Inline(text) => Ok(text.clone()),
            Source::File(path) => std::fs::read_to_string(path),
        };
        match text {
            Ok(text) if self.text.as_ref() == Some(&text) => {}
            Ok(text) => {
                self.failure = None;
                let parsed = Mesh::parse(&text);
                self.text = Some(text);
                match parsed {
                    Ok(mesh) => self.apply(mesh).await,
                    Err(error) => self.fail(format!("{error}; what was read before stays in use")),
                }
            }
            Err(error) => self.fail(format!("cannot be read: {error}")),
        }
    }

    fn fail(&mut self, why: String) {
        if self.failure.as_ref() != Some(&why) {
            tracing::error!(source = %self.source, "local configuration: {why}");
            self.failure = Some(why);
        }
    }

    async fn apply(&mut self, mesh: Mesh) {
        for batch in mesh.since(&self.mesh, &self.kinds) {
            for refused in self.sink.apply(batch).await {
                tracing::warn!(source = %self.source, "local configuration refused: {refused}");
            }
        }
        self.mesh = mesh;
        tracing::info!(source = %self.source, "local configuration in use");
        if !self.synced {
            self.synced = true;
            self.observer.synced();
        }
    }
}
