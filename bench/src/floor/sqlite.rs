//! The floor on SQLite, through rusqlite: WAL, and a commit is durable when it returns.

use super::rows::{CREATED, Column, Kind, Table, Value};
use super::{Batches, Drain, Floor};
use crate::Failure;
use crate::clock::timed;
use crate::place::with_end;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, TransactionBehavior, params, params_from_iter};
use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// One file.
#[derive(Debug)]
pub(crate) struct SqliteFloor {
    path: PathBuf,
}

/// How long a connection waits for another's transaction.
const BUSY: Duration = Duration::from_secs(30);

impl SqliteFloor {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn connect(&self) -> Result<Connection, Failure> {
        let conn = Connection::open(&self.path)?;
        conn.busy_timeout(BUSY)?;
        conn.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY")?;
        conn.set_prepared_statement_cache_capacity(64);
        Ok(conn)
    }
}

impl Floor for SqliteFloor {
    fn settings(&self) -> Result<BTreeMap<String, String>, Failure> {
        let conn = self.connect()?;
        let version: String = conn.query_row("SELECT sqlite_version()", [], |row| row.get(0))?;
        let mode: String = conn.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let synchronous: i64 = conn.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
        let settings = [("SQLite", version), ("journal_mode", mode), ("synchronous (2 is full)", synchronous.to_string())];
        Ok(settings.map(|(name, value)| (name.to_owned(), value)).into())
    }

    fn drain(&self, drain: Drain) -> Result<Duration, Failure> {
        let conn = self.connect()?;
        conn.execute_batch(
            "CREATE TABLE floor_ops (id INTEGER PRIMARY KEY, payload TEXT NOT NULL, owner INTEGER);
             CREATE INDEX floor_free ON floor_ops (id) WHERE owner IS NULL",
        )?;
        conn.execute(
            "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < ?1)
             INSERT INTO floor_ops (id, payload) SELECT n, 'null' FROM s",
            params![i64::try_from(drain.ops)?],
        )?;
        conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (1..=drain.connections).map(|owner| scope.spawn(move || self.work(owner, drain.batch))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err("a floor's thread panicked".into())))
        })?;
        Ok(begun.elapsed())
    }

    fn commits(&self, count: usize) -> Result<Vec<Duration>, Failure> {
        let conn = self.connect()?;
        conn.execute_batch("CREATE TABLE floor_commits (id INTEGER PRIMARY KEY, payload TEXT NOT NULL)")?;
        let mut insert = conn.prepare("INSERT INTO floor_commits (payload) VALUES ('null')")?;
        (0..count).map(|_| Ok(timed(|| insert.execute([]))?.1)).collect()
    }

    fn renew(&self, leases: u64, times: usize) -> Result<Vec<Duration>, Failure> {
        let mut conn = self.connect()?;
        make_leases(&conn, leases)?;
        let mut took = Vec::new();
        for time in 0..times {
            let begun = Instant::now();
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut renew = tx.prepare_cached("UPDATE floor_leases SET expires_at = ?2 WHERE op = ?1")?;
                for op in 1..=leases {
                    renew.execute(params![i64::try_from(op)?, i64::try_from(time)? + 1])?;
                }
            }
            tx.commit()?;
            took.push(begun.elapsed());
        }
        Ok(took)
    }

    fn recover(&self, leases: u64, batch: u32) -> Result<Duration, Failure> {
        let mut conn = self.connect()?;
        make_leases(&conn, leases)?;
        conn.execute_batch("CREATE TABLE floor_ready (op INTEGER PRIMARY KEY)")?;
        let begun = Instant::now();
        loop {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let ops: Vec<i64> = {
                let mut take = tx.prepare_cached(
                    "DELETE FROM floor_leases WHERE op IN (SELECT op FROM floor_leases WHERE expires_at <= 0 ORDER BY expires_at LIMIT ?1)
                     RETURNING op",
                )?;
                take.query_map([batch], |row| row.get(0))?.collect::<Result<_, _>>()?
            };
            {
                let mut put = tx.prepare_cached("INSERT INTO floor_ready (op) VALUES (?1)")?;
                for op in &ops {
                    put.execute([op])?;
                }
            }
            tx.commit()?;
            if ops.is_empty() {
                return Ok(begun.elapsed());
            }
        }
    }

    fn read(&self) -> Result<Vec<Table>, Failure> {
        let conn = self.connect()?;
        CREATED
            .iter()
            .map(|(name, order)| {
                let head = Table { name: (*name).to_owned(), columns: self.columns(name)?, rows: Vec::new() };
                let mut read = conn.prepare(&format!("SELECT {} FROM {name} {order}", head.names()))?;
                let count = head.columns.len();
                let rows = read.query_map([], |row| (0..count).map(|at| Ok(value(row.get_ref(at)?))).collect())?;
                Ok(Table { rows: rows.collect::<Result<_, _>>()?, ..head })
            })
            .collect()
    }

    fn insert(&self, batches: &Batches) -> Result<Duration, Failure> {
        let mut conn = self.connect()?;
        let begun = Instant::now();
        for batch in &batches.0 {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for table in batch {
                let places: Vec<String> = (1..=table.columns.len()).map(|at| format!("?{at}")).collect();
                let mut insert =
                    tx.prepare_cached(&format!("INSERT INTO {} ({}) VALUES ({})", table.name, table.names(), places.join(", ")))?;
                for row in &table.rows {
                    insert.execute(params_from_iter(row))?;
                }
            }
            tx.commit()?;
        }
        Ok(begun.elapsed())
    }

    fn columns(&self, table: &str) -> Result<Vec<Column>, Failure> {
        let conn = self.connect()?;
        let mut read = conn.prepare("SELECT name, type FROM pragma_table_info(?1) ORDER BY cid")?;
        let columns = read.query_map([table], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        columns
            .map(|column| {
                let (name, kind) = column?;
                let kind = match kind.as_str() {
                    "INTEGER" => Kind::Integer,
                    "REAL" => Kind::Real,
                    "BLOB" => Kind::Bytes,
                    _ => Kind::Text,
                };
                Ok(Column { name, kind })
            })
            .collect()
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        Ok(self.connect()?.execute_batch(sql)?)
    }

    fn number(&self, sql: &str) -> Result<i64, Failure> {
        Ok(self.connect()?.query_row(sql, [], |row| row.get(0))?)
    }

    fn pin(&self) -> Result<Box<dyn Any + Send>, Failure> {
        let conn = self.connect()?;
        conn.execute_batch("BEGIN")?;
        conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(Box::new(conn))
    }

    fn log_bytes(&self) -> Result<Option<i64>, Failure> {
        Ok(None)
    }

    fn size(&self) -> Result<(i64, Option<i64>), Failure> {
        let length = |end: &str| std::fs::metadata(with_end(&self.path, end)).map_or(0, |file| file.len());
        Ok((i64::try_from(length("") + length("-wal"))?, None))
    }

    fn connections(&self) -> &'static [usize] {
        &[1, 2]
    }
}

