//! Web services that this process calls for its job, and the port on which they call back.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_core::plan::{Action, HttpMode, Plan, Step};
use steadfast_engine::{Clock as _, Inbox};
use steadfast_server::callbacks::{CallbackHandler, CallbackTokens, CallbackUrls, Secrets};
use steadfast_server::clock::SystemClock;
use steadfast_server::queries::JobReader;
use steadfast_worker::OUTPUT_CAP;
use steadfast_worker::http::{Caller, Outbound};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::RunPlace;
use super::port::{callback_port, keep_callback_port};

/// How long the answer to a callback may take to be written, once there is nothing else to do.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Made before the controller is: nothing is called before it can call back.
#[derive(Debug)]
pub(super) struct Services {
    runtime: Runtime,
    caller: Caller,
    callbacks: Option<Callbacks>,
}

#[derive(Debug)]
struct Callbacks {
    listener: TcpListener,
    callback_tokens: CallbackTokens,
    reader: JobReader,
    addresses: CallbackUrls,
}

impl Services {
    /// None: nothing of the plan calls a service. `warn` is told what a person should know.
    pub(super) fn open(
        plan: &Plan,
        job: &str,
        outbound: &Outbound,
        place: &RunPlace,
        warn: impl FnOnce(&str),
    ) -> Result<Option<Self>, String> {
        let actions = plan.steps().iter().flat_map(Step::actions);
        let modes = actions.filter_map(|action| match action {
            Action::Http(http) => Some(http.mode),
            _ => None,
        });
        let modes: Vec<HttpMode> = modes.collect();
        if modes.is_empty() {
            return Ok(None);
        }
        // One alone has the other cores wait for it while it is busy with what has arrived.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("calls")
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start threads for calls: {error}"))?;
        steadfast_server::tls::use_ring();
        let caller = Caller::new(outbound).map_err(|error| error.to_string())?;
        let callbacks = modes.contains(&HttpMode::Async);
        let callbacks = callbacks.then(|| Callbacks::open(job, place, warn)).transpose()?;
        Ok(Some(Self { runtime, caller, callbacks }))
    }

    /// From now on services may call back.
    pub(super) fn begin(self, inbox: Inbox) -> (Calls, OpenServices) {
        let Self { runtime, caller, callbacks } = self;
        let mut server = None;
        let addresses = callbacks.map(|callbacks| {
            let Callbacks { listener, callback_tokens, reader, addresses } = callbacks;
            let (secrets, cap) = (Secrets::default(), OUTPUT_CAP as usize);
            let clock = Arc::new(|| SystemClock.now());
            let callbacks =
                CallbackHandler::new(callback_tokens, secrets, inbox, reader, cap, clock);
            let (close, closed) = oneshot::channel::<()>();
            let closing = async move { drop(closed.await) };
            let served = steadfast_server::http::serve_callbacks(listener, callbacks, closing);
            server = Some(CallbackServer { close, served: runtime.spawn(served) });
            addresses
        });
        let calls = Calls { caller, addresses };
        (calls, OpenServices(Arc::new(Mutex::new(Some((runtime, server))))))
    }
}

impl Callbacks {
    fn open(job: &str, place: &RunPlace, warn: impl FnOnce(&str)) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("cannot listen for callbacks: {error}");
        // The port that the job had before, if it is resumed: services know no other.
        let before = callback_port(&place.folder, job);
        let known = before.and_then(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
        if let (Some(port), None) = (before, &known) {
            warn(&format!(
                "port {port} is taken: services that were called before the interruption cannot call \
                 back, and their attempts will time out"
            ));
        }
        let any = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = known.map_or_else(any, Ok).map_err(wrong)?;
        listener.set_nonblocking(true).map_err(wrong)?;
        let address = listener.local_addr().map_err(wrong)?;
        keep_callback_port(&place.folder, job, address.port()).map_err(wrong)?;
        let callback_tokens = CallbackTokens::open(&*place.storage.settings()).map_err(wrong)?;
        let addresses = CallbackUrls::new(callback_tokens.clone(), &format!("http://{address}"));
        let reader =
            JobReader::open(place.storage.clone(), 1).map_err(|error| error.to_string())?;
        Ok(Self { listener, callback_tokens, reader, addresses })
    }
}

/// How services are called, and where they call back.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) caller: Caller,
    pub(super) addresses: Option<CallbackUrls>,
}

/// Through which callbacks come.
#[derive(Debug)]
struct CallbackServer {
    close: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

/// Until there is nothing more to call. Cheap to clone: all are the same.
#[derive(Clone, Debug)]
pub(super) struct OpenServices(Arc<Mutex<Option<Opened>>>);

/// What calls services, and what takes their callbacks.
type Opened = (Runtime, Option<CallbackServer>);

impl OpenServices {
    /// None: they are closed.
    pub(super) fn runtime(&self) -> Option<Handle> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().map(|(runtime, _)| runtime.handle().clone())
    }

    /// Nothing is called and no callback is taken any more. Who has ended the job by one still hears that
    /// it counted; a name that is still looked up is not waited for.
    pub(super) fn close(&self) {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((runtime, server)) = open else { return };
        if let Some(CallbackServer { close, served }) = server {
            drop(close);
            let _ = runtime.block_on(async { tokio::time::timeout(LAST_WORDS, served).await });
        }
        runtime.shutdown_background();
    }
}
