//! `leasehold migrate`: the schema. Opening a store runs what is missing, under a lock, so this says what came of it.

use crate::args::GlobalArgs;
use crate::exit::{CliError, Exit};
use crate::output::{print, print_json};
use crate::store::{self, Missing};
use leasehold::client::Client;
use serde_json::json;

pub(crate) async fn run(global: &GlobalArgs) -> Result<Exit, CliError> {
    let info = Client::new(store::open(global, Missing::Create).await?).status().await?.info;
    if global.json {
        print_json(&json!({"backend": info.backend, "location": info.location, "version": info.version, "schema": info.schema}));
    } else {
        print(&format!("{}: schema version {} ({} {})\n", info.location, info.schema, info.backend, info.version));
    }
    Ok(Exit::Success)
}
