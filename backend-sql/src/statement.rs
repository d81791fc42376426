//! Raw SQL whose prepared statement is kept.
//!
//! `diesel::sql_query` prepares its text anew on every call, which costs Postgres a round trip and SQLite a parse. A
//! [`Statement`] is a constant text, so diesel may keep what it prepared.

use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::query_dsl::RunQueryDsl;
use diesel::result::QueryResult;
use diesel::serialize::ToSql;
use diesel::sql_types::{HasSqlType, Untyped};
use std::marker::PhantomData;

/// A constant SQL text whose parameters are numbered by first use: `$1`, `$2` … or `?1`, `?2` …
///
/// # Panics
/// Running it panics when the text lacks the number of a bound value, or numbers them out of order: a defect of the constant.
pub fn statement(sql: &'static str) -> Statement {
    Statement { sql }
}

/// See [`statement`].
#[derive(Debug, Clone, Copy)]
pub struct Statement {
    sql: &'static str,
}

/// A statement with one more value bound.
#[derive(Debug, Clone, Copy)]
pub struct Bound<Inner, Value, SqlType> {
    inner: Inner,
    value: Value,
    sql_type: PhantomData<SqlType>,
}

impl Statement {
    /// Binds the first value.
    pub fn bind<SqlType, Value>(self, value: Value) -> Bound<Self, Value, SqlType> {
        Bound { inner: self, value, sql_type: PhantomData }
    }
}
impl<Inner, V, S> Bound<Inner, V, S> {
    /// Binds the next value.
    pub fn bind<SqlType, Value>(self, value: Value) -> Bound<Self, Value, SqlType> {
        Bound { inner: self, value, sql_type: PhantomData }
    }
}

/// What a statement's parts have in common: the text, and how much of it is written so far.
pub trait Part<DB: Backend> {
    /// Writes the text up to and including the last value's first place; returns the rest and how many values are bound.
    ///
    /// # Errors
    /// What a value's serialisation returns.
    fn write<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<(&'static str, usize)>;
}

impl<DB: Backend> Part<DB> for Statement {
    fn write<'b>(&'b self, _out: &mut AstPass<'_, 'b, DB>) -> QueryResult<(&'static str, usize)> {
        Ok((self.sql, 0))
    }
}
impl<DB, Inner, V, S> Part<DB> for Bound<Inner, V, S>
where
    DB: Backend + HasSqlType<S>,
    Inner: Part<DB>,
    V: ToSql<S, DB>,
{
    fn write<'b>(&'b self, out: &mut AstPass<'_, 'b, DB>) -> QueryResult<(&'static str, usize)> {
        let (rest, bound) = self.inner.write(out)?;
        let number = bound + 1;
        let Some((before, after)) = split_at_parameter(rest, number) else {
            unreachable!("the statement has no parameter {number}, or not in order: {rest}");
        };
        out.push_sql(before);
        out.push_bind_param::<S, V>(&self.value)?;
        Ok((after, number))
    }
}

/// The text before and after the first `$number` or `?number`.
fn split_at_parameter(sql: &'static str, number: usize) -> Option<(&'static str, &'static str)> {
    let digits = number.to_string();
    sql.match_indices(['$', '?']).find_map(|(at, _)| {
        let after = sql.get(at + 1..)?.strip_prefix(digits.as_str())?;
        if after.starts_with(|c: char| c.is_ascii_digit()) { None } else { Some((sql.get(..at)?, after)) }
    })
}

macro_rules! runnable {
    ([$($param:ident),*] $type:ty) => {
        impl<$($param),*> QueryId for $type {
            type QueryId = ();
            // The text itself is the cache's key.
            const HAS_STATIC_QUERY_ID: bool = false;
        }
        impl<$($param),*> Query for $type {
            type SqlType = Untyped;
        }
        impl<Conn, $($param),*> RunQueryDsl<Conn> for $type {}
        impl<DB, $($param),*> QueryFragment<DB> for $type
        where
            DB: Backend,
            Self: Part<DB>,
        {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
                let (rest, _) = self.write(&mut out)?;
                out.push_sql(rest);
                Ok(())
            }
        }
    };
}
runnable!([] Statement);
runnable!([Inner, V, S] Bound<Inner, V, S>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_by_its_whole_number() {
        assert_eq!(split_at_parameter("a $10 b $1 c", 1), Some(("a $10 b ", " c")));
        assert_eq!(split_at_parameter("x ?2", 2), Some(("x ", "")));
        assert_eq!(split_at_parameter("x ?2", 1), None);
    }
}
