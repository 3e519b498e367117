//! A web service that misbehaves as it is told: raw bytes on a loopback port, and what it saw.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Longer than anything here takes; a wait that ends with it has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Their names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// What follows the bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// The next request.
    Keep,
    Close,
    Reset,
    /// Nothing, until the other side goes.
    Hang,
    /// As many bytes as the other side takes.
    Flood,
    /// A byte every few milliseconds.
    Drip,
}

type Script = Arc<dyn Fn(&Seen, usize) -> (String, Then) + Send + Sync>;

#[derive(Default)]
struct Counted {
    seen: Mutex<Vec<Seen>>,
    asked: watch::Sender<usize>,
    connections: AtomicUsize,
    flooded: AtomicU64,
    /// Connections that the other side ended.
    left: watch::Sender<usize>,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    counted: Arc<Counted>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// The script gets a request, and how many there were before.
    pub(crate) async fn start(
        script: impl Fn(&Seen, usize) -> (String, Then) + Send + Sync + 'static,
    ) -> Self {
        Self::listen(None, Arc::new(script)).await
    }

    pub(crate) async fn start_tls(
        tls: TlsAcceptor,
        script: impl Fn(&Seen, usize) -> (String, Then) + Send + Sync + 'static,
    ) -> Self {
        Self::listen(Some(tls), Arc::new(script)).await
    }

    /// The same answer to everybody.
    pub(crate) async fn answering(status: &str, body: &str) -> Self {
        let answer = answer(status, "", body);
        Self::start(move |_, _| (answer.clone(), Then::Keep)).await
    }

    async fn listen(tls: Option<TlsAcceptor>, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let counted = Arc::new(Counted::default());
        let ours = Arc::clone(&counted);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                ours.connections.fetch_add(1, Ordering::SeqCst);
                let (script, counted, tls) = (Arc::clone(&script), Arc::clone(&ours), tls.clone());
                tokio::spawn(async move {
                    let reset = match tls {
                        None => plain(stream, &script, &counted).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(mut stream) => serve(&mut stream, &script, &counted).await,
                            Err(_) => false,
                        },
                    };
                    if !reset {
                        counted.left.send_modify(|left| *left += 1);
                    }
                });
            }
        });
        Self { address, counted, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.counted.seen.lock().expect("unpoisoned").clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.counted.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn flooded(&self) -> u64 {
        self.counted.flooded.load(Ordering::SeqCst)
    }

    /// Until the other side has ended a connection.
    pub(crate) async fn left(&self) {
        once(&self.counted.left).await;
    }

    /// Until a request has come.
    pub(crate) async fn asked(&self) {
        once(&self.counted.asked).await;
    }
}

async fn once(counter: &watch::Sender<usize>) {
    let mut counter = counter.subscribe();
    let waited = tokio::time::timeout(LONG, counter.wait_for(|count| *count > 0)).await;
    waited.expect("in time").expect("the server is there");
}

async fn plain(mut stream: TcpStream, script: &Script, counted: &Counted) -> bool {
    let reset = serve(&mut stream, script, counted).await;
    if reset {
        stream.set_zero_linger().expect("a socket");
    }
    reset
}

/// True: the connection is to be reset.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    script: &Script,
    counted: &Counted,
) -> bool {
    while let Some(seen) = read_request(stream).await {
        let (bytes, then) = {
            let mut all = counted.seen.lock().expect("unpoisoned");
            all.push(seen.clone());
            script(&seen, all.len() - 1)
        };
        counted.asked.send_modify(|asked| *asked += 1);
        if stream.write_all(bytes.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return false;
        }
        match then {
            Then::Keep => {}
            Then::Close => {
                let _ = stream.shutdown().await;
                return false;
            }
            Then::Reset => return true,
            Then::Hang => {
                let _ = stream.read(&mut [0; 64]).await;
                return false;
            }
            Then::Flood => {
                let chunk = vec![b'x'; 64 << 10];
                while stream.write_all(&chunk).await.is_ok() {
                    counted.flooded.fetch_add(chunk.len() as u64, Ordering::SeqCst);
                }
                return false;
            }
            Then::Drip => {
                while stream.write_all(b"x").await.is_ok() && stream.flush().await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                return false;
            }
        }
    }
    false
}

async fn read_request<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).expect("a head in ASCII");
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").map_or(0, |text| text.parse().expect("a length"));
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(bytes.split_off(end + 4)).expect("a body in UTF-8");
    Some(Seen { method, target, headers, body })
}

/// `headers`: lines, each with its end.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}
