//! Something that listens and answers what it is told to: a proxy, a server with a bad day, or none.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

pub(crate) struct Fake {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// `answer`: to the request with that number, from 0; empty cuts the connection.
    pub(crate) fn new(answer: impl Fn(usize, &str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let request = read(&mut stream);
                let number = {
                    let mut seen = seen.lock().expect("nobody panics");
                    seen.push(request.clone());
                    seen.len() - 1
                };
                let _ = stream.write_all(answer(number, &request).as_bytes());
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        Self { url, requests }
    }

    pub(crate) fn always(response: String) -> Self {
        Self::new(move |_, _| response.clone())
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("nobody panics").clone()
    }
}

/// The head and the body, as text.
fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().filter_map(|line| line.split_once(": "));
            let mut length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = length.next().map_or(0, |(_, n)| n.parse().expect("a number"));
            if body.len() >= length {
                return text.into_owned();
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return text.into_owned(),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

pub(crate) fn response(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}

pub(crate) fn header<'a>(request: &'a str, name: &str) -> Option<&'a str> {
    let lines = request.lines().take_while(|line| !line.is_empty());
    let mut headers = lines.filter_map(|line| line.split_once(": "));
    headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
