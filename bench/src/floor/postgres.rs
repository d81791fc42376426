//! The floor on Postgres, through the crate `postgres`, with the server's own durability.

use super::rows::{CREATED, Column, Kind, Table, Value};
use super::{Batches, Drain, Floor};
use crate::Failure;
use crate::clock::timed;
use postgres::types::ToSql;
use postgres::{Client, NoTls};
use std::any::Any;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One schema.
#[derive(Debug)]
pub(crate) struct PostgresFloor {
    server: String,
    schema: String,
}

impl PostgresFloor {
    /// In `schema`, which is made if it is not there.
    pub(crate) fn new(server: &str, schema: &str) -> Result<Self, Failure> {
        let floor = Self { server: server.to_owned(), schema: schema.to_owned() };
        blocking(|| {
            let create = format!("SET client_min_messages TO warning; CREATE SCHEMA IF NOT EXISTS \"{}\"", floor.schema);
            Ok(Client::connect(&floor.server, NoTls)?.batch_execute(&create)?)
        })?;
        Ok(floor)
    }

    fn connect(&self) -> Result<Client, Failure> {
        let mut client = Client::connect(&self.server, NoTls)?;
        client.batch_execute(&format!("SET search_path TO \"{}\"; SET jit TO off; SET client_min_messages TO warning", self.schema))?;
        Ok(client)
    }

    fn with<T: Send>(&self, run: impl FnOnce(&mut Client) -> Result<T, Failure> + Send) -> Result<T, Failure> {
        blocking(|| run(&mut self.connect()?))
    }
}

/// The synchronous driver runs a runtime of its own, which must not be inside another.
fn blocking<T: Send>(run: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    std::thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|_| Err("a floor's thread panicked".into())))
}

