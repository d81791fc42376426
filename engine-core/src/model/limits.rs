//! How large things may be: the same on every backend, at the limit and one byte past it (B8).

/// Sizes in bytes; an application may change them where it builds its engine or client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Input of a workflow or an op, and metadata.
    pub input_bytes: usize,
    /// Result of an op.
    pub result_bytes: usize,
    /// Message of an error; a longer one is cut, because recording a failure cannot fail.
    pub error_bytes: usize,
    /// Content of an artifact that is kept in its row.
    pub artifact_bytes: usize,
    /// Value of a record.
    pub record_bytes: usize,
    /// Ops in one call that creates or adds.
    pub ops_per_call: usize,
}

impl Default for Limits {
    /// 1 MiB for each document, 16 KiB for an error, a million ops a call: a row stays small enough to copy, and a call fits in memory.
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            input_bytes: MIB,
            result_bytes: MIB,
            error_bytes: 16 * 1024,
            artifact_bytes: MIB,
            record_bytes: MIB,
            ops_per_call: 1_000_000,
        }
    }
}

/// Something is larger than its limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} has {size}, over the limit of {limit}")]
pub struct TooLarge {
    /// What is too large.
    pub what: String,
    /// How large it is.
    pub size: usize,
    /// How large it may be.
    pub limit: usize,
}

/// Checks `size` against `limit`.
///
/// # Errors
/// [`TooLarge`] one past the limit.
pub fn check_size(what: impl Into<String>, size: usize, limit: usize) -> Result<(), TooLarge> {
    if size > limit { Err(TooLarge { what: what.into(), size, limit }) } else { Ok(()) }
}

/// `text` made storable: no NUL, at most `limit` bytes, cut between characters and marked where it was cut.
///
/// # Examples
/// ```
/// use leasehold_core::model::storable_text;
/// assert_eq!(storable_text("a\0b", 100), "a\u{fffd}b");
/// assert!(storable_text(&"é".repeat(50), 20).len() <= 20);
/// ```
pub fn storable_text(text: &str, limit: usize) -> String {
    const MARK: &str = "…";
    let clean = text.replace('\0', "\u{fffd}");
    if clean.len() <= limit {
        return clean;
    }
    let mut cut = limit.saturating_sub(MARK.len());
    while !clean.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut kept = clean;
    kept.truncate(cut);
    if limit >= MARK.len() {
        kept.push_str(MARK);
    }
    kept
}
