//! Making the request, and judging the answer.

use super::input::{HeaderText, HttpInput, IDEMPOTENCY_KEY};
use crate::kinds::failure::Failure;
use crate::kinds::output::{Keep, Kept};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, SystemTime};

/// What an http op gives to whoever reads its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HttpOutput {
    /// The response's status.
    pub(crate) status: u16,
    /// The URL that answered, behind any redirects.
    pub(crate) url: String,
    /// The media type of the body.
    pub(crate) content_type: Option<String>,
    /// The body.
    pub(crate) body: String,
    /// Whether the body was longer.
    #[serde(default)]
    pub(crate) truncated: bool,
    /// Whether the body held bytes that are not text, which were replaced.
    #[serde(default)]
    pub(crate) lossy: bool,
}

/// A server that cannot be reached in this time is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// So much of an unexpected answer is kept with the error.
const ERROR_BODY_LIMIT: usize = 4 * 1024;

/// No answer holds an op for longer, whatever its `Retry-After` says.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// How many redirects are followed.
const REDIRECTS_MAX: usize = 10;

/// Makes requests; one for the whole program, so that connections are used again.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    following: Client,
    direct: Client,
}

impl Requester {
    /// Ready to make requests.
    pub(crate) fn new() -> Result<Self, reqwest::Error> {
        // Fails when one is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = |redirects| {
            let agent = concat!("leasehold/", env!("CARGO_PKG_VERSION"));
            Client::builder().user_agent(agent).connect_timeout(CONNECT_TIMEOUT).redirect(redirects).build()
        };
        Ok(Self { following: client(Policy::limited(REDIRECTS_MAX))?, direct: client(Policy::none())? })
    }

    /// Makes one attempt. `body` is what `body_from` gave.
    ///
    /// Dropping the future closes the connection; there is no time limit besides.
    pub(crate) async fn run(&self, input: &HttpInput, idempotency_key: &str, body: Option<String>) -> Result<HttpOutput, Failure> {
        let invalid = |message: String| Failure::permanent("bad_input", message);
        let client = if input.expects_redirect() { &self.direct } else { &self.following };
        let mut request = client.request(input.method().map_err(invalid)?, input.url().map_err(invalid)?);
        let mut headers = headers(input)?;
        headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_str(idempotency_key).map_err(|error| invalid(error.to_string()))?);
        if let Some(value) = &input.json {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            request = request.body(value.to_string());
        } else if let Some(text) = body.or_else(|| input.body.clone()) {
            request = request.body(text);
        }
        let response = request.headers(headers).send().await.map_err(|error| unreachable_server(&error))?;
        judge(input, response).await
    }
}

fn headers(input: &HttpInput) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in &input.headers {
        let refuse = |message: String| Failure::permanent("bad_header", format!("header {name:?}: {message}"));
        let key = HeaderName::try_from(name.as_str()).map_err(|error| refuse(error.to_string()))?;
        let text = match value {
            HeaderText::Text(text) => text.clone(),
            HeaderText::Env(from) => {
                let secret = std::env::var(&from.env).map_err(|_| {
                    let advice = "set it where leasehold is started, then retry";
                    let message = format!("header {name:?}: the environment has no variable {:?}: {advice}", from.env);
                    Failure::permanent("missing_variable", message)
                })?;
                format!("{}{secret}", from.prefix)
            }
        };
        let mut value = HeaderValue::try_from(text).map_err(|error| refuse(error.to_string()))?;
        value.set_sensitive(matches!(input.headers.get(name), Some(HeaderText::Env(_))));
        headers.insert(key, value);
    }
    Ok(headers)
}

async fn judge(input: &HttpInput, response: Response) -> Result<HttpOutput, Failure> {
    let status = response.status().as_u16();
    let expected = input.expects(status);
    let delay = retry_after(response.headers(), SystemTime::now());
    let url = without_password(response.url());
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let limit = if expected { input.output_limit() } else { ERROR_BODY_LIMIT };
    let body = match read_body(response, limit).await {
        Ok(body) => body,
        Err(error) if expected => return Err(unreachable_server(&error)),
        // The status alone decides; what could not be read would only have explained it.
        Err(_) => Kept::default(),
    };
    if expected {
        return Ok(HttpOutput { status, url, content_type, body: body.text, truncated: body.truncated, lossy: body.lossy });
    }
    let details = json!({"status": status, "url": url, "content_type": content_type, "body": body.text});
    let message = format!("{} {url} answered {status}", input.method.as_deref().unwrap_or("GET"));
    Err(match status {
        408 | 425 | 429 | 500..=599 => Failure::retryable("http_status", message).after(delay),
        _ => Failure::permanent("http_status", message),
    }
    .details(details))
}

async fn read_body(mut response: Response, limit: usize) -> Result<Kept, reqwest::Error> {
    let mut kept: Vec<u8> = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = limit.saturating_sub(kept.len());
        kept.extend(chunk.iter().take(room));
        if chunk.len() > room {
            return Ok(Kept::of(&kept, true, Keep::Head, limit));
        }
    }
    Ok(Kept::of(&kept, false, Keep::Head, limit))
}

/// The delay a server asks for: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let delay = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    (!delay.is_zero()).then(|| delay.min(RETRY_AFTER_MAX))
}

fn unreachable_server(error: &reqwest::Error) -> Failure {
    let mut message = error.url().map_or_else(String::new, |url| format!("{}: ", without_password(url)));
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    message.push_str(if error.is_connect() {
        "no connection"
    } else if error.is_timeout() {
        "no answer in time"
    } else {
        "the request failed"
    });
    while let Some(source) = cause {
        message = format!("{message}: {source}");
        cause = source.source();
    }
    if error.is_redirect() || error.is_builder() {
        Failure::permanent("http_request", message)
    } else {
        Failure::retryable("http_request", message)
    }
}

/// A URL as it may be shown and stored.
fn without_password(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    if url.password().is_some() {
        // Refused only for URLs without a host, which have no password.
        let _ = url.set_password(Some("***"));
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_ask_for_seconds_or_name_a_date() {
        let now = httpdate::parse_http_date("Wed, 21 Oct 2015 07:28:00 GMT").unwrap();
        let asked = |text: &'static str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]), now);
        assert_eq!(asked("120"), Some(Duration::from_mins(2)));
        assert_eq!(asked("Wed, 21 Oct 2015 07:29:30 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(asked("Wed, 21 Oct 2015 07:00:00 GMT"), None);
        assert_eq!(asked("0"), None);
        assert_eq!(asked("soon"), None);
        assert_eq!(asked("99999999999"), Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        let url = reqwest::Url::parse("http://user:secret@a/b").unwrap();
        assert_eq!(without_password(&url), "http://user:***@a/b");
    }

    #[test]
    fn a_client_is_built_without_any_certificates_at_hand() {
        assert!(Requester::new().is_ok());
    }
}
