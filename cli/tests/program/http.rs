//! What http ops do, against a server of the test's own.

use crate::sandbox::Sandbox;
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it arrived.
#[derive(Debug, Clone, Default)]
struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Answers each request by its path, and keeps what it saw.
struct Server {
    address: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    if let Some(request) = read(&stream) {
                        let earlier = {
                            let mut kept = kept.lock().unwrap();
                            kept.push(request.clone());
                            kept.iter().filter(|other| other.line == request.line).count() - 1
                        };
                        answer(stream, &request, earlier);
                    }
                });
            }
        });
        Self { address, seen }
    }
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
    fn seen(&self, path: &str) -> Vec<Request> {
        self.seen.lock().unwrap().iter().filter(|request| request.line.split(' ').nth(1) == Some(path)).cloned().collect()
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut request = Request::default();
    reader.read_line(&mut request.line).ok().filter(|count| *count > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        request.headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).unwrap();
    Some(request)
}

fn answer(mut stream: TcpStream, request: &Request, earlier: usize) {
    let mut words = request.line.split(' ');
    let (_, path) = (words.next(), words.next().unwrap());
    let (status, headers, body): (&str, String, Vec<u8>) = match (path, earlier) {
        ("/busy", 0) => ("503 Service Unavailable", "Retry-After: 1\r\n".into(), b"later".to_vec()),
        ("/limited", 0) => ("429 Too Many Requests", String::new(), b"slow".to_vec()),
        ("/missing", _) => ("404 Not Found", "Content-Type: text/plain\r\n".into(), b"no such page".to_vec()),
        ("/moved", _) => ("302 Found", "Location: /hello\r\n".into(), Vec::new()),
        ("/cut", 0) => return,
        ("/large", _) => ("200 OK", String::new(), vec![b'x'; 100_000]),
        ("/bytes", _) => ("200 OK", String::new(), b"a\xff\0".to_vec()),
        ("/hang", _) => {
            // Answers nothing until the client goes away.
            let _ = stream.read(&mut [0]);
            return;
        }
        _ => ("200 OK", "Content-Type: text/plain\r\n".into(), b"hello".to_vec()),
    };
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(&[head.as_bytes(), &body].concat());
}

fn op(id: &str, url: &str, rest: &str) -> String {
    format!("[[ops]]\nid = '{id}'\nkind = 'http'\nurl = '{url}'\nretry = {{ max_attempts = 3, base = '1ms', jitter = 'none' }}\n{rest}\n")
}
fn file(ops: &[String]) -> Sandbox {
    Sandbox::with(&format!("name = 'w'\n{}", ops.concat()))
}

#[test]
fn the_result_is_the_answer() {
    let server = Server::start();
    let sandbox = file(&[op("a", &server.url("/hello"), "")]);
    sandbox.run().ok();
    let expected = json!({
        "status": 200, "url": server.url("/hello"), "content_type": "text/plain", "body": "hello", "truncated": false, "lossy": false,
    });
    assert_eq!(sandbox.op("a")["op"]["result"], expected);
    assert_eq!(sandbox.leasehold(&["show", "w", "--output", "a"]).ok().stdout, "hello");
}

