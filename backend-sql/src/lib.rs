//! What the SQL backends of Leasehold share: tables, rows, query fragments and portable functions. It picks no database.

mod statement;

pub use statement::{Bound, Part, Statement, statement};
