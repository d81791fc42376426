//! `leasehold list`: workflows, newest first.

use crate::args::{GlobalArgs, ListArgs};
use crate::exit::{CliError, Exit};
use crate::output::{Cell, Paint, Table, instant, print, print_json, workflow_colour};
use crate::store::{self, Missing};
use leasehold::client::{Client, WorkflowSnapshot};
use leasehold::model::WorkflowName;
use leasehold::store::rows::WorkflowPage;

pub(crate) async fn run(args: &ListArgs, global: &GlobalArgs) -> Result<Exit, CliError> {
    let name = args.name.as_deref().map(WorkflowName::new).transpose().map_err(|error| CliError::Usage(error.to_string()))?;
    let client = Client::new(store::open(global, Missing::Refuse).await?);
    let page = WorkflowPage { name, status: args.status.map(Into::into), ..WorkflowPage::default() };
    let workflows = read(&client, page, args.limit).await?;
    if global.json {
        print_json(&serde_json::to_value(&workflows).unwrap_or_default());
    } else if args.ids {
        for workflow in &workflows {
            print(&format!("{}\n", workflow.id));
        }
    } else {
        print(&table(&workflows).render(Paint::for_stdout()));
    }
    Ok(Exit::Success)
}

/// Up to `limit` workflows, page by page.
async fn read(client: &Client, first: WorkflowPage, limit: u32) -> Result<Vec<WorkflowSnapshot>, CliError> {
    let mut workflows: Vec<WorkflowSnapshot> = Vec::new();
    loop {
        let left = limit.saturating_sub(u32::try_from(workflows.len()).unwrap_or(u32::MAX));
        // A limit of 0 would mean the largest page.
        if left == 0 {
            return Ok(workflows);
        }
        let before = workflows.last().map(|last| last.seq);
        let page = client.list(WorkflowPage { before, limit: left, ..first.clone() }).await?;
        if page.is_empty() {
            return Ok(workflows);
        }
        workflows.extend(page);
    }
}

fn table(workflows: &[WorkflowSnapshot]) -> Table {
    let mut table = Table::new(["ID", "NAME", "STATUS", "DONE", "FAILED", "BLOCKED", "WAITING", "CREATED", "FINISHED"]);
    for workflow in workflows {
        let ops = workflow.ops;
        table.row([
            workflow.id.as_str().into(),
            workflow.name.as_str().into(),
            Cell::coloured(workflow.status.to_string(), workflow_colour(workflow.status)),
            format!("{}/{}", ops.succeeded, ops.total).into(),
            ops.failed.to_string().into(),
            ops.blocked.to_string().into(),
            ops.waiting.to_string().into(),
            instant(workflow.created_at).into(),
            workflow.finished_at.map(instant).unwrap_or_default().into(),
        ]);
    }
    table
}