impl Floor for PostgresFloor {
    fn settings(&self) -> Result<BTreeMap<String, String>, Failure> {
        self.with(|client| {
            let mut settings = BTreeMap::new();
            for name in ["server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "shared_buffers", "max_wal_size"]
            {
                let value: String = client.query_one("SELECT current_setting($1)", &[&name])?.get(0);
                settings.insert(name.replace("server_version", "PostgreSQL"), value);
            }
            Ok(settings)
        })
    }

    fn drain(&self, drain: Drain) -> Result<Duration, Failure> {
        let count = i64::try_from(drain.ops)?;
        self.with(|client| {
            client.batch_execute(&format!(
                "CREATE TABLE floor_ops (id BIGINT PRIMARY KEY, payload TEXT NOT NULL, owner BIGINT)
                     WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
                 CREATE INDEX floor_free ON floor_ops (id) WHERE owner IS NULL;
                 INSERT INTO floor_ops (id, payload) SELECT n, 'null' FROM generate_series(1, {count}) AS s (n)"
            ))?;
            Ok(client.batch_execute("VACUUM ANALYZE floor_ops")?)
        })?;
        let clients = (0..drain.connections).map(|_| blocking(|| self.connect())).collect::<Result<Vec<_>, _>>()?;
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                clients.into_iter().zip(1_i64..).map(|(client, owner)| scope.spawn(move || work(client, owner, drain.batch))).collect();
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err("a floor's thread panicked".into())))
        })?;
        Ok(begun.elapsed())
    }

    fn commits(&self, count: usize) -> Result<Vec<Duration>, Failure> {
        self.with(|client| {
            client.batch_execute("CREATE TABLE floor_commits (id BIGSERIAL PRIMARY KEY, payload TEXT NOT NULL)")?;
            let insert = client.prepare("INSERT INTO floor_commits (payload) VALUES ('null')")?;
            (0..count).map(|_| Ok(timed(|| client.execute(&insert, &[]))?.1)).collect()
        })
    }

    fn renew(&self, leases: u64, times: usize) -> Result<Vec<Duration>, Failure> {
        self.with(|client| {
            make_leases(client, leases)?;
            let renew = client.prepare("UPDATE floor_leases SET expires_at = $2 WHERE op = ANY($1)")?;
            let ops: Vec<i64> = (1..=i64::try_from(leases)?).collect();
            (1..=i64::try_from(times)?).map(|time| Ok(timed(|| client.execute(&renew, &[&ops, &time]))?.1)).collect()
        })
    }

    fn recover(&self, leases: u64, batch: u32) -> Result<Duration, Failure> {
        self.with(|client| {
            make_leases(client, leases)?;
            client.batch_execute("CREATE TABLE floor_ready (op BIGINT PRIMARY KEY)")?;
            let recover = client.prepare(
                "WITH due AS MATERIALIZED (
                     SELECT op FROM floor_leases WHERE expires_at <= 0 ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED),
                 taken AS (DELETE FROM floor_leases WHERE op = ANY(ARRAY(SELECT op FROM due)) RETURNING op)
                 INSERT INTO floor_ready (op) SELECT op FROM taken",
            )?;
            let begun = Instant::now();
            while client.execute(&recover, &[&i64::from(batch)])? > 0 {}
            Ok(begun.elapsed())
        })
    }

    fn read(&self) -> Result<Vec<Table>, Failure> {
        CREATED
            .iter()
            .map(|(name, order)| {
                let head = Table { name: (*name).to_owned(), columns: self.columns(name)?, rows: Vec::new() };
                let sql = format!("SELECT {} FROM {name} {order}", head.names());
                let columns = &head.columns;
                let rows = self.with(|client| {
                    let rows = client.query(&sql, &[])?;
                    rows.iter().map(|row| columns.iter().enumerate().map(|(at, column)| value(row, at, column.kind)).collect()).collect()
                })?;
                Ok(Table { rows, ..head })
            })
            .collect()
    }

    fn insert(&self, batches: &Batches) -> Result<Duration, Failure> {
        self.with(|client| {
            let mut prepared = BTreeMap::new();
            for table in batches.0.iter().flatten() {
                if !prepared.contains_key(table.name.as_str()) {
                    prepared.insert(table.name.as_str(), client.prepare(&insert_of(table))?);
                }
            }
            let begun = Instant::now();
            for batch in &batches.0 {
                let mut tx = client.transaction()?;
                for table in batch {
                    let columns: Vec<Box<dyn ToSql + Sync>> = (0..table.columns.len()).map(|at| parameter(table, at)).collect();
                    let columns: Vec<&(dyn ToSql + Sync)> = columns.iter().map(AsRef::as_ref).collect();
                    let statement = prepared.get(table.name.as_str()).ok_or("a table was not prepared")?;
                    tx.execute(statement, &columns)?;
                }
                tx.commit()?;
            }
            Ok(begun.elapsed())
        })
    }

    fn columns(&self, table: &str) -> Result<Vec<Column>, Failure> {
        self.with(|client| {
            let rows = client.query(
                "SELECT column_name::text, data_type::text FROM information_schema.columns
                  WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position",
                &[&self.schema, &table],
            )?;
            rows.iter()
                .map(|row| {
                    let kind = match row.get::<_, String>(1).as_str() {
                        "bigint" => Kind::Integer,
                        "double precision" => Kind::Real,
                        "bytea" => Kind::Bytes,
                        "text" => Kind::Text,
                        other => return Err(format!("{table} has a column of type {other}, which the floor does not know").into()),
                    };
                    Ok(Column { name: row.get(0), kind })
                })
                .collect()
        })
    }

    fn execute(&self, sql: &str) -> Result<(), Failure> {
        // One by one: in one message they would be one transaction, in which VACUUM cannot run.
        self.with(|client| sql.split(';').filter(|one| !one.trim().is_empty()).try_for_each(|one| Ok(client.batch_execute(one)?)))
    }

    fn number(&self, sql: &str) -> Result<i64, Failure> {
        self.with(|client| Ok(client.query_one(sql, &[])?.get(0)))
    }

    fn pin(&self) -> Result<Box<dyn Any + Send>, Failure> {
        self.with(|_| {
            let mut client = self.connect()?;
            client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1")?;
            Ok(Box::new(Pin(Some(client))) as Box<dyn Any + Send>)
        })
    }

    fn log_bytes(&self) -> Result<Option<i64>, Failure> {
        self.number("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint").map(Some)
    }

    fn size(&self) -> Result<(i64, Option<i64>), Failure> {
        self.with(|client| {
            let sql = "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint
                         FROM pg_stat_user_tables WHERE schemaname = $1";
            let row = client.query_one(sql, &[&self.schema])?;
            Ok((row.get(0), Some(row.get(1))))
        })
    }

    fn connections(&self) -> &'static [usize] {
        &[1, 2, 4, 8]
    }
}

