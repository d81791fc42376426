//! Reports as text: for a terminal, and as the tables of docs/PERFORMANCE.md.

use crate::Failure;
use crate::report::{Line, Report, Target};
use std::fmt::Write;
use std::path::PathBuf;

/// A report for a terminal.
pub(crate) fn text(report: &Report) -> String {
    let mut out = format!("{} on {}\n", report.suite, report.store);
    for (name, value) in &report.settings {
        let _ = writeln!(out, "  {name}: {value}");
    }
    let width = report.lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    for line in &report.lines {
        let _ = writeln!(
            out,
            "  {:width$}  floor {:>10}  engine {:>10} {:5}  ratio {:>6}  {:14}  {}",
            line.name,
            line.floor.map_or_else(|| "-".to_owned(), figure),
            figure(line.engine),
            line.unit,
            line.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            judgement(line),
            line.note
        );
    }
    out
}

/// Prints the tables for the reports in `files`, in that order.
pub(crate) fn print(files: &[PathBuf]) -> Result<(), Failure> {
    for file in files {
        let report: Report = serde_json::from_str(&std::fs::read_to_string(file)?)?;
        print!("{}", table(&report));
    }
    Ok(())
}

fn table(report: &Report) -> String {
    let mut out = format!("### {}, {}\n\n", report.suite, report.store);
    let settings: Vec<String> = report.settings.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let _ = writeln!(out, "{}\n", settings.join("; "));
    out.push_str("| what | floor | engine | unit | ratio | target | |\n| --- | ---: | ---: | --- | ---: | --- | --- |\n");
    for line in &report.lines {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            line.name,
            line.floor.map_or_else(String::new, figure),
            figure(line.engine),
            line.unit,
            line.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            judgement(line),
            line.note
        );
    }
    out.push('\n');
    out
}

fn judgement(line: &Line) -> String {
    let Some(target) = line.target else { return String::new() };
    let (sign, value) = match target {
        Target::AtLeast(least) => ('≥', least),
        Target::AtMost(most) => ('≤', most),
    };
    let met = if target.is_met(line.judged()) { "met" } else { "missed" };
    format!("{sign} {value} {met}")
}

/// Three digits that matter, and thousands set apart.
fn figure(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_a_missed_target_says_so() {
        assert_eq!(figure(1_234_567.4), "1,234,567");
        assert_eq!(figure(0.126), "0.13");
        let line = Line::against("x", "op/s", &[100.0], &[40.0]).target(Target::AtLeast(0.45));
        assert_eq!(judgement(&line), "≥ 0.45 missed");
        assert_eq!(judgement(&line.target(Target::AtLeast(0.4))), "≥ 0.4 met");
    }
}
