//! Looks at the leases all the while, from outside.

use super::LIMITS;
use crate::Result;
use crate::database::connect;
use crate::url::ServerUrl;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A thread that samples until it is told to stop.
#[derive(Debug)]
pub struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Samples>,
}

/// What it saw.
#[derive(Debug, Default)]
pub struct Samples {
    /// How often it looked.
    pub taken: usize,
    /// How often the server could not be asked.
    pub failed: usize,
    /// The most leases it saw at once, by (site, queue).
    pub most: BTreeMap<(String, String), i64>,
}

#[derive(QueryableByName)]
struct InFlight {
    #[diesel(sql_type = Text)]
    site: String,
    #[diesel(sql_type = Text)]
    queue: String,
    #[diesel(sql_type = BigInt)]
    count: i64,
}

impl Sampler {
    /// Starts to look at the store at `url`, every few milliseconds.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(url: &ServerUrl) -> Result<Self> {
        let (url, stop) = (url.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("sampler".to_owned()).spawn(move || run(&url, &stopped))?;
        Ok(Self { stop, thread })
    }

    /// Stops, and tells what was seen.
    ///
    /// # Errors
    /// Limits that were exceeded.
    pub fn stop(self) -> Result<Samples> {
        self.stop.store(true, Ordering::Relaxed);
        let samples = self.thread.join().map_err(|_| "the sampler panicked")?;
        for ((site, queue), most) in &samples.most {
            let limit = LIMITS.iter().find(|(limited, _)| limited == queue).map(|(_, limit)| *limit);
            if limit.is_some_and(|limit| usize::try_from(*most).is_ok_and(|most| most > limit)) {
                return Err(format!("queue {queue} at {site} had {most} leases at once, its limit is {limit:?}").into());
            }
        }
        Ok(samples)
    }
}

fn run(url: &ServerUrl, stop: &AtomicBool) -> Samples {
    let mut samples = Samples::default();
    let mut conn: Option<PgConnection> = None;
    while !stop.load(Ordering::Relaxed) {
        match conn.take().map_or_else(|| connect(url), Ok).and_then(|mut link| sample(&mut link).map(|rows| (link, rows))) {
            Ok((link, rows)) => {
                conn = Some(link);
                samples.taken += 1;
                for row in rows {
                    let most = samples.most.entry((row.site, row.queue)).or_default();
                    *most = row.count.max(*most);
                }
            }
            // The server is away for the moment, as some tests want it.
            Err(_) => samples.failed += 1,
        }
        thread::sleep(Duration::from_millis(10));
    }
    samples
}

fn sample(conn: &mut PgConnection) -> Result<Vec<InFlight>> {
    let sql = "SELECT g.site, g.queue, count(*) AS count FROM leases AS le JOIN gates AS g ON g.key = le.gate GROUP BY g.site, g.queue";
    Ok(diesel::sql_query(sql).load(conn)?)
}
