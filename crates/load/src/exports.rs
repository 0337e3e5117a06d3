//! The options of `lateen-load run` that write its report in forms of other programs.

use std::path::PathBuf;

use clap::Args;

use crate::report::Report;
use crate::{csv, fortio};

/// Where else a report goes.
#[derive(Debug, Args)]
pub struct Exports {
    /// Write the result as Fortio's JSON, which `fortio report` shows
    #[arg(long, value_name = "FILE")]
    fortio_json: Option<PathBuf>,
    #[command(flatten)]
    form: fortio::Form,
    /// Add the result to a file of comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl Exports {
    /// Writes the report wherever it was asked for.
    pub fn write(&self, report: &Report) -> Result<(), String> {
        if let Some(path) = &self.fortio_json {
            std::fs::write(path, fortio::to_json(report, &self.form))
                .map_err(|error| format!("write {}: {error}", path.display()))?;
        }
        if let Some(path) = &self.csv {
            csv::append(path, report)
                .map_err(|error| format!("write {}: {error}", path.display()))?;
        }
        Ok(())
    }
}
