//! Rows of an engine's store, as values that are written again.

/// The tables that a call to create workflows writes, in an order in which they can be written, and how their rows are
/// found in the order in which they were.
pub(crate) const CREATED: [(&str, &str); 7] = [
    ("gates", "ORDER BY key"),
    ("lanes", "ORDER BY key"),
    ("workflows", "ORDER BY seq"),
    ("ops", "ORDER BY seq"),
    ("op_dependencies", "ORDER BY child, parent"),
    ("ready", "ORDER BY op"),
    ("events", "WHERE kind = 'workflow_created' ORDER BY seq"),
];

/// Those whose rows are common to all calls: written with the first.
const ONCE: [&str; 2] = ["gates", "lanes"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Real,
    Text,
    Bytes,
}

#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Value>>,
}

/// Rows cut into what belongs to one call each.
#[derive(Debug)]
pub(crate) struct Batches(pub(crate) Vec<Vec<Table>>);

impl Batches {
    /// Cuts the rows of `count` equal calls apart; rows are in the order in which they were written.
    pub(crate) fn cut(tables: &[Table], count: usize) -> Self {
        let cut = |batch: usize| {
            tables.iter().filter_map(move |table| {
                let each = table.rows.len() / count.max(1);
                let rows = if ONCE.contains(&table.name.as_str()) {
                    if batch == 0 { table.rows.as_slice() } else { &[] }
                } else {
                    table.rows.chunks(each.max(1)).nth(batch).unwrap_or_default()
                };
                (!rows.is_empty()).then(|| Table { rows: rows.to_vec(), ..table.clone_head() })
            })
        };
        Self((0..count).map(|batch| cut(batch).collect()).collect())
    }
}

impl Table {
    fn clone_head(&self) -> Self {
        Self { name: self.name.clone(), columns: self.columns.clone(), rows: Vec::new() }
    }

    /// The names of its columns, as SQL lists them.
    pub(crate) fn names(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}
