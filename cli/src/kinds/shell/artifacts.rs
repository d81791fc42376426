//! Files that a command leaves behind, as artifacts of its op.

use super::input::ShellInput;
use crate::kinds::failure::Failure;
use leasehold::model::{Artifact, ArtifactKind, ArtifactName, Json, Limits};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// More files than this in one op are a mistake; they are stored in one transaction.
const MAX_ARTIFACTS: usize = 1_000;

/// Reads everything in `folder`, and the files that `input` lists.
pub(super) async fn collect(folder: &Path, input: &ShellInput) -> Result<Vec<Artifact>, Failure> {
    let (folder, listed, cwd) = (folder.to_owned(), input.artifacts.clone(), input.cwd.clone());
    let collected = tokio::task::spawn_blocking(move || {
        let mut files = BTreeMap::new();
        walk(&folder, "", &mut files)?;
        for path in listed {
            let full = cwd.as_ref().map_or_else(|| PathBuf::from(&path), |cwd| Path::new(cwd).join(&path));
            let name = full.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if files.insert(name.clone(), full).is_some() {
                return Err(refused(&format!("two artifacts are called {name:?}")));
            }
        }
        if files.len() > MAX_ARTIFACTS {
            return Err(refused(&format!("there are {} artifacts; an op may have {MAX_ARTIFACTS}", files.len())));
        }
        files.into_iter().map(|(name, path)| artifact(&name, &path)).collect()
    });
    collected.await.map_err(|error| Failure::retryable("artifact", error.to_string()))?
}

fn refused(message: &str) -> Failure {
    Failure::permanent("artifact", message)
}

/// Adds the files below `folder`, named by their way from there.
fn walk(folder: &Path, prefix: &str, files: &mut BTreeMap<String, PathBuf>) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| refused(&format!("the folder of artifacts cannot be read: {error}"));
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let file_name = entry.file_name();
        let name = file_name.to_str().ok_or_else(|| refused(&format!("the name of artifact {} is not UTF-8", file_name.display())))?;
        let name = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(unreadable)?;
        if kind.is_dir() {
            walk(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.insert(name, entry.path());
        }
        if files.len() > MAX_ARTIFACTS {
            return Err(refused(&format!("there are more than {MAX_ARTIFACTS} artifacts")));
        }
    }
    Ok(())
}

fn artifact(name: &str, path: &Path) -> Result<Artifact, Failure> {
    let limit = Limits::default().artifact_bytes;
    let unreadable = |error: std::io::Error| refused(&format!("artifact {name:?} ({}) cannot be read: {error}", path.display()));
    let found = std::fs::metadata(path).map_err(unreadable)?;
    if !found.is_file() {
        return Err(refused(&format!("artifact {name:?} ({}) is not a file", path.display())));
    }
    if usize::try_from(found.len()).map_or(true, |size| size > limit) {
        return Err(refused(&format!("artifact {name:?} has {} bytes, over the limit of {limit}", found.len())));
    }
    let content = std::fs::read(path).map_err(unreadable)?;
    let (kind, content_type) = describe(path, &content);
    let checked = ArtifactName::new(name).map_err(|error| refused(&error.to_string()))?;
    Ok(Artifact { name: checked, kind, content_type: content_type.to_owned(), metadata: Json::null(), content })
}

/// What a file is, by the end of its name, else by whether it is text.
fn describe(path: &Path, content: &[u8]) -> (ArtifactKind, &'static str) {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "txt" | "log" => (ArtifactKind::Text, "text/plain"),
        "md" => (ArtifactKind::Text, "text/markdown"),
        "csv" => (ArtifactKind::Text, "text/csv"),
        "html" => (ArtifactKind::Text, "text/html"),
        "json" => (ArtifactKind::Text, "application/json"),
        "png" => (ArtifactKind::Image, "image/png"),
        "jpg" | "jpeg" => (ArtifactKind::Image, "image/jpeg"),
        "svg" => (ArtifactKind::Image, "image/svg+xml"),
        "webp" => (ArtifactKind::Image, "image/webp"),
        "mp3" => (ArtifactKind::Audio, "audio/mpeg"),
        "wav" => (ArtifactKind::Audio, "audio/wav"),
        "ogg" => (ArtifactKind::Audio, "audio/ogg"),
        _ if !content.contains(&0) && std::str::from_utf8(content).is_ok() => (ArtifactKind::Text, "text/plain"),
        _ => (ArtifactKind::Binary, "application/octet-stream"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn input(artifacts: &[&str], cwd: &Path) -> ShellInput {
        serde_json::from_value(json!({"command": "true", "artifacts": artifacts, "cwd": cwd})).unwrap()
    }

    #[tokio::test]
    async fn files_in_the_folder_and_listed_ones_become_artifacts() {
        let folder = tempfile::tempdir().unwrap();
        let here = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        std::fs::write(folder.path().join("sub/a.png"), b"\x89PNG").unwrap();
        std::fs::write(folder.path().join("plain"), b"text").unwrap();
        std::fs::write(here.path().join("bytes"), b"\0\xff").unwrap();
        let artifacts = collect(folder.path(), &input(&["bytes"], here.path())).await.unwrap();
        let told: Vec<_> = artifacts.iter().map(|a| (a.name.as_str(), a.kind, a.content_type.as_str(), a.content.len())).collect();
        assert_eq!(
            told,
            [
                ("bytes", ArtifactKind::Binary, "application/octet-stream", 2),
                ("plain", ArtifactKind::Text, "text/plain", 4),
                ("sub/a.png", ArtifactKind::Image, "image/png", 4),
            ]
        );
    }

    #[tokio::test]
    async fn a_missing_a_doubled_and_a_large_file_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = async |input: ShellInput| collect(folder.path(), &input).await.unwrap_err().message;
        assert!(refusal(input(&["missing"], folder.path())).await.contains("\"missing\""));
        std::fs::write(folder.path().join("twice"), b"").unwrap();
        assert!(refusal(input(&["twice"], folder.path())).await.contains("two artifacts are called \"twice\""));
        let limit = Limits::default().artifact_bytes;
        std::fs::write(folder.path().join("large"), vec![b'x'; limit]).unwrap();
        assert_eq!(collect(folder.path(), &input(&[], folder.path())).await.unwrap().len(), 2);
        std::fs::write(folder.path().join("large"), vec![b'x'; limit + 1]).unwrap();
        assert!(refusal(input(&[], folder.path())).await.contains("over the limit"));
    }
}