/// A connection that must end outside a runtime, like it began.
struct Pin(Option<Client>);

impl Drop for Pin {
    fn drop(&mut self) {
        let client = self.0.take();
        let _ = blocking(move || {
            drop(client);
            Ok(())
        });
    }
}

fn work(mut client: Client, owner: i64, batch: u32) -> Result<(), Failure> {
    let claim = client.prepare(
        "WITH free AS MATERIALIZED (
             SELECT id FROM floor_ops WHERE owner IS NULL ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
         UPDATE floor_ops AS o SET owner = $1 WHERE o.id = ANY(ARRAY(SELECT id FROM free)) RETURNING o.id, o.payload",
    )?;
    let complete = client.prepare("DELETE FROM floor_ops WHERE id = ANY($1) AND owner = $2")?;
    loop {
        let taken: Vec<i64> = client.query(&claim, &[&owner, &i64::from(batch)])?.iter().map(|row| row.get(0)).collect();
        if taken.is_empty() {
            return Ok(());
        }
        client.execute(&complete, &[&taken, &owner])?;
    }
}

fn make_leases(client: &mut Client, leases: u64) -> Result<(), Failure> {
    client.batch_execute(&format!(
        "DROP TABLE IF EXISTS floor_leases;
         CREATE TABLE floor_leases (op BIGINT PRIMARY KEY, owner TEXT NOT NULL, expires_at BIGINT NOT NULL) WITH (fillfactor = 70);
         CREATE INDEX floor_leases_by_expiry ON floor_leases (expires_at);
         INSERT INTO floor_leases (op, owner, expires_at) SELECT n, 'floor', 0 FROM generate_series(1, {leases}) AS s (n)"
    ))?;
    Ok(client.batch_execute("VACUUM ANALYZE floor_leases")?)
}

fn insert_of(table: &Table) -> String {
    let places: Vec<String> =
        (1..=table.columns.len()).zip(&table.columns).map(|(at, column)| format!("${at}::{}[]", sql_type(column.kind))).collect();
    let names = table.names();
    format!("INSERT INTO {} ({names}) SELECT {names} FROM unnest({}) AS t ({names})", table.name, places.join(", "))
}

const fn sql_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Integer => "bigint",
        Kind::Real => "double precision",
        Kind::Text => "text",
        Kind::Bytes => "bytea",
    }
}

fn value(row: &postgres::Row, at: usize, kind: Kind) -> Result<Value, Failure> {
    Ok(match kind {
        Kind::Integer => row.try_get::<_, Option<i64>>(at)?.map_or(Value::Null, Value::Integer),
        Kind::Real => row.try_get::<_, Option<f64>>(at)?.map_or(Value::Null, Value::Real),
        Kind::Text => row.try_get::<_, Option<String>>(at)?.map_or(Value::Null, Value::Text),
        Kind::Bytes => row.try_get::<_, Option<Vec<u8>>>(at)?.map_or(Value::Null, Value::Bytes),
    })
}

/// One column of all rows.
fn parameter(table: &Table, at: usize) -> Box<dyn ToSql + Sync> {
    let cells = table.rows.iter().filter_map(move |row| row.get(at));
    match table.columns.get(at).map(|column| column.kind) {
        Some(Kind::Integer) => {
            Box::new(cells.map(|cell| if let Value::Integer(value) = cell { Some(*value) } else { None }).collect::<Vec<_>>())
        }
        Some(Kind::Real) => Box::new(cells.map(|cell| if let Value::Real(value) = cell { Some(*value) } else { None }).collect::<Vec<_>>()),
        Some(Kind::Bytes) => {
            Box::new(cells.map(|cell| if let Value::Bytes(value) = cell { Some(value.clone()) } else { None }).collect::<Vec<_>>())
        }
        Some(Kind::Text) | None => {
            Box::new(cells.map(|cell| if let Value::Text(value) = cell { Some(value.clone()) } else { None }).collect::<Vec<_>>())
        }
    }
}
