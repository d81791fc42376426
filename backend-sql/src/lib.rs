//! What the SQL backends of Leasehold share: [raw SQL that stays prepared](statement()), [`rows`] and their way into
//! the core's values, the columns that several statements read, and the sorting of errors that every driver has in
//! common. It picks no database.
//!
//! A row struct is read by column *name* and knows portable SQL types only: every number and every flag is a 64-bit
//! integer, every JSON document, id, status, token and digest is text. A backend whose column has another type casts it
//! in its statement.

mod columns;
mod error;
pub mod rows;
mod statement;

pub use error::{Unreadable, rejected, store_error};
pub use statement::{Bound, Part, Statement, statement};
