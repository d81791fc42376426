//! Every command says the same on every store: only ids, times and the place differ (C2, B1).

use crate::sandbox::{Done, Sandbox, runs, until};
use leasehold_test_postgres::TestSchema;
use regex::Regex;
use std::sync::LazyLock;

const W: &str = "
name = 'w'
print = 'good'
[queues.q]
max_in_flight = 3
rate = { per_second = 100 }
[[ops]]
id = 'good'
kind = 'shell'
command = 'echo fine; echo text > \"$LEASEHOLD_ARTIFACTS/a.txt\"'
[[ops]]
id = 'bad'
kind = 'shell'
queue = 'q'
after = ['good']
retry = { max_attempts = 1 }
command = '[ -e repaired ] || { echo no part >&2; exit 1; }'
[[ops]]
id = 'below'
kind = 'shell'
after = ['bad']
command = 'echo done'
";
const OTHER: &str = "
name = 'other'
[[ops]]
id = 'a'
kind = 'shell'
retry = { max_attempts = 1 }
command = 'exit 3'
";

/// What is asked for in turn, and the exit code; `touch repaired` is the test's own.
const SESSION: &[(&str, i32)] = &[
    ("migrate", 0),
    ("migrate --json", 0),
    ("status", 0),
    ("list", 0),
    ("show w", 2),
    ("run w.toml --id w1", 1),
    ("run w.toml --id w1", 1),
    ("run other.toml --id o1 --json", 1),
    ("status", 0),
    ("status --json", 0),
    ("list", 0),
    ("list --json --status failed", 0),
    ("list --ids", 0),
    ("list --name other", 0),
    ("show w", 0),
    ("show w --json", 0),
    ("show w --op bad", 0),
    ("show w --op bad --json", 0),
    ("show w --output good", 0),
    ("show w --artifact good/a.txt", 0),
    ("show w --op none", 2),
    ("retry w none", 2),
    ("retry w good", 1),
    ("retry w bad --by ann --reason part", 0),
    ("touch repaired", 0),
    ("run w.toml --id w1", 0),
    ("run --resume w1", 0),
    ("retry w", 1),
    ("cancel w", 1),
    ("cancel o1 --by ann", 0),
    ("cancel o1", 0),
    ("retry other", 1),
    ("show o1", 0),
    ("show w --op bad", 0),
    ("list", 0),
    ("status", 0),
    ("clock status", 0),
    ("clock status --json", 0),
    ("clock trust --by ann --reason checked", 0),
    ("clock trust --json", 0),
    ("clock", 2),
];