#[test]
fn method_headers_and_body_are_sent_with_an_idempotency_key() {
    let server = Server::start();
    let sandbox = file(&[
        op(
            "put",
            &server.url("/put"),
            "method = 'PUT'\nbody = 'text ü'\nheaders = { X-Own = 'a b', Authorization = { env = 'TOKEN', prefix = 'Bearer ' } }",
        ),
        op("json", &server.url("/json"), "method = 'POST'\njson = { n = 5 }"),
        "[[ops]]\nid = 'made'\nkind = 'shell'\ncommand = 'printf made'\n".to_owned(),
        op("from", &server.url("/from"), "method = 'POST'\nbody_from = 'made'\nafter = ['made']"),
    ]);
    let output = sandbox.command(&["run", "w.toml"]).env("TOKEN", "s3cret").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let only = |path: &str| server.seen(path).pop().unwrap();
    let put = only("/put");
    assert_eq!((put.line.trim_end(), put.body.as_str()), ("PUT /put HTTP/1.1", "text ü"));
    assert_eq!((put.header("x-own"), put.header("authorization")), (Some("a b"), Some("Bearer s3cret")));
    assert_eq!(put.header("idempotency-key").unwrap().len(), 64);
    assert_ne!(put.header("idempotency-key"), only("/json").header("idempotency-key"));
    assert_eq!((only("/json").body.as_str(), only("/json").header("content-type")), (r#"{"n":5}"#, Some("application/json")));
    assert_eq!(only("/from").body, "made");
    let stored = sandbox.leasehold(&["show", "w", "--json"]).ok().stdout;
    assert!(!stored.contains("s3cret"), "what comes from the environment is not stored");
}

#[test]
fn a_variable_that_is_not_set_fails_the_op_for_good() {
    let server = Server::start();
    let sandbox = file(&[op("a", &server.url("/hello"), "headers = { Authorization = { env = 'NO_SUCH_TOKEN' } }")]);
    sandbox.run().code(1).says("NO_SUCH_TOKEN");
    assert!(server.seen("/hello").is_empty());
    assert_eq!(sandbox.op("a")["attempts"].as_array().unwrap().len(), 1);
}

#[test]
fn busy_servers_and_cut_connections_are_tried_again_with_the_same_key() {
    let server = Server::start();
    let sandbox =
        file(&[op("busy", &server.url("/busy"), ""), op("limited", &server.url("/limited"), ""), op("cut", &server.url("/cut"), "")]);
    sandbox.run().ok();
    for path in ["/busy", "/limited", "/cut"] {
        let seen = server.seen(path);
        assert_eq!(seen.len(), 2, "{path}");
        assert_eq!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
    }
    let attempts = sandbox.op("busy")["attempts"].as_array().unwrap().clone();
    let at = |attempt: usize, what: &str| leasehold_at(attempts[attempt][what].as_str().unwrap());
    assert!(at(1, "acquired_at") - at(0, "ended_at") >= 1_000_000, "Retry-After: 1 is honoured although the policy says 1 ms");
}

fn leasehold_at(text: &str) -> i64 {
    leasehold::model::Timestamp::parse(text).unwrap().as_micros()
}

#[test]
fn an_unexpected_status_fails_for_good_and_keeps_what_the_server_said() {
    let server = Server::start();
    let sandbox = file(&[op("a", &server.url("/missing"), "")]);
    sandbox.run().code(1).says("answered 404");
    assert_eq!(server.seen("/missing").len(), 1);
    let details = &sandbox.op("a")["op"]["error"]["details"];
    assert_eq!((&details["status"], &details["body"]), (&json!(404), &json!("no such page")));
}

#[test]
fn an_expected_status_is_a_success_whatever_it_is() {
    let server = Server::start();
    let sandbox = file(&[
        op("missing", &server.url("/missing"), "expect = [404]"),
        op("followed", &server.url("/moved"), ""),
        op("seen", &server.url("/moved"), "expect = ['300-399']"),
    ]);
    sandbox.run().ok();
    assert_eq!(sandbox.op("missing")["op"]["result"]["status"], 404);
    assert_eq!(sandbox.op("followed")["op"]["result"]["url"], server.url("/hello"));
    assert_eq!(sandbox.op("seen")["op"]["result"]["status"], 302);
}

#[test]
fn long_answers_are_cut_and_bytes_that_are_no_text_are_replaced_and_both_are_flagged() {
    let server = Server::start();
    let sandbox = file(&[op("large", &server.url("/large"), "output_limit = 1000"), op("bytes", &server.url("/bytes"), "")]);
    sandbox.run().ok();
    let large = &sandbox.op("large")["op"]["result"];
    assert_eq!((large["body"].as_str().unwrap().len(), &large["truncated"]), (1000, &json!(true)));
    let bytes = &sandbox.op("bytes")["op"]["result"];
    assert_eq!((bytes["body"].as_str().unwrap(), &bytes["lossy"]), ("a\u{fffd}\u{fffd}", &json!(true)));
}

#[test]
fn a_server_that_is_not_there_is_tried_again_and_then_told() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sandbox = file(&[op("a", &format!("http://{address}/"), "")]);
    sandbox.run().code(1).says("no connection");
    assert_eq!(sandbox.op("a")["attempts"].as_array().unwrap().len(), 3);
}

#[test]
fn a_server_that_never_answers_meets_the_time_limit() {
    let server = Server::start();
    let sandbox = file(&[op("a", &server.url("/hang"), "time_limit = '300ms'").replace("max_attempts = 3", "max_attempts = 1")]);
    sandbox.run().code(1);
    assert_eq!(sandbox.op("a")["op"]["error"]["code"], "timed_out");
}
