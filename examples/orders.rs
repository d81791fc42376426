//! An application with a table of its own: its rows and the engine's commit together, or neither does.
//!
//! ```sh
//! cargo run --example orders                                                          # on a SQLite file
//! cargo run --example orders --features postgres -- postgres://me@localhost/shop     # on Postgres
//! ```
//!
//! Placing an order inserts its row and starts its workflow in one transaction. Charging it raises a counter in that row
//! and completes the op in one transaction: whatever fails in between, an order is charged once. One order fails half-way
//! while it is placed, and one while it is charged, to show it. Run it again: what is there stays as it is.

#![allow(clippy::print_stdout, reason = "a program that tells a person what it does")]

use leasehold::prelude::*;
use std::sync::Arc;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The application's side of the database: what it needs transactions of its own for.
trait Shop: Send + Sync {
    /// Makes the table.
    fn open(&self) -> Result<(), Failure>;
    /// Inserts an order and starts its workflow, whose id it returns; an order that is there stays as it is.
    fn place(&self, client: &Client, order: &str) -> Result<WorkflowId, Failure>;
    /// Charges an order and completes the op that asked for it.
    fn charge(&self, client: &Client, ctx: &OpContext, order: &str) -> Result<(), Failure>;
    /// Every order, and how often it was charged.
    fn orders(&self) -> Result<Vec<String>, Failure>;
}

/// The same code for each kind of connection: the store lends its own, with the transaction open.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
macro_rules! shop {
    ($backend:ident, $store:ident) => {
        impl Shop for leasehold::$backend::$store {
            fn open(&self) -> Result<(), Failure> {
                use leasehold::$backend::diesel::connection::SimpleConnection;
                self.transaction(|conn| {
                    Ok(conn.batch_execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, charges INTEGER NOT NULL)")?)
                })
            }

            fn place(&self, client: &Client, order: &str) -> Result<WorkflowId, Failure> {
                use leasehold::$backend::diesel::{self, prelude::*};
                let receipt = self.transaction(|conn| -> Result<_, Failure> {
                    diesel::sql_query("INSERT INTO orders (id, charges) VALUES ($1, 0) ON CONFLICT (id) DO NOTHING")
                        .bind::<diesel::sql_types::Text, _>(order)
                        .execute(conn)?;
                    let flow =
                        Workflow::new("order")
                            .identity(order)
                            .op(Op::new("charge", "charge").input(order))
                            .op(Op::new("ship", "ship").input(order).after("charge"));
                    // The engine's call comes last: from here on others may wait for what this transaction holds.
                    let receipt = self.on(conn, |tx| client.within(tx).ensure(flow))?;
                    if order == "broken" {
                        return Err("the shop's own code failed: no order, and no workflow".into());
                    }
                    Ok(receipt)
                })?;
                Ok(receipt.committed().id)
            }

            fn charge(&self, client: &Client, ctx: &OpContext, order: &str) -> Result<(), Failure> {
                use leasehold::$backend::diesel::{self, prelude::*};
                let receipt = self.transaction(|conn| -> Result<_, Failure> {
                    diesel::sql_query("UPDATE orders SET charges = charges + 1 WHERE id = $1")
                        .bind::<diesel::sql_types::Text, _>(order)
                        .execute(conn)?;
                    if order == "flaky" && ctx.attempt() == 1 {
                        return Err("the connection to the bank was lost: nothing is charged, and the op is tried again".into());
                    }
                    // A lease that was lost is an error here, so the charge is rolled back with it.
                    Ok(self.on(conn, |tx| client.within(tx).complete(ctx, "charged"))?)
                })?;
                receipt.committed();
                Ok(())
            }

            fn orders(&self) -> Result<Vec<String>, Failure> {
                use leasehold::$backend::diesel::{self, prelude::*};
                let line = diesel::dsl::sql::<diesel::sql_types::Text>(
                    "SELECT id || ': charged ' || CAST(charges AS TEXT) || ' times' FROM orders ORDER BY id",
                );
                self.transaction(|conn| Ok(line.load::<String>(conn)?))
            }
        }
    };
}

#[cfg(feature = "sqlite")]
shop!(sqlite, SqliteStore);
#[cfg(feature = "postgres")]
shop!(postgres, PostgresStore);

/// One store, as the engine sees it and as the shop does.
type Both = (Arc<dyn Store>, Arc<dyn Shop>);

/// The store at `url`.
fn connect(url: &str) -> Result<Both, Failure> {
    #[cfg(feature = "postgres")]
    if url.starts_with("postgres") {
        let store = Arc::new(leasehold::postgres::PostgresStore::connect(url)?);
        return Ok((Arc::clone(&store) as _, store));
    }
    #[cfg(feature = "sqlite")]
    if let Some(path) = url.strip_prefix("sqlite:") {
        let store = Arc::new(leasehold::sqlite::SqliteStore::open(path, Arc::new(leasehold::store::SystemClock))?);
        return Ok((Arc::clone(&store) as _, store));
    }
    Err(format!("{url} names no store that this program was built with: sqlite:FILE, or postgres://… with --features postgres").into())
}

/// Runs `work`, which waits for the database, where it may.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await?
}

/// Places some orders, works until all is done, and returns what the shop's table says.
pub(crate) async fn run(url: &str) -> Result<Vec<String>, Failure> {
    let url = url.to_owned();
    let (store, shop) = blocking(move || connect(&url)).await?;
    let charge = {
        let shop = Arc::clone(&shop);
        move |ctx: OpContext, order: String| {
            let shop = Arc::clone(&shop);
            async move {
                let client = ctx.client().clone();
                let charged = blocking(move || shop.charge(&client, &ctx, &order)).await;
                charged.map_err(|error| HandlerError::retryable(error.to_string()).after(std::time::Duration::ZERO))
            }
        }
    };
    let engine = Engine::builder(store)
        .handler("charge", charge)
        .handler("ship", async |_: OpContext, order: String| Ok::<_, HandlerError>(format!("{order} is on its way")))
        .build()
        .await?;
    let running = engine.start()?;
    let client = engine.client();
    let (placed, shop) = {
        let client = client.clone();
        blocking(move || {
            shop.open()?;
            let mut placed = Vec::new();
            for order in ["book", "flaky", "broken"] {
                match shop.place(&client, order) {
                    Ok(id) => placed.push(id),
                    Err(error) => println!("{order}: {error}"),
                }
            }
            Ok((placed, shop))
        })
        .await?
    };
    for id in placed {
        client.handle(id).wait().await?;
    }
    running.shutdown().await?;
    blocking(move || shop.orders()).await
}

#[tokio::main]
#[allow(dead_code, reason = "its test calls `run`")]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "sqlite:orders.db".to_owned());
    for order in run(&url).await? {
        println!("{order}");
    }
    Ok(())
}
