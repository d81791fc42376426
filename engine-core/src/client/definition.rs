//! Workflows that can be started by name (I5).

use super::{ClientError, InvalidSpec, Workflow, with_causes};
use crate::model::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

type Describe = dyn Fn(&Json) -> Result<Workflow, InvalidSpec> + Send + Sync;

/// A named function from a typed input to a workflow's first graph.
///
/// # Examples
/// ```
/// use leasehold_core::client::{Definition, Op, Workflow};
/// let definition = Definition::new("greet", |who: String| Workflow::new("greet").op(Op::new("greet", "greet").input(&who)))
///     .display_name("Greet somebody");
/// # let _ = definition;
/// ```
#[derive(Clone)]
pub struct Definition {
    info: DefinitionInfo,
    describe: Arc<Describe>,
}

/// What is told of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DefinitionInfo {
    /// What it is started by.
    pub name: String,
    /// What people read.
    pub display_name: String,
    /// The site of its workflows that name none.
    pub site: Option<String>,
}

impl Definition {
    /// The definition `name`. A workflow that has no input of its own gets the definition's.
    pub fn new<T, F>(name: impl Into<String>, function: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T) -> Workflow + Send + Sync + 'static,
    {
        let name = name.into();
        let info = DefinitionInfo { display_name: name.clone(), site: None, name };
        let label = info.name.clone();
        let describe = move |input: &Json| {
            let typed = input.decode().map_err(|error| {
                InvalidSpec::of_workflow(format!("the definition {label:?} does not take this input: {}", with_causes(&error)))
            })?;
            Ok(function(typed))
        };
        Self { info, describe: Arc::new(describe) }
    }

    /// The same with a name for people.
    #[must_use]
    pub fn display_name(mut self, display_name: impl Into<String>) -> Self {
        self.info.display_name = display_name.into();
        self
    }

    /// The same with a site for its workflows that name none.
    #[must_use]
    pub fn site(mut self, site: impl Into<String>) -> Self {
        self.info.site = Some(site.into());
        self
    }

    /// The name it is started by.
    pub fn name(&self) -> &str {
        &self.info.name
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("info", &self.info).finish_non_exhaustive()
    }
}

/// All definitions of an engine, by name.
#[derive(Debug, Default)]
pub(super) struct Definitions(BTreeMap<String, Definition>);

impl FromIterator<Definition> for Definitions {
    fn from_iter<I: IntoIterator<Item = Definition>>(definitions: I) -> Self {
        Self(definitions.into_iter().map(|definition| (definition.info.name.clone(), definition)).collect())
    }
}

impl Definitions {
    pub(super) fn list(&self) -> Vec<DefinitionInfo> {
        self.0.values().map(|definition| definition.info.clone()).collect()
    }

    /// The workflow that the definition `name` makes of `input`.
    pub(super) fn describe<T: Serialize + ?Sized>(&self, name: &str, input: &T) -> Result<Workflow, ClientError> {
        let Some(definition) = self.0.get(name) else {
            let known: Vec<&str> = self.0.keys().map(String::as_str).collect();
            let what = format!("there is no definition {name:?}; registered are: {}", known.join(", "));
            return Err(ClientError::NotFound { what });
        };
        let input = Json::encode(input).map_err(|error| InvalidSpec::of_workflow(with_causes(&error)))?;
        let workflow = (definition.describe)(&input)?;
        Ok(workflow.or_defaults(&input, definition.info.site.as_deref()))
    }
}
