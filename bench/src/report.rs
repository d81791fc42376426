//! What a suite found.

use crate::clock::{median, ratios};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of one suite on one store.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) suite: String,
    /// `sqlite` or `postgres`.
    pub(crate) store: String,
    /// Versions, durability, the floor's connections, the machine.
    pub(crate) settings: BTreeMap<String, String>,
    pub(crate) lines: Vec<Line>,
}

/// One thing measured, as the medians of all rounds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) unit: String,
    /// What the engine is measured against; a floor, or another line's figure.
    pub(crate) floor: Option<f64>,
    pub(crate) engine: f64,
    /// The median of the rounds' ratios, engine to floor.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: Option<Target>,
    /// What the floor was, or what else there is to say.
    pub(crate) note: String,
}

/// What a ratio, or a figure without one, is to be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }
}

impl Line {
    /// From the rounds of an engine and of its floor, side by side.
    pub(crate) fn against(name: &str, unit: &str, floors: &[f64], engines: &[f64]) -> Self {
        Self { floor: Some(median(floors)), ratio: Some(median(&ratios(engines, floors))), ..Self::alone(name, unit, median(engines)) }
    }

    /// From a figure that is measured against nothing.
    pub(crate) fn alone(name: &str, unit: &str, engine: f64) -> Self {
        Self { name: name.to_owned(), unit: unit.to_owned(), floor: None, engine, ratio: None, target: None, note: String::new() }
    }

    pub(crate) fn target(self, target: Target) -> Self {
        Self { target: Some(target), ..self }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// What the target is about.
    pub(crate) fn judged(&self) -> f64 {
        self.ratio.unwrap_or(self.engine)
    }
}
