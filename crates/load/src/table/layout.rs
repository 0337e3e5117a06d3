//! Rows and columns as aligned text or as Markdown.

use std::fmt::Write;

/// A table that is ready to print.
#[derive(Debug)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The headings of the columns behind the label.
    pub columns: Vec<String>,
    /// The rows; each has as many cells as there are columns.
    pub rows: Vec<Row>,
}

/// One row.
#[derive(Debug)]
pub struct Row {
    /// What it is about.
    pub label: String,
    /// Its cells.
    pub cells: Vec<String>,
    /// Whether it compares the two rows above it.
    pub is_difference: bool,
}

impl Table {
    /// Columns aligned with spaces, numbers to the right.
    pub fn to_text(&self) -> String {
        let label = |row: &Row| {
            if row.is_difference {
                format!("  {}", row.label)
            } else {
                row.label.clone()
            }
        };
        let label_width = self
            .rows
            .iter()
            .map(|row| width(&label(row)))
            .max()
            .unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| width(&row.cells[column]));
                cells
                    .chain([width(&self.columns[column])])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut out = format!("{}\n", self.title);
        let mut line = |label: &str, cells: &[String]| {
            let mut line = format!("{label}{}", " ".repeat(label_width - width(label)));
            for (cell, wanted) in cells.iter().zip(&widths) {
                let _ = write!(line, "{}{cell}", " ".repeat(wanted + 2 - width(cell)));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        };
        line("", &self.columns);
        for row in &self.rows {
            line(&label(row), &row.cells);
        }
        out
    }

    /// A Markdown table under a bold title.
    pub fn to_markdown(&self) -> String {
        let mut out = format!(
            "**{}**\n\n| | {} |\n|---|",
            self.title,
            self.columns.join(" | ")
        );
        out.push_str(&"---:|".repeat(self.columns.len()));
        out.push('\n');
        for row in &self.rows {
            let emphasise = |text: &str| {
                if row.is_difference && !text.is_empty() {
                    format!("*{text}*")
                } else {
                    text.to_owned()
                }
            };
            let cells: Vec<String> = row.cells.iter().map(|cell| emphasise(cell)).collect();
            let _ = writeln!(out, "| {} | {} |", emphasise(&row.label), cells.join(" | "));
        }
        out
    }
}

/// How many columns of a terminal a text takes; every character here takes one.
fn width(text: &str) -> usize {
    text.chars().count()
}