/// What differs for good reason, and what stands for it.
static DIFFERS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", "TIME"),
        (r"\b\d+(\.\d+)?( ?(µs|us|ms|s|min|m|h))\b( \d+ (ms|s))?", "DURATION"),
        (r#"("(run_time|duration|elapsed|queue_wait)[a-z_]*": ?)[0-9.]+"#, "${1}DURATION"),
        (r#"("(seq|key|pid|event|tokens)[a-z_]*": ?)-?[0-9]+"#, "${1}NUMBER"),
        (r#"leasehold/[^/ "]+/\d+"#, "WORKER"),
        // A word with a `&` in it is quoted where a command is suggested.
        ("'STORE'", "STORE"),
        // How far it was when somebody looked.
        (r"(?m)^\d+/\d+ succeeded, .*\n", ""),
        (r#"("(backend|version)": ?)"[^"]*""#, "${1}BACKEND"),
        (r" +", " "),
        (r"─+|-{3,}", "LINE"),
    ]
    .map(|(pattern, stands)| (Regex::new(pattern).unwrap(), stands))
    .into_iter()
    .collect()
});

/// The same text with nothing in it that may differ. `places` are where the store is, as it may be shown.
fn normalised(text: &str, places: &[&str]) -> String {
    let mut text = text.to_owned();
    for place in places {
        text = text.replace(place, "STORE");
    }
    for (pattern, stands) in DIFFERS.iter() {
        text = pattern.replace_all(&text, *stands).into_owned();
    }
    text
}

/// A folder with the files, and a store.
struct Side {
    sandbox: Sandbox,
    store: String,
    location: String,
    describes: &'static str,
    /// Dropped last.
    _schema: Option<TestSchema>,
}

impl Side {
    fn sqlite() -> Self {
        Self::new("sqlite:work.db".to_owned(), "work.db".to_owned(), r"sqlite \d[0-9.]*", None)
    }
    fn postgres() -> Self {
        let schema = TestSchema::new().unwrap();
        let url = schema.url();
        let location = location(&url);
        Self::new(url, location, r"postgres \d[0-9.]*( \([^)]*\))?", Some(schema))
    }
    fn new(store: String, location: String, describes: &'static str, schema: Option<TestSchema>) -> Self {
        let sandbox = Sandbox::with(W);
        sandbox.write("other.toml", OTHER);
        Self { sandbox, store, location, describes, _schema: schema }
    }

    /// Runs one command line; its exit code, and what it printed with nothing in it that may differ.
    fn run(&self, line: &str) -> (Option<i32>, String, String) {
        if let Some(file) = line.strip_prefix("touch ") {
            self.sandbox.write(file, "");
            return (Some(0), String::new(), String::new());
        }
        let arguments: Vec<&str> = line.split(' ').chain(["--store", &self.store]).collect();
        let Done { code, stdout, stderr } = self.sandbox.leasehold(&arguments);
        (code, self.normalised(&stdout), self.normalised(&stderr))
    }

    fn normalised(&self, text: &str) -> String {
        let text = normalised(text, &[&self.store, &shown(&self.store), &self.location]);
        Regex::new(self.describes).unwrap().replace_all(&text, "BACKEND").into_owned()
    }
}

/// The URL as the program shows it: without its password, if it has one.
fn shown(url: &str) -> String {
    Regex::new("(://[^:/@]+):[^@]*@").unwrap().replace(url, "$1:***@").into_owned()
}

/// Where a store on Postgres says that it is.
fn location(url: &str) -> String {
    leasehold::store::Store::describe(&leasehold_postgres::PostgresStore::connect(url).unwrap()).unwrap().location
}

#[test]
fn every_command_says_the_same_on_sqlite_and_on_postgres() {
    let (sqlite, postgres) = (Side::sqlite(), Side::postgres());
    let mut wrong = Vec::new();
    for (line, code) in SESSION {
        let (here, there) = (sqlite.run(line), postgres.run(line));
        if here.0 != Some(*code) || here != there {
            wrong.push(format!("leasehold {line} ({code})\non SQLite   {here:#?}\non Postgres {there:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn killed_on_postgres_and_run_again_it_goes_on() {
    let schema = TestSchema::new().unwrap();
    let sandbox = Sandbox::with(
        "name = 'w'
         [[ops]]
         id = 'first'
         kind = 'shell'
         command = 'echo first >> log'
         [[ops]]
         id = 'a'
         kind = 'shell'
         after = ['first']
         command = 'echo $$ > a.pid; while ! [ -e go ]; do sleep 0.05; done; echo a >> log'",
    );
    let url = schema.url();
    let run = ["run", "w.toml", "--lease", "2s", "--store", &url];
    let running = sandbox.spawn(&run);
    sandbox.until_file("a.pid");
    let orphan = sandbox.read("a.pid");
    running.signal("KILL");
    assert_eq!(running.end().code, None);
    until("the guard stops the processes of the killed run", || !runs(&orphan));
    sandbox.write("go", "");
    sandbox.leasehold(&run).ok().says("going on; 1 of 2 ops are done").says("waiting for 1 op leased by a process that is gone");
    assert_eq!(sandbox.read("log"), "first\na\n");
    let op = sandbox.leasehold(&["show", "w", "--op", "a", "--json", "--store", &url]).ok().json();
    let outcomes: Vec<&str> = op["attempts"].as_array().unwrap().iter().map(|attempt| attempt["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["abandoned", "succeeded"]);
}

#[test]
fn a_store_on_postgres_that_is_not_there_or_cannot_be_reached_is_told_by_the_exit_code() {
    let schema = TestSchema::new().unwrap();
    let sandbox = Sandbox::with(W);
    let url = schema.url();
    for command in ["status", "list", "show w", "retry w", "cancel w", "clock status", "clock trust"] {
        let arguments: Vec<&str> = command.split(' ').chain(["--store", &url]).collect();
        sandbox.leasehold(&arguments).code(8);
    }
    let done = sandbox.leasehold(&["status", "--store", "postgres://me:s3cret@127.0.0.1:1/db"]).code(4);
    assert!(!done.stderr.contains("s3cret"), "{}", done.stderr);
}
