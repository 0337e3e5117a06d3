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
    /// The width of the smallest buckets in Fortio's JSON, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = fortio::Form::default().resolution, value_parser = resolution)]
    fortio_resolution: f64,
    /// The percentiles in Fortio's JSON
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "50,75,90,99,99.9", value_parser = percentile)]
    fortio_percentiles: Vec<f64>,
    /// Add the result to a file of comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl Exports {
    /// Writes the report wherever it was asked for.
    pub fn write(&self, report: &Report) -> Result<(), String> {
        if let Some(path) = &self.fortio_json {
            let form = fortio::Form {
                resolution: self.fortio_resolution,
                percentiles: self.fortio_percentiles.clone(),
            };
            std::fs::write(path, fortio::to_json(report, &form))
                .map_err(|error| format!("write {}: {error}", path.display()))?;
        }
        if let Some(path) = &self.csv {
            csv::append(path, report)
                .map_err(|error| format!("write {}: {error}", path.display()))?;
        }
        Ok(())
    }
}

fn resolution(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (1e-9..=100.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be a number of seconds between 1e-9 and 100".to_owned()),
    }
}

fn percentile(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(percentile) if percentile > 0.0 && percentile < 100.0 => Ok(percentile),
        _ => Err("must be above 0 and below 100".to_owned()),
    }
}