impl SqliteFloor {
    fn work(&self, owner: usize, batch: u32) -> Result<(), Failure> {
        let mut conn = self.connect()?;
        let owner = i64::try_from(owner)?;
        loop {
            let claim = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let taken: Vec<i64> = {
                let mut take = claim.prepare_cached(
                    "UPDATE floor_ops SET owner = ?1
                      WHERE id IN (SELECT id FROM floor_ops WHERE owner IS NULL ORDER BY id LIMIT ?2) RETURNING id, payload",
                )?;
                take.query_map(params![owner, batch], |row| row.get(0))?.collect::<Result<_, _>>()?
            };
            claim.commit()?;
            if taken.is_empty() {
                return Ok(());
            }
            let complete = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            {
                let mut end = complete.prepare_cached("DELETE FROM floor_ops WHERE id = ?1 AND owner = ?2")?;
                for id in &taken {
                    end.execute(params![id, owner])?;
                }
            }
            complete.commit()?;
        }
    }
}

fn make_leases(conn: &Connection, leases: u64) -> Result<(), Failure> {
    conn.execute_batch(
        "DROP TABLE IF EXISTS floor_leases;
         CREATE TABLE floor_leases (op INTEGER PRIMARY KEY, owner TEXT NOT NULL, expires_at INTEGER NOT NULL);
         CREATE INDEX floor_leases_by_expiry ON floor_leases (expires_at)",
    )?;
    conn.execute(
        "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < ?1)
         INSERT INTO floor_leases (op, owner, expires_at) SELECT n, 'floor', 0 FROM s",
        params![i64::try_from(leases)?],
    )?;
    Ok(())
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Real(value),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(value) => ValueRef::Integer(*value),
            Self::Real(value) => ValueRef::Real(*value),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
